// The server's counters, read once a second: rates, percentiles and gauges are made of the differences.

import { add } from './chart.js';

const INTERVAL_MS = 1_000;

/** Lines of `name{label="x"} 3`, as a map from the whole left side to the number. */
export function parse(text) {
  const values = new Map();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const space = line.lastIndexOf(' ');
    values.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return values;
}

/** Adds up all lines of a counter, whatever their labels. */
function total(values, name) {
  let sum = 0;
  for (const [key, value] of values) if (key === name || key.startsWith(`${name}{`)) sum += value;
  return sum;
}

function buckets(values, name) {
  const found = [];
  for (const [key, value] of values) {
    const end = key.startsWith(`${name}_bucket{`) ? /le="([^"]+)"/.exec(key)?.[1] : undefined;
    if (end !== undefined) found.push([end === '+Inf' ? Infinity : Number(end), value]);
  }
  return found.sort(([one], [other]) => one - other);
}

/** The value below which a share of the observations between two readings lies; null when there were none. */
export function percentile(before, after, share) {
  const counts = after.map(([end, count], place) => [end, count - (before[place]?.[1] ?? 0)]);
  const all = counts.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  const rank = all * share;
  let [lower, below] = [0, 0];
  for (const [end, count] of counts) {
    if (count >= rank) return end === Infinity ? lower : lower + ((end - lower) * (rank - below)) / Math.max(1, count - below);
    [lower, below] = [end, count];
  }
  return lower;
}

export class Metrics extends EventTarget {
  #before = null;
  #at = 0;
  #instance = null;
  #others = new Set();

  constructor() {
    super();
    /** `{at, granted, refused, sold, expired, p50, p99, commit, size}` for each second; rates are per second. */
    this.samples = [];
    /** The last reading, as it was. */
    this.values = new Map();
    this.reachable = true;
    /** True when servers answer here by turns. */
    this.isMixed = false;
  }

  start() {
    this.#tick();
    setInterval(() => document.hidden || this.#tick(), INTERVAL_MS);
  }

  async #tick() {
    try {
      const response = await fetch('/metrics', { cache: 'no-store', signal: AbortSignal.timeout(5_000) });
      if (!response.ok) throw response.status;
      this.#from(response.headers.get('leasehold-instance'));
      this.#take(parse(await response.text()), performance.now());
      this.reachable = true;
    } catch {
      this.reachable = false;
      // A gap is shown as one: the next reading has nothing to be compared with.
      this.#before = null;
    }
    this.dispatchEvent(new Event('sample'));
  }

  /** Counters of one server are not compared with another's, nor with those of the one before a restart. */
  #from(instance) {
    if (instance === this.#instance) return;
    this.isMixed ||= this.#others.has(instance);
    this.#others.add(this.#instance);
    [this.#before, this.#instance] = [null, instance];
  }

  #take(values, now) {
    const before = this.#before;
    const seconds = (now - this.#at) / 1000;
    [this.#before, this.#at, this.values] = [values, now, values];
    if (before === null || seconds <= 0) return;
    const rate = (name) => Math.max(0, total(values, name) - total(before, name)) / seconds;
    const spread = (name, share) => percentile(buckets(before, name), buckets(values, name), share);
    const commits = rate('leasehold_commit_commands_count');
    const p50 = spread('leasehold_http_request_seconds', 0.5);
    const p99 = spread('leasehold_http_request_seconds', 0.99);
    const commit = spread('leasehold_commit_seconds', 0.99);
    this.samples = add(this.samples, {
      at: Date.now(),
      granted: rate('leasehold_holds_granted_total'),
      refused: rate('leasehold_refused_total'),
      sold: rate('leasehold_bookings_created_total'),
      expired: rate('leasehold_holds_expired_total'),
      p50: p50 === null ? null : p50 * 1000,
      p99: p99 === null ? null : p99 * 1000,
      commit: commit === null ? null : commit * 1000,
      size: commits > 0 ? rate('leasehold_commit_commands_sum') / commits : null,
    });
  }

  /** A gauge or counter, all labels together. */
  value(name) {
    return total(this.values, name);
  }

  /** All lines whose names begin so, without labels: `[['leasehold_gate_entries', 3]]`. */
  beginningWith(start) {
    return [...this.values].filter(([key]) => key.startsWith(start) && !key.includes('{'));
  }
}
