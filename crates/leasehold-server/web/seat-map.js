// <seat-map src="/v1/events/arena">: a venue that draws itself, stays up to date, and lets seats be chosen.
//
// The contract (attributes in, events out, colours) is docs/seat-map.md. Inside: `live` talks to the server, `plan` says
// where seats stand, `painter` draws, `view` is the camera, `cursor` is for keyboards and readers of screens.

import { arrange } from './seat-map-layout.js';
import { LiveEvent, LETTERS } from './seat-map-live.js';
import { Painter, PICK_PIXELS } from './seat-map-painter.js';
import { View } from './seat-map-view.js';
import { Cursor, words } from './seat-map-cursor.js';
import { nearby } from './seat-map-nearby.js';
import { STYLE } from './seat-map-style.js';

const DRAG_PIXELS = 6;
const CHOSEN_MAX = 10;
const sheet = new CSSStyleSheet();
sheet.replaceSync(STYLE);

export class SeatMap extends HTMLElement {
  static observedAttributes = ['src', 'chosen', 'mine', 'suggested', 'max', 'look'];

  #live = null;
  #plan = null;
  #view = new View();
  #painter;
  #cursor;
  #parts = {};
  #places = new Map();
  #chosen = new Set();
  #mine = new Set();
  #suggested = new Set();
  #hovered = null;
  #pointers = new Map();
  #dragged = false;
  #pinch = null;
  #frame = 0;
  #observer = null;
  #media = [];

  constructor() {
    super();
    const root = this.attachShadow({ mode: 'open' });
    root.adoptedStyleSheets = [sheet];
    const make = (tag, attributes, ...children) => {
      const element = document.createElement(tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      element.append(...children);
      return element;
    };
    const button = (name, title, text) => make('button', { type: 'button', 'data-zoom': name, title, 'aria-label': title }, text);
    const [ground, signs, canvas] = Array.from({ length: 3 }, () => make('canvas', { 'aria-hidden': 'true' }));
    const grid = make('div', { class: 'grid', role: 'grid', tabindex: '0', 'aria-label': 'Seats', 'aria-describedby': 'keys', 'aria-multiselectable': 'true' });
    const keys = make('p', { id: 'keys', class: 'unseen' }, 'Arrow keys move between seats and rows, page up and down between sections, enter chooses.');
    const tip = make('div', { class: 'tip', 'aria-hidden': 'true' });
    const zoom = make('div', { class: 'zoom', role: 'group', 'aria-label': 'Zoom' }, button('in', 'Zoom in', '+'), button('out', 'Zoom out', '−'), button('all', 'Whole venue', '⤢'));
    root.append(ground, signs, canvas, grid, keys, zoom, tip);
    this.#parts = { canvas, grid, tip, zoom };
    this.#painter = new Painter({ ground, signs, sparks: canvas });
    this.#cursor = new Cursor(grid);
    this.#listen();
  }

  connectedCallback() {
    this.#observer = new ResizeObserver(() => this.#resized());
    this.#observer.observe(this);
    this.#media = ['(prefers-color-scheme: dark)', '(prefers-reduced-motion: reduce)'].map((query) => window.matchMedia(query));
    for (const media of this.#media) media.addEventListener('change', this.#appearance);
    this.#appearance();
    this.#resized();
    this.#connect();
  }

  disconnectedCallback() {
    this.#observer?.disconnect();
    for (const media of this.#media) media.removeEventListener('change', this.#appearance);
    this.#forget();
  }

  attributeChangedCallback(name, before, after) {
    if (before === after) return;
    if (name === 'src' && this.isConnected) this.#connect();
    if (name === 'chosen') this.#chosen = this.#placesOf(after);
    if (name === 'mine') this.#mine = this.#placesOf(after);
    if (name === 'suggested') this.#suggested = this.#placesOf(after);
    this.#paintSoon();
  }

  /** The event as the server last described it: name, state, policy. */
  get event() {
    return this.#live?.event ?? null;
  }

  /** Seats in numbers. */
  get counts() {
    return this.#live?.counts ?? null;
  }

  get pools() {
    return this.#live?.pools ?? [];
  }

  /** Names of sections, each with how many seats it has and how many are free. */
  get sections() {
    if (!this.#plan) return [];
    return this.#plan.sections.map(({ name, rows }) => {
      let [total, free] = [0, 0];
      for (const { first, count } of rows) {
        total += count;
        for (let seat = first; seat < first + count; seat += 1) free += this.#live.seats[seat] === 'f' ? 1 : 0;
      }
      return { name, total, free };
    });
  }

  /** `connecting`, `live`, `behind` or `missing`. */
  get connection() {
    return this.#live?.connection ?? 'connecting';
  }

  /** How old what is drawn is while the server itself is behind; else 0. */
  get staleMs() {
    return this.#live?.staleMs ?? 0;
  }

  /** Ids of the chosen seats, in the venue's order. */
  get chosen() {
    return [...this.#chosen].sort((one, other) => one - other).map((seat) => this.#live.venue.seat_ids[seat]);
  }

  /** `free`, `held`, `sold` or `blocked`; undefined for a seat that is not there. */
  statusOf(id) {
    const place = this.#places.get(id);
    return place === undefined ? undefined : LETTERS[this.#live.seats[place]];
  }

  /** "Section 104, row 3, seat 7". */
  wordsFor(id) {
    const place = this.#places.get(id);
    const row = place === undefined ? undefined : this.#rowOf(place);
    return row ? words(row, id, this.#label(place)) : id;
  }

  /** Where a seat is drawn, in pixels from the element's corner. */
  pointOf(id) {
    const place = this.#places.get(id);
    return place === undefined ? null : this.#view.toScreen(this.#plan.xs[place], this.#plan.ys[place]);
  }

  /** Groups of free seats near these, as ids. */
  nearby(ids, count, offers = 3) {
    if (!this.#plan) return [];
    const wanted = ids.map((id) => this.#places.get(id)).filter((place) => place !== undefined);
    const groups = nearby(this.#plan, this.#live.seats, wanted, count, offers);
    return groups.map((group) => group.map((seat) => this.#live.venue.seat_ids[seat]));
  }

  showSection(name) {
    const section = this.#plan?.sections.find((one) => one.name === name);
    if (!section) return;
    this.#view.showBox(section);
    this.#cursor.moveTo(section.rows[0].first);
    this.#paintSoon();
  }

  showSeats(ids) {
    const places = ids.map((id) => this.#places.get(id)).filter((place) => place !== undefined);
    if (places.length === 0) return;
    const xs = places.map((place) => this.#plan.xs[place]);
    const ys = places.map((place) => this.#plan.ys[place]);
    const room = 7;
    this.#view.showBox({ left: Math.min(...xs) - room, right: Math.max(...xs) + room, top: Math.min(...ys) - room, bottom: Math.max(...ys) + room });
    this.#cursor.moveTo(places[0]);
    this.#paintSoon();
  }

  showAll() {
    this.#view.showAll();
    this.#paintSoon();
  }

  clear() {
    this.#choose(new Set());
  }

  // ---- the server ----

  #connect() {
    const before = this.connection;
    this.#forget();
    if (before !== 'connecting') this.#tell('connection', { state: 'connecting' });
    this.#paintSoon();
    const src = this.getAttribute('src');
    if (!src) return;
    const live = new LiveEvent(src);
    this.#live = live;
    live.addEventListener('ready', () => this.#ready());
    live.addEventListener('change', ({ detail }) => this.#changed(detail));
    live.addEventListener('connection', ({ detail }) => this.#tell('connection', { state: detail }));
    live.start();
  }

  /** Nothing of one event may be shown or pressed under the name of the next. */
  #forget() {
    this.#live?.stop();
    [this.#live, this.#plan, this.#hovered] = [null, null, null];
    this.#places = new Map();
    [this.#chosen, this.#mine, this.#suggested] = [new Set(), new Set(), new Set()];
  }

  #ready() {
    const { venue } = this.#live;
    this.#places = new Map(venue.seat_ids.map((id, place) => [id, place]));
    this.#plan = arrange(venue.sections, venue.pools);
    this.#chosen = this.#placesOf(this.getAttribute('chosen'));
    this.#mine = this.#placesOf(this.getAttribute('mine'));
    this.#suggested = this.#placesOf(this.getAttribute('suggested'));
    this.#view.bounds = this.#plan.bounds;
    this.#view.showAll(false);
    this.#cursor.load(this.#plan.sections);
    this.#parts.grid.setAttribute('aria-label', `Seats of ${this.#live.event.name}`);
    this.#paintNow();
    performance.mark('seat-map-painted');
    this.#tell('ready', {});
  }

  #changed(detail) {
    if (detail.all) this.#painter.forget();
    else for (const [seat, letter] of detail.seats) this.#painter.change(seat, letter);
    const lost = this.#isLook ? [] : [...this.#chosen].filter((seat) => this.#live.seats[seat] !== 'f');
    this.#paintSoon();
    const seats = detail.all ? null : detail.seats.map(([seat]) => this.#live.venue.seat_ids[seat]);
    this.#tell('change', { kind: detail.kind, at: detail.at ?? null, seats });
    if (lost.length > 0) {
      this.#choose(new Set([...this.#chosen].filter((seat) => !lost.includes(seat))));
      this.#tell('lost', { seats: lost.map((seat) => this.#live.venue.seat_ids[seat]) });
    }
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(`seat-map-${name}`, { detail, bubbles: true }));
  }

  // ---- choosing ----

  get #isLook() {
    return this.hasAttribute('look');
  }

  #press(seat) {
    const id = this.#live.venue.seat_ids[seat];
    const status = LETTERS[this.#live.seats[seat]];
    this.#tell('press', { seat: id, status, words: this.wordsFor(id) });
    if (this.#isLook) {
      this.#choose(new Set([seat]));
      return;
    }
    if (this.#mine.has(seat)) return;
    const chosen = new Set(this.#chosen);
    if (chosen.has(seat)) chosen.delete(seat);
    else if (status !== 'free') return;
    else if (chosen.size >= Number(this.getAttribute('max') || CHOSEN_MAX)) {
      this.#tell('full', { max: Number(this.getAttribute('max') || CHOSEN_MAX) });
      return;
    } else chosen.add(seat);
    this.#choose(chosen);
  }

  #choose(chosen) {
    const before = this.chosen.join(' ');
    this.#chosen = chosen;
    this.setAttribute('suggested', '');
    this.setAttribute('chosen', this.chosen.join(' '));
    this.#paintSoon();
    if (this.chosen.join(' ') !== before) this.#tell('choose', { seats: this.chosen });
  }

  #placesOf(list) {
    const ids = (list ?? '').split(/\s+/).filter((id) => id !== '');
    return new Set(ids.map((id) => this.#places.get(id)).filter((place) => place !== undefined));
  }

  #rowOf(place) {
    for (const section of this.#plan.sections) {
      for (const row of section.rows) if (place >= row.first && place < row.first + row.count) return { ...row, section };
    }
    return undefined;
  }

  /** What stands on a seat: the last part of its id. */
  #label = (place) => {
    const id = this.#live.venue.seat_ids[place];
    return id.slice(id.lastIndexOf('-') + 1);
  };

  // ---- pointers and keys ----

  #listen() {
    const { canvas, grid, zoom } = this.#parts;
    zoom.addEventListener('click', ({ target }) => this.#zoom(target.closest('button')?.dataset.zoom));
    canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.#view.zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.012 : 0.0022)), { x: event.offsetX, y: event.offsetY }, false);
      this.#paintSoon();
    }, { passive: false });
    canvas.addEventListener('pointerdown', (event) => this.#down(event));
    canvas.addEventListener('pointermove', (event) => this.#move(event));
    canvas.addEventListener('pointerup', (event) => this.#up(event));
    canvas.addEventListener('pointercancel', (event) => this.#pointers.delete(event.pointerId));
    canvas.addEventListener('pointerleave', () => this.#hover(null));
    grid.addEventListener('keydown', (event) => this.#key(event));
    grid.addEventListener('focus', () => this.#paintSoon());
    grid.addEventListener('blur', () => this.#paintSoon());
  }

  #zoom(how) {
    if (how === 'in') this.#view.zoom(1.7);
    if (how === 'out') this.#view.zoom(1 / 1.7);
    if (how === 'all') this.#view.showAll();
    this.#paintSoon();
  }

  #down(event) {
    this.#parts.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY, fromX: event.offsetX, fromY: event.offsetY });
    this.#dragged = this.#pointers.size > 1;
    this.#pinch = this.#pointers.size === 2 ? this.#fingers() : null;
  }

  #move(event) {
    const pointer = this.#pointers.get(event.pointerId);
    if (!pointer) {
      this.#hover(this.#at(event.offsetX, event.offsetY), event);
      return;
    }
    const [dx, dy] = [event.offsetX - pointer.x, event.offsetY - pointer.y];
    Object.assign(pointer, { x: event.offsetX, y: event.offsetY });
    if (this.#pointers.size === 2) {
      this.#pinched();
      return;
    }
    if (Math.hypot(event.offsetX - pointer.fromX, event.offsetY - pointer.fromY) > DRAG_PIXELS) this.#dragged = true;
    if (this.#dragged) {
      this.#hover(null);
      this.#view.pan(dx, dy);
      this.#paintSoon();
    }
  }

  /** How far two fingers are apart, and what is between them. */
  #fingers() {
    const [one, other] = [...this.#pointers.values()];
    return { distance: Math.hypot(one.x - other.x, one.y - other.y), x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 };
  }

  #pinched() {
    const now = this.#fingers();
    // In one step: where everything fits, a step aside alone would be undone.
    if (this.#pinch) this.#view.zoom(now.distance / Math.max(1, this.#pinch.distance), now, false, this.#pinch);
    this.#pinch = now;
    this.#paintSoon();
  }

  #up(event) {
    this.#pointers.delete(event.pointerId);
    this.#pinch = null;
    if (this.#dragged || !this.#plan) return;
    const found = this.#at(event.offsetX, event.offsetY, event.pointerType === 'mouse' ? 0.75 : 1.3);
    if (found?.seat !== undefined) {
      this.#cursor.moveTo(found.seat);
      this.#press(found.seat);
      if (event.pointerType === 'mouse') this.#parts.tip.textContent = this.#tipFor(found);
    } else if (found?.section) {
      this.#view.showBox(found.section);
      this.#cursor.moveTo(found.section.rows[0].first);
    } else if (found?.floor) this.#tell('floor', { pool: found.floor });
    this.#paintSoon();
  }

  /** What is at a point of the element: a seat if seats are large enough to be meant, else a section or a floor. */
  #at(x, y, reach = 0.75) {
    if (!this.#plan) return null;
    const point = this.#view.toVenue(x, y);
    const floor = this.#plan.floors.find((one) => point.x >= one.x && point.x <= one.x + one.width && point.y >= one.y && point.y <= one.y + one.height);
    if (floor) return { floor: floor.id };
    const section = this.#plan.sections.find((one) => point.x >= one.left && point.x <= one.right && point.y >= one.top && point.y <= one.bottom && inside(one.outline, point));
    if (this.#view.scale < PICK_PIXELS && !(this.#plan.sections.length === 1)) return section ? { section } : null;
    let nearest = null;
    let best = reach * reach;
    for (const row of section ? section.rows : []) {
      for (let seat = row.first; seat < row.first + row.count; seat += 1) {
        const distance = (this.#plan.xs[seat] - point.x) ** 2 + (this.#plan.ys[seat] - point.y) ** 2;
        if (distance < best) [nearest, best] = [seat, distance];
      }
    }
    return nearest === null ? null : { seat: nearest };
  }

  #hover(found, event) {
    const same = found?.seat === this.#hovered?.seat && found?.section === this.#hovered?.section && found?.floor === this.#hovered?.floor;
    if (same) return;
    this.#hovered = found;
    const { tip, canvas } = this.#parts;
    canvas.classList.toggle('pick', found !== null);
    tip.classList.toggle('seen', Boolean(found && event));
    if (found && event) {
      tip.textContent = this.#tipFor(found);
      const right = event.offsetX > this.clientWidth - 190;
      tip.style.transform = `translate(${right ? event.offsetX - 14 : event.offsetX + 14}px, ${event.offsetY + 18}px) translateX(${right ? '-100%' : '0'})`;
    }
    this.#paintSoon();
  }

  #tipFor({ seat, section, floor }) {
    if (seat !== undefined) {
      const id = this.#live.venue.seat_ids[seat];
      const state = this.#mine.has(seat) ? 'yours' : this.#chosen.has(seat) ? 'chosen' : STATES[this.#live.seats[seat]];
      return `${this.wordsFor(id)} · ${state}`;
    }
    if (section) {
      const { free, total } = this.sections.find((one) => one.name === section.name);
      return `Section ${section.name} · ${free} of ${total} free`;
    }
    const pool = this.pools.find((one) => one.id === floor);
    return pool ? `${floor} · standing · ${pool.free} free` : floor;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.#plan) return;
    if (event.key === '+' || event.key === '=') this.#zoom('in');
    else if (event.key === '-') this.#zoom('out');
    else if (event.key === '0') this.#zoom('all');
    else if (event.key === 'Enter' || event.key === ' ') {
      if (this.#cursor.seat !== null) this.#press(this.#cursor.seat);
    } else if (this.#cursor.key(event.key)) {
      const seat = this.#cursor.seat;
      this.#view.showPoint(this.#plan.xs[seat], this.#plan.ys[seat], PICK_PIXELS * 2);
    } else return;
    event.preventDefault();
    this.#paintSoon();
  }

  // ---- drawing ----

  /** Reads the colours again, for pages that change them. */
  restyle() {
    this.#appearance();
  }

  #appearance = () => {
    const still = window.matchMedia('(prefers-reduced-motion: reduce)').matches;
    this.#view.still = still;
    this.#painter.still = still;
    this.#painter.readColours(this);
    this.#paintSoon();
  };

  #resized() {
    this.#view.resize(this.clientWidth, this.clientHeight);
    this.#painter.resize(this.clientWidth, this.clientHeight);
    this.#paintNow();
  }

  #paintSoon() {
    if (this.#frame === 0 && this.isConnected) this.#frame = requestAnimationFrame((now) => {
      this.#frame = 0;
      const moves = this.#view.step(now);
      if (this.#paintNow() || moves) this.#paintSoon();
    });
  }

  #paintNow() {
    const { canvas, grid } = this.#parts;
    canvas.classList.toggle('whole', this.#view.isWhole);
    const focused = grid.matches(':focus') && this.#plan ? this.#cursor.seat : null;
    if (this.#plan && this.#live) this.#cursor.show({ seats: this.#live.seats, ids: this.#live.venue.seat_ids, label: this.#label, chosen: this.#chosen, mine: this.#mine });
    return this.#painter.paint({
      plan: this.#plan, view: this.#view, seats: this.#live?.seats ?? [], mine: this.#mine, chosen: this.#isLook ? NONE : this.#chosen,
      pointedAt: this.#isLook ? this.#chosen : NONE, suggested: this.#suggested, hovered: this.#hovered, focused, pools: this.pools, labels: this.#label,
    });
  }
}

const NONE = new Set();
const STATES = { f: 'free', h: 'in someone’s cart', s: 'sold', b: 'not on sale' };

function inside(outline, { x, y }) {
  let odd = false;
  for (let place = 0, last = outline.length - 1; place < outline.length; last = place, place += 1) {
    const [[x1, y1], [x2, y2]] = [outline[place], outline[last]];
    if (y1 > y !== y2 > y && x < ((x2 - x1) * (y - y1)) / (y2 - y1) + x1) odd = !odd;
  }
  return odd;
}

customElements.define('seat-map', SeatMap);
