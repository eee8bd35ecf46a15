// The lobby: every event with what is left of it, and the way to its page.

import { ask } from './api.js';
import { every, isOver, make, plural, write } from './dom.js';

const INTERVAL_MS = 3_000;

async function read() {
  try {
    const { body } = await ask('/v1/events?limit=100');
    show(body);
  } catch {
    write(document.getElementById('words'), 'The server does not answer. This page keeps asking.');
  }
}

function show({ events: all, next }) {
  const events = all.filter((event) => !isOver(event));
  const list = document.getElementById('events');
  write(document.getElementById('words'), events.length === 0 ? 'There is nothing on sale yet. Events are created with POST /v1/events.' : next ? 'These are the first hundred.' : '');
  // Whoever is on one of them stays there.
  if (list.contains(document.activeElement) || list.matches(':hover')) return;
  list.replaceChildren(...events.map((event) => {
    const free = event.seats.free + event.pools.reduce((sum, pool) => sum + pool.free, 0);
    const open = event.state === 'open';
    const words = !open ? 'Not on sale' : free === 0 ? 'Sold out for now' : `${plural(free, 'place')} free`;
    return make('li', {}, make('a.event', { href: `/events/${event.id}` }, make('strong', {}, event.name), make('span', {}, words), make('span', { class: open ? 'go' : 'go off' }, open ? 'Choose seats →' : 'Look →')));
  }));
}

read();
every(INTERVAL_MS, read);
