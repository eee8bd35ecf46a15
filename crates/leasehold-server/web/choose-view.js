// Choosing: single seats on the map, the best ones together, or standing tickets.

import { make, plural, write } from './dom.js';

const AT_ONCE_MAX = 10;

/** How many tickets can be asked for in one go: no more than one person can have. */
export function mostAtOnce(map) {
  return Math.min(map.event?.policy.units_per_holder_max || AT_ONCE_MAX, AT_ONCE_MAX);
}

/**
 * @param {{map: any, onHold: (items: object[]) => void}} context
 * @returns {{elements: HTMLElement[], heading: HTMLElement, update: () => void, choose: (way: string, pool?: string) => void, busy: (is: boolean) => void}}
 */
export function chooseView({ map, onHold }) {
  let way = 'map';
  let busy = false;
  const pools = map.pools;
  const hasSeats = (map.counts?.total ?? 0) > 0;
  if (!hasSeats) way = 'standing';
  const heading = make('h2', { tabindex: '-1' }, 'Choose your tickets');
  const sentence = make('p.muted');

  const chips = make('ul.chips', { 'aria-label': 'Chosen seats' });
  const holdChosen = make('button.button.primary', { type: 'button', id: 'hold-chosen', on: { click: () => onHold(map.chosen.map((seat) => ({ seat }))) } });
  const finder = make('select.input', { id: 'finder', on: { change: () => (finder.value === '' ? map.showAll() : map.showSection(finder.value)) } });
  const onMap = make('div.stack', {}, chips, holdChosen, make('label.field', {}, make('span', {}, 'Go to a section'), finder));

  const together = stepper('together', 'How many seats', () => mostAtOnce(map), () => update());
  const where = make('select.input', { id: 'where' });
  const holdBest = make('button.button.primary', {
    type: 'button', id: 'hold-best',
    on: { click: () => onHold([{ best: { count: together.value, ...(where.value === '' ? {} : { section: where.value }) } }]) },
  });
  const best = make('div.stack', {}, together.element, make('label.field', {}, make('span', {}, 'Where'), where), holdBest);

  const pool = make('select.input', { id: 'pool', on: { change: () => update() } }, pools.map(({ id }) => make('option', { value: id }, titled(id))));
  const standing = stepper('standing', 'How many standing tickets', () => mostAtOnce(map), () => update());
  const holdStanding = make('button.button.primary', { type: 'button', id: 'hold-standing', on: { click: () => onHold([{ pool: pool.value, quantity: standing.value }]) } });
  const left = make('p.muted.figures', {});
  const floor = make('div.stack', {}, pools.length > 1 ? make('label.field', {}, make('span', {}, 'Where'), pool) : null, standing.element, holdStanding, left);

  const panes = { map: onMap, best, standing: floor };
  const names = { map: 'On the map', best: 'Best seats', standing: 'Standing' };
  const radios = new Map();
  const ways = make('fieldset.ways', { hidden: !hasSeats }, make('legend.unseen', {}, 'How do you want to choose?'), Object.keys(panes)
    .filter((name) => (name === 'standing' ? pools.length > 0 : hasSeats))
    .map((name) => {
      const radio = make('input', { type: 'radio', name: 'way', value: name, checked: name === way, on: { change: () => choose(name) } });
      radios.set(name, radio);
      return make('label', {}, radio, names[name]);
    }));

  function choose(name, which) {
    way = name;
    radios.get(name).checked = true;
    if (which !== undefined) pool.value = which;
    update();
  }

  function update() {
    const chosen = map.chosen;
    const open = map.event?.state === 'open';
    for (const [name, pane] of Object.entries(panes)) pane.hidden = name !== way;
    write(sentence, !open ? 'This event is not on sale at the moment.' : way === 'map' ? 'Tap a section to come closer, then tap the seats you like.' : way === 'best' ? 'We pick the best free seats next to each other, or else one behind the other.' : 'No fixed place; come early for the front.');
    const shown = [...chips.querySelectorAll('[data-seat]')].map((chip) => chip.dataset.seat).join(' ');
    if (shown !== chosen.join(' ') || chips.childElementCount === 0) chips.replaceChildren(...(chosen.length === 0 ? [make('li.empty', {}, 'No seats chosen yet')] : chosen.map(chip)));
    write(holdChosen, chosen.length === 0 ? 'Hold seats' : `Hold ${plural(chosen.length, 'seat')}`);
    holdChosen.disabled = busy || !open || chosen.length === 0;
    write(holdBest, together.value === 1 ? 'Hold the best seat' : `Hold the best ${together.value} together`);
    holdBest.disabled = busy || !open;
    write(holdStanding, `Hold ${plural(standing.value, 'standing ticket')}`);
    holdStanding.disabled = busy || !open;
    const stock = map.pools.find(({ id }) => id === pool.value);
    if (stock) write(left, `${plural(stock.free, 'ticket')} left${stock.held > 0 ? `, ${stock.held.toLocaleString('en')} more in other people’s carts` : ''}.`);
    sections();
  }

  function chip(seat) {
    const remove = make('button', {
      type: 'button', 'aria-label': `Remove ${map.wordsFor(seat)}`,
      on: { click: () => { map.setAttribute('chosen', map.chosen.filter((one) => one !== seat).join(' ')); update(); heading.focus(); } },
    }, '×');
    return make('li.chip', { 'data-seat': seat }, shortly(map.wordsFor(seat)), remove);
  }

  /** Sections with how many seats are free in them, for the two lists. */
  function sections() {
    const all = map.sections.filter(({ name }) => name !== '');
    const listed = (select, first) => {
      if (document.activeElement === select) return;
      const value = select.value;
      if (select.options.length !== all.length + 1) select.replaceChildren(make('option', { value: '' }, first), ...all.map(({ name }) => make('option', { value: name })));
      all.forEach(({ name, free }, place) => write(select.options[place + 1], `Section ${name} · ${free} free`));
      select.value = value;
    };
    listed(finder, 'The whole venue');
    listed(where, 'Anywhere');
  }

  update();
  return {
    elements: [make('div', {}, heading, sentence), ways, onMap, best, floor],
    heading,
    update,
    choose,
    busy: (is) => {
      busy = is;
      update();
    },
  };
}

function stepper(id, label, max, onChange) {
  const state = { value: Math.min(2, max()) };
  const shown = make('output', { id, 'aria-live': 'polite' }, String(state.value));
  const step = (by) => () => {
    state.value = Math.min(Math.max(state.value + by, 1), max());
    write(shown, String(state.value));
    onChange();
  };
  const fewer = make('button', { type: 'button', 'aria-label': `${label}: fewer`, on: { click: step(-1) } }, '−');
  const more = make('button', { type: 'button', 'aria-label': `${label}: more`, on: { click: step(1) } }, '+');
  state.element = make('div.field', { role: 'group', 'aria-label': label }, make('span', {}, label), make('div.stepper', {}, fewer, shown, more));
  return state;
}

/** "104 · row 3 · 7" of "Section 104, row 3, seat 7". */
export function shortly(words) {
  return words.replace(/^Section /, '').replace(/, row /, ' · row ').replace(/, seat /, ' · ');
}

export function titled(id) {
  return id.charAt(0).toUpperCase() + id.slice(1);
}
