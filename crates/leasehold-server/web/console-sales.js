// Sales: how each event stands, and what goes on, second by second.

import { chart, short } from './chart.js';
import { make, write, writeOrHide } from './dom.js';

export function salesView(desk) {
  const name = make('h3', { id: 'event-name' });
  const stale = make('p.stale', { id: 'stale', hidden: true });
  // What the event's own stream tells; refusals and times are counted by the server, for all events together.
  const own = group('event-sales', [['granted', 'Holds granted', 'per second'], ['sold', 'Sales', 'per second'], ['expired', 'Expired', 'per second'], ['held', 'In carts', 'now'], ['owned', 'Sold', 'in all']], [
    { title: 'Holds per second', series: [{ key: 'granted', name: 'Granted', colour: 'c1' }, { key: 'sold', name: 'Sales', colour: 'c2' }, { key: 'expired', name: 'Expired', colour: 'c4', dashed: true }] },
    { title: 'Seats and places', series: [{ key: 'owned', name: 'Sold', colour: 'c2' }, { key: 'held', name: 'In carts', colour: 'c4' }, { key: 'free', name: 'Free', colour: 'c3', dashed: true }] },
  ], make('div.head', {}, name, stale));
  // In a rush thousands are refused for each one that is granted, so they have a scale of their own.
  const server = group('server-sales', [['granted', 'Holds granted'], ['refused', 'Refused'], ['sold', 'Sales'], ['expired', 'Expired']].map((tile) => [...tile, 'per second']), [
    { title: 'Holds per second', series: [{ key: 'granted', name: 'Granted', colour: 'c1' }, { key: 'sold', name: 'Sales', colour: 'c2' }, { key: 'expired', name: 'Expired', colour: 'c4', dashed: true }] },
    { title: 'Refused per second', series: [{ key: 'refused', name: 'Refused', colour: 'c3' }] },
    { title: 'How long it takes', unit: ' ms', series: [{ key: 'p50', name: 'Half of the answers', colour: 'c1' }, { key: 'p99', name: '99 of 100', colour: 'c4' }, { key: 'commit', name: '99 of 100 commits', colour: 'c2', dashed: true }] },
    { title: 'Commands in a commit', series: [{ key: 'size', name: 'On average', colour: 'c1' }] },
  ], make('h3', {}, 'All events, by this server'));
  const rows = make('tbody');
  const more = make('button.button.small', { type: 'button', hidden: true, on: { click: () => desk.moreEvents() } }, 'More events');
  const empty = make('p.empty', { hidden: true }, 'There are no events yet. Create one with POST /v1/events.');
  const table = make('div.scroll', { tabindex: '0', role: 'region', 'aria-label': 'Events' }, make('table', {}, make('thead', {}, make('tr', {}, ['Event', 'State', 'Standing of seats and places', 'Sold', 'In carts', 'Free', 'Blocked'].map((head, place) => make('th', { scope: 'col', class: place > 2 ? 'number' : null }, head)))), rows));

  function events() {
    empty.hidden = desk.events.length > 0;
    more.hidden = !desk.hasMoreEvents;
    // Whoever is on one of them stays there.
    if (rows.contains(document.activeElement)) return;
    rows.replaceChildren(...desk.events.map(row));
  }

  /** The chosen event's row says the same as the figures above it. */
  function row(event) {
    const isChosen = event.id === desk.event;
    const sum = (key) => event.seats[key] + event.pools.reduce((all, pool) => all + pool[key], 0);
    const latest = isChosen ? desk.tally.samples.at(-1) : undefined;
    const { owned: sold, held, free } = latest ?? { owned: sum('sold'), held: sum('held'), free: sum('free') };
    const blocked = sum('blocked');
    const total = Math.max(1, sold + held + free + blocked);
    const bar = make('svg', { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${Math.round((sold / total) * 100)} percent sold` });
    let from = 0;
    for (const [kind, count] of [['sold', sold], ['held', held], ['blocked', blocked]]) {
      bar.append(make('rect', { class: kind, x: from, y: 0, width: (count / total) * 100, height: 8 }));
      from += (count / total) * 100;
    }
    const number = (value) => make('td.number.figures', {}, value.toLocaleString('en'));
    const open = make('button.link', { type: 'button', on: { click: () => desk.choose(event.id, '#seats') } }, event.name);
    return make('tr', { class: isChosen ? 'chosen' : null, 'data-event': event.id }, make('th', { scope: 'row' }, open, make('small.muted', {}, event.id)), make('td', {}, make('span', { class: `state ${event.state}` }, event.state)), make('td.wide', {}, bar), number(sold), number(held), number(free), number(blocked));
  }

  function chosen() {
    events();
    write(name, desk.events.find(({ id }) => id === desk.event)?.name ?? desk.event);
    figures();
  }

  function figures() {
    writeOrHide(stale, desk.tally.stale);
    own.update(desk.tally.samples);
  }

  function tally() {
    figures();
    const shown = rows.querySelector('.chosen');
    const event = desk.events.find(({ id }) => id === shown?.dataset.event);
    if (event && !shown.contains(document.activeElement)) shown.replaceWith(row(event));
  }

  chosen();
  server.update(desk.metrics.samples);
  return {
    elements: [
      make('h2.unseen', {}, 'Sales'),
      own.element,
      make('section.card', {}, make('div.head', {}, make('h3', {}, 'Events'), more), empty, table),
      server.element,
    ],
    events: chosen,
    chosen,
    tally,
    sample: () => server.update(desk.metrics.samples),
  };
}

/** Tiles with the last figures, and charts of the last minutes. */
function group(id, tiles, charts, heading) {
  const values = tiles.map(([key, name, per]) => ({ key, value: make('b.figures', { 'data-of': key }, '–'), name, per }));
  const drawn = charts.map(chart);
  const element = make('section.group', { id }, heading,
    make('div.tiles', {}, values.map(({ value, name, per }) => make('div.tile', {}, make('span', {}, name), value, make('small', {}, per)))),
    make('div.halves', {}, drawn.map((one) => one.element)));
  return {
    element,
    update(samples) {
      const last = samples.at(-1);
      for (const { key, value } of values) write(value, last === undefined || last[key] === null ? '–' : short(last[key]));
      for (const one of drawn) one.update(samples);
    },
  };
}
