// Seats for those who cannot see or point: a grid of one row at a time beside the picture, moved with the keyboard.
//
// Only the row with the cursor is in the document. A reader of screens hears "section 104, row 3, seat 7, free", and the
// picture shows a ring around the same seat.

import { LETTERS } from './seat-map-live.js';

export class Cursor {
  #grid;
  #rows = [];
  #row = 0;
  #place = 0;
  #shown = -1;
  #said = '';

  constructor(grid) {
    this.#grid = grid;
  }

  /** All rows of the venue in order, with their sections. */
  load(sections) {
    this.#rows = sections.flatMap((section, number) => section.rows.map((row) => ({ ...row, section, number })));
    this.#row = 0;
    this.#place = 0;
    this.#shown = -1;
    this.#said = '';
    this.#grid.setAttribute('aria-rowcount', String(Math.max(1, this.#rows.length)));
  }

  get seat() {
    const row = this.#rows[this.#row];
    return row ? row.first + Math.min(this.#place, row.count - 1) : null;
  }

  get section() {
    return this.#rows[this.#row]?.section ?? null;
  }

  moveTo(seat) {
    const row = this.#rows.findIndex(({ first, count }) => seat >= first && seat < first + count);
    if (row < 0) return;
    this.#row = row;
    this.#place = seat - this.#rows[row].first;
  }

  /** Moves by a key. Returns whether the key is one of its own. */
  key(key) {
    const row = this.#rows[this.#row];
    if (!row) return false;
    switch (key) {
      case 'ArrowLeft':
        this.#place = Math.max(0, this.#place - 1);
        return true;
      case 'ArrowRight':
        this.#place = Math.min(row.count - 1, this.#place + 1);
        return true;
      case 'ArrowUp':
        this.#toRow(this.#row - 1);
        return true;
      case 'ArrowDown':
        this.#toRow(this.#row + 1);
        return true;
      case 'Home':
        this.#place = 0;
        return true;
      case 'End':
        this.#place = row.count - 1;
        return true;
      case 'PageUp':
        this.#toSection(row.number - 1);
        return true;
      case 'PageDown':
        this.#toSection(row.number + 1);
        return true;
      default:
        return false;
    }
  }

  /** Writes the row with the cursor into the document. */
  show({ seats, ids, label, chosen, mine }) {
    const row = this.#rows[this.#row];
    if (!row) return;
    if (this.#shown !== this.#row) {
      const line = document.createElement('div');
      line.setAttribute('role', 'row');
      line.setAttribute('aria-rowindex', String(this.#row + 1));
      for (let seat = row.first; seat < row.first + row.count; seat += 1) {
        const cell = document.createElement('span');
        cell.setAttribute('role', 'gridcell');
        cell.setAttribute('aria-colindex', String(seat - row.first + 1));
        cell.id = `cell-${seat}`;
        cell.textContent = label(seat);
        line.append(cell);
      }
      this.#grid.replaceChildren(line);
      this.#grid.setAttribute('aria-colcount', String(row.count));
      this.#shown = this.#row;
    }
    const active = `cell-${this.seat}`;
    if (this.#grid.getAttribute('aria-activedescendant') !== active) this.#grid.setAttribute('aria-activedescendant', active);
    const stateOf = (seat) => (mine.has(seat) ? 'yours' : chosen.has(seat) ? 'chosen' : LETTERS[seats[seat]]);
    // The map is painted many times a second, and the row is rarely another one.
    const said = `${this.#row} ${Array.from({ length: row.count }, (_, place) => stateOf(row.first + place)).join()}`;
    if (said === this.#said) return;
    this.#said = said;
    for (const cell of this.#grid.firstElementChild.children) {
      const seat = Number(cell.id.slice(5));
      const state = stateOf(seat);
      cell.setAttribute('aria-selected', String(chosen.has(seat) || mine.has(seat)));
      cell.setAttribute('aria-disabled', String(seats[seat] !== 'f'));
      cell.setAttribute('aria-label', `${words(row, ids[seat], label(seat))}, ${state}`);
    }
  }

  #toRow(row) {
    this.#row = Math.min(Math.max(row, 0), this.#rows.length - 1);
    this.#place = Math.min(this.#place, this.#rows[this.#row].count - 1);
  }

  #toSection(number) {
    const row = this.#rows.findIndex((one) => one.number === number);
    if (row >= 0) this.#toRow(row);
  }
}

/** "Section 104, row 3, seat 7", without what the venue has no names for. */
export function words(row, id, label) {
  const parts = [];
  // "Balcony" needs no more words; "104" and "A" do.
  const { name } = row.section;
  if (name !== '') parts.push(/^[A-Za-z]?[0-9]*$/.test(name) ? `section ${name}` : name);
  if (row.name !== '') parts.push(`row ${row.name}`);
  parts.push(parts.length > 0 ? `seat ${label}` : `seat ${id}`);
  const text = parts.join(', ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}
