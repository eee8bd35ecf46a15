// The operator's console: which event, which view, and the numbers that all views share.

import { ask } from './api.js';
import { every, isOver, make, write } from './dom.js';
import { Metrics } from './console-metrics.js';
import { Tally } from './console-tally.js';
import { salesView } from './console-sales.js';
import { seatsView } from './console-seats.js';
import { locksView } from './console-locks.js';
import { healthView } from './console-health.js';
import { rushView } from './console-rush.js';

const EVENTS_INTERVAL_MS = 2_000;
const PAGES_MAX = 10;

const at = (id) => document.getElementById(id);
const metrics = new Metrics();
const tally = new Tally();
const hasRush = document.documentElement.dataset.rush === 'ready';
const views = { sales: salesView, seats: seatsView, locks: locksView, health: healthView, ...(hasRush ? { rush: rushView } : {}) };
let view = null;
let events = [];
let pages = 1;

/** What every view is given. */
const desk = {
  metrics,
  tally,
  get events() {
    return events;
  },
  get event() {
    return at('event').value;
  },
  choose(id, then) {
    at('event').value = id;
    chosen();
    if (then) location.hash = then;
  },
  moreEvents() {
    pages = Math.min(pages + 1, PAGES_MAX);
    readEvents();
  },
  get hasMoreEvents() {
    return desk.more && pages < PAGES_MAX;
  },
  more: false,
  speak: (text) => write(at('speech'), text),
};

at('rush-tab').hidden = !hasRush;
window.addEventListener('hashchange', () => show(true));
at('event').addEventListener('change', () => chosen());
metrics.addEventListener('sample', () => {
  // The server may answer while the chosen event stands still: its stream is cut, or the ledger is gone.
  const isLive = metrics.reachable && tally.stale === null;
  at('connection').dataset.state = isLive ? 'live' : 'behind';
  write(at('connection-words'), isLive ? 'Live' : 'Behind');
  at('mixed').hidden = !metrics.isMixed;
  view?.sample?.();
});
tally.addEventListener('sample', () => view?.tally?.());
metrics.start();
tally.start();
readEvents().then(() => show(false));
every(EVENTS_INTERVAL_MS, readEvents);

function show(moved) {
  const name = views[location.hash.slice(1)] ? location.hash.slice(1) : 'sales';
  for (const link of document.querySelectorAll('.tabs a')) {
    if (link.hash === `#${name}`) {
      link.setAttribute('aria-current', 'page');
      link.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    } else link.removeAttribute('aria-current');
  }
  view?.leave?.();
  view = views[name](desk);
  at('view').replaceChildren(...view.elements);
  at('view').dataset.showing = name;
  if (moved) {
    window.scrollTo(0, 0);
    at('view').focus({ preventScroll: true });
  }
}

async function readEvents() {
  const found = [];
  let after = '';
  try {
    for (let page = 0; page < pages; page += 1) {
      const { body } = await ask(`/v1/events?limit=100${after === '' ? '' : `&after=${after}`}`);
      found.push(...body.events);
      desk.more = body.next !== undefined;
      if (!desk.more) break;
      after = body.next;
    }
  } catch {
    return;
  }
  events = found;
  list();
  view?.events?.();
}

/** The events to choose from. A list that is open under the pointer is left alone. */
function list() {
  const select = at('event');
  if (document.activeElement === select && select.options.length > 0) return;
  const before = select.value;
  const option = ({ id, name }) => make('option', { value: id }, name === id ? id : `${name} (${id})`);
  const [current, over] = [events.filter((event) => !isOver(event)), events.filter(isOver)];
  const ids = [current, over].map((some) => some.map(({ id }) => id).join(' ')).join(' | ');
  if (select.dataset.listed !== ids) select.replaceChildren(...current.map(option), ...(over.length > 0 ? [make('optgroup', { label: 'Over' }, over.map(option))] : []));
  select.dataset.listed = ids;
  if (before !== '' && events.some(({ id }) => id === before)) select.value = before;
  if (before === '' && events.length > 0) chosen();
}

function chosen() {
  const id = at('event').value;
  at('shop').href = `/events/${id}`;
  tally.follow(id);
  view?.chosen?.();
}
