// The log in words: what happened to a seat or a hold, and the short answer to "why did I lose it?".

const KINDS = {
  'event.created': 'Event created',
  'event.updated': 'Rules changed',
  'event.closed': 'Sale closed',
  'event.opened': 'Sale opened',
  'hold.created': 'Held',
  'hold.extended': 'Given more time',
  'hold.amended': 'Changed',
  'hold.released': 'Given back',
  'hold.expired': 'Time ran out',
  'hold.revoked': 'Taken away by an operator',
  'payment.begun': 'Payment begun',
  'payment.failed': 'Payment failed',
  'booking.created': 'Sold',
  'booking.cancelled': 'Sale cancelled',
  'refund.due': 'Payment came too late',
  'block.created': 'Blocked',
  'block.removed': 'Block ended',
};

const ENDS = {
  'hold.expired': 'the time ran out before it was paid',
  'hold.released': 'the buyer gave it back',
  'hold.revoked': 'an operator took it away',
  'hold.amended': 'the buyer exchanged it for something else',
  'booking.cancelled': 'the sale was cancelled',
};

export function what(kind) {
  return KINDS[kind] ?? kind;
}

/** Who a hold is for, as far as it is remembered. */
export function who(hold) {
  if (!hold) return 'somebody (no longer remembered)';
  return hold.holder ?? 'a buyer without a name';
}

/** The time of day; with its date if that is another day than today. */
export function time(at) {
  if (at === undefined) return '–';
  const when = new Date(at);
  const day = when.toDateString() === new Date().toDateString() ? {} : { day: 'numeric', month: 'short' };
  return when.toLocaleString([], { ...day, hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
}

/**
 * Everybody who had a seat, oldest first, each with how it ended.
 *
 * @param {{entries: any[], holds: any[], bookings: any[]}} log newest first, of one seat
 */
export function tenures(seat, { entries, holds, bookings }) {
  const of = (id) => holds.find((hold) => hold.hold_id === id);
  const found = [];
  let current = null;
  for (const entry of [...entries].reverse()) {
    const letter = entry.seats?.find(([id]) => id === seat)?.[1];
    if (letter === undefined) {
      // What befell a hold while its seats stayed as they were, or were no longer its own.
      const one = found.findLast((tenure) => tenure.hold_id !== null && tenure.hold_id === entry.hold_id);
      if (one && entry.kind === 'payment.begun') one.paying = true;
      if (one && entry.kind === 'payment.failed') one.paying = false;
      if (one && entry.kind === 'refund.due') one.late = true;
      continue;
    }
    if (letter === 'h' || letter === 's') {
      if (current === null || current.hold_id !== entry.hold_id) {
        current = { hold_id: entry.hold_id, who: who(of(entry.hold_id)), from: entry.at, sold: letter === 's', to: null, why: null, paying: false, late: false };
        found.push(current);
      }
      current.sold = letter === 's';
      current.order = bookings.find((booking) => booking.hold_id === entry.hold_id)?.order_ref;
    } else if (letter === 'b') {
      current = { hold_id: null, who: entry.reason ? `an operator (blocked: “${entry.reason}”)` : 'an operator (blocked)', from: entry.at, sold: false, to: null, why: null };
      found.push(current);
    } else if (current !== null) {
      current.to = entry.at;
      const unpaid = entry.kind === 'hold.expired' && current.paying;
      current.why = (unpaid ? 'its payment was not confirmed in time' : (ENDS[entry.kind] ?? what(entry.kind))) + (entry.reason ? `: “${entry.reason}”` : '');
      current = null;
    }
  }
  return found;
}
