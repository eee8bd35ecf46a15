// Kept from sale: the blocks of the event, of seats and of standing tickets; adding one, and ending one.

import { ask } from './api.js';
import { make, random, write } from './dom.js';
import { action, askFor, reason } from './console-dialog.js';
import { time } from './log-words.js';

const SHOWN_MAX = 100;
const SEATS_NAMED_MAX = 6;

/** @param {{desk: object, perform: (work: () => Promise<any>, done: string) => Promise<void>}} context */
export function blocksCard({ desk, perform }) {
  const rows = make('tbody');
  const count = make('p.muted');
  const add = make('button.button.small', { type: 'button', id: 'block-standing', hidden: true, on: { click: () => blockStanding() } }, 'Keep standing tickets from sale');

  const pools = () => (desk.events.find(({ id }) => id === desk.event)?.pools ?? []).map(({ id }) => id);

  async function read({ always = false } = {}) {
    if (!desk.event) return;
    add.hidden = pools().length === 0;
    let page;
    try {
      page = (await ask(`/v1/events/${desk.event}/blocks?limit=${SHOWN_MAX}`)).body;
    } catch {
      return;
    }
    write(count, page.blocks.length === 0 ? 'Nothing is kept from sale.' : page.next ? `The first ${SHOWN_MAX} of them.` : `${page.blocks.length} of them.`);
    // Whoever is about to press a button in the list keeps it where it is.
    if (!always && (rows.contains(document.activeElement) || rows.matches(':hover'))) return;
    rows.replaceChildren(...page.blocks.map((block) => make('tr', {},
      make('th.wraps', { scope: 'row' }, contents(block)), make('td.wraps', {}, block.reason ?? '–'), make('td.figures', {}, time(block.created_at)),
      make('td.number', {}, action('unblock', 'End the block', () => unblock(block.block_id, contents(block)))))));
  }

  function send(body, done) {
    return perform(() => ask(`/v1/events/${desk.event}/blocks`, { method: 'POST', body, key: random() }), done);
  }

  async function block(seat) {
    const said = await askFor({ title: 'Keep from sale?', text: 'Nobody can hold these seats until the block ends. Each must be free.', fields: [{ name: 'seats', label: 'Seats, with spaces between them', value: seat }, { name: 'reason', label: 'Reason, for the log' }], go: 'Keep from sale' });
    if (!said) return;
    const seats = said.seats.split(/[\s,]+/).filter((one) => one !== '');
    await send({ seats, ...reason(said.reason) }, 'The seats are kept from sale.');
  }

  async function blockStanding() {
    const ids = pools();
    const said = await askFor({ title: 'Keep from sale?', text: 'Nobody can hold these standing tickets until the block ends. So many must be free.', fields: [{ name: 'pool', label: ids.length === 1 ? 'Where' : `Where: ${ids.join(', ')}`, value: ids[0] }, { name: 'quantity', label: 'How many', value: '1', type: 'number' }, { name: 'reason', label: 'Reason, for the log' }], go: 'Keep from sale' });
    if (said) await send({ pools: [{ id: said.pool, quantity: Number(said.quantity) }], ...reason(said.reason) }, 'The standing tickets are kept from sale.');
  }

  async function unblock(id, what) {
    const said = await askFor({ title: 'End the block?', text: `${what}, and whatever else is in the block, goes on sale at once.`, fields: [], go: 'End the block' });
    if (said) await perform(() => ask(`/v1/events/${desk.event}/blocks/${id}`, { method: 'DELETE', key: random() }), 'The block has ended.');
  }

  const head = make('thead', {}, make('tr', {}, ['What', 'Reason', 'Since'].map((name) => make('th', { scope: 'col' }, name)), make('td')));
  const element = make('section.card', { id: 'blocks' }, make('div.head', {}, make('h3', {}, 'Kept from sale'), count),
    make('div.scroll', { tabindex: '0', role: 'region', 'aria-label': 'Blocks' }, make('table', {}, head, rows)), make('div.actions', {}, add));
  return { element, read, block, unblock };
}

function contents({ seats, pools = [] }) {
  const named = seats.length > SEATS_NAMED_MAX ? [...seats.slice(0, SEATS_NAMED_MAX), `${seats.length - SEATS_NAMED_MAX} more seats`] : seats;
  return [...named, ...pools.map(({ id, quantity }) => `${id} × ${quantity}`)].join(', ');
}
