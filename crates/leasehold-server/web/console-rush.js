// A rush: two hundred users against three seats, drawn. Only in the demonstration.

import { ask } from './api.js';
import { short } from './chart.js';
import { make, write } from './dom.js';

const INTERVAL_MS = 300;
const ACROSS = 25;

export function rushView(desk) {
  const button = make('button.button.primary', { type: 'button', id: 'start-rush', on: { click: start } }, 'Start a rush');
  const words = make('p.muted', { 'aria-live': 'polite' }, 'Two hundred users ask for the same three seats for five seconds, as fast as they can, on this very server.');
  const outcome = make('div', { id: 'outcome' });
  let stopped = false;

  async function start() {
    button.disabled = true;
    outcome.replaceChildren();
    try {
      await ask('/console/rush', { method: 'POST' });
    } catch (problem) {
      write(words, `It did not start: ${problem.message}`);
      button.disabled = false;
      return;
    }
    await follow({ isStarted: true });
  }

  async function follow({ isStarted = false } = {}) {
    while (!stopped) {
      let stand;
      try {
        stand = (await ask('/console/rush')).body;
      } catch {
        stand = { state: 'running', running_ms: 0 };
      }
      if (stand.state === 'running') {
        button.disabled = true;
        write(words, `Running for ${(stand.running_ms / 1000).toFixed(1)} s …`);
        if (outcome.childElementCount === 0) outcome.replaceChildren(crowd(200, []));
      } else {
        button.disabled = false;
        if (stand.state === 'done') await draw(stand.report);
        if (stand.state === 'never' && isStarted) write(words, 'Another server answered, which knows nothing of this run. Open the console at a server’s own address.');
        if (stand.state === 'failed') write(words, `The run failed: ${stand.detail}`);
        return;
      }
      await new Promise((wake) => setTimeout(wake, INTERVAL_MS));
    }
  }

  async function draw(report) {
    write(button, 'Once more');
    write(words, `${report.setup.users} users, ${report.setup.seats} seats, ${short(report.elapsed_ms / 1000)} seconds.`);
    outcome.replaceChildren(...(await picture(report)));
    desk.speak(`${report.verdict.passed ? 'Passed' : 'Failed'}: ${report.verdict.sold}`);
  }

  follow();
  return {
    elements: [make('h2.unseen', {}, 'Rush'), make('section.card', {}, make('div.head', {}, make('div', {}, make('h3', {}, 'A rush'), words), button), outcome)],
    leave: () => {
      stopped = true;
    },
  };
}

/** Everybody as a dot; those who got a seat are larger and have its name. */
function crowd(users, winners) {
  const svg = make('svg', { class: 'crowd', viewBox: `0 0 ${ACROSS * 22} ${Math.ceil(users / ACROSS) * 22}`, role: 'img', 'aria-label': winners.length === 0 ? `${users} users` : `${users} users, ${winners.length} of them with a seat` });
  for (let user = 0; user < users; user += 1) {
    const [x, y] = [(user % ACROSS) * 22 + 11, Math.floor(user / ACROSS) * 22 + 11];
    const won = winners.find((winner) => winner.user === user + 1);
    svg.append(make('circle', { class: won ? 'won' : 'lost', cx: x, cy: y, r: won ? 10 : 5 }));
    if (won) svg.append(make('path', { class: 'tick', d: `M${x - 4} ${y}l3 3.5l5.5 -7` }));
  }
  return svg;
}

async function picture(report) {
  const winners = await whoWon(report.setup.event);
  const { verdict, outcomes, latency, seconds } = report;
  const total = (test) => outcomes.filter(test).reduce((sum, one) => sum + one.count, 0);
  const figures = [
    ['Requests', report.requests.toLocaleString('en')],
    ['Answered 409: taken', total((one) => one.status === 409).toLocaleString('en')],
    ['Sold', winners.length.toLocaleString('en')],
    ['Sold twice', verdict.oversold ? 'YES' : '0'],
    ['Server errors', verdict.server_errors.toLocaleString('en')],
    ['Requests per second', Math.round(report.requests_per_second).toLocaleString('en')],
  ];
  const all = latency[0];
  return [
    make('p', { class: `verdict ${verdict.passed ? 'passed' : 'failed'}`, id: 'verdict' }, `${verdict.passed ? 'Passed' : 'Failed'}: ${verdict.sold}`),
    ...verdict.complaints.map((complaint) => make('p.wrong', {}, complaint)),
    make('div.halves', {},
      make('div.stack', {}, crowd(report.setup.users, winners), make('ul.winners', {}, winners.map(({ user, seats }) => make('li', {}, make('strong', {}, `User ${user}`), ` has ${seats.join(', ')}`)))),
      make('div.tiles', {}, figures.map(([name, value]) => make('div.tile', {}, make('span', {}, name), make('b.figures', {}, value))))),
    make('div.halves', {}, bars(seconds.slice(0, Math.max(1, Math.floor(report.elapsed_ms / 1000)))), make('div', {}, make('h4', {}, 'How long answers took'), make('dl.numbers', {}, [['Half', all.p50_ms], ['90 of 100', all.p90_ms], ['99 of 100', all.p99_ms], ['The slowest', all.max_ms]].flatMap(([name, value]) => [make('dt', {}, name), make('dd.figures', {}, `${short(value)} ms`)])))),
  ];
}

/** Each whole second of the run, by how requests ended. */
function bars(seconds) {
  const most = Math.max(1, ...seconds.map((one) => one.granted + one.refused + one.limited + one.failed));
  const [width, height] = [520, 120];
  const each = width / Math.max(1, seconds.length);
  const svg = make('svg', { class: 'bars', viewBox: `0 0 ${width} ${height + 18}`, role: 'img', 'aria-label': 'Answers in each second' });
  seconds.forEach((one, place) => {
    let y = height;
    for (const kind of ['granted', 'refused', 'limited', 'failed']) {
      const part = (one[kind] / most) * height;
      y -= part;
      svg.append(make('rect', { class: kind, x: place * each + 3, y, width: Math.max(1, each - 6), height: part }));
    }
    svg.append(make('text', { x: (place + 0.5) * each, y: height + 14, 'text-anchor': 'middle' }, `${place + 1} s`));
  });
  return make('div', {}, make('h4', {}, 'Answers in each second'), svg, make('p.muted', {}, `Up to ${most.toLocaleString('en')} in a second, nearly all of them “taken”.`));
}

/** Who has the seats, from the log of the event and not from what the users say. */
async function whoWon(event) {
  const { body } = await ask(`/v1/operator/events/${event}/log?limit=500`);
  return body.bookings.map((booking) => ({ user: Number(/(\d+)$/.exec(booking.holder ?? '')?.[1] ?? 0), seats: booking.items.map((item) => item.seat) }));
}
