// Paints a venue on three canvases, one above the other. It knows where things are and what they look like, and nothing of
// pointers or servers.
//
// `ground` has the sections and seats: it is painted anew when the camera has moved, and seats that changed are painted
// over one by one. `signs` has floors and names. `sparks` has what moves: flashes, and rings around seats. While the
// camera moves over thousands of seats, `ground` is a stretched picture of the whole venue until the camera rests.

const FLASH_MS = 700;
/** Seats of fewer pixels are squares: nobody can tell, and it is faster. */
const DOT_PIXELS = 3.4;
const NUMBER_PIXELS = 17;
/** With fewer pixels a seat, sections carry their names and seats cannot be hit. */
export const PICK_PIXELS = 7;
/** More than so many seats are not painted one by one in each frame of a movement. */
const MOVING_SEATS_MAX = 4_000;
/** A camera that stood still for this long rests. */
const REST_MS = 70;

export class Painter {
  #layers;
  #context;
  #spoken;
  #flashes = new Map();
  /** Seats that stand otherwise than `ground` shows. */
  #changed = new Set();
  /** What `ground` shows: plan, camera, marks, whether seat by seat; null when it must be painted anew. */
  #drawn = null;
  /** The whole venue as it was last painted: `{context, scale, x, y}`. */
  #whole = null;
  #movedAt = 0;
  #signed = '';
  #hasSparks = false;

  /** @param {{ground: HTMLCanvasElement, signs: HTMLCanvasElement, sparks: HTMLCanvasElement}} canvases */
  constructor(canvases) {
    this.#layers = Object.fromEntries(Object.entries(canvases).map(([name, canvas]) => [name, canvas.getContext('2d', { alpha: true })]));
    this.#context = this.#layers.ground;
    this.colours = {};
    this.still = false;
  }

  /** Colours come from CSS, so that a page can choose them and dark mode just works. */
  readColours(element) {
    const style = getComputedStyle(element);
    const names = ['free', 'held', 'sold', 'blocked', 'mine', 'chosen', 'suggested', 'section', 'section-line', 'stage', 'stage-ink', 'floor', 'floor-ink', 'ink', 'muted', 'halo', 'on-seat', 'focus'];
    for (const name of names) this.colours[name] = style.getPropertyValue(`--seat-map-${name}`).trim() || '#888';
    this.#spoken = style.fontFamily;
    this.forget();
  }

  resize(width, height) {
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    this.ratio = ratio;
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    for (const { canvas } of Object.values(this.#layers)) {
      if (canvas.width !== w) canvas.width = w;
      if (canvas.height !== h) canvas.height = h;
    }
    this.#drawn = null;
  }

  /** A seat that stands otherwise now. */
  change(seat, letter) {
    this.#changed.add(seat);
    if (!this.still) this.#flashes.set(seat, { at: performance.now(), letter });
  }

  /** Nothing that was painted is to be trusted. */
  forget() {
    [this.#drawn, this.#whole] = [null, null];
    this.#changed.clear();
  }

  /** Paints what is not painted yet. Returns whether something still moves. */
  paint(scene) {
    const { plan, view } = scene;
    if (!plan) {
      for (const context of Object.values(this.#layers)) this.#wipe(context);
      this.forget();
      return false;
    }
    const { scale, x: left, y: top } = view;
    const { canvas } = this.#layers.ground;
    const shown = { left, top, right: left + canvas.width / this.ratio / scale, bottom: top + canvas.height / this.ratio / scale };
    const visible = plan.sections.filter((section) => section.right >= shown.left && section.left <= shown.right && section.bottom >= shown.top && section.top <= shown.bottom);
    const isMoved = this.#ground(scene, visible, shown);
    this.#signs(scene, visible, isMoved);
    return this.#sparks(scene) || !this.#drawn.isCrisp;
  }

  /** Returns whether the camera stands elsewhere than before. */
  #ground(scene, visible, shown) {
    const { plan, view, mine, chosen, suggested } = scene;
    const { scale, x, y } = view;
    const before = this.#drawn;
    const marks = new Map([...[...suggested].map((seat) => [seat, 'suggested']), ...[...chosen].map((seat) => [seat, 'chosen']), ...[...mine].map((seat) => [seat, 'mine'])]);
    if (before?.plan !== plan) this.#whole = null;
    const isMoved = before?.plan !== plan || before.scale !== scale || before.x !== x || before.y !== y;
    const others = before === null ? [] : [...marks, ...before.marks].filter(([seat]) => marks.get(seat) !== before.marks.get(seat)).map(([seat]) => seat);
    if (this.#whole && this.#changed.size + others.length > 0) this.#paintOver(this.#whole.context, this.#whole.scale, [...this.#changed, ...others], scene, marks);
    if (isMoved) this.#movedAt = performance.now();
    const isBusy = performance.now() - this.#movedAt < REST_MS && before !== null && this.#whole !== null && seatsOf(visible) > MOVING_SEATS_MAX;
    const isOld = isMoved || others.length > 0 || (this.#changed.size > 0 && (isBusy || scale >= NUMBER_PIXELS));
    if (isBusy && isOld) this.#stretch(view);
    else if (isOld || (!isBusy && !before.isCrisp)) this.#paintAll(scene, visible, shown, marks);
    else if (this.#changed.size > 0) {
      this.#look(this.#layers.ground, view);
      this.#paintOver(this.#layers.ground, scale, this.#changed, scene, marks);
    }
    this.#changed.clear();
    this.#drawn = { plan, scale, x, y, marks, isCrisp: !isBusy || (before.isCrisp && !isOld) };
    return isMoved;
  }

  #paintAll({ plan, view, seats, labels }, visible, shown, marks) {
    const context = this.#layers.ground;
    this.#context = context;
    this.#wipe(context);
    this.#look(context, view);
    this.#stage(plan.stage, view.scale);
    this.#sections(visible, view.scale);
    const { xs, ys } = plan;
    const found = [];
    for (const section of visible) {
      for (const { first, count } of section.rows) {
        for (let seat = first; seat < first + count; seat += 1) {
          if (xs[seat] >= shown.left - 1 && xs[seat] <= shown.right + 1 && ys[seat] >= shown.top - 1 && ys[seat] <= shown.bottom + 1) found.push(seat);
        }
      }
    }
    this.#seats(context, view.scale, found, plan, seats, marks);
    if (view.scale >= NUMBER_PIXELS) this.#numbers(visible, plan, seats, labels, marks, shown);
    if (view.isWhole && found.length > MOVING_SEATS_MAX) this.#keepWhole(context, view);
  }

  /** Paints single seats over what was there. */
  #paintOver(context, scale, changed, { plan, seats }, marks) {
    context.fillStyle = this.colours.section;
    context.beginPath();
    for (const seat of changed) {
      const [x, y] = [plan.xs[seat], plan.ys[seat]];
      if (scale < DOT_PIXELS) context.rect(x - 0.42, y - 0.42, 0.84, 0.84);
      else {
        context.moveTo(x + 0.53, y);
        context.arc(x, y, 0.53, 0, 7);
      }
    }
    context.fill();
    this.#seats(context, scale, changed, plan, seats, marks);
  }

  #keepWhole(context, view) {
    const { width, height } = context.canvas;
    const kept = this.#whole?.context ?? document.createElement('canvas').getContext('2d');
    [kept.canvas.width, kept.canvas.height] = [width, height];
    kept.drawImage(context.canvas, 0, 0);
    this.#look(kept, view);
    this.#whole = { context: kept, scale: view.scale, x: view.x, y: view.y };
  }

  #stretch({ scale, x, y }) {
    const context = this.#layers.ground;
    const whole = this.#whole;
    this.#wipe(context);
    const { canvas } = whole.context;
    const factor = scale / whole.scale;
    context.drawImage(canvas, (whole.x - x) * scale * this.ratio, (whole.y - y) * scale * this.ratio, canvas.width * factor, canvas.height * factor);
  }

  #signs({ plan, view, pools }, visible, isMoved) {
    const written = pools.map(({ id, free }) => `${id} ${free}`).join();
    if (!isMoved && this.#signed === written) return;
    this.#signed = written;
    this.#context = this.#layers.signs;
    this.#wipe(this.#context);
    this.#look(this.#context, view);
    this.#floors(plan.floors, pools, view.scale);
    if (view.scale < PICK_PIXELS * 1.35) this.#names(visible, view.scale);
  }

  #sparks({ plan, view, pointedAt, hovered, focused }) {
    const context = this.#layers.sparks;
    const { scale } = view;
    const has = Boolean(hovered) || pointedAt.size > 0 || typeof focused === 'number' || this.#flashes.size > 0;
    if (!has && !this.#hasSparks) return false;
    this.#context = context;
    this.#hasSparks = has;
    this.#wipe(context);
    this.#look(context, view);
    if (hovered?.section) this.#outline(hovered.section.outline, scale);
    const floor = plan.floors.find(({ id }) => id === hovered?.floor);
    if (floor) this.#around(floor, scale);
    for (const seat of pointedAt) this.#ring(plan, seat, this.colours.suggested, scale, Math.max(0.62, 7 / scale));
    if (hovered?.seat !== undefined) this.#ring(plan, hovered.seat, this.colours.ink, scale, 0.56);
    if (focused !== undefined && focused !== null) this.#ring(plan, focused, this.colours.focus, scale, 0.66);
    return this.#paintFlashes(plan, scale);
  }

  #wipe(context) {
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, context.canvas.width, context.canvas.height);
  }

  /** From here on, a context is drawn on in units of the venue. */
  #look(context, { scale, x, y }) {
    const factor = scale * this.ratio;
    context.setTransform(factor, 0, 0, factor, -x * factor, -y * factor);
  }

  #stage(stage, scale) {
    const context = this.#context;
    context.fillStyle = this.colours.stage;
    context.beginPath();
    context.roundRect(stage.x, stage.y, stage.width, stage.height, Math.min(stage.height / 3, 2));
    context.fill();
    this.#text('STAGE', stage.x + stage.width / 2, stage.y + stage.height / 2, Math.min(stage.height * 0.34, 15 / scale), this.colours['stage-ink'], 600, '0.22em');
  }

  #floors(floors, pools, scale) {
    const context = this.#context;
    for (const floor of floors) {
      context.fillStyle = this.colours.floor;
      context.strokeStyle = this.colours['section-line'];
      context.lineWidth = 1.25 / scale;
      context.setLineDash([4 / scale, 4 / scale]);
      this.#floorPath(floor);
      context.fill();
      context.stroke();
      context.setLineDash([]);
      const pool = pools.find((one) => one.id === floor.id);
      const [x, y] = [floor.x + floor.width / 2, floor.y + floor.height / 2];
      const size = Math.min(floor.height * 0.14, floor.width * 0.1, 19 / scale);
      this.#text(titled(floor.id), x, y - size * 0.75, size, this.colours['floor-ink'], 650);
      if (pool) this.#text(`standing · ${pool.free.toLocaleString('en')} free`, x, y + size * 0.75, size * 0.72, this.colours.muted, 450);
    }
  }

  #floorPath(floor) {
    const corner = Math.min(3, floor.width / 8);
    this.#context.beginPath();
    this.#context.roundRect(floor.x, floor.y, floor.width, floor.height, [corner, corner, floor.round ?? corner, floor.round ?? corner]);
  }

  /** A line around a floor under the pointer. */
  #around(floor, scale) {
    this.#context.strokeStyle = this.colours.ink;
    this.#context.lineWidth = 1.25 / scale;
    this.#floorPath(floor);
    this.#context.stroke();
  }

  #sections(sections, scale) {
    const context = this.#context;
    context.lineJoin = 'round';
    context.lineWidth = 1 / scale;
    context.fillStyle = this.colours.section;
    context.strokeStyle = this.colours['section-line'];
    for (const { outline } of sections) {
      this.#sectionPath(outline);
      context.fill();
      context.stroke();
    }
  }

  #sectionPath(outline) {
    const context = this.#context;
    context.beginPath();
    outline.forEach(([x, y], place) => (place === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
    context.closePath();
  }

  /** A line around a section under the pointer. */
  #outline(outline, scale) {
    this.#context.strokeStyle = this.colours.ink;
    this.#context.lineWidth = 1 / scale;
    this.#sectionPath(outline);
    this.#context.stroke();
  }

  /** A path for each look, so that the colour is changed a few times and not for every seat. */
  #seats(context, scale, found, plan, seats, marks) {
    const paths = { f: new Path2D(), s: new Path2D(), h: new Path2D(), b: new Path2D(), mine: new Path2D(), chosen: new Path2D(), suggested: new Path2D() };
    const square = scale < DOT_PIXELS;
    for (const seat of found) {
      const look = marks.get(seat) ?? seats[seat];
      const path = paths[look];
      if (path === undefined) continue;
      const [x, y, size] = [plan.xs[seat], plan.ys[seat], SIZES[look]];
      if (square) path.rect(x - size * 0.88, y - size * 0.88, size * 1.76, size * 1.76);
      else {
        path.moveTo(x + size, y);
        path.arc(x, y, size, 0, 7);
      }
    }
    const colours = this.colours;
    context.fillStyle = colours.free;
    context.fill(paths.f);
    context.fillStyle = colours.sold;
    context.fill(paths.s);
    if (square) {
      context.fillStyle = colours.held;
      context.fill(paths.h);
    } else {
      context.strokeStyle = colours.held;
      context.lineWidth = Math.max(0.13, 1.2 / scale);
      context.stroke(paths.h);
    }
    context.fillStyle = colours.blocked;
    context.fill(paths.b);
    context.fillStyle = colours.chosen;
    context.fill(paths.chosen);
    context.fillStyle = colours.mine;
    context.fill(paths.mine);
    context.strokeStyle = colours.suggested;
    context.lineWidth = Math.max(0.16, 2 / scale);
    context.stroke(paths.suggested);
    if (!square) this.#ticks(context, plan, marks);
  }

  /** Chosen and own seats have a tick, so that colour is not all that tells. */
  #ticks(context, plan, marks) {
    context.strokeStyle = this.colours['on-seat'];
    context.lineWidth = 0.11;
    context.lineCap = 'round';
    context.beginPath();
    for (const [seat, mark] of marks) {
      if (mark === 'suggested') continue;
      const [x, y] = [plan.xs[seat], plan.ys[seat]];
      context.moveTo(x - 0.18, y + 0.01);
      context.lineTo(x - 0.05, y + 0.15);
      context.lineTo(x + 0.2, y - 0.15);
    }
    context.stroke();
  }

  #names(sections, scale) {
    for (const section of sections) {
      if (section.name === '') continue;
      const size = Math.min(Math.max(11.5 / scale, 1.5), Math.max(section.depth * 0.42, 8.5 / scale), (section.width / section.name.length) * 1.25);
      if (size * scale < 7) continue;
      this.#text(section.name, section.x, section.y, size, this.colours.ink, 700, undefined, true);
    }
  }

  #numbers(sections, plan, seats, labels, marks, shown) {
    const context = this.#context;
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    context.font = `600 0.34px ${this.#spoken}`;
    this.#rowNames(sections, plan, shown);
    for (const section of sections) {
      for (const row of section.rows) {
        for (let seat = row.first; seat < row.first + row.count; seat += 1) {
          const [x, y] = [plan.xs[seat], plan.ys[seat]];
          if (x < shown.left || x > shown.right || y < shown.top || y > shown.bottom) continue;
          if (seats[seat] !== 'f' || (marks.get(seat) ?? 'suggested') !== 'suggested') continue;
          context.fillStyle = this.colours['on-seat'];
          context.fillText(labels(seat), x, y + 0.02);
        }
      }
    }
  }

  /** At both ends of a row, beyond its last seats. */
  #rowNames(sections, plan, shown) {
    const { xs, ys } = plan;
    for (const section of sections) {
      for (const { name, first, count } of section.rows) {
        if (name === '' || count < 2) continue;
        for (const [end, next] of [[first, first + 1], [first + count - 1, first + count - 2]]) {
          const [x, y] = [xs[end] + (xs[end] - xs[next]) * 0.68, ys[end] + (ys[end] - ys[next]) * 0.68];
          if (x < shown.left || x > shown.right || y < shown.top || y > shown.bottom) continue;
          this.#text(name, x, y, 0.36, this.colours.muted, 600);
        }
      }
    }
  }

  #ring(plan, seat, colour, scale, size) {
    const context = this.#context;
    context.strokeStyle = colour;
    context.lineWidth = Math.max(0.1, 2.2 / scale);
    context.beginPath();
    context.arc(plan.xs[seat], plan.ys[seat], size, 0, 7);
    context.stroke();
  }

  /** A ring that widens and fades where somebody just did something. */
  #paintFlashes(plan, scale) {
    const context = this.#context;
    const now = performance.now();
    for (const [seat, { at, letter }] of this.#flashes) {
      const age = (now - at) / FLASH_MS;
      if (age >= 1 || seat >= plan.xs.length) {
        this.#flashes.delete(seat);
        continue;
      }
      context.globalAlpha = (1 - age) ** 2;
      context.strokeStyle = letter === 's' ? this.colours.ink : letter === 'h' ? this.colours.held : this.colours.free;
      context.lineWidth = Math.max(0.12, 1.8 / scale);
      context.beginPath();
      context.arc(plan.xs[seat], plan.ys[seat], 0.45 + age * Math.max(1.1, 9 / scale), 0, 7);
      context.stroke();
    }
    context.globalAlpha = 1;
    return this.#flashes.size > 0;
  }

  #text(text, x, y, size, colour, weight = 500, spacing = '0px', halo = false) {
    const context = this.#context;
    // Small font sizes are rounded by some engines: draw large, shrunken.
    context.save();
    context.translate(x, y);
    context.scale(size / 100, size / 100);
    context.font = `${weight} 100px ${this.#spoken}`;
    context.letterSpacing = spacing === '0px' ? spacing : '22px';
    context.textAlign = 'center';
    context.textBaseline = 'middle';
    if (halo) {
      context.lineJoin = 'round';
      context.lineWidth = 34;
      context.strokeStyle = this.colours.halo;
      context.strokeText(text, 0, 4);
    }
    context.fillStyle = colour;
    context.fillText(text, 0, 4);
    context.restore();
  }
}

const SIZES = { f: 0.4, s: 0.2, h: 0.33, b: 0.13, mine: 0.46, chosen: 0.46, suggested: 0.44 };

function titled(id) {
  return id.charAt(0).toUpperCase() + id.slice(1);
}

function seatsOf(sections) {
  return sections.reduce((sum, { rows }) => rows.reduce((all, { count }) => all + count, sum), 0);
}
