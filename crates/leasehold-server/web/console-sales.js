// Sales: how each event stands, and what goes on, second by second.

import { chart, short } from './chart.js';
import { make, write } from './dom.js';

export function salesView(desk) {
  const tiles = [['granted', 'Holds granted'], ['refused', 'Refused'], ['sold', 'Sold'], ['expired', 'Expired']].map(([key, name]) => {
    const value = make('b.figures', {}, '–');
    return { key, value, element: make('div.tile', {}, make('span', {}, name), value, make('small', {}, 'per second, all events')) };
  });
  // In a rush thousands are refused for each one that is granted, so they have a scale of their own.
  const charts = [
    { title: 'Holds per second', series: [{ key: 'granted', name: 'Granted', colour: 'c1' }, { key: 'sold', name: 'Sold', colour: 'c2' }, { key: 'expired', name: 'Expired', colour: 'c4', dashed: true }] },
    { title: 'Refused per second', series: [{ key: 'refused', name: 'Refused', colour: 'c3' }] },
    { title: 'How long', unit: ' ms', series: [{ key: 'p50', name: 'Half', colour: 'c1' }, { key: 'p99', name: '99 of 100', colour: 'c4' }, { key: 'commit', name: 'Commits', colour: 'c2', dashed: true }] },
    { title: 'Commands in a commit', series: [{ key: 'size', name: 'On average', colour: 'c1' }] },
  ].map(chart);
  const rows = make('tbody');
  const more = make('button.button.small', { type: 'button', hidden: true, on: { click: () => desk.moreEvents() } }, 'More events');
  const empty = make('p.empty', { hidden: true }, 'There are no events yet. Create one with POST /v1/events.');
  const table = make('div.scroll', { tabindex: '0', role: 'region', 'aria-label': 'Events' }, make('table', {}, make('thead', {}, make('tr', {}, ['Event', 'State', 'Standing of seats and places', 'Sold', 'In carts', 'Free', 'Blocked'].map((head, place) => make('th', { scope: 'col', class: place > 2 ? 'number' : null }, head)))), rows));

  function events() {
    empty.hidden = desk.events.length > 0;
    more.hidden = !desk.hasMoreEvents;
    // Whoever is on one of them stays there.
    if (rows.contains(document.activeElement)) return;
    rows.replaceChildren(...desk.events.map((event) => {
      const sum = (key) => event.seats[key] + event.pools.reduce((all, pool) => all + pool[key], 0);
      const [sold, held, free, blocked] = ['sold', 'held', 'free', 'blocked'].map(sum);
      const total = Math.max(1, sold + held + free + blocked);
      const bar = make('svg', { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${Math.round((sold / total) * 100)} percent sold` });
      let from = 0;
      for (const [name, count] of [['sold', sold], ['held', held], ['blocked', blocked]]) {
        bar.append(make('rect', { class: name, x: from, y: 0, width: (count / total) * 100, height: 8 }));
        from += (count / total) * 100;
      }
      const number = (value) => make('td.number.figures', {}, value.toLocaleString('en'));
      const open = make('button.link', { type: 'button', on: { click: () => desk.choose(event.id, '#seats') } }, event.name);
      return make('tr', {}, make('th', { scope: 'row' }, open, make('small.muted', {}, event.id)), make('td', {}, make('span', { class: `state ${event.state}` }, event.state)), make('td.wide', {}, bar), number(sold), number(held), number(free), number(blocked));
    }));
  }

  function sample() {
    const { samples } = desk.metrics;
    const last = samples.at(-1);
    for (const { key, value } of tiles) write(value, last ? short(last[key]) : '–');
    for (const one of charts) one.update(samples);
  }

  events();
  sample();
  return {
    elements: [
      make('h2.unseen', {}, 'Sales'),
      make('div.tiles', {}, tiles.map(({ element }) => element)),
      make('div.halves', {}, charts.map(({ element }) => element)),
      make('section.card', {}, make('div.head', {}, make('h3', {}, 'Events'), more), empty, table),
    ],
    events,
    sample,
  };
}
