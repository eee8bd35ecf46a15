// One event as it stands on the server, kept up to date: the venue and availability once, then the stream of changes.
//
// Announces, as events of its own: `ready`, `change` (detail: seats, pools, counts, kind), and `connection`
// (detail: `connecting`, `live`, `behind`, `missing`). What it shows while it is `behind` may be old, and it says so;
// it also is when the server itself says that it cannot see the latest changes, and then `staleMs` is how old.

/** A stream without a sign of life for this long is not believed any more. Pings come every 15 seconds. */
const SILENCE_MAX_MS = 20_000;
const ANSWER_MAX_MS = 10_000;
const RETRY_MIN_MS = 500;
const RETRY_MAX_MS = 8_000;
/** A page nobody looks at lets go of its connection: browsers allow few for one server. */
const HIDDEN_MAX_MS = 30_000;

export const LETTERS = { f: 'free', h: 'held', s: 'sold', b: 'blocked' };

export class LiveEvent extends EventTarget {
  #base;
  #source;
  #silence;
  #retry;
  #retryMs = RETRY_MIN_MS;
  #hiding;
  #stopped = false;
  #loads = 0;
  #onVisibility = () => this.#visibilityChanged();

  /** @param {string} base such as `/v1/events/arena` */
  constructor(base) {
    super();
    this.#base = base;
    this.connection = 'connecting';
    /** Above 0 while the server answers and is itself behind. */
    this.staleMs = 0;
    this.venue = null;
    this.event = null;
    /** One letter a seat. */
    this.seats = [];
    this.pools = [];
    this.counts = null;
    this.version = null;
  }

  async start() {
    document.addEventListener('visibilitychange', this.#onVisibility);
    await this.#load();
  }

  stop() {
    this.#stopped = true;
    document.removeEventListener('visibilitychange', this.#onVisibility);
    this.#close();
    clearTimeout(this.#retry);
    clearTimeout(this.#hiding);
  }

  /** Everything anew: the first time, and when the stream cannot go on from where it was. */
  async #load() {
    if (this.#stopped) return;
    this.#close();
    clearTimeout(this.#retry);
    // Of two loads at the same time the later one counts.
    const load = (this.#loads += 1);
    try {
      const [venue, event, availability] = await Promise.all([this.#get('/venue'), this.#get(''), this.#get('/availability')]);
      if (this.#stopped || load !== this.#loads) return;
      const other = this.venue === null || this.venue.seat_ids.length !== venue.seat_ids.length || this.event.created_at !== event.created_at;
      this.venue = venue;
      this.event = event;
      this.#take(availability);
      this.#open();
      this.dispatchEvent(new CustomEvent(other ? 'ready' : 'change', { detail: { all: true, kind: 'loaded' } }));
    } catch (problem) {
      if (load !== this.#loads) return;
      this.#become(problem?.status === 404 ? 'missing' : 'behind');
      this.#later();
    }
  }

  #take(availability) {
    this.seats = availability.seats ? [...availability.seats] : [];
    this.pools = availability.pools;
    this.counts = availability.counts;
    this.version = availability.version;
  }

  async #get(path) {
    const response = await fetch(this.#base + path, { headers: { accept: 'application/json' }, cache: 'no-cache', signal: AbortSignal.timeout(ANSWER_MAX_MS) });
    if (!response.ok) throw { status: response.status };
    return response.json();
  }

  #open() {
    const source = new EventSource(`${this.#base}/stream?since=${this.version}`);
    this.#source = source;
    source.addEventListener('hello', (message) => {
      this.#retryMs = RETRY_MIN_MS;
      this.#alive(JSON.parse(message.data));
    });
    source.addEventListener('ping', (message) => this.#alive(JSON.parse(message.data)));
    source.addEventListener('change', (message) => {
      this.#alive({});
      // What did not change is left out of the message.
      this.#apply({ seats: [], pools: [], ...JSON.parse(message.data) });
    });
    source.addEventListener('reset', () => this.#load());
    source.addEventListener('error', () => {
      if (this.#source !== source) return;
      this.#become('behind');
      clearTimeout(this.#silence);
      // A closed source was refused and does not try again by itself.
      if (source.readyState === EventSource.CLOSED) this.#later();
    });
  }

  #apply(change) {
    for (const [place, letter] of change.seats) {
      const before = this.seats[place];
      if (before === letter) continue;
      this.seats[place] = letter;
      this.counts[LETTERS[before]] -= 1;
      this.counts[LETTERS[letter]] += 1;
    }
    for (const pool of change.pools) {
      const place = this.pools.findIndex((known) => known.id === pool.id);
      if (place >= 0) this.pools[place] = pool;
    }
    this.version = change.version;
    if (change.kind.startsWith('event.')) this.#refresh();
    this.dispatchEvent(new CustomEvent('change', { detail: { all: false, ...change } }));
  }

  /** Rules, or whether it sells, changed. */
  async #refresh() {
    try {
      this.event = await this.#get('');
      this.dispatchEvent(new CustomEvent('change', { detail: { all: true, kind: 'loaded' } }));
    } catch {
      // The stream says soon enough when the server is gone.
    }
  }

  #alive({ stale_ms: staleMs = 0 }) {
    this.#become(staleMs > 0 ? 'behind' : 'live', staleMs);
    clearTimeout(this.#silence);
    this.#silence = setTimeout(() => {
      this.#become('behind');
      this.#load();
    }, SILENCE_MAX_MS);
  }

  #later() {
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#load(), this.#retryMs * (0.75 + Math.random() / 2));
    this.#retryMs = Math.min(this.#retryMs * 2, RETRY_MAX_MS);
  }

  #visibilityChanged() {
    clearTimeout(this.#hiding);
    if (document.hidden) {
      this.#hiding = setTimeout(() => {
        this.#close();
        this.#become('connecting');
      }, HIDDEN_MAX_MS);
    } else if (this.#source === undefined) {
      this.#load();
    }
  }

  #close() {
    this.#source?.close();
    this.#source = undefined;
    clearTimeout(this.#silence);
  }

  #become(connection, staleMs = 0) {
    if (this.connection === connection && this.staleMs === staleMs) return;
    this.connection = connection;
    this.staleMs = staleMs;
    this.dispatchEvent(new CustomEvent('connection', { detail: connection }));
  }
}
