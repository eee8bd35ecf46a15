// The buyer's own hold. It lives in this browser's storage, so a reload or a second tab finds it again; its secret is
// sent to the server and nowhere else.
//
// A request that takes something is written down with its idempotency key *before* it is sent. A page that was closed
// while the answer was on its way asks again and gets the same answer, with the same hold.

import { ask, isUnknown, Problem } from './api.js';
import { random } from './dom.js';

/** Less is shown than there is, so that nobody presses "pay" in the last instant and is refused. */
const MARGIN_MS = 2_000;
/** Nobody can ask for more at once. */
const EXTEND_MAX_MS = 24 * 60 * 60 * 1_000;
const ENDED = new Set(['released', 'expired', 'revoked']);

export class Cart extends EventTarget {
  #event;
  #name;
  #deadline = null;
  #stored = {};
  #onRetry = () => this.dispatchEvent(new Event('retry'));

  constructor(event) {
    super();
    this.#event = event;
    this.#name = `leasehold:cart:${event}`;
    this.#stored = this.#read();
    /** The hold as the server last showed it; null without one. */
    this.view = null;
    /** The sale it became. */
    this.booking = this.#stored.booking ?? null;
    window.addEventListener('storage', (change) => {
      if (change.key === this.#name) this.#otherTab();
    });
  }

  get payment() {
    return this.#stored.payment ?? null;
  }

  /** True while this browser remembers a hold that the server could not be asked about. */
  get isUnseen() {
    return Boolean(this.#stored.hold_id ?? this.#stored.pending) && this.view === null && this.booking === null;
  }

  /** True while that is a hold, and not only a request for one: nothing else may be written down in its place. */
  get isUnseenHold() {
    return this.isUnseen && Boolean(this.#stored.hold_id);
  }

  /** True when the hold has ended and only a payment that is under way may still bring it back. */
  get isOver() {
    return ENDED.has(this.view?.state);
  }

  /** Milliseconds that the hold lasts in all, as the buyer sees it. */
  get total() {
    const { created_at, expires_at } = this.view;
    return Math.max(1, Date.parse(expires_at) - Date.parse(created_at) - MARGIN_MS);
  }

  get extended() {
    return this.#stored.extended === true;
  }

  /** Milliseconds that are left for the buyer, by this machine's steady clock; null without a deadline. */
  get remaining() {
    return this.#deadline === null ? null : this.#deadline - performance.now() - MARGIN_MS;
  }

  get seats() {
    return (this.view?.items ?? []).filter((item) => item.seat !== undefined).map((item) => item.seat);
  }

  /** Finds what this browser had before. Says what became of it when it is gone. */
  async resume() {
    if (this.#stored.hold_id) return this.refresh();
    if (this.#stored.pending) return this.#create(this.#stored.pending);
    return this.view;
  }

  async hold(items) {
    const pending = { key: random(), body: { items, holder: this.#holder() } };
    if (this.#stored.pending) {
      const before = await this.#settle(this.#stored.pending);
      if (before && JSON.stringify(before.items) === JSON.stringify(items)) return this.view;
      if (before) await this.release();
    }
    this.#write({ pending });
    return this.#create(pending);
  }

  /** Finds out what became of a request without an answer, so that no buyer stands in their own way. */
  async #settle(pending) {
    try {
      await this.#create(pending);
      return pending.body;
    } catch (problem) {
      if (isUnknown(problem)) throw problem;
      return null;
    }
  }

  async #create(pending) {
    try {
      const { body, replayed, sentAt } = await ask(`/v1/events/${this.#event}/holds`, { method: 'POST', body: pending.body, key: pending.key, onRetry: this.#onRetry });
      this.#write({ hold_id: body.hold_id, secret: body.secret });
      // An answer that is repeated has the times of the first one.
      if (replayed) return await this.refresh();
      this.#take(body, sentAt);
      return body;
    } catch (problem) {
      // Unknown stays written down: it is asked again, under the same key, at the next start.
      if (!isUnknown(problem)) this.#write({});
      throw problem;
    }
  }

  /** Reads the hold again. Throws `hold-gone` with its last state when it has ended. */
  async refresh() {
    const { hold_id, secret } = this.#stored;
    if (!hold_id) return null;
    // The answer may come when the buyer has gone on to another hold, which it says nothing about.
    const isOld = () => this.#stored.hold_id !== hold_id;
    try {
      const { body, sentAt } = await ask(`/v1/holds/${hold_id}`, { secret });
      if (isOld()) return this.view;
      this.#take(body, sentAt);
      if (ENDED.has(body.state)) this.#gone(body.state);
      return body;
    } catch (problem) {
      if (isOld() && problem.code !== 'hold-gone') return this.view;
      if (problem instanceof Problem && problem.code === 'not-found') this.#gone('expired');
      throw problem;
    }
  }

  /** Asks whether the sale that this browser remembers is one of this server's, and still one. */
  async recheck() {
    const { hold_id, secret } = this.#stored;
    if (!hold_id) return;
    let view;
    try {
      view = (await ask(`/v1/holds/${hold_id}`, { secret })).body;
    } catch (problem) {
      if (problem.code === 'not-found') this.forget();
      return;
    }
    if (view.state !== 'confirmed' || view.booking_state === 'cancelled') this.forget();
    if (view.booking_state === 'cancelled') throw new Problem({ code: 'hold-gone', state: 'cancelled', items: view.items });
  }

  #gone(state) {
    const items = this.view?.items ?? [];
    const payment = this.payment;
    if (this.view) this.#take({ ...this.view, state }, 0);
    // A payment that is still under way may yet need the secret.
    if (payment === null) this.forget();
    throw new Problem({ code: 'hold-gone', state, items, payment });
  }

  /** Adds that much to what is left, as far as the event allows. */
  async extend(ms) {
    const extend_ms = Math.min(Math.ceil(Math.max(0, this.#deadline - performance.now()) + ms), EXTEND_MAX_MS);
    const answer = await this.#change({ method: 'PATCH', body: { extend_ms } });
    this.#write({ ...this.#stored, extended: true });
    await this.#follow(answer);
  }

  async release() {
    await this.#change({ method: 'DELETE' });
    this.forget();
  }

  /** Tells the server that the buyer goes to pay. What began without an answer is found in the hold itself. */
  async beginPayment(how) {
    const payment = { ref: `web-${random()}`, how, begun: Date.now() };
    const answer = await this.#change({ method: 'POST', path: '/payment', body: { payment_ref: payment.ref }, key: `begin-${payment.ref}` });
    this.#write({ ...this.#stored, payment });
    await this.#follow(answer);
    return payment;
  }

  async paymentFailed(payment) {
    const answer = await this.#change({ method: 'POST', path: '/payment/failed', body: { payment_ref: payment.ref }, key: `failed-${payment.ref}` });
    this.#write({ ...this.#stored, payment: undefined });
    await this.#follow(answer);
  }

  /** Sells. The key is the payment's, so that asking twice sells once. */
  async confirm(payment) {
    try {
      const { body } = await this.#change({ method: 'POST', path: '/confirm', body: { payment_ref: payment.ref, order_ref: `order-${payment.ref.slice(4, 12)}` }, key: `confirm-${payment.ref}` });
      this.#sold(body);
      return body;
    } catch (problem) {
      // Whoever does not know whether it is sold asks again, with the same payment.
      if (problem instanceof Problem && !isUnknown(problem)) this.#write({ ...this.#stored, payment: undefined });
      throw problem;
    }
  }

  /** Somebody else, the shop, turned the hold into a sale. The hold says all that the ticket needs. */
  soldElsewhere() {
    const { booking_id, items, booking_state } = this.view;
    this.#sold({ booking_id, items });
    if (booking_state === 'cancelled') this.forget();
  }

  #sold(booking) {
    const { hold_id, secret } = this.#stored;
    this.booking = booking;
    this.view = null;
    this.#deadline = null;
    this.#write({ booking, hold_id, secret });
  }

  forget() {
    this.view = null;
    this.booking = null;
    this.#deadline = null;
    this.#write({});
  }

  #change({ method, path = '', body, key = random() }) {
    const { hold_id, secret } = this.#stored;
    return ask(`/v1/holds/${hold_id}${path}`, { method, body, secret, key, onRetry: this.#onRetry });
  }

  /** Takes an answer about the hold. One that is repeated has the times of the first, so the hold is read anew. */
  async #follow({ body, replayed, sentAt }) {
    if (replayed) await this.refresh();
    else this.#take(body, sentAt);
  }

  /** Counts from when the question left: an answer that was long on its way must not promise more time than there is. */
  #take(view, sentAt) {
    this.view = view;
    this.#deadline = ENDED.has(view.state) ? null : sentAt + view.expires_in_ms;
  }

  async #otherTab() {
    const before = this.#stored.hold_id;
    this.#stored = this.#read();
    this.booking = this.#stored.booking ?? null;
    if (!this.#stored.hold_id || this.booking) {
      this.view = null;
      this.#deadline = null;
    } else {
      try {
        await this.refresh();
      } catch {
        // Whoever changed it says what happened.
      }
    }
    this.dispatchEvent(new CustomEvent('elsewhere', { detail: { other: before !== this.#stored.hold_id } }));
  }

  #holder() {
    try {
      const known = localStorage.getItem('leasehold:holder');
      if (known !== null) return known;
      const holder = `web-${random()}`;
      localStorage.setItem('leasehold:holder', holder);
      return holder;
    } catch {
      return `web-${random()}`;
    }
  }

  #read() {
    try {
      return JSON.parse(localStorage.getItem(this.#name) ?? '{}') ?? {};
    } catch {
      return {};
    }
  }

  #write(stored) {
    this.#stored = stored;
    try {
      if (Object.keys(stored).length === 0) localStorage.removeItem(this.#name);
      else localStorage.setItem(this.#name, JSON.stringify(stored));
    } catch {
      // A browser that keeps nothing still sells; only a reload then forgets.
    }
  }
}
