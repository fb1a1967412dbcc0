/** What differs between two versions of a body, and the versions that this page has seen. */

export interface Difference {
  readonly path: string;
  /** The values as JSON; empty where there is none. */
  readonly before: string;
  readonly after: string;
}

const MOST = 200;
const MOST_CHARACTERS = 400;

type Pair = readonly [path: string, before: unknown, after: unknown];

/** Return what differs, each by its place; of very many differences the first, and how many more there are. */
export function differences(before: unknown, after: unknown): { shown: Difference[]; more: number } {
  const shown: Difference[] = [];
  let more = 0;
  const left: Pair[] = [["", before, after]]; // a stack of our own: bodies may be deeper than that of the browser
  for (let pair = left.pop(); pair; pair = left.pop()) {
    const [path, one, other] = pair;
    if (Object.is(one, other)) continue;
    const inside = pairsOf(path, one, other);
    if (inside) for (const each of inside.reverse()) left.push(each);
    else if (shown.length < MOST) shown.push({ path, before: short(one), after: short(other) });
    else more++;
  }
  return { shown, more };
}

/** Return what to compare inside of two values; undefined when they are not both lists or both objects. */
function pairsOf(path: string, one: unknown, other: unknown): Pair[] | undefined {
  if (typeof one !== "object" || typeof other !== "object" || !one || !other) return undefined;
  if (Array.isArray(one) !== Array.isArray(other)) return undefined;
  const names = [...new Set([...Object.keys(one), ...Object.keys(other)])];
  const at = (from: object, name: string): unknown =>
    Object.hasOwn(from, name) ? (from as Record<string, unknown>)[name] : undefined;
  const place = (name: string): string => (Array.isArray(one) ? `${path}[${name}]` : path ? `${path}.${name}` : name);
  return names.map((name) => [place(name), at(one, name), at(other, name)]);
}

function short(value: unknown): string {
  if (value === undefined) return "";
  const text = JSON.stringify(value);
  return text.length < MOST_CHARACTERS ? text : `${text.slice(0, MOST_CHARACTERS - 1)}…`;
}

const MOST_VERSIONS = 20;
const MOST_RECORDS = 50;

type Versions = ReadonlyMap<number, unknown>;

/** By record: the bodies that were seen, by version. The store keeps only the newest body of a record. */
const seen = new Map<string, Map<number, unknown>>();

/** Keep a body for a comparison with a later one; the oldest are forgotten. */
export function remember(record: string, version: number, body: unknown): void {
  const versions = seen.get(record) ?? new Map<number, unknown>();
  seen.delete(record);
  seen.set(record, versions.set(version, body));
  for (const oldest of [...versions.keys()].slice(0, -MOST_VERSIONS)) versions.delete(oldest);
  for (const oldest of [...seen.keys()].slice(0, -MOST_RECORDS)) seen.delete(oldest);
}

/** Return the versions of a record that were seen, oldest first. */
export function recall(record: string): Versions {
  return new Map(seen.get(record)); // a new one each time: a component with the same map would not be drawn again
}
