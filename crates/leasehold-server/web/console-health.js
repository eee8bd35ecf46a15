// Health: whether the server takes work, how its store keeps up, what went wrong lately, and money to give back.

import { ask } from './api.js';
import { short } from './chart.js';
import { every, make, write } from './dom.js';
import { clusterView } from './console-cluster.js';
import { time } from './log-words.js';

const INTERVAL_MS = 2_000;
const REFUNDS_SHOWN_MAX = 100;

export function healthView(desk) {
  const ready = make('span.state', { id: 'ready' }, '–');
  const numbers = make('dl.numbers');
  const rest = make('dl.numbers');
  const cluster = clusterView();
  const problems = make('tbody');
  const noProblems = make('p.empty', {}, 'Nothing went wrong since this server was started.');
  const refunds = make('tbody');
  const noRefunds = make('p.empty', {}, 'No payment of this event has to be given back.');
  let stopped = false;

  function sample() {
    const { metrics } = desk;
    const last = metrics.samples.at(-1);
    const list = (element, entries) => element.replaceChildren(...entries.flatMap(([name, value, bad]) => [make('dt', {}, name), make('dd', { class: bad ? 'figures late' : 'figures' }, value)]));
    const count = (name) => metrics.value(name).toLocaleString('en');
    const some = (name) => metrics.value(name) > 0;
    list(numbers, [
      ['Commands waiting', count('leasehold_queue_depth'), metrics.value('leasehold_queue_depth') > 1_000],
      ['Entries the tables are behind', count('leasehold_tables_behind_entries')],
      ['Time of a commit, 99 of 100', last?.commit === null || last === undefined ? 'none just now' : `${short(last.commit)} ms`],
      ['Commands in a commit', last?.size === null || last === undefined ? 'none just now' : short(last.size)],
      ['Holds kept although payments are late', count('leasehold_holds_overdue'), some('leasehold_holds_overdue')],
      ['Confirms too late for a sale', count('leasehold_confirm_conflicts_total')],
    ]);
    list(rest, [
      ['Connections', count('leasehold_http_connections')],
      ['Streams', count('leasehold_http_streams')],
      ['Commands shed', count('leasehold_shed_total'), some('leasehold_shed_total')],
      ['Requests and connections turned away', count('leasehold_http_turned_away_total'), some('leasehold_http_turned_away_total')],
      ['Connections that took too long', count('leasehold_http_timed_out_total')],
      ['Answers given again under a key', count('leasehold_replayed_total')],
    ]);
    cluster.sample(metrics);
  }

  async function read() {
    if (stopped) return;
    try {
      const response = await fetch('/readyz', { cache: 'no-store', signal: AbortSignal.timeout(3_000) });
      say(response.ok);
      await cluster.read();
      const { body } = await ask('/v1/operator/problems');
      noProblems.hidden = body.problems.length > 0;
      problems.replaceChildren(...body.problems.map((one) => make('tr', {}, make('td.figures', {}, time(one.at)), make('td', {}, `${one.method} ${one.path}`), make('td', {}, `${one.status}${one.code ? ` ${one.code}` : ''}`), make('td.number.figures', {}, `${short(one.took_ms)} ms`), make('td', {}, one.request_id))));
      await readRefunds();
    } catch {
      say(false);
    }
  }

  async function readRefunds() {
    if (!desk.event) return;
    const { body } = await ask(`/v1/events/${desk.event}/refunds?limit=${REFUNDS_SHOWN_MAX}`);
    noRefunds.hidden = body.refunds.length > 0;
    refunds.replaceChildren(...body.refunds.map((one) => make('tr', {}, make('th', { scope: 'row' }, one.payment_ref), make('td', {}, one.holder ?? '–'), make('td', {}, one.hold_id))));
  }

  function say(is) {
    write(ready, is ? 'Takes work' : 'Takes no work');
    ready.setAttribute('class', `state ${is ? 'open' : 'late'}`);
  }

  const stop = every(INTERVAL_MS, read);
  sample();
  read();
  const table = (label, names, body) => make('div.scroll', { tabindex: '0', role: 'region', 'aria-label': label }, make('table', {}, make('thead', {}, make('tr', {}, names.map((name) => make('th', { scope: 'col' }, name)))), body));
  return {
    elements: [
      make('h2.unseen', {}, 'Health'),
      make('div.halves', {}, make('section.card', {}, make('div.head', {}, make('h3', {}, 'Store'), ready), numbers), make('section.card', {}, make('h3', {}, 'Server'), rest)),
      ...cluster.elements,
      make('section.card', {}, make('h3', {}, 'Recent problems'), noProblems, table('Recent problems', ['When', 'Request', 'Answer', 'Took', 'Request id'], problems)),
      make('section.card', {}, make('h3', {}, 'Payments to give back'), noRefunds, table('Payments to give back', ['Payment', 'Holder', 'Hold'], refunds)),
    ],
    sample,
    chosen: () => read(),
    leave: () => {
      stopped = true;
      stop();
    },
  };
}
