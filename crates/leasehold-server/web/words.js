// What a buyer is told when the answer is no: what happened, and what to do now.

import { plural } from './dom.js';

/**
 * @param {{code: string, document: any}} problem
 * @param {{limit?: number, best?: {count: number, section?: string}, nameOf: (seat: string) => string}} context the event's
 *   rules, which best seats were asked for, and what seats are called
 * @returns {{title: string, text: string, tone: 'warn' | 'bad' | 'calm'}}
 */
export function wordsFor(problem, { limit = 0, best = { count: 1 }, nameOf }) {
  const document = problem.document ?? {};
  switch (problem.code) {
    case 'seat-taken': {
      const taken = document.seats ?? [];
      const which = taken.length === 1 ? `${nameOf(taken[0])} was` : `${plural(taken.length, 'of your seats was', 'of your seats were')}`;
      return { tone: 'warn', title: 'Taken a moment ago', text: `${which} taken by someone else just now. Nothing is held for you yet.` };
    }
    case 'sold-out': {
      const { available: free = 0, returning = 0 } = document;
      const carts = returning > 0 ? `${plural(returning, 'is', 'are')} in other people’s carts and may come back in a few minutes.` : 'Nothing is in other people’s carts.';
      const places = plural(free, 'place is', 'places are');
      if (free === 0) return { tone: 'warn', title: 'Sold out for now', text: `Nothing is free right now. ${carts}` };
      if (document.pool) return { tone: 'warn', title: 'Not that many left', text: `${places} free. ${carts}` };
      // The server counts the whole venue, also when one section was asked for.
      const group = best.count === 1 ? 'no free seat' : `no ${best.count} free seats together`;
      const nowhere = best.section ? `Section ${best.section} has ${group}` : `There are ${group}`;
      return { tone: 'warn', title: best.count === 1 ? 'No such seat' : 'No such seats together', text: `${nowhere}. ${places} free in the whole venue. ${carts}` };
    }
    case 'limit-per-holder':
      return { tone: 'warn', title: 'That is too many', text: limit > 0 ? `One person can have at most ${plural(limit, 'ticket')} for this event, what you have bought included.` : 'One person cannot have that many tickets for this event.' };
    case 'invalid':
      return { tone: 'warn', title: 'That does not work', text: 'The server does not accept this choice. Choose fewer seats and try again.' };
    case 'event-closed':
      return { tone: 'calm', title: 'Not on sale', text: 'The sale for this event is closed at the moment.' };
    case 'extend-cap':
      return { tone: 'warn', title: 'No more time can be added', text: 'Your seats cannot be kept longer than this. Go on to payment to keep them.' };
    case 'hold-state':
      return { tone: 'warn', title: 'Already being paid for', text: 'These tickets are being paid for or are bought already, perhaps in another tab. You see here how they stand now.' };
    case 'payment-cap':
      return { tone: 'warn', title: 'Too many attempts', text: 'No more payments can begin for these tickets. Give them back and choose again.' };
    case 'hold-gone':
    case 'hold-expired':
      // A refusal says it in words only: "the hold is revoked".
      return ENDED[document.state ?? /^the hold is (\w+)$/.exec(document.detail ?? '')?.[1]] ?? ENDED.expired;
    case 'refund-due':
      return { tone: 'bad', title: 'The payment came too late', text: 'Your time was over and the seats are not yours any more. You will get your money back.' };
    case 'payments-busy':
    case 'quota-exceeded':
    case 'overloaded':
      return { tone: 'warn', title: 'Very busy right now', text: 'So many people are buying that the server asks for a moment. Nothing is lost; try again.' };
    case 'unreachable':
    case 'outcome-unknown':
      return { tone: 'bad', title: 'No connection', text: 'The ticket server does not answer. What you hold stays yours until its time is over; try again in a moment.' };
    default:
      return { tone: 'bad', title: 'That did not work', text: problem.message || 'Something went wrong. Try again.' };
  }
}

/**
 * Above what may be old, or is not there yet: the connection is lost, or the server has lost its own. Null while all is well.
 *
 * @param {{connection: string, staleMs: number, event: object | null}} live a map, or what it is drawn from
 */
export function staleWords({ connection, staleMs, event }) {
  if (connection === 'missing' && event !== null) return 'This event is not here any more. What you see is old.';
  if (connection !== 'behind') return null;
  if (event === null) return 'The ticket server does not answer. This page keeps asking.';
  if (staleMs === 0) return 'Reconnecting. What you see may be out of date.';
  const seconds = Math.round(staleMs / 1000);
  const ago = seconds < 120 ? plural(seconds, 'second') : plural(Math.round(seconds / 60), 'minute');
  return `This is how it stood ${ago} ago. Holding and paying may have to wait.`;
}

const ENDED = {
  expired: { tone: 'warn', title: 'Your time is over', text: 'Your seats went back on sale. If they are still free you can take them again.' },
  released: { tone: 'calm', title: 'Given back', text: 'Your seats are on sale again.' },
  cancelled: { tone: 'bad', title: 'Your booking was cancelled', text: 'The organiser cancelled it, and the seats went back on sale. If money was taken, it comes back.' },
  revoked: { tone: 'bad', title: 'Taken back by the organiser', text: 'The organiser took these seats back. If money was taken, it comes back.' },
};
