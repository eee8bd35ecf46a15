// Free seats near those that somebody else was faster to take.

/**
 * Up to `offers` groups of `count` free seats, next to each other in one row, nearest first. None has a seat that was
 * wanted: whoever was refused may hear of it before the stream tells that the seat is taken.
 *
 * @param {{xs: Float32Array, ys: Float32Array, sections: {rows: {first: number, count: number}[]}[]}} plan
 * @param {string[]} seats one letter a seat
 * @param {number[]} wanted the seats that were wanted
 */
export function nearby(plan, seats, wanted, count, offers) {
  if (wanted.length === 0 || count < 1) return [];
  const mean = (values) => wanted.reduce((sum, seat) => sum + values[seat], 0) / wanted.length;
  const [x, y] = [mean(plan.xs), mean(plan.ys)];
  const groups = [];
  for (const section of plan.sections) {
    for (const row of section.rows) {
      let run = 0;
      for (let seat = row.first; seat < row.first + row.count; seat += 1) {
        run = seats[seat] === 'f' && !wanted.includes(seat) ? run + 1 : 0;
        if (run < count) continue;
        const first = seat - count + 1;
        const [dx, dy] = [(plan.xs[first] + plan.xs[seat]) / 2 - x, (plan.ys[first] + plan.ys[seat]) / 2 - y];
        groups.push({ first, distance: dx * dx + dy * dy });
      }
    }
  }
  groups.sort((one, other) => one.distance - other.distance);
  const chosen = [];
  for (const { first } of groups) {
    const seatsOfGroup = Array.from({ length: count }, (_, place) => first + place);
    if (chosen.some((group) => group.some((seat) => seatsOfGroup.includes(seat)))) continue;
    chosen.push(seatsOfGroup);
    if (chosen.length === offers) break;
  }
  return chosen;
}
