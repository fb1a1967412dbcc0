/** Graphs of jobs that need each other: which column each is in, and which path took longest. */

interface Node {
  readonly name: string;
  readonly needs?: readonly string[];
  readonly started_at?: string | null;
  readonly completed_at?: string | null;
}

/** Return the jobs in columns: each behind all its needs, and near them. */
export function layersOf<T extends Node>(jobs: readonly T[]): T[][] {
  const known = new Map(jobs.map((job) => [job.name, job]));
  const depths = new Map<string, number>();
  const depthOf = (job: T, seen: ReadonlySet<string>): number => {
    const found = depths.get(job.name);
    if (found !== undefined) return found;
    if (seen.has(job.name)) return 0; // a plan has no cycles; this only keeps a wrong one from hanging the page
    const inside = new Set([...seen, job.name]);
    const needed = (job.needs ?? []).flatMap((name) => known.get(name) ?? []);
    const depth = needed.length ? 1 + Math.max(...needed.map((each) => depthOf(each, inside))) : 0;
    depths.set(job.name, depth);
    return depth;
  };
  const columns = new Map<number, T[]>();
  for (const job of jobs) {
    const depth = depthOf(job, new Set());
    columns.set(depth, [...(columns.get(depth) ?? []), job]);
  }
  const layers = [...columns.entries()].sort(([a], [b]) => a - b).map(([, layer]) => layer);
  const rows = new Map<string, number>();
  for (const layer of layers) {
    const wish = (job: T): number => {
      const above = (job.needs ?? []).map((name) => rows.get(name) ?? 0);
      return above.length ? above.reduce((all, each) => all + each, 0) / above.length : 0;
    };
    layer.sort((a, b) => wish(a) - wish(b));
    layer.forEach((job, row) => rows.set(job.name, row));
  }
  return layers;
}

/** Return the jobs that decided when the last one ended: the critical path. */
export function timesOf(jobs: readonly Node[]): { critical: ReadonlySet<string> } {
  const known = new Map(jobs.map((job) => [job.name, job]));
  const endOf = (job: Node): number => (job.completed_at ? Date.parse(job.completed_at) : job.started_at ? Infinity : 0);
  const critical = new Set<string>();
  const latest = (among: readonly Node[]): Node | undefined =>
    among.reduce<Node | undefined>((best, each) => (endOf(each) > (best ? endOf(best) : 0) ? each : best), undefined);
  let next = latest(jobs);
  while (next && !critical.has(next.name)) {
    critical.add(next.name);
    next = latest((next.needs ?? []).flatMap((name) => known.get(name) ?? []));
  }
  return { critical };
}

/** One job, or all variants of one matrix. */
export interface Item<T> {
  readonly name: string;
  readonly needs: readonly string[];
  readonly jobs: readonly T[];
}

/** Return the items of a graph in the order of the plan; jobs `test (a)` and `test (b)` are the item `test`. */
export function itemsOf<T extends Node>(jobs: readonly T[]): Item<T>[] {
  const groups = new Map<string, T[]>();
  for (const job of jobs) {
    const base = baseOf(job.name);
    const group = groups.get(base);
    if (group) group.push(job);
    else groups.set(base, [job]);
  }
  const itemOf = new Map<string, string>();
  for (const [base, group] of groups) {
    for (const job of group) itemOf.set(job.name, group.length > 1 ? base : job.name);
  }
  return [...groups.values()].map((group) => {
    const name = itemOf.get(group[0]?.name ?? "") ?? "";
    const needs = group.flatMap((job) => job.needs ?? []).map((need) => itemOf.get(need) ?? need);
    return { name, needs: [...new Set(needs)].filter((need) => need !== name), jobs: group };
  });
}

function baseOf(name: string): string {
  return name.endsWith(")") ? (name.split(" (", 1)[0] ?? name) : name;
}

/** A larger graph is drawn with all its lines: to find those that follow from others would take too long. */
const MOST_THINNED = 500;

/** Return the needs of an item to which a line is drawn: those that do not follow from the others. */
export function linesTo<T>(item: Item<T>, items: readonly Item<T>[]): string[] {
  if (items.length > MOST_THINNED) return [...item.needs];
  const known = new Map(items.map((each) => [each.name, each]));
  const above = (name: string, seen: Set<string>): Set<string> => {
    for (const need of known.get(name)?.needs ?? []) {
      if (seen.has(need)) continue;
      seen.add(need);
      above(need, seen);
    }
    return seen;
  };
  const reached = item.needs.map((need) => above(need, new Set()));
  return item.needs.filter((need) => !reached.some((each) => each.has(need)));
}

export interface Place {
  readonly x: number;
  readonly y: number;
  readonly height: number;
}

/** Return where each item is, and how large the whole is. */
export function placesOf<T extends { readonly name: string }>(
  layers: readonly (readonly T[])[],
  heightOf: (item: T) => number,
  { width, gapX, gapY }: { width: number; gapX: number; gapY: number },
): { places: Map<string, Place>; width: number; height: number } {
  const places = new Map<string, Place>();
  let tallest = 0;
  layers.forEach((layer, column) => {
    let y = 0;
    for (const item of layer) {
      const height = heightOf(item);
      places.set(item.name, { x: column * (width + gapX), y, height });
      y += height + gapY;
    }
    tallest = Math.max(tallest, y - gapY);
  });
  return { places, width: layers.length * (width + gapX) - gapX, height: tallest };
}
