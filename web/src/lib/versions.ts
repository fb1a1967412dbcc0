/** The versions of a record, from the journal: the states of its machines, and the steps between two of them. */

interface Step {
  readonly machine: string;
  readonly entity?: string;
  readonly from: string;
  readonly to: string;
}

interface Told {
  readonly version: number;
  readonly steps?: readonly Step[];
  readonly refusal?: string;
}

/** Return the state of the record, and of what lives inside of it, at a version; by the name of each. */
export function standingAt(kind: string, entries: readonly Told[], version: number): Record<string, string> {
  const standing: Record<string, string> = {};
  for (const entry of entries)
    for (const step of entry.steps ?? []) {
      const name = step.entity ? `${step.machine} ${step.entity}` : step.machine;
      if (entry.version <= version) standing[name] = step.to;
      else if (name === kind && step.from) standing[name] ??= step.from; // before its first step
    }
  return standing;
}

/** Return the entries after one version and up to another, in whichever order they are given. */
export function between<T extends Told>(entries: readonly T[], one: number, other: number): T[] {
  const [first, last] = one < other ? [one, other] : [other, one];
  return entries.filter((entry) => entry.version > first && entry.version <= last && !entry.refusal);
}

/** Return the versions that can be compared, oldest first. */
export function versionsOf(entries: readonly Told[], seen: Iterable<number>, newest: number): number[] {
  return [...new Set([...entries.map((entry) => entry.version), ...seen, newest])].sort((one, other) => one - other);
}
