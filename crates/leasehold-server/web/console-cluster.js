// The parts of a cluster: its ledger and gate in plain words, and the servers on it, also those that went.

import { make, plural, write } from './dom.js';
import { time } from './log-words.js';

const ANSWER_MAX_MS = 5_000;
/** A server that works asks the ledger all the time. */
const QUIET_MAX_MS = 5_000;

const number = (value) => value.toLocaleString('en');

/** What a counter is called, how its value is said, and when it is worth a second look. Others are shown by their names. */
const WORDS = {
  leasehold_ledger_up: ['Ledger', (value) => (value === 1 ? 'Answers' : 'Does not answer'), (value) => value !== 1],
  leasehold_ledger_behind_seconds: ['What readers see', (value) => (value < 1 ? 'Current' : `${plural(Math.round(value), 'second')} old`), (value) => value >= 1],
  leasehold_ledger_lost_total: ['Times the ledger stopped answering', number, (value) => value > 0],
  leasehold_ledger_connections_total: ['Connections made to the ledger', number],
  leasehold_ledger_tried_again_total: ['Transactions tried again', number],
  leasehold_ledger_in_doubt_total: ['Commits that were not answered', number, (value) => value > 0],
};

/** Servers seen since this page was opened: `{id, replica, goneAt}` by id. */
const seen = new Map();

export function clusterView() {
  const numbers = make('dl.numbers');
  const rows = make('tbody');
  const unknown = make('p.empty', { id: 'replicas-unknown', hidden: true }, 'The ledger does not answer, so who is there is not known.');
  const card = make('section.card', { id: 'cluster', hidden: true }, make('h3', {}, 'Ledger, gate and replicas'), numbers, make('h3', {}, 'Servers on this ledger'), unknown, make('div.scroll', { tabindex: '0', role: 'region', 'aria-label': 'Servers on this ledger' }, make('table', { id: 'replicas' }, make('thead', {}, make('tr', {}, ['Address', 'Version', 'State', 'Name'].map((name) => make('th', { scope: 'col' }, name)))), rows)));

  /** What the server counts of them: nothing, unless it is on a ledger. */
  function sample(metrics) {
    const found = ['leasehold_ledger_', 'leasehold_gate_', 'leasehold_replica'].flatMap((start) => metrics.beginningWith(start));
    card.hidden = found.length === 0;
    numbers.replaceChildren(...found.flatMap(([key, value]) => {
      const [name, say, isBad] = WORDS[key] ?? [key.replace(/^leasehold_/, '').replace(/_total$/, '').replaceAll('_', ' '), number];
      return [make('dt', {}, name), make('dd', { class: isBad?.(value) ? 'figures late' : 'figures', 'data-of': key }, say(value))];
    }));
  }

  async function read() {
    if (card.hidden) return;
    try {
      const response = await fetch('/v1/operator/replicas', { cache: 'no-store', signal: AbortSignal.timeout(ANSWER_MAX_MS) });
      if (!response.ok) throw response.status;
      note((await response.json()).replicas);
      unknown.hidden = true;
    } catch {
      unknown.hidden = false;
    }
    const all = [...seen.values()].sort((one, other) => address(one.replica).localeCompare(address(other.replica)));
    rows.replaceChildren(...all.map(row));
  }

  return { element: card, sample, read };
}

function note(replicas) {
  const here = new Set(replicas.map(({ id }) => id));
  for (const replica of replicas) {
    seen.set(replica.id, { replica, goneAt: null });
    // One that came back under another name stands in its own place.
    for (const [id, one] of seen) if (!here.has(id) && address(one.replica) === address(replica)) seen.delete(id);
  }
  for (const [id, one] of seen) if (!here.has(id)) one.goneAt ??= new Date().toISOString();
}

function row({ replica, goneAt }) {
  const quiet = (replica.quiet_ms ?? 0) > QUIET_MAX_MS;
  const state = make('span', { class: `state ${goneAt === null && !quiet ? 'open' : 'late'}` });
  write(state, goneAt !== null ? `Gone since ${time(goneAt)}` : quiet ? `Silent for ${plural(Math.round(replica.quiet_ms / 1000), 'second')}` : replica.is_this ? 'This server' : 'Works');
  return make('tr', {}, make('th', { scope: 'row' }, address(replica)), make('td', {}, replica.version), make('td', {}, state), make('td', {}, replica.id));
}

function address({ listens_on: listens = 'unknown', connects_from: from }) {
  // Where it listens says little when that is everywhere.
  return from !== undefined && /^(0\.0\.0\.0|\[::\]):/.test(listens) ? listens.replace(/^(0\.0\.0\.0|\[::\])/, from) : listens;
}
