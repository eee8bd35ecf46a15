// The parts of a cluster: its ledger and gate in plain words, and the servers on it, also those that went.

import { make, plural, write } from './dom.js';
import { time } from './log-words.js';

const ANSWER_MAX_MS = 5_000;
/** A server that works asks the ledger all the time. */
const QUIET_MAX_MS = 5_000;

const number = (value) => value.toLocaleString('en');
const isSome = (value) => value > 0;

/** What a counter is called, how its value is said, and when it is worth a second look. Others are shown by their names. */
const WORDS = {
  leasehold_ledger_behind_seconds: ['What readers see', (value) => (value < 1 ? 'Current' : `${plural(Math.round(value), 'second')} old`), (value) => value >= 1],
  leasehold_ledger_lost_total: ['Times it stopped answering', number, isSome],
  leasehold_ledger_connections_total: ['Connections made', number],
  leasehold_ledger_tried_again_total: ['Transactions tried again', number],
  leasehold_ledger_in_doubt_total: ['Commits that were not answered', number, isSome],
  leasehold_gate_refused_total: ['Holds turned away', number],
  leasehold_gate_admitted_total: ['Holds let through to the ledger', number],
  leasehold_gate_failures_total: ['Calls that failed', number, isSome],
  leasehold_gate_rebuilt_total: ['Sections it was told anew', number],
};

/** Servers seen since this page was opened: `{id, replica, goneAt}` by id. */
const seen = new Map();

export function clusterView() {
  const ledger = part('ledger', 'Ledger', 'Answers', 'Does not answer');
  const gate = part('gate', 'Gate', 'Turns losers away', 'Left out, the ledger decides alone');
  const rows = make('tbody');
  const unknown = make('p.empty', { id: 'replicas-unknown', hidden: true }, 'The ledger does not answer, so who is there is not known.');
  const servers = make('section.card', { hidden: true }, make('h3', {}, 'Servers on this ledger'), unknown, make('div.scroll', { tabindex: '0', role: 'region', 'aria-label': 'Servers on this ledger' }, make('table', { id: 'replicas' }, make('thead', {}, make('tr', {}, ['Address', 'State', 'Version', 'Name'].map((name) => make('th', { scope: 'col' }, name)))), rows)));
  const elements = [make('div.halves', { hidden: true }, ledger.element, gate.element), servers];

  /** What the server counts of them: nothing, unless it is on a ledger. */
  function sample(metrics) {
    const isThere = ledger.sample(metrics);
    gate.sample(metrics);
    for (const element of elements) element.hidden = !isThere;
  }

  async function read() {
    if (servers.hidden) return;
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

  return { elements, sample, read };
}

/** The ledger or the gate: whether it works, and what was counted of it. */
function part(name, title, works, fails) {
  const state = make('span.state', { id: `${name}-state` });
  const numbers = make('dl.numbers');
  const element = make('section.card', { hidden: true }, make('div.head', {}, make('h3', {}, title), state), numbers);
  /** True when there is one. */
  function sample(metrics) {
    const found = metrics.beginningWith(`leasehold_${name}_`).filter(([key]) => key !== `leasehold_${name}_up`);
    const isUp = metrics.value(`leasehold_${name}_up`) === 1;
    element.hidden = found.length === 0;
    write(state, isUp ? works : fails);
    state.setAttribute('class', `state ${isUp ? 'open' : 'late'}`);
    const values = new Map(found);
    // Those without words come last.
    const keys = new Set([...Object.keys(WORDS).filter((key) => values.has(key)), ...values.keys()]);
    numbers.replaceChildren(...[...keys].flatMap((key) => {
      const [words, say, isBad] = WORDS[key] ?? [key.replace(/^leasehold_[a-z]+_/, '').replace(/_total$/, '').replaceAll('_', ' '), number];
      const value = values.get(key);
      return [make('dt', {}, words), make('dd', { class: isBad?.(value) ? 'figures late' : 'figures', 'data-of': key }, say(value))];
    }));
    return found.length > 0;
  }
  return { element, sample };
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
  return make('tr', {}, make('th', { scope: 'row' }, address(replica)), make('td', {}, state), make('td', {}, replica.version), make('td', {}, replica.id));
}

function address({ listens_on: listens = 'unknown', connects_from: from }) {
  // Where it listens says little when that is everywhere.
  return from !== undefined && /^(0\.0\.0\.0|\[::\]):/.test(listens) ? listens.replace(/^(0\.0\.0\.0|\[::\])/, from) : listens;
}
