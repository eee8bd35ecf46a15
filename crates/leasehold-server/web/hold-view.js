// Held: what is kept for the buyer, and for how long. The time is the server's; this only counts it down.

import { clock, make, plural, write } from './dom.js';
import { titled } from './choose-view.js';

/** From here on the buyer is warned. */
const WARN_MS = 60_000;
const TURN = 2 * Math.PI * 41;

/** The last minute, or the last third of a short hold. */
export function isSoon(cart) {
  return cart.remaining < Math.min(WARN_MS, cart.total / 3);
}

/** The hold whose buyer was warned. */
let warnedOf = null;

/** Says aloud that a hold nearly ends, once; again if it was given more time in between. */
export function warn(cart, onSpeak) {
  const hold = cart.view.hold_id;
  if (!isSoon(cart)) warnedOf = null;
  else if (warnedOf !== hold && cart.remaining > 0) {
    warnedOf = hold;
    onSpeak(`${clock(cart.remaining)} left to pay for your tickets.`);
  }
}

/** The countdown, shared by holding and paying. */
export function timer() {
  const left = make('circle.left', { cx: 50, cy: 50, r: 41, 'stroke-dasharray': TURN });
  const time = make('div.time', { role: 'timer', id: 'countdown', 'aria-label': 'Time left' }, '–:––');
  const words = make('p', {});
  const element = make('div.timer', { 'data-urgency': 'calm' }, make('svg', { viewBox: '0 0 100 100', 'aria-hidden': 'true' }, make('circle.track', { cx: 50, cy: 50, r: 41 }), left), make('div', {}, time, words));
  return {
    element,
    show({ remaining, total, urgency, text }) {
      write(time, remaining === null ? '–:––' : clock(remaining));
      left.style.strokeDashoffset = String(TURN * (1 - Math.min(1, Math.max(0, (remaining ?? 0) / Math.max(1, total)))));
      element.dataset.urgency = urgency;
      write(words, text);
    },
  };
}

export function itemList(items, map) {
  return make('ul.items', {}, items.map((item) => (item.seat !== undefined
    ? make('li', {}, make('span', {}, map.wordsFor(item.seat)))
    : make('li', {}, make('span', {}, `${titled(item.pool)}, standing`), make('span.muted', {}, `× ${item.quantity}`)))));
}

export function holdView({ map, cart, checkout, onExtend, onRelease, onPay, onSpeak }) {
  const heading = make('h2', { tabindex: '-1' }, 'These are yours for now');
  const count = cart.view.items.reduce((sum, item) => sum + (item.quantity ?? 1), 0);
  const countdown = timer();
  const pay = make('button.button.primary', { type: 'button', id: 'pay', on: { click: onPay } }, 'Continue to payment');
  const extend = make('button.button', { type: 'button', id: 'extend', on: { click: onExtend } }, 'More time');
  const release = make('button.button.quiet', { type: 'button', id: 'release', on: { click: onRelease } }, 'Give back');
  const note = checkout === 'none' ? make('p.muted', { id: 'no-checkout' }, 'Payment is taken by the shop that sent you here. Go back to it before the time is over; this page only keeps your seats.') : null;
  let isBusy = false;

  function update(connection) {
    const remaining = cart.remaining;
    if (remaining === null) return;
    const soon = isSoon(cart);
    const capped = cart.extended || map.event.policy.extends_max === 0 || cart.view.expires_at >= cart.view.hard_deadline;
    extend.disabled = isBusy || capped;
    write(extend, cart.extended ? 'Extended' : 'More time');
    const lost = connection === 'behind';
    const text = remaining <= 0 ? 'Asking the server how it stands.' : lost ? 'No connection. Your seats are kept by the server, and the time goes on.' : soon ? (capped ? 'Nearly over. Pay now to keep your seats.' : 'Nearly over. Pay now, or take more time.') : `Nobody else can take ${count === 1 ? 'it' : 'them'} until the time is over.`;
    countdown.show({ remaining: Math.max(0, remaining), total: cart.total, urgency: soon ? 'soon' : 'calm', text });
    warn(cart, onSpeak);
  }

  update('live');
  return {
    elements: [
      make('div', {}, heading, make('p.muted', {}, `${plural(count, 'ticket')} kept for you.`)),
      countdown.element,
      itemList(cart.view.items, map),
      make('div.stack', {}, checkout === 'none' ? null : pay, make('div.pair', {}, extend, release), note),
    ],
    heading,
    update,
    busy: (is) => {
      isBusy = is;
      pay.disabled = is;
      release.disabled = is;
      update(map.connection);
    },
  };
}
