/** The pace of something that is polled, and when it will be done. */

interface Seen {
  readonly at: number;
  readonly step: number;
}

/** Older samples say little about the present pace. */
const WINDOW_MS = 60_000;
const MOST_SEEN = 120;

const seen = new Map<string, readonly Seen[]>();

/** Note how far something is. One that has gone back, as after a crash, is measured anew. */
export function noteStep(id: string, step: number, at: number): void {
  const before = seen.get(id) ?? [];
  const last = before.at(-1);
  if (last && step < last.step) seen.set(id, [{ at, step }]);
  else if (!last || step > last.step) {
    seen.set(id, [...before.filter((each) => at - each.at <= WINDOW_MS), { at, step }].slice(-MOST_SEEN));
  }
}

/** Return how long so many steps take at the pace that was seen; undefined while none was. */
export function timeFor(id: string, steps: number): number | undefined {
  const all = seen.get(id) ?? [];
  const [first, last] = [all[0], all.at(-1)];
  if (!first || !last || last.step === first.step) return undefined;
  return (steps * (last.at - first.at)) / (last.step - first.step);
}
