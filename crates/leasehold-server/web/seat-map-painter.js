// Paints a venue on a canvas. It knows where things are and what they look like, and nothing of pointers or servers.

const FLASH_MS = 700;
/** Seats of fewer pixels are squares: nobody can tell, and it is faster. */
const DOT_PIXELS = 3.4;
const NUMBER_PIXELS = 17;
/** With fewer pixels a seat, sections carry their names and seats cannot be hit. */
export const PICK_PIXELS = 7;

export class Painter {
  #canvas;
  #context;
  #flashes = new Map();
  #spoken;

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext('2d', { alpha: true });
    this.colours = {};
    this.still = false;
  }

  /** Colours come from CSS, so that a page can choose them and dark mode just works. */
  readColours(element) {
    const style = getComputedStyle(element);
    const names = ['free', 'held', 'sold', 'blocked', 'mine', 'chosen', 'suggested', 'section', 'section-line', 'stage', 'stage-ink', 'floor', 'floor-ink', 'ink', 'muted', 'halo', 'on-seat', 'focus'];
    for (const name of names) this.colours[name] = style.getPropertyValue(`--seat-map-${name}`).trim() || '#888';
    this.#spoken = style.fontFamily;
  }

  resize(width, height) {
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    this.ratio = ratio;
    const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (this.#canvas.width !== w || this.#canvas.height !== h) {
      this.#canvas.width = w;
      this.#canvas.height = h;
    }
  }

  flash(seat, letter) {
    if (!this.still) this.#flashes.set(seat, { at: performance.now(), letter });
  }

  /** Paints everything once. Returns whether something still moves. */
  paint({ plan, view, seats, mine, chosen, pointedAt, suggested, hovered, focused, pools, labels }) {
    const context = this.#context;
    const { scale, x: left, y: top } = view;
    const ratio = this.ratio;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    if (!plan) return false;
    context.setTransform(scale * ratio, 0, 0, scale * ratio, -left * scale * ratio, -top * scale * ratio);
    const shown = { left, top, right: left + this.#canvas.width / ratio / scale, bottom: top + this.#canvas.height / ratio / scale };
    this.#stage(plan.stage, scale);
    this.#floors(plan.floors, pools, scale, hovered);
    const visible = plan.sections.filter((section) => section.right >= shown.left && section.left <= shown.right && section.bottom >= shown.top && section.top <= shown.bottom);
    this.#sections(visible, hovered?.section, scale);
    this.#seats(visible, plan, seats, { mine, chosen, suggested }, scale, shown);
    if (scale < PICK_PIXELS * 1.35) this.#names(visible, scale);
    if (scale >= NUMBER_PIXELS) this.#numbers(visible, plan, seats, labels, { mine, chosen }, shown);
    for (const seat of pointedAt) this.#ring(plan, seat, this.colours.suggested, scale, Math.max(0.62, 7 / scale));
    if (hovered?.seat !== undefined) this.#ring(plan, hovered.seat, this.colours.ink, scale, 0.56);
    if (focused !== undefined && focused !== null) this.#ring(plan, focused, this.colours.focus, scale, 0.66);
    return this.#paintFlashes(plan, scale);
  }

  #stage(stage, scale) {
    const context = this.#context;
    context.fillStyle = this.colours.stage;
    context.beginPath();
    context.roundRect(stage.x, stage.y, stage.width, stage.height, Math.min(stage.height / 3, 2));
    context.fill();
    this.#text('STAGE', stage.x + stage.width / 2, stage.y + stage.height / 2, Math.min(stage.height * 0.34, 15 / scale), this.colours['stage-ink'], 600, '0.22em');
  }

  #floors(floors, pools, scale, hovered) {
    const context = this.#context;
    for (const floor of floors) {
      context.fillStyle = this.colours.floor;
      context.strokeStyle = hovered?.floor === floor.id ? this.colours.ink : this.colours['section-line'];
      context.lineWidth = 1.25 / scale;
      context.setLineDash(hovered?.floor === floor.id ? [] : [4 / scale, 4 / scale]);
      context.beginPath();
      const corner = Math.min(3, floor.width / 8);
      context.roundRect(floor.x, floor.y, floor.width, floor.height, [corner, corner, floor.round ?? corner, floor.round ?? corner]);
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

  #sections(sections, hovered, scale) {
    const context = this.#context;
    context.lineJoin = 'round';
    context.lineWidth = 1 / scale;
    for (const section of sections) {
      context.fillStyle = this.colours.section;
      context.strokeStyle = section === hovered ? this.colours.ink : this.colours['section-line'];
      context.beginPath();
      section.outline.forEach(([x, y], place) => (place === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
      context.closePath();
      context.fill();
      context.stroke();
    }
  }

  /** A path for each look, so that the colour is changed a few times and not for every seat. */
  #seats(sections, plan, seats, { mine, chosen, suggested }, scale, shown) {
    const context = this.#context;
    const paths = { f: new Path2D(), s: new Path2D(), h: new Path2D(), b: new Path2D(), mine: new Path2D(), chosen: new Path2D(), suggested: new Path2D() };
    const square = scale < DOT_PIXELS;
    const { xs, ys } = plan;
    for (const section of sections) {
      for (const row of section.rows) {
        for (let seat = row.first; seat < row.first + row.count; seat += 1) {
          const [x, y] = [xs[seat], ys[seat]];
          if (x < shown.left - 1 || x > shown.right + 1 || y < shown.top - 1 || y > shown.bottom + 1) continue;
          const look = mine.has(seat) ? 'mine' : chosen.has(seat) ? 'chosen' : suggested.has(seat) ? 'suggested' : seats[seat];
          const path = paths[look];
          if (path === undefined) continue;
          const size = SIZES[look];
          if (square) path.rect(x - size * 0.88, y - size * 0.88, size * 1.76, size * 1.76);
          else {
            path.moveTo(x + size, y);
            path.arc(x, y, size, 0, 7);
          }
        }
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
    if (!square) this.#ticks(plan, chosen, mine);
  }

  /** Chosen and own seats have a tick, so that colour is not all that tells. */
  #ticks(plan, chosen, mine) {
    const context = this.#context;
    context.strokeStyle = this.colours['on-seat'];
    context.lineWidth = 0.11;
    context.lineCap = 'round';
    context.beginPath();
    for (const seat of [...chosen, ...mine]) {
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

  #numbers(sections, plan, seats, labels, { mine, chosen }, shown) {
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
          if (seats[seat] !== 'f' || mine.has(seat) || chosen.has(seat)) continue;
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
          const [x, y] = [xs[end] + (xs[end] - xs[next]) * 0.72, ys[end] + (ys[end] - ys[next]) * 0.72];
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
