// The camera of a seat map: what part of the venue is shown, and how it moves there.

const GLIDE_MS = 320;
const SCALE_MAX = 46;
const MARGIN = 14;

export class View {
  #glide = null;

  constructor() {
    this.scale = 1;
    this.x = 0;
    this.y = 0;
    this.width = 1;
    this.height = 1;
    this.bounds = null;
    /** Without motion, it jumps. */
    this.still = false;
  }

  /** The scale at which everything is seen. */
  get scaleMin() {
    if (!this.bounds) return 1;
    const { left, right, top, bottom } = this.bounds;
    return Math.min((this.width - 2 * MARGIN) / (right - left), (this.height - 2 * MARGIN) / (bottom - top), SCALE_MAX * 0.8);
  }

  get isWhole() {
    return this.scale <= this.scaleMin * 1.02;
  }

  resize(width, height) {
    const whole = this.isWhole || !this.bounds;
    const [wider, higher] = [Math.max(1, width) - this.width, Math.max(1, height) - this.height];
    this.width += wider;
    this.height += higher;
    if (whole && !this.#glide) {
      this.showAll(false);
      return;
    }
    // What is in the middle stays there, also where the camera is on its way to.
    for (const camera of [this, this.#glide?.from, this.#glide?.to]) {
      if (camera) Object.assign(camera, this.#clamped({ scale: this.#allowed(camera.scale), x: camera.x - wider / camera.scale / 2, y: camera.y - higher / camera.scale / 2 }));
    }
  }

  showAll(moving = true) {
    if (this.bounds) this.#go(this.#around(this.bounds, this.scaleMin), moving);
  }

  /** Shows a box with some room around it. */
  showBox({ left, right, top, bottom }, moving = true) {
    const room = 1.28;
    const scale = Math.min(this.width / ((right - left) * room), this.height / ((bottom - top) * room));
    this.#go(this.#around({ left, right, top, bottom }, this.#allowed(scale)), moving);
  }

  /** Brings a point into sight, at a scale at which seats can be told apart. */
  showPoint(x, y, scaleMin) {
    const scale = Math.max(this.scale, Math.min(scaleMin, SCALE_MAX));
    const inside = x > this.x + 2 && x < this.x + this.width / this.scale - 2 && y > this.y + 2 && y < this.y + this.height / this.scale - 2;
    if (inside && scale === this.scale) return;
    this.#go({ scale, x: x - this.width / scale / 2, y: y - this.height / scale / 2 }, true);
  }

  /** What is drawn at `from` comes to be at `at`. */
  zoom(factor, at = { x: this.width / 2, y: this.height / 2 }, moving = true, from = at) {
    const scale = this.#allowed(this.scale * factor);
    const [x, y] = [this.x + from.x / this.scale, this.y + from.y / this.scale];
    this.#go({ scale, x: x - at.x / scale, y: y - at.y / scale }, moving);
  }

  pan(dx, dy) {
    this.#glide = null;
    this.x -= dx / this.scale;
    this.y -= dy / this.scale;
    this.#keepInside();
  }

  toVenue(x, y) {
    return { x: this.x + x / this.scale, y: this.y + y / this.scale };
  }

  toScreen(x, y) {
    return { x: (x - this.x) * this.scale, y: (y - this.y) * this.scale };
  }

  /** Moves on by the clock. Returns whether it still moves. */
  step(now) {
    if (!this.#glide) return false;
    const { from, to, begun } = this.#glide;
    const part = Math.min(1, (now - begun) / GLIDE_MS);
    const eased = 1 - (1 - part) ** 3;
    // The scale grows evenly for the eye when its logarithm does.
    this.scale = from.scale * (to.scale / from.scale) ** eased;
    const progress = from.scale === to.scale ? eased : (1 / this.scale - 1 / from.scale) / (1 / to.scale - 1 / from.scale);
    this.x = from.x + (to.x - from.x) * progress;
    this.y = from.y + (to.y - from.y) * progress;
    if (part === 1) {
      Object.assign(this, to);
      this.#glide = null;
    }
    return this.#glide !== null;
  }

  #allowed(scale) {
    return Math.min(Math.max(scale, this.scaleMin), SCALE_MAX);
  }

  #around({ left, right, top, bottom }, scale) {
    return { scale, x: (left + right) / 2 - this.width / scale / 2, y: (top + bottom) / 2 - this.height / scale / 2 };
  }

  #go(to, moving) {
    const target = this.#clamped(to);
    if (!moving || this.still) {
      Object.assign(this, target);
      this.#glide = null;
    } else {
      this.#glide = { from: { scale: this.scale, x: this.x, y: this.y }, to: target, begun: performance.now() };
    }
  }

  #keepInside() {
    Object.assign(this, this.#clamped({ scale: this.#allowed(this.scale), x: this.x, y: this.y }));
  }

  /** The venue never leaves the window: half of the window may be empty at most, and nothing when it all fits. */
  #clamped({ scale, x, y }) {
    if (!this.bounds) return { scale, x, y };
    const { left, right, top, bottom } = this.bounds;
    const [w, h] = [this.width / scale, this.height / scale];
    const axis = (low, high, size, at) => {
      if (high - low <= size) return (low + high) / 2 - size / 2;
      return Math.min(Math.max(at, low - size * 0.25), high - size * 0.75);
    };
    return { scale, x: axis(left, right, w, x), y: axis(top, bottom, h, y) };
  }
}
