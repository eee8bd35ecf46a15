// The buyer's page: from looking to holding to paying, and clear words when something does not work.

import './seat-map.js';
import { isUnknown } from './api.js';
import { Cart } from './cart.js';
import { chooseView, mostAtOnce, shortly } from './choose-view.js';
import { holdView } from './hold-view.js';
import { doneView, payingView, tillView } from './pay-view.js';
import { outcome } from './bank.js';
import { make, plural, write, writeOrHide } from './dom.js';
import { staleWords, wordsFor } from './words.js';

const TICK_MS = 250;
/** The server is asked how a hold stands no more often than this. */
const CHECK_PAUSE_MS = 500;
/** The two clocks of a machine part by more than this when it slept or was set. */
const SLEPT_MS = 2_000;
const CONNECTIONS = { connecting: 'Joining', live: 'Live', behind: 'Behind', missing: 'Missing' };

const event = location.pathname.split('/')[2] ?? '';
const checkout = document.documentElement.dataset.checkout;
const at = (id) => document.getElementById(id);
const map = at('map');
const cart = new Cart(event);
let view = null;
/** `choose`, `hold`, `till`, `paying`, `done`: what the panel shows. */
let showing = '';
let bank = new AbortController();
let checking = false;
let checkedAt = -Infinity;
let checkingLater = 0;
let clocksApart = Date.now() - performance.now();
let frame = 0;
/** A hold is being asked for: what becomes of its seats is told by the answer. */
let asking = false;
/** Answers of an earlier step that arrive late change nothing. */
let step = 0;
/** Seats that a refusal has told of; that they went is no news any more. */
let toldTaken = [];

map.addEventListener('seat-map-ready', () => ready());
map.addEventListener('seat-map-change', ({ detail }) => {
  // A busy sale changes many times in a frame; numbers are written once in it.
  if (frame === 0) frame = requestAnimationFrame(changed);
  mineChanged(detail.kind);
});
map.addEventListener('seat-map-choose', () => view?.update(map.connection));
map.addEventListener('seat-map-connection', ({ detail }) => connected(detail.state));
map.addEventListener('seat-map-lost', ({ detail }) => lost(detail.seats));
map.addEventListener('seat-map-floor', ({ detail }) => showing === 'choose' && view.choose('standing', detail.pool));
map.addEventListener('seat-map-full', ({ detail }) => notice({ tone: 'calm', title: 'That is the most at once', text: `Up to ${plural(detail.max, 'seat')} can be held in one go.` }));
cart.addEventListener('elsewhere', () => followOtherTab());
cart.addEventListener('retry', () => quiet('Still asking the server.'));
document.addEventListener('visibilitychange', () => !document.hidden && cart.view && check());
setInterval(() => tick(), TICK_MS);
map.setAttribute('src', `/v1/events/${event}`);
at('view').replaceChildren(...Array.from({ length: 3 }, () => make('div.skeleton')));

async function ready() {
  write(at('name'), map.event.name);
  document.title = `${map.event.name} – tickets`;
  changed();
  try {
    await (cart.booking ? cart.recheck() : cart.resume());
  } catch (problem) {
    // A payment that the bank has settled meanwhile is confirmed all the same: late is not lost.
    const payment = problem.code === 'hold-gone' ? problem.document.payment : null;
    if (payment && payment.how !== 'silent') return pay(payment);
    show('choose');
    return refused(problem);
  }
  return showCart();
}

/** The view that fits what the cart has. */
function showCart() {
  if (cart.booking) return show('done');
  if (!cart.view) return show('choose');
  if (cart.view.state === 'confirmed') {
    cart.soldElsewhere();
    return show(cart.booking ? 'done' : 'choose');
  }
  if (cart.payment !== null) return pay(cart.payment);
  if (cart.view.state === 'confirming') return paidElsewhere();
  return show('hold');
}

/** A payment that this page knows nothing of: the shop's, or one of the stand-in's that began without an answer. */
function paidElsewhere() {
  if (checkout === 'none') return show('paying');
  const unasked = { ref: cart.view.payment.payment_ref };
  show('hold');
  return attempt(async () => {
    await cart.paymentFailed(unasked);
    show('hold');
  });
}

function show(what, { quietly = true } = {}) {
  step += 1;
  showing = what;
  const items = cart.booking?.items ?? cart.view?.items ?? [];
  map.setAttribute('mine', items.map((item) => item.seat ?? '').join(' '));
  if (what !== 'choose') map.setAttribute('chosen', '');
  const make_ = {
    choose: () => chooseView({ map, onHold: hold }),
    hold: () => holdView({ map, cart, checkout, onExtend: extend, onRelease: release, onPay: () => show('till', { quietly: false }), onSpeak: speak }),
    till: () => tillView({ cart, onGo: begin, onBack: () => show('hold', { quietly: false }), onSpeak: speak }),
    paying: () => payingView({ map, cart }),
    done: () => doneView({ map, booking: cart.booking, onMore: more }),
  };
  view = make_[what]();
  at('view').replaceChildren(...view.elements);
  at('view').dataset.showing = what;
  // Whoever pressed a button that is gone now goes on at the heading of what came instead.
  if (!quietly) view.heading.focus();
}

// ---- what the buyer does ----

async function hold(items) {
  // What this browser had before comes first: it may still be there, with its secret in this browser only.
  if (cart.isUnseenHold) return attempt(() => ready());
  const wanted = items.map((item) => item.seat).filter((seat) => seat !== undefined);
  return attempt(async (mine) => {
    asking = true;
    try {
      await cart.hold(items);
    } finally {
      asking = false;
    }
    notice(null);
    if (mine()) show('hold', { quietly: false });
    map.showSeats(cart.seats);
    speak('Held for you.');
  }, { wanted, items });
}

const extend = () => attempt(async () => {
  await cart.extend(map.event.policy.hold_ttl_ms);
  view.update(map.connection);
  speak('You have more time now.');
});

const release = () => attempt(async () => {
  await cart.release();
  show('choose', { quietly: false });
  notice({ tone: 'calm', title: 'Given back', text: 'Your seats are on sale again.' });
});

const begin = (how) => attempt(async () => pay(await cart.beginPayment(how), { quietly: false }));

function more() {
  cart.forget();
  map.showAll();
  show('choose', { quietly: false });
}

/** Waits for the bank and does what its answer says. Also after a reload. */
async function pay(payment, how = {}) {
  show('paying', how);
  bank.abort();
  bank = new AbortController();
  const result = await outcome(payment, bank.signal);
  await attempt(async () => {
    if (result === 'declined') {
      await cart.paymentFailed(payment);
      show('hold', { quietly: false });
      notice({ tone: 'warn', title: 'The payment was declined', text: 'Your seats are still yours, with the time you had left and at least a minute. Try another card.' });
    } else {
      await cart.confirm(payment);
      show('done', { quietly: false });
      speak('Your tickets are booked.');
    }
  });
}

/** Runs something with the buttons off, and finds words for a refusal. */
async function attempt(work, context = {}) {
  const begun = step;
  const before = view;
  notice(null);
  before?.busy(true);
  try {
    await work(() => step === begun);
    if (at('notice').hasAttribute('data-passing')) notice(null);
  } catch (problem) {
    await refused(problem, context);
  } finally {
    if (view === before) view?.busy(false);
  }
}

async function refused(problem, { wanted = [], items = [] } = {}) {
  if (problem.code === undefined) throw problem;
  const limit = map.event?.policy.units_per_holder_max ?? 0;
  const offers = [];
  if (problem.code === 'seat-taken') {
    toldTaken = problem.document.seats ?? [];
    offers.push(...alternatives(wanted, toldTaken, holdInstead));
  }
  if (problem.code === 'sold-out') offers.push(...fewer(problem.document, items));
  if (problem.code === 'hold-gone' || problem.code === 'hold-expired') offers.push(...again(problem.document.items ?? cart.view?.items ?? []));
  if (['hold-gone', 'hold-expired', 'refund-due', 'not-found'].includes(problem.code)) {
    cart.forget();
    bank.abort();
    if (showing !== 'choose') show('choose', { quietly: false });
  } else if (isUnknown(problem) && showing === 'paying') {
    offers.push({ text: 'Ask again', go: () => (cart.payment ? pay(cart.payment) : showCart()) });
  } else if (problem.code === 'hold-state') {
    await check();
  }
  notice({ ...wordsFor(problem, { limit, best: items[0]?.best, nameOf: (seat) => map.wordsFor(seat) }), offers });
  view?.update(map.connection);
}

/** Groups of free seats near those that were lost, as many as are wanted, as buttons that do something with them. */
function alternatives(wanted, taken, button) {
  if (wanted.length === 0) return [];
  const groups = map.nearby(taken.length > 0 ? taken : wanted, wanted.length);
  if (groups.length > 0) {
    map.setAttribute('suggested', groups.flat().join(' '));
    map.showSeats([...groups[0], ...wanted]);
  }
  const name = (group) => (group.length === 1 ? shortly(map.wordsFor(group[0])) : `${shortly(map.wordsFor(group[0]))}–${group.at(-1).slice(group.at(-1).lastIndexOf('-') + 1)}`);
  return groups.map((group) => {
    const { text, go } = button(group);
    return { text: `${text} ${name(group)}`, go };
  });
}

/** As many as there are, when there are too few. */
function fewer({ available = 0, pool }, items) {
  const [item] = items;
  if (pool && available > 0 && items.length === 1) return [{ text: `Hold ${available}`, go: () => hold([{ ...item, quantity: available }]) }];
  if (!pool && item?.best?.section) return [{ text: 'Look in all sections', go: () => hold([{ best: { count: item.best.count } }]) }];
  if (!pool && item?.best && item.best.count > 1 && available > 0) return [{ text: `Hold ${item.best.count - 1} together`, go: () => hold([{ best: { ...item.best, count: item.best.count - 1 } }]) }];
  return [];
}

/** The same once more, if it is still free. */
function again(items) {
  const free = items.length > 0 && items.every((item) => item.seat === undefined || map.statusOf(item.seat) === 'free');
  const wanted = items.map(({ seat, pool, quantity }) => (seat !== undefined ? { seat } : { pool, quantity }));
  return free ? [{ text: 'Hold the same again', go: () => hold(wanted) }] : [];
}

// ---- what the server and time do ----

function changed() {
  frame = 0;
  const { counts, pools, event: seen } = map;
  if (!counts) return;
  map.setAttribute('max', mostAtOnce(map));
  const places = counts.free + pools.reduce((sum, pool) => sum + pool.free, 0);
  const carts = counts.held + pools.reduce((sum, pool) => sum + pool.held, 0);
  const sale = seen.state === 'open' ? `${places.toLocaleString('en')} free` : 'Not on sale';
  write(at('numbers'), `${sale} · ${carts.toLocaleString('en')} in carts · ${(counts.sold + pools.reduce((sum, pool) => sum + pool.sold, 0)).toLocaleString('en')} sold`);
  if (showing === 'choose') view.update(map.connection);
}

/** Somebody else ended this hold: the operator, time, or the shop that sold it. Units of a pool do not show whose they were. */
function mineChanged(kind) {
  if (!cart.view || cart.isOver || showing === 'done') return;
  const gone = cart.seats.some((seat) => map.statusOf(seat) !== 'held');
  if (gone || (cart.seats.length === 0 && ['hold.revoked', 'booking.created'].includes(kind))) check();
}

function connected(state) {
  at('connection').dataset.state = state;
  write(at('connection-words'), CONNECTIONS[state]);
  writeOrHide(at('stale'), staleWords(map));
  view?.update(state);
  if (state === 'missing' && map.event === null) {
    write(at('name'), 'No such event');
    notice({ tone: 'calm', title: 'There is no such event', text: 'The address may be mistyped, or the event is not on sale here.' });
    at('view').replaceChildren();
  }
  // Back again: the hold may have ended meanwhile.
  if (state === 'live' && cart.view) check();
  if (state === 'live' && cart.isUnseen && map.event !== null && showing === 'choose') ready();
}

function lost(seats) {
  if (showing !== 'choose' || asking || seats.every((seat) => toldTaken.includes(seat))) return;
  const which = seats.length === 1 ? map.wordsFor(seats[0]) : plural(seats.length, 'of your seats', 'of your seats');
  const offers = alternatives(seats, seats, map.chosen.length === 0 ? holdInstead : chooseAlso);
  notice({ tone: 'warn', title: 'Someone was faster', text: `${which} just went to someone else, and ${seats.length === 1 ? 'is' : 'are'} no longer among your chosen ones.`, offers });
}

const holdInstead = (seats) => ({ text: 'Hold', go: () => hold(seats.map((seat) => ({ seat }))) });

/** In place of those that were lost, beside what is still chosen. */
const chooseAlso = (seats) => ({
  text: 'Choose',
  go: () => {
    notice(null);
    map.setAttribute('chosen', [...map.chosen, ...seats].join(' '));
    view.update(map.connection);
  },
});

function tick() {
  if (!cart.view || !view) return;
  view.update(map.connection);
  // The steady clock stands still while some machines sleep, and the countdown with it.
  const apart = Date.now() - performance.now();
  const slept = Math.abs(apart - clocksApart) > SLEPT_MS;
  clocksApart = apart;
  // Only the server knows whether it is over.
  if (slept || (cart.remaining !== null && cart.remaining <= 0)) check();
}

/** Reads the hold again and follows it. */
async function check() {
  if (!cart.view) return;
  if (checking || performance.now() - checkedAt < CHECK_PAUSE_MS) {
    // What happened since the last question is asked about too, only later.
    checkingLater ||= setTimeout(() => {
      checkingLater = 0;
      check();
    }, CHECK_PAUSE_MS);
    return;
  }
  checking = true;
  checkedAt = performance.now();
  const begun = step;
  try {
    const before = cart.view.state;
    const seen = await cart.refresh();
    if (seen && step === begun && seen.state !== before) showCart();
  } catch (problem) {
    // A payment that may still come keeps its secret until the bank has spoken or the buyer gives up.
    if (step === begun && problem.code === 'hold-gone' && problem.document.payment) paymentOver(problem.document);
    else if (step === begun && problem.code !== 'unreachable') await refused(problem);
  } finally {
    checking = false;
  }
}

function paymentOver({ payment, items }) {
  map.setAttribute('mine', '');
  view.update(map.connection);
  if (payment.how !== 'silent') return;
  cart.forget();
  bank.abort();
  show('choose', { quietly: false });
  notice({ tone: 'bad', title: 'The bank never answered', text: 'The payment’s time is over and the seats went back on sale. If money was taken, it comes back.', offers: again(items) });
}

function followOtherTab() {
  // There was nothing here and there is nothing: what this page said about that stands.
  if (showing === 'choose' && !cart.view && !cart.booking) return;
  bank.abort();
  notice(null);
  showCart();
}

// ---- words ----

function notice(what) {
  const box = at('notice');
  box.hidden = what === null;
  if (what === null) {
    box.replaceChildren();
    map.setAttribute('suggested', '');
    return;
  }
  box.dataset.tone = what.tone;
  box.toggleAttribute('data-passing', what.isPassing === true);
  const offers = (what.offers ?? []).map(({ text, go }) => make('button.button.small', { type: 'button', on: { click: go } }, text));
  box.replaceChildren(make('h3', {}, what.title), make('p', {}, what.text), ...(offers.length > 0 ? [make('div.offers', {}, offers)] : []));
  box.scrollIntoView({ block: 'nearest' });
}

function quiet(text) {
  notice({ tone: 'calm', title: 'One moment', text, isPassing: true });
}

function speak(text) {
  at('speech').textContent = text;
}
