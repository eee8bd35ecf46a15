// Building elements without markup in strings: what comes from elsewhere can only ever become text.

/**
 * @param {string} tag `button`, or with classes `button.primary`
 * @param {object} attributes `on` has listeners; `false`, `null` and `undefined` leave an attribute out
 */
export function make(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split('.');
  const element = name === 'svg' || SVG_TAGS.has(name) ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  if (classes.length > 0) element.setAttribute('class', classes.join(' '));
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'on') for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value === true ? '' : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG_TAGS = new Set(['circle', 'path', 'rect', 'g', 'line', 'polyline', 'polygon', 'text']);

/** Sets a text only when it is another one, so that readers of screens do not repeat themselves. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Shows an element with these words; without any it is hidden. */
export function writeOrHide(element, text) {
  element.hidden = text === null;
  write(element, text ?? '');
}

export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}

/** Whether an event is closed with nothing left to sell and nobody about to pay. */
export function isOver({ state, seats, pools }) {
  return state === 'closed' && [seats, ...pools].every(({ free, held }) => free === 0 && held === 0);
}

/** 4:05, or 1:04:05. */
export function clock(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const two = (number) => String(number).padStart(2, '0');
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

/** A random name, for idempotency keys and the like. */
export function random() {
  return Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Does something again and again while the page is seen, never twice at a time. Returns what stops it. */
export function every(ms, work) {
  let isBusy = false;
  const timer = setInterval(async () => {
    if (document.hidden || isBusy) return;
    isBusy = true;
    try {
      await work();
    } finally {
      isBusy = false;
    }
  }, ms);
  return () => clearInterval(timer);
}
