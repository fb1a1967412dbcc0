/** Times in a time zone that need not be the reader's, and marks at round times along an axis. */

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS: readonly number[] = [
  ...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * 1_000),
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR),
  ...[1, 2, 7, 14, 28, 91, 182, 364, 1_820].map((days) => days * DAY),
];
/** Weeks begin on a Monday; the first of January 1970 was a Thursday. */
const MONDAY = 4 * DAY;

const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(zone: string, options: Intl.DateTimeFormatOptions, locale?: string): Intl.DateTimeFormat {
  const key = JSON.stringify([zone, options, locale]);
  let found = formats.get(key);
  if (!found) {
    try {
      found = new Intl.DateTimeFormat(locale, { ...options, timeZone: zone });
    } catch {
      found = new Intl.DateTimeFormat(locale, { ...options, timeZone: "UTC" }); // the server may know more zones
    }
    formats.set(key, found);
  }
  return found;
}

const FIGURES: Intl.DateTimeFormatOptions = {
  year: "numeric",
  month: "numeric",
  day: "numeric",
  hour: "numeric",
  minute: "numeric",
  second: "numeric",
  hourCycle: "h23",
};

/** Return the time on a wall clock of a zone, as if it were in UTC. */
export function wallOf(at: number, zone: string): number {
  const parts = new Map(formatOf(zone, FIGURES, "en-US").formatToParts(at).map((part) => [part.type, Number(part.value)]));
  const [year = 0, month = 0, day, hour, minute, second] = (["year", "month", "day", "hour", "minute", "second"] as const).map(
    (name) => parts.get(name) ?? 0,
  );
  return Date.UTC(year, month - 1, day, hour, minute, second);
}

/** Return the moment at which a clock on the wall of a zone shows this; one that it never shows is near it. */
export function momentOf(wall: number, zone: string): number {
  const guess = wall - (wallOf(wall, zone) - wall);
  return guess + (wall - wallOf(guess, zone));
}

/** Return a time as it is said in a zone, such as `Tue, Nov 17, 02:00`; the year where it is another one. */
export function timeIn(at: number, zone: string, named: "" | "short", present = Date.now()): string {
  return formatOf(zone, {
    weekday: "short",
    day: "numeric",
    month: "short",
    ...(new Date(at).getUTCFullYear() !== new Date(present).getUTCFullYear() && { year: "numeric" }),
    hour: "2-digit",
    minute: "2-digit",
    ...(at % MINUTE && { second: "2-digit" }),
    hourCycle: "h23",
    ...(named && { timeZoneName: named }),
  }).format(at);
}

/** Return a time of a zone as a field for dates and times takes it. */
export function fieldOf(at: number, zone: string): string {
  return new Date(wallOf(at, zone)).toISOString().slice(0, 16);
}

export interface Tick {
  readonly at: number;
  readonly label: string;
}

/** Return a bounded number of round times of a zone between two moments: full hours, midnights, Mondays. */
export function ticksOf(from: number, to: number, zone: string, most: number): Tick[] {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? STEPS.at(-1) ?? DAY;
  const origin = step >= 7 * DAY ? MONDAY : 0;
  const begin = Math.ceil((wallOf(from, zone) - origin) / step) * step + origin;
  const found: Tick[] = [];
  for (let wall = begin; found.length < most; wall += step) {
    const at = momentOf(wall, zone);
    if (at > to) break;
    if (at >= from) found.push({ at, label: labelOf(wall, step) });
  }
  return found;
}

/** Return what stands below a mark: the day where one begins, else the time. */
function labelOf(wall: number, step: number): string {
  if (wall % DAY === 0) {
    const far: Intl.DateTimeFormatOptions = step > 60 * DAY ? { month: "short", year: "numeric" } : { day: "numeric", month: "short" };
    return formatOf("UTC", step < 7 * DAY ? { weekday: "short", ...far } : far).format(wall);
  }
  return formatOf("UTC", { hour: "2-digit", minute: "2-digit", ...(step < MINUTE && { second: "2-digit" }), hourCycle: "h23" }).format(wall);
}

/** Return the zone in which the reader's browser shows times. */
export function ownZone(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}
