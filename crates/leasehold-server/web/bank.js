// A stand-in for a payment service, for the demonstration only. It moves no money and lives in this page; what it has
// promised is remembered with the cart, so that it goes on after a reload as a real one would.

export const SLOW_MS = 12_000;
const QUICK_MS = 1_200;

export const WAYS = [
  { how: 'pays', title: 'Goes through', text: 'The bank says yes after a second.' },
  { how: 'declines', title: 'Is declined', text: 'The bank says no. The seats stay yours; try another card.' },
  { how: 'slow', title: 'Is slow', text: `The bank takes ${SLOW_MS / 1000} seconds. The countdown stands still meanwhile.` },
  { how: 'silent', title: 'Never answers', text: 'Nothing comes back. At the payment’s deadline the seats go on sale again.' },
];

/** How the payment ends: `paid` or `declined`, some time after it began; a silent bank never says. */
export function outcome({ how, begun }, signal) {
  const takes = { pays: QUICK_MS, declines: QUICK_MS, slow: SLOW_MS }[how];
  return new Promise((resolve) => {
    if (takes === undefined) return;
    const timer = setTimeout(() => resolve(how === 'declines' ? 'declined' : 'paid'), Math.max(0, begun + takes - Date.now()));
    signal.addEventListener('abort', () => clearTimeout(timer));
  });
}
