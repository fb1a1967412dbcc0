/**
 * When changes are drawn: at once after something that a person does, otherwise at most five times a second,
 * and not at all while the page is hidden.
 */
import { options } from "preact";

const EVERY_MS = 200;
/** What follows so soon after an act of a person belongs to it, as the answer of the server does. */
const BELONGS_MS = 1_000;
const ACTS = ["pointerdown", "click", "keydown", "input", "change", "submit", "popstate", "wheel", "scroll"];

let actedAt = performance.now(); // opening the page is an act, too
let drawnAt = 0;
let waiting: (() => void) | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Draw the parts that wait for it. */
function draw(): void {
  clearTimeout(timer);
  timer = undefined;
  const work = waiting;
  waiting = undefined;
  if (!work) return;
  drawnAt = performance.now();
  work();
}

/** Draw in time; Preact gives its `work` once until it is done. */
function later(work: () => void): void {
  waiting = work;
  if (document.hidden) return; // until it is seen
  const now = performance.now();
  const wait = now < actedAt + BELONGS_MS ? 0 : drawnAt + EVERY_MS - now;
  if (wait > 0) timer = setTimeout(draw, wait);
  else queueMicrotask(draw);
}

export function drawInTime(): void {
  options.debounceRendering = later;
  const acted = (): void => {
    actedAt = performance.now();
    if (!document.hidden) draw(); // changes of an action do not wait behind older ones
  };
  for (const type of ACTS) addEventListener(type, acted, { capture: true, passive: true });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) draw();
  });
}
