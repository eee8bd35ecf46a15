// Where every seat of a venue stands on the drawing, worked out from its sections and rows alone.
//
// Sections of the same shape that follow each other make a tier. Tiers are arcs around the stage, one behind the
// other; a tier that does not fit around it becomes several. One unit is the distance of two seats in a row.

const ROW_DEPTH = 1.12;
const AISLE = 2;
const TIER_GAP = 2.4;
/** The widest arc: the rest of the circle is left open behind the stage. */
const SWEEP_MAX = 4.55;
/** An arc at least this wide makes an arena, where people sit on three sides of the stage. */
const ARENA_SWEEP = 2.6;
/** How much further apart the seats of a back row may stand, so that aisles stay straight. */
const SPREAD_MAX = 1.22;
/** A tier may be pushed out to this multiple of its place before it is split instead. */
const PUSH_MAX = 1.9;
const FLOOR_RADIUS_MIN = 15;
const RADIUS_MIN = 9;
const POOLS_DRAWN_MAX = 6;

/**
 * @param {{name: string, rows: {name: string, first: number, count: number}[]}[]} sections
 * @param {string[]} pools ids of counted stock, drawn as floors
 * @returns places of all seats, outlines of sections and floors, the stage, and the bounds of it all
 */
export function arrange(sections, pools) {
  const count = sections.reduce((sum, section) => section.rows.reduce((all, row) => all + row.count, sum), 0);
  const xs = new Float32Array(count);
  const ys = new Float32Array(count);
  const drawn = [];
  const tiers = tiersOf(sections, pools.length > 0);
  for (const tier of tiers) {
    const slot = tier.sweep / tier.sections.length;
    inPlace(tier.sections).forEach((section, place) => {
      const middle = -tier.sweep / 2 + slot * (place + 0.5);
      drawn.push(placeSection(section, tier.radius, middle, xs, ys));
    });
  }
  const first = tiers[0];
  const arena = first !== undefined && first.sweep >= ARENA_SWEEP;
  const centre = arena ? around(first.radius) : inFront(first, pools.length > 0);
  const floors = divide(centre.floor, pools.slice(0, POOLS_DRAWN_MAX));
  return { xs, ys, sections: drawn, floors, stage: centre.stage, bounds: boundsOf(drawn, floors, centre.stage) };
}

/** Consecutive sections of one shape, as arcs with a radius and a sweep. */
function tiersOf(sections, hasFloor) {
  const groups = [];
  for (const section of sections) {
    const shape = { rows: section.rows.length, width: Math.max(1, ...section.rows.map((row) => row.count)) };
    const last = groups.at(-1);
    if (last && last.rows === shape.rows && last.width === shape.width) last.sections.push(section);
    else groups.push({ ...shape, sections: [section] });
  }
  const tiers = [];
  let radius = hasFloor ? FLOOR_RADIUS_MIN : RADIUS_MIN;
  for (const group of groups) {
    const slot = group.width + AISLE;
    const depth = group.rows * ROW_DEPTH;
    let left = group.sections;
    // A single section curves gently.
    radius = Math.max(radius, group.sections.length === 1 ? slot * 0.85 : slot * Math.min(left.length, 5) / SWEEP_MAX);
    const wanted = left.length * slot / SWEEP_MAX;
    if (wanted <= Math.max(radius, 24) * PUSH_MAX) radius = Math.max(radius, wanted);
    while (left.length > 0) {
      const fits = Math.max(1, Math.floor(SWEEP_MAX * radius / slot + 1e-6));
      const taken = left.slice(0, fits);
      const needed = taken.length * slot / radius;
      const sweep = needed > SWEEP_MAX * 0.72 ? SWEEP_MAX : needed;
      tiers.push({ radius, sweep, sections: taken });
      left = left.slice(fits);
      radius += depth + TIER_GAP;
    }
  }
  return tiers;
}

/** Numbered sections stand by number, whichever is offered first; others stand as they were named. */
function inPlace(sections) {
  const numbered = sections.every(({ name }) => /^[0-9]+$/.test(name));
  return numbered ? [...sections].sort((one, other) => Number(one.name) - Number(other.name)) : sections;
}

function placeSection(section, radius, middle, xs, ys) {
  const width = Math.max(1, ...section.rows.map((row) => row.count));
  let outer = radius;
  /** Half of the section's angle at each row: seats of back rows stand no further apart than so much. */
  const halves = [];
  section.rows.forEach((row, depth) => {
    const distance = radius + depth * ROW_DEPTH;
    const pitch = Math.min(SPREAD_MAX, distance / radius) / distance;
    for (let place = 0; place < row.count; place += 1) {
      const angle = middle + (place - (row.count - 1) / 2) * pitch;
      xs[row.first + place] = distance * Math.sin(angle);
      ys[row.first + place] = distance * Math.cos(angle);
    }
    outer = distance;
    // With room for the names of rows at both ends.
    halves.push((width / 2 + 0.6) * pitch);
  });
  const place = (distance, angle) => [distance * Math.sin(angle), distance * Math.cos(angle)];
  const [inside, outside] = [radius - 0.85, outer + 0.85];
  const [front, back] = [halves[0], halves.at(-1)];
  const steps = Math.max(2, Math.ceil(front * 12));
  const outline = [];
  for (let step = 0; step <= steps; step += 1) outline.push(place(inside, middle + front * ((2 * step) / steps - 1)));
  for (let step = steps; step >= 0; step -= 1) outline.push(place(outside, middle + back * ((2 * step) / steps - 1)));
  const [x, y] = place((radius + outer) / 2, middle);
  return { name: section.name, rows: section.rows, outline, x, y, width: 2 * front * radius, depth: outer - radius + 1.7, ...boxOf(outline) };
}

/** The stage and the floor of an arena: inside the first tier, the stage at the open end. */
function around(radius) {
  const stage = { x: -radius * 0.42, y: -radius * 0.86, width: radius * 0.84, height: radius * 0.24 };
  const top = stage.y + stage.height + radius * 0.08;
  const half = radius * 0.62;
  return { stage, floor: { x: -half, y: top, width: 2 * half, height: radius * 0.8 - top, round: half * 0.92 } };
}

/** The stage and the floor of a hall: before the first row. */
function inFront(first, hasFloor) {
  if (first === undefined) {
    return { stage: { x: -8, y: -7, width: 16, height: 3 }, floor: { x: -10, y: -2.5, width: 20, height: 12 } };
  }
  const half = first.radius * Math.sin(Math.min(first.sweep / 2, Math.PI / 2));
  const bottom = first.radius * Math.cos(Math.min(first.sweep / 2, Math.PI / 2)) - 1.6;
  const floorHeight = hasFloor ? Math.max(6, half * 0.45) : 0;
  const floor = { x: -half * 0.8, y: bottom - floorHeight, width: half * 1.6, height: floorHeight };
  const stageWidth = Math.max(4, half * 1.3);
  const stageHeight = Math.max(1.6, half * 0.16);
  const stageBottom = hasFloor ? floor.y - 1 : bottom;
  return { stage: { x: -stageWidth / 2, y: stageBottom - stageHeight, width: stageWidth, height: stageHeight }, floor };
}

function divide(floor, pools) {
  const gap = 0.9;
  const width = (floor.width - gap * (pools.length - 1)) / Math.max(1, pools.length);
  // Only a floor that is alone follows the curve of the seats.
  const round = pools.length === 1 ? floor.round : undefined;
  return pools.map((id, place) => ({ id, round, x: floor.x + place * (width + gap), y: floor.y, width, height: floor.height }));
}

function boxOf(points) {
  const box = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  for (const [x, y] of points) {
    box.left = Math.min(box.left, x);
    box.right = Math.max(box.right, x);
    box.top = Math.min(box.top, y);
    box.bottom = Math.max(box.bottom, y);
  }
  return box;
}

function boundsOf(sections, floors, stage) {
  const corners = [[stage.x, stage.y], [stage.x + stage.width, stage.y + stage.height]];
  for (const section of sections) corners.push([section.left, section.top], [section.right, section.bottom]);
  for (const floor of floors) corners.push([floor.x, floor.y], [floor.x + floor.width, floor.y + floor.height]);
  return boxOf(corners);
}
