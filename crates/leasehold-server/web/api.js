// Asking the server, and asking again with the same idempotency key where it is not known what became of it.

const TRIES_MAX = 8;
const PAUSE_MIN_MS = 300;
const PAUSE_MAX_MS = 4_000;
const ANSWER_MAX_MS = 10_000;

/** A refusal: the problem document, or one of our own (`unreachable`) when there was no answer. */
export class Problem extends Error {
  constructor(document) {
    super(document.detail ?? document.title ?? document.code);
    this.code = document.code;
    this.document = document;
  }
}

/** It may have taken effect: only asking again under the same key tells. */
const UNKNOWN = new Set(['unreachable', 'outcome-unknown', 'overloaded', 'quota-exceeded', 'idempotency-in-flight']);
export const isUnknown = (problem) => problem instanceof Problem && UNKNOWN.has(problem.code);

/**
 * `sentAt` is when the request that was answered left, by this machine's steady clock.
 *
 * @param {{method?: string, body?: object, secret?: string, key?: string, onRetry?: (tries: number) => void}} options
 * @returns {Promise<{status: number, body: any, replayed: boolean, sentAt: number}>}
 */
export async function ask(path, { method = 'GET', body, secret, key, onRetry } = {}) {
  const headers = { accept: 'application/json' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (secret !== undefined) headers['hold-secret'] = secret;
  if (key !== undefined) headers['idempotency-key'] = key;
  // What reads, or has a key, may be sent again; anything else is sent once.
  const tries = method === 'GET' || key !== undefined ? TRIES_MAX : 1;
  let pause = PAUSE_MIN_MS;
  for (let attempt = 1; ; attempt += 1) {
    let waitFor = pause;
    try {
      const signal = AbortSignal.timeout(ANSWER_MAX_MS);
      const sentAt = performance.now();
      const response = await fetch(path, { method, headers, signal, cache: 'no-store', body: body === undefined ? undefined : JSON.stringify(body) });
      const answer = response.status === 204 ? null : await response.json();
      if (response.ok) return { status: response.status, body: answer, replayed: response.headers.has('idempotency-replayed'), sentAt };
      const again = response.status === 503 || response.status === 429 || answer.code === 'idempotency-in-flight';
      if (!again || attempt >= tries) throw new Problem(answer);
      waitFor = Math.max(pause, Number(response.headers.get('retry-after') ?? 0) * 1000);
    } catch (failure) {
      if (failure instanceof Problem) throw failure;
      if (attempt >= tries) throw new Problem({ code: 'unreachable', title: 'no answer from the server' });
    }
    onRetry?.(attempt);
    await new Promise((wake) => setTimeout(wake, waitFor * (0.75 + Math.random() / 2)));
    pause = Math.min(pause * 2, PAUSE_MAX_MS);
  }
}
