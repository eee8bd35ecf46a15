// The published flash-sale test: 3 seats, 200 users, 10 seconds.
//
// Every user asks again and again for one of three seats. Exactly three holds may be granted, all three must
// become sales, and every other answer must be a plain refusal (409) or a limit (429). Any 5xx, any broken
// connection and any fourth sale fails the run.
//
//   BASE_URL=http://127.0.0.1:7070 k6 run bench/k6/three-seats.js
//
// `cargo xtask k6` fetches k6, starts a fresh server and runs this. VUS and DURATION change the size.

import http from 'k6/http';
import exec from 'k6/execution';
import { sleep } from 'k6';
import { Counter } from 'k6/metrics';

const BASE_URL = __ENV.BASE_URL || 'http://127.0.0.1:7070';
const SEATS = ['A-1', 'A-2', 'A-3'];
const HOLD_TTL_MS = 10 * 60 * 1000; // Longer than any run: a hold that expired would be granted again.

const granted = new Counter('granted'); // Holds answered with 201.
const confirmed = new Counter('confirmed'); // Sales answered with 201.
const refused = new Counter('refused'); // 409: somebody else has the seat.
const limited = new Counter('limited'); // 429: the server's rate limit.
const serverErrors = new Counter('server_errors'); // Any 5xx.
const unexpected = new Counter('unexpected'); // Any other answer, or none.
const wrongTotals = new Counter('wrong_totals'); // The event does not say "3 sold" in the end.

export const options = {
  scenarios: {
    rush: {
      executor: 'constant-vus',
      vus: Number(__ENV.VUS || 200),
      duration: __ENV.DURATION || '10s',
      gracefulStop: '5s',
    },
  },
  thresholds: {
    granted: ['count==3', { threshold: 'count<=3', abortOnFail: true }],
    confirmed: ['count==3'],
    server_errors: [{ threshold: 'count==0', abortOnFail: true }],
    unexpected: [{ threshold: 'count==0', abortOnFail: true }],
    wrong_totals: ['count==0'],
  },
};

// 409 and 429 are answers, not failures: k6's own failure rate must not count them.
http.setResponseCallback(http.expectedStatuses(200, 201, 409, 429));

export function setup() {
  // k6 passes a threshold whose metric has no samples. With these, "no hold at all" fails as it should.
  for (const counter of [granted, confirmed, serverErrors, unexpected, wrongTotals]) {
    counter.add(0);
  }
  const event = `k6-${random(8)}`;
  const answer = post('/v1/events', { id: event, seats: SEATS, policy: { hold_ttl_ms: HOLD_TTL_MS } }, {});
  if (answer.status !== 201) {
    exec.test.abort(`cannot create the event: ${answer.status} ${answer.body || answer.error}`);
  }
  return { event };
}

export default function ({ event }) {
  const seat = SEATS[Math.floor(Math.random() * SEATS.length)];
  const body = { items: [{ seat }], holder: `vu-${exec.vu.idInTest}` };
  const key = `hold-${exec.vu.idInTest}-${exec.vu.iterationInInstance}-${random(4)}`;
  const answer = post(`/v1/events/${event}/holds`, body, { 'Idempotency-Key': key });
  if (count(answer)) {
    granted.add(1);
    confirm(answer.json());
  }
}

export function teardown({ event }) {
  const answer = http.get(`${BASE_URL}/v1/events/${event}`);
  const seats = answer.status === 200 ? answer.json('seats') : null;
  if (!seats || seats.sold !== SEATS.length || seats.held !== 0 || seats.free !== 0) {
    wrongTotals.add(1);
    console.error(`expected ${SEATS.length} seats sold and none held or free: ${answer.status} ${answer.body}`);
  }
}

// Turns the hold into a sale. A limit only delays it: the same key makes asking again safe.
function confirm(hold) {
  const headers = { 'Hold-Secret': hold.secret, 'Idempotency-Key': `confirm-${hold.hold_id}` };
  for (let attempt = 0; attempt < 20; attempt++) {
    const answer = post(`/v1/holds/${hold.hold_id}/confirm`, {}, headers);
    if (answer.status === 429) {
      limited.add(1);
      sleep(0.2);
      continue;
    }
    if (answer.status === 201) {
      confirmed.add(1);
    } else if (answer.status >= 500) {
      serverErrors.add(1);
    } else {
      unexpected.add(1);
    }
    return;
  }
}

// Counts an answer to a hold and says whether it was granted.
function count(answer) {
  if (answer.status === 201) {
    return true;
  } else if (answer.status === 409) {
    refused.add(1);
  } else if (answer.status === 429) {
    limited.add(1);
  } else if (answer.status >= 500) {
    serverErrors.add(1);
    console.error(`${answer.status} ${answer.body}`);
  } else {
    unexpected.add(1);
    console.error(`${answer.status} ${answer.body || answer.error}`);
  }
  return false;
}

function post(path, body, headers) {
  headers['Content-Type'] = 'application/json';
  // A name without ids keeps k6's own table of requests short.
  const name = path.replace(/\/(events|holds)\/[^/]+/, '/$1/{id}');
  return http.post(`${BASE_URL}${path}`, JSON.stringify(body), { headers, tags: { name } });
}

function random(length) {
  let text = '';
  while (text.length < length) {
    text += Math.floor(Math.random() * 36).toString(36);
  }
  return text;
}
