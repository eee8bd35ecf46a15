// One event's sales, second by second: counted from its own stream of changes, which is the same on every server.

import { add } from './chart.js';
import { LiveEvent } from './seat-map-live.js';
import { staleWords } from './words.js';

const INTERVAL_MS = 1_000;
const COUNTED = { 'hold.created': 'granted', 'booking.created': 'sold', 'hold.expired': 'expired' };

export class Tally extends EventTarget {
  #live = null;
  #src = '';
  #counted = {};
  #isWhole = false;
  #at = 0;

  constructor() {
    super();
    /** `{at, granted, sold, expired, held, owned, free}` for each second: rates, then how many places stand so. */
    this.samples = [];
  }

  /** In words, that the last sample is old; null while it is not. */
  get stale() {
    return this.#live === null ? null : staleWords(this.#live);
  }

  start() {
    setInterval(() => document.hidden || this.#tick(), INTERVAL_MS);
  }

  /** Counts this event from now on. */
  follow(id) {
    const src = `/v1/events/${id}`;
    if (src === this.#src) return;
    this.#live?.stop();
    this.#src = src;
    this.samples = [];
    this.#begin(false);
    const live = new LiveEvent(src);
    this.#live = live;
    live.addEventListener('ready', () => this.#begin(false));
    live.addEventListener('connection', () => this.#begin(false));
    live.addEventListener('change', ({ detail }) => {
      // What happened before everything was read anew is not known.
      if (detail.kind === 'loaded') this.#begin(false);
      else if (COUNTED[detail.kind]) this.#counted[COUNTED[detail.kind]] += 1;
    });
    live.start();
    this.dispatchEvent(new Event('sample'));
  }

  #begin(isWhole) {
    this.#counted = { granted: 0, sold: 0, expired: 0 };
    this.#isWhole = isWhole;
    this.#at = performance.now();
  }

  #tick() {
    if (this.#live?.connection === 'live') this.#sample();
    this.dispatchEvent(new Event('sample'));
  }

  #sample() {
    const { counts, pools } = this.#live;
    const seconds = (performance.now() - this.#at) / 1000;
    // A second in which the stream was away is a gap, and none in which nothing was sold.
    const rates = Object.entries(this.#counted).map(([key, count]) => [key, this.#isWhole ? count / seconds : null]);
    const sum = (key) => counts[key] + pools.reduce((all, pool) => all + pool[key], 0);
    this.samples = add(this.samples, { at: Date.now(), ...Object.fromEntries(rates), held: sum('held'), owned: sum('sold'), free: sum('free') });
    this.#begin(true);
  }
}
