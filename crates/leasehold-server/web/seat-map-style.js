// The look of a seat map's own parts. Colours are custom properties, so that the page around it can choose others.

export const STYLE = `
:host {
  display: block; position: relative; overflow: hidden; contain: strict; container-type: size; min-height: 200px;
  --seat-map-free: #4f46e5; --seat-map-held: #c77800; --seat-map-sold: #c9c3ba; --seat-map-blocked: #9b958c;
  --seat-map-mine: #0a8f5b; --seat-map-chosen: #17141f; --seat-map-suggested: #d6336c; --seat-map-section: #fbfaf8;
  --seat-map-section-line: #ddd7cd; --seat-map-stage: #221e2b; --seat-map-stage-ink: #f5f1ea; --seat-map-floor: #f1eefc;
  --seat-map-floor-ink: #2b2836; --seat-map-ink: #1d1a24; --seat-map-muted: #645f6d; --seat-map-halo: #fbfaf8e0;
  --seat-map-on-seat: #ffffff; --seat-map-focus: #d6336c; --seat-map-surface: #ffffff; --seat-map-line: #ddd7cd;
  font: 500 14px/1.4 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
canvas { position: absolute; inset: 0; width: 100%; height: 100%; touch-action: none; cursor: grab; }
canvas.whole { touch-action: pan-y; }
canvas.pick { cursor: pointer; }
canvas:active { cursor: grabbing; }
.grid { position: absolute; inset: 0; pointer-events: none; outline: none; overflow: hidden; }
.grid > div { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.grid:focus-visible { box-shadow: inset 0 0 0 3px var(--seat-map-focus); border-radius: inherit; }
.unseen { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; clip-path: inset(50%); }
.zoom { position: absolute; right: 14px; bottom: 14px; display: grid; gap: 1px; border-radius: 12px; overflow: hidden;
  background: var(--seat-map-line); border: 1px solid var(--seat-map-line); box-shadow: 0 2px 8px #0000001a; }
.zoom button { width: 44px; height: 44px; border: 0; background: var(--seat-map-surface); color: var(--seat-map-ink);
  font: 500 19px/1 system-ui, sans-serif; cursor: pointer; }
.zoom button:hover { background: var(--seat-map-floor); }
.zoom button:focus-visible { outline: 3px solid var(--seat-map-focus); outline-offset: -3px; }
.tip { position: absolute; left: 0; top: 0; max-width: 260px; padding: 6px 10px; border-radius: 8px; pointer-events: none;
  background: var(--seat-map-stage); color: var(--seat-map-stage-ink); font-size: 13px; opacity: 0; white-space: nowrap; }
.tip.seen { opacity: 1; }
@container (max-width: 560px) {
  .zoom { right: 10px; bottom: 10px; grid-auto-flow: column; }
}
@media (prefers-color-scheme: dark) {
  :host {
    --seat-map-free: #8f8bff; --seat-map-held: #f0b04a; --seat-map-sold: #655f74; --seat-map-blocked: #8a8496;
    --seat-map-mine: #3bd08d; --seat-map-chosen: #ffffff; --seat-map-suggested: #ff7aa8; --seat-map-section: #1d1a25;
    --seat-map-section-line: #35313f; --seat-map-stage: #efe9df; --seat-map-stage-ink: #1d1a24; --seat-map-floor: #232031;
    --seat-map-floor-ink: #eae6f2; --seat-map-ink: #f4f1fa; --seat-map-muted: #a7a1b3; --seat-map-halo: #16141ce0;
    --seat-map-on-seat: #14121a; --seat-map-focus: #ff7aa8; --seat-map-surface: #221f2b; --seat-map-line: #3b3646;
  }
}
@media (prefers-reduced-motion: no-preference) { .tip { transition: opacity 120ms; } }
`;
