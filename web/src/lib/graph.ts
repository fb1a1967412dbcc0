/** Graphs of jobs that need each other: which column each is in, and which path took longest. */

interface Node {
  readonly name: string;
  readonly needs?: readonly string[];
  readonly started_at?: string | null;
  readonly completed_at?: string | null;
}

/** Return the jobs in columns: each behind everything that it needs, near what it needs. */
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
