// Seats and log: who has what and until when, what happened to it, and taking it back or keeping it from sale.

import './seat-map.js';
import { ask } from './api.js';
import { clock, every, make, random, write, writeOrHide } from './dom.js';
import { blocksCard } from './console-blocks.js';
import { action, askFor, reason } from './console-dialog.js';
import { tenures, time, what, who } from './log-words.js';
import { staleWords } from './words.js';

const HOLDS_SHOWN_MAX = 100;
const LISTS_INTERVAL_MS = 2_000;
const ENTRIES_SHOWN_MAX = 100;
const REREAD_MS = 500;
const TICK_MS = 500;

export function seatsView(desk) {
  const map = make('seat-map', { look: true, id: 'map', 'aria-label': 'Seat map' });
  const stale = make('p.stale', { id: 'stale', hidden: true });
  const kind = make('select.input', { id: 'find-kind', 'aria-label': 'Find by' }, [['seat', 'Seat'], ['holder', 'Holder'], ['order', 'Order or payment'], ['hold', 'Hold']].map(([value, name]) => make('option', { value }, name)));
  const text = make('input.input', { id: 'find-text', 'aria-label': 'What to find', autocomplete: 'off', spellcheck: 'false', placeholder: '104-3-7' });
  const form = make('form.find', { on: { submit: (event) => { event.preventDefault(); find(kind.value, text.value.trim()); } } }, kind, text, make('button.button.primary', { type: 'submit', id: 'find' }, 'Find'));
  const answer = make('div', { id: 'answer', 'aria-live': 'polite' }, hint());
  const rows = make('tbody');
  const count = make('p.muted', {});
  const blocks = blocksCard({ desk, perform });
  let asked = null;
  let stopped = false;
  let rereading = 0;
  let answered = '';

  map.addEventListener('seat-map-press', ({ detail }) => {
    kind.value = 'seat';
    text.value = detail.seat;
    find('seat', detail.seat);
  });
  map.addEventListener('seat-map-connection', () => writeOrHide(stale, staleWords(map)));
  // What is shown of a seat is read again when something happened, but not for every change of a busy sale.
  map.addEventListener('seat-map-change', ({ detail }) => {
    if (asked?.kind !== 'seat' || rereading !== 0 || detail.seats?.includes(asked.text) === false) return;
    rereading = setTimeout(() => {
      rereading = 0;
      if (asked?.kind === 'seat' && !stopped) find('seat', asked.text, { quietly: true });
    }, REREAD_MS);
  });

  async function find(by, value, { quietly = false } = {}) {
    if (value === '') return;
    asked = { kind: by, text: value };
    const mine = asked;
    try {
      const { body } = await ask(`/v1/operator/events/${desk.event}/log?${by}=${encodeURIComponent(value)}&limit=${ENTRIES_SHOWN_MAX}`);
      if (asked !== mine) return;
      if (by === 'seat' && !quietly) map.showSeats([value]);
      if (by === 'seat') map.setAttribute('chosen', value);
      // Whoever is about to press a button keeps it as long as nothing is new.
      const news = JSON.stringify([by, value, body.owner, body.entries[0]?.version]);
      if (quietly && news === answered) return;
      answered = news;
      answer.replaceChildren(...shown(by, value, body));
    } catch (problem) {
      if (asked !== mine) return;
      const words = problem.code === 'not-found' ? `There is no ${by} “${value}” in this event.` : problem.message;
      answer.replaceChildren(make('p.empty', {}, words));
    }
  }

  function shown(by, value, log) {
    const parts = [];
    if (by === 'seat') parts.push(owner(value, log), fates(value, log));
    else parts.push(summary(by, value, log));
    parts.push(timeline(log));
    return parts;
  }

  /** Who has the seat now, and what can be done about it. */
  function owner(seat, log) {
    const { hold_id, booking_id, block_id } = log.owner ?? {};
    const actions = make('div.actions');
    let state;
    let lines;
    if (block_id) {
      const block = log.blocks[0];
      [state, lines] = ['Blocked', [['Reason', block?.reason ?? 'none given'], ['Since', time(block?.created_at)], ['Seats', block?.seats.join(', ')]]];
      actions.append(action('unblock', 'End the block', () => blocks.unblock(block_id, map.wordsFor(seat))));
    } else if (booking_id) {
      const booking = log.bookings.find((one) => one.booking_id === booking_id);
      [state, lines] = ['Sold', [['To', booking?.holder ?? 'a buyer without a name'], ['Order', booking?.order_ref ?? '–'], ['Payment', booking?.payment_ref ?? '–'], ['Booked', time(booking?.booked_at)], ['Booking', booking_id]]];
    } else if (hold_id) {
      const hold = log.holds.find((one) => one.hold_id === hold_id);
      [state, lines] = [hold?.state === 'confirming' ? 'Being paid for' : 'Held', [['By', who(hold)], ['Until', [`${time(hold?.expires_at)} (`, countdown(hold?.expires_in_ms ?? 0), ' left)']], ['Hold', hold_id]]];
      actions.append(action('revoke', 'Take it back', () => revoke(hold_id, seat)));
    } else {
      [state, lines] = ['Free', [['', 'Anybody can hold it.']]];
      actions.append(action('block', 'Keep from sale', () => blocks.block(seat)));
    }
    return make('section.card.owner', { id: 'owner', 'data-state': state }, make('div.head', {}, make('h3', {}, map.wordsFor(seat)), make('span', { class: `state ${state.split(' ')[0].toLowerCase()}` }, state)),
      make('dl', {}, lines.flatMap(([name, text_]) => [make('dt', {}, name), make('dd', {}, text_ ?? '–')])), actions);
  }

  /** The answer to "why did I lose it?", for everybody who had it. */
  function fates(seat, log) {
    const all = tenures(seat, log);
    if (all.length === 0) return make('p.empty', {}, log.looked_back_to ? 'Nobody has had this seat as far back as the log goes.' : 'This store keeps no log.');
    return make('section.card', { id: 'fates' }, make('h3', {}, 'Who had it, and how they lost it'), make('ol.fates', {}, all.reverse().map((one) => make('li', {},
      make('strong', {}, one.who), ` ${one.sold ? 'bought' : 'had'} it from ${time(one.from)}`, one.to ? ` until ${time(one.to)}: ${one.why}${one.late ? '; the money came too late and is to be given back' : ''}.` : one.sold ? ` and owns it${one.order ? ` (${one.order})` : ''}.` : ' and has it now.'))));
  }

  function summary(by, value, log) {
    if (log.entries.length === 0) return make('p.empty', {}, `The log has nothing about this ${by === 'order' ? 'order or payment' : by}. It goes back ${log.looked_back_to ? `to version ${log.looked_back_to}` : 'nowhere'}.`);
    return make('section.card', { id: 'found' }, make('h3', {}, value), make('ul.found', {}, log.holds.map((hold) => {
      const booking = log.bookings.find((one) => one.hold_id === hold.hold_id);
      const items = (booking ?? hold).items.map((item) => item.seat ?? `${item.pool} × ${item.quantity}`).join(', ');
      const live = hold.state === 'held' || hold.state === 'confirming';
      return make('li', {}, make('span', { class: `state ${hold.state}` }, booking?.state === 'cancelled' ? 'cancelled' : hold.state), make('span', {}, make('strong', {}, items), make('small.muted', {}, `${who(hold)} · ${booking?.order_ref ?? hold.hold_id}`, live ? [' · ', countdown(hold.expires_in_ms), ' left'] : null)),
        live ? action('revoke', 'Take it back', () => revoke(hold.hold_id)) : null);
    })));
  }

  function timeline(log) {
    const of = (id) => log.holds.find((hold) => hold.hold_id === id);
    return make('section.card', { id: 'timeline' }, make('h3', {}, 'Log'), make('ol.timeline', {}, log.entries.map((entry) => make('li', {},
      make('time.figures', { datetime: entry.at }, time(entry.at)), make('span', {}, make('strong', {}, what(entry.kind)), entry.hold_id ? ` · ${who(of(entry.hold_id))}` : '', entry.reason ? ` · “${entry.reason}”` : '', make('small.muted', {}, places(entry)))))),
      log.next ? make('p.muted', {}, 'Older entries are in the API: pass `next` as `before`.') : null);
  }

  function places({ seats = [], seats_left_out = 0, pools = [] }) {
    const names = seats.map(([seat]) => seat);
    const listed = names.length > 6 ? `${names.slice(0, 6).join(', ')} and ${names.length - 6 + seats_left_out} more` : names.join(', ');
    return [listed, ...pools.map((pool) => `${pool.id}: ${pool.free} free`)].filter((part) => part !== '').join(' · ');
  }

  // ---- what an operator does ----

  async function perform(work, done) {
    try {
      await work();
      desk.speak(done);
    } catch (problem) {
      desk.speak(`That did not work: ${problem.message}`);
      answer.prepend(make('p.wrong', { role: 'alert' }, `That did not work: ${problem.document?.title ?? problem.message}`));
      return;
    }
    if (asked) await find(asked.kind, asked.text, { quietly: true });
    await Promise.all([holds(), blocks.read({ always: true })]);
  }

  async function revoke(hold, seat) {
    const said = await askFor({ title: 'Take the hold back?', text: `${seat ? map.wordsFor(seat) : 'Everything in it'} goes back on sale at once, also if somebody is paying for it right now.`, fields: [{ name: 'reason', label: 'Reason, for the log' }], go: 'Take it back' });
    if (said) await perform(() => ask(`/v1/holds/${hold}/revoke`, { method: 'POST', body: reason(said.reason), key: random() }), 'The hold was taken back.');
  }

  // ---- the holds that live ----

  async function holds() {
    if (stopped || !desk.event) return;
    let page;
    try {
      page = (await ask(`/v1/events/${desk.event}/holds?limit=${HOLDS_SHOWN_MAX}`)).body;
    } catch {
      return;
    }
    write(count, page.holds.length === 0 ? 'Nobody holds anything right now.' : page.next ? `The first ${HOLDS_SHOWN_MAX} of them.` : `${page.holds.length} of them.`);
    // Whoever is about to press a button in the list keeps it where it is.
    if (rows.contains(document.activeElement) || rows.matches(':hover')) return;
    page.holds.sort((one, other) => one.expires_in_ms - other.expires_in_ms);
    rows.replaceChildren(...page.holds.map((hold) => make('tr', {},
      make('th', { scope: 'row' }, make('button.link', { type: 'button', on: { click: () => { kind.value = 'hold'; text.value = hold.hold_id; find('hold', hold.hold_id); } } }, who(hold))),
      make('td', {}, hold.items.map((item) => item.seat ?? `${item.pool} × ${item.quantity}`).join(', ')), make('td', {}, make('span', { class: `state ${hold.state}` }, hold.state === 'confirming' ? 'paying' : hold.state)), make('td.number', {}, countdown(hold.expires_in_ms)))));
  }

  function chosen() {
    asked = null;
    answer.replaceChildren(hint());
    map.setAttribute('chosen', '');
    map.setAttribute('src', `/v1/events/${desk.event}`);
    holds();
    blocks.read({ always: true });
  }

  function tick() {
    for (const left of document.querySelectorAll('#view [data-ends]')) write(left, clock(Number(left.dataset.ends) - performance.now()));
  }

  const stop = every(LISTS_INTERVAL_MS, () => Promise.all([holds(), blocks.read()]));
  const stopTicking = every(TICK_MS, tick);
  if (desk.event) chosen();
  return {
    elements: [
      make('h2.unseen', {}, 'Seats and log'),
      make('div.split', {},
        make('div.left', {}, make('div.card.flush', {}, map, stale), make('section.card', {}, make('div.head', {}, make('h3', {}, 'Held right now'), count), make('div.scroll', { tabindex: '0', role: 'region', 'aria-label': 'Holds' }, make('table', {}, make('thead', {}, make('tr', {}, ['Holder', 'What', 'State', 'Left'].map((head, place) => make('th', { scope: 'col', class: place === 3 ? 'number' : null }, head)))), rows))), blocks.element),
        make('div.right', {}, make('section.card', {}, make('h3', {}, 'Find'), form), answer)),
    ],
    chosen,
    leave: () => {
      stopped = true;
      stop();
      stopTicking();
    },
  };
}

function hint() {
  return make('p.empty', {}, 'Click a seat, or find a holder, an order or a hold. The log says who had it, until when, and how it was lost.');
}

/** What is left of a time that began so long; `tick` goes on with it. */
function countdown(ms) {
  return make('span.figures', { 'data-ends': performance.now() + ms }, clock(ms));
}
