// A line chart for a console: a few series over the last minutes, the last values beside their names.

import { make, write } from './dom.js';

const [HEIGHT, LEFT, BOTTOM, TOP] = [170, 44, 20, 10];
/** Seconds across: a minute at first, then as much as there is, up to five. */
const SPAN_MIN = 60;
const SPAN_MAX = 300;
/** Samples come every second. Between two that are farther apart nothing is known, and no line is drawn. */
const GAP_MS = 2_500;

/** Adds a sample, which has the time in `at`, and lets go of those that are too old to be drawn. */
export function add(samples, sample) {
  return [...samples.filter(({ at }) => at <= sample.at && at > sample.at - SPAN_MAX * 1000), sample];
}

/**
 * @param {{title: string, unit?: string, series: {key: string, name: string, colour: string, dashed?: boolean}[]}} what
 * @returns {{element: HTMLElement, update: (samples: object[]) => void}}
 */
export function chart({ title, unit = '', series }) {
  const lines = series.map(({ colour, dashed }) => make('path', { class: `line ${colour}`, 'stroke-dasharray': dashed ? '5 4' : null }));
  const grid = make('g', { class: 'grid' });
  const svg = make('svg', { role: 'img', 'aria-label': title }, grid, ...lines);
  const values = series.map(() => make('b', { class: 'figures' }, '–'));
  const legend = make('ul.key', {}, series.map(({ name, colour, dashed }, place) => make('li', {}, make('span', { class: `swatch ${colour}${dashed ? ' dashed' : ''}` }), `${name} `, values[place])));
  const element = make('figure.card.chart', {}, make('figcaption', {}, make('h3', {}, title), legend), svg);

  let [width, shown] = [560, []];
  new ResizeObserver(([{ contentRect }]) => {
    width = Math.max(200, contentRect.width);
    update(shown);
  }).observe(svg);

  function update(samples) {
    shown = samples;
    const now = Date.now();
    const span = Math.min(Math.max(SPAN_MIN, Math.ceil((now - (samples[0]?.at ?? now)) / 1000)), SPAN_MAX);
    const numbers = samples.flatMap((sample) => series.map(({ key }) => sample[key])).filter((value) => value !== null && Number.isFinite(value));
    const top = nice(Math.max(...numbers, 0));
    const x = (at) => LEFT + (1 - (now - at) / 1000 / span) * (width - LEFT - 4);
    const y = (value) => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
    series.forEach(({ key }, number) => {
      let [path, before] = ['', -Infinity];
      for (const { at, [key]: value } of samples) {
        if (value !== null) path += `${at - before > GAP_MS ? 'M' : 'L'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
        before = value === null ? -Infinity : at;
      }
      lines[number].setAttribute('d', path);
      const last = samples.findLast((sample) => sample[key] !== null)?.[key];
      write(values[number], last === undefined ? '–' : `${short(last)}${unit}`);
    });
    const marks = [0, top / 2, top].flatMap((value) => [
      make('line', { x1: LEFT, x2: width - 4, y1: y(value), y2: y(value) }),
      make('text', { x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' }, short(value)),
    ]);
    const times = [[span >= 120 ? `${Math.round(span / 60)} min ago` : `${span} s ago`, LEFT, 'start'], ['now', width - 4, 'end']].map(([text, at, anchor]) => make('text', { x: at, y: HEIGHT - 4, 'text-anchor': anchor }, text));
    grid.replaceChildren(...marks, ...times);
    svg.setAttribute('aria-label', `${title}: ${series.map(({ name }, place) => `${name} ${values[place].textContent}`).join(', ')}`);
  }

  update([]);
  return { element, update };
}

/** The next round number, or one that is a little less: there is some room above the scale. */
function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power * 1.04 >= value) * power;
}

export function short(value) {
  if (value >= 10_000) return `${Math.round(value / 1000).toLocaleString('en')}k`;
  if (value >= 100) return Math.round(value).toLocaleString('en');
  if (value >= 10) return value.toFixed(1).replace(/\.0$/, '');
  return value === 0 ? '0' : value.toFixed(value < 0.1 ? 3 : value < 1 ? 2 : 1).replace(/\.?0+$/, '');
}
