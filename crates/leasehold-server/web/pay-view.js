// Paying, with the stand-in for a payment service; and the ticket afterwards.

import { make, write } from './dom.js';
import { isSoon, itemList, timer, warn } from './hold-view.js';
import { titled } from './choose-view.js';
import { WAYS } from './bank.js';

/** Which way the stand-in shall go. Nothing has begun yet. */
export function tillView({ cart, onGo, onBack, onSpeak }) {
  const heading = make('h2', { tabindex: '-1' }, 'Pay');
  const countdown = timer();
  const choices = make('fieldset.choices', {}, make('legend.unseen', {}, 'What shall the bank do?'), WAYS.map(({ how, title, text }, place) => make('label', {},
    make('input', { type: 'radio', name: 'bank', value: how, checked: place === 0 }), make('strong', {}, title), make('span', {}, text))));
  const go = make('button.button.primary', { type: 'button', id: 'pay-now', on: { click: () => onGo(choices.querySelector(':checked').value) } }, 'Pay now');
  const back = make('button.button.quiet', { type: 'button', id: 'back', on: { click: onBack } }, 'Back');
  function update() {
    const remaining = cart.remaining;
    if (remaining === null) return;
    countdown.show({ remaining: Math.max(0, remaining), total: cart.total, urgency: isSoon(cart) ? 'soon' : 'calm', text: 'The countdown stops as soon as you pay.' });
    warn(cart, onSpeak);
  }
  update();
  return {
    elements: [
      make('div', {}, heading, make('p.muted', {}, 'This is a demonstration: no money moves. Choose what the bank does.')),
      countdown.element, choices, make('div.stack', {}, go, back),
    ],
    heading,
    update,
    busy: (is) => {
      go.disabled = is;
      back.disabled = is;
    },
  };
}

/** The payment is under way: the hold's own time stands still. */
export function payingView({ map, cart }) {
  const heading = make('h2', { tabindex: '-1' }, 'Payment in progress');
  const countdown = timer();
  const words = make('span', {}, 'Waiting for the bank.');
  const total = Math.max(1, cart.remaining ?? 1);
  function update(connection) {
    const remaining = cart.remaining;
    write(words, connection === 'behind' ? 'Waiting for the connection to come back.' : 'Waiting for the bank.');
    if (cart.isOver) countdown.show({ remaining: 0, total, urgency: 'soon', text: 'The payment’s time is over and the seats are on sale again. If the bank still says yes, you get them back if they are free, or your money.' });
    else if (remaining !== null) countdown.show({ remaining: Math.max(0, remaining), total, urgency: 'paused', text: 'Your seats cannot run out while the bank works; this is the payment’s own deadline.' });
  }
  update('live');
  return {
    elements: [make('div', {}, heading, make('p.muted', {}, 'Leave this page open. A reload does no harm.')), make('p.waiting', { id: 'waiting' }, make('span.spinner', { 'aria-hidden': 'true' }), words), countdown.element, itemList(cart.view?.items ?? [], map)],
    heading,
    update,
    busy: () => {},
  };
}

export function doneView({ map, booking, onMore }) {
  const heading = make('h2', { tabindex: '-1', id: 'done' }, 'You are going!');
  const items = booking.items.map((item) => (item.seat !== undefined ? map.wordsFor(item.seat) : `${titled(item.pool)}, standing × ${item.quantity}`));
  return {
    elements: [
      make('div', {}, heading, make('p.muted', {}, booking.revived ? 'The payment came late, and everything was still free.' : 'Paid and confirmed. Nobody else can have these.')),
      make('div.ticket', {},
        make('div.head', {}, make('h3', {}, map.event?.name ?? ''), booking.booked_at ? make('p.muted', {}, `Booked ${new Date(booking.booked_at).toLocaleString([], { dateStyle: 'medium', timeStyle: 'short' })}`) : null),
        make('div.cut'),
        make('dl', {}, make('dt', {}, items.length === 1 ? 'Place' : 'Places'), items.map((item) => make('dd', {}, item)), make('dt', {}, 'Order'), make('dd', {}, booking.order_ref ?? '–'), make('dt', {}, 'Booking'), make('dd', { id: 'booking' }, booking.booking_id))),
      make('button.button', { type: 'button', id: 'more', on: { click: onMore } }, 'Buy more tickets'),
    ],
    heading,
    update: () => {},
    busy: () => {},
  };
}
