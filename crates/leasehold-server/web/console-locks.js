// Locks: who holds which name, for how long yet, with which fence, who waits, and how long leases should be.

import { ask } from './api.js';
import { clock, make, write } from './dom.js';

const INTERVAL_MS = 1_500;
const LOCKS_SHOWN_MAX = 200;
const CLASSES_MAX = 12;

export function locksView() {
  const prefix = make('input.input', { id: 'prefix', 'aria-label': 'Names that begin with', placeholder: 'Names that begin with', autocomplete: 'off', spellcheck: 'false', on: { input: () => read() } });
  const rows = make('tbody');
  const count = make('p.muted', {});
  const empty = make('p.empty', { hidden: true }, 'No lock is held. Take one with POST /v1/locks/{name}, or with leasehold run --lock.');
  const advice = make('tbody');
  const noAdvice = make('p.empty', {}, 'Advice appears when twenty locks of a class were given back through this server.');
  const guarantee = make('p.muted', {});
  let stopped = false;
  let reading = false;

  async function read() {
    if (stopped || reading) return;
    reading = true;
    try {
      const { body } = await ask(`/v1/locks?limit=${LOCKS_SHOWN_MAX}${prefix.value === '' ? '' : `&prefix=${encodeURIComponent(prefix.value)}`}`);
      if (!stopped) await show(body);
    } catch (problem) {
      write(count, `The store of the locks does not answer: ${problem.document?.title ?? problem.message}.`);
    } finally {
      reading = false;
    }
  }

  async function show({ locks, next }) {
    write(count, next ? `The first ${locks.length}.` : `${locks.length} held.`);
    empty.hidden = locks.length > 0;
    if (locks.length > 0) write(guarantee, `This store’s grants are “${locks[0].guarantee}”.`);
    locks.sort((one, other) => (one.name < other.name ? -1 : 1));
    rows.replaceChildren(...locks.map((lock) => {
      const late = lock.remaining_ms !== undefined && lock.remaining_ms < 1_000;
      return make('tr', {}, make('th', { scope: 'row' }, lock.name), make('td', {}, lock.label ?? '–'), make('td.number.figures', {}, lock.age_ms === undefined ? '–' : clock(lock.age_ms)), make('td', { class: `number figures${late ? ' late' : ''}` }, lock.remaining_ms === undefined ? 'no end' : clock(lock.remaining_ms)), make('td.number.figures', {}, lock.fence ?? '–'), make('td.number.figures', {}, lock.waiters));
    }));
    await advise(locks);
  }

  /** One question for each class of names; all locks of a class have the same advice. */
  async function advise(locks) {
    const classes = new Map(locks.map((lock) => [lock.name.split(':')[0], lock.name]));
    const found = [];
    for (const name of [...classes.values()].slice(0, CLASSES_MAX)) {
      const { body } = await ask(`/v1/locks/${encodeURIComponent(name)}`);
      if (body.advice) found.push(body.advice);
    }
    noAdvice.hidden = found.length > 0;
    advice.replaceChildren(...found.map((one) => make('tr', {}, make('th', { scope: 'row' }, one.class), make('td.number.figures', {}, `${one.hold_p99_ms.toLocaleString('en')} ms`), make('td.number.figures', {}, `${one.ttl_ms.toLocaleString('en')} ms`), make('td.number.figures', {}, one.samples.toLocaleString('en')))));
  }

  const timer = setInterval(() => document.hidden || read(), INTERVAL_MS);
  read();
  const head = (names, from) => make('thead', {}, make('tr', {}, names.map((name, place) => make('th', { scope: 'col', class: place >= from ? 'number' : null }, name))));
  return {
    elements: [
      make('h2.unseen', {}, 'Locks'),
      make('section.card', {}, make('div.head', {}, make('h3', {}, 'Held right now'), count), make('div.find', {}, prefix), empty, make('div.scroll', { tabindex: '0', role: 'region', 'aria-label': 'Locks' }, make('table', { id: 'locks' }, head(['Name', 'Owner', 'Held for', 'Left', 'Fence', 'Waiting'], 2), rows)), guarantee),
      make('section.card', {}, make('h3', {}, 'How long leases should be'), noAdvice, make('div.scroll', { tabindex: '0', role: 'region', 'aria-label': 'Advice' }, make('table', {}, head(['Class', '99 of 100 held for', 'Advised TTL', 'Measured'], 1), advice))),
    ],
    leave: () => {
      stopped = true;
      clearInterval(timer);
    },
  };
}
