/** Times and durations, in few characters and always with the exact moment at hand. */
import { signal } from "@preact/signals";

/** The present second. Everything that says "3 s ago" depends on it. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

const UNITS: readonly [string, number][] = [
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
];

/** Return a duration in at most two units: `3 d 4 h`, `1 m 20 s`, `350 ms`. */
export function span(ms: number): string {
  const sign = ms < 0 ? "−" : "";
  const total = Math.abs(ms) / 1000;
  if (total < 1) return `${sign}${Math.round(total * 1000)} ms`;
  if (total < 10) return `${sign}${(Math.floor(total * 10) / 10).toString()} s`;
  for (const [place, [unit, size]] of UNITS.entries()) {
    if (total < size) continue;
    const [small, smallSize] = UNITS[place + 1] ?? ["s", 1];
    const rest = Math.floor((total % size) / smallSize);
    return `${sign}${Math.floor(total / size)} ${unit}${rest ? ` ${rest} ${small}` : ""}`;
  }
  return `${sign}${Math.floor(total)} s`;
}

/** Return a short duration with three figures: `350 µs`, `5.21 ms`, `1.3 s`. */
export function precise(ms: number): string {
  if (ms >= 1_000) return span(ms);
  const [value, unit] = ms < 1 ? [ms * 1_000, "µs"] : [ms, "ms"];
  return `${value >= 100 ? Math.round(value) : Number(value.toPrecision(3))} ${unit}`;
}

/** Return a duration in one unit. */
function roughly(ms: number): string {
  return ms < 10_000 ? `${Math.floor(ms / 1000)} s` : (span(ms).match(/^\d+ \w+/)?.[0] ?? span(ms));
}

/** Return how long ago a moment was, or in how long it will be. */
export function ago(moment: string, at: number): string {
  const distance = at - Date.parse(moment);
  if (Math.abs(distance) < 1500) return "now";
  return distance > 0 ? `${roughly(distance)} ago` : `in ${roughly(-distance)}`;
}

const EXACT = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "medium",
});
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
});

/** Return the exact moment in the reader's time zone. */
export function exact(moment: string): string {
  return EXACT.format(Date.parse(moment));
}

/** Return the time of day to the millisecond, with the day where it is another one. */
export function clock(moment: string, present = Date.now()): string {
  const at = Date.parse(moment);
  const day = DAY.format(at);
  return day === DAY.format(present) && Math.abs(present - at) < 2 * 86_400_000 ? CLOCK.format(at) : `${day}, ${CLOCK.format(at)}`;
}
