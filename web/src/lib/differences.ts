/** Differences between several objects: their leaves by dotted names. */

/** Return the leaves of a value by their dotted names; a list is a leaf. */
export function leavesOf(value: unknown, prefix = ""): Map<string, string> {
  const found = new Map<string, string>();
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    for (const [name, inner] of Object.entries(value)) {
      for (const [key, text] of leavesOf(inner, prefix ? `${prefix}.${name}` : name)) found.set(key, text);
    }
    return found;
  }
  if (prefix) found.set(prefix, typeof value === "string" ? value : (JSON.stringify(value) ?? ""));
  return found;
}

export interface Difference {
  readonly name: string;
  /** One of each object; undefined where it has none. */
  readonly values: readonly (string | undefined)[];
}

/** Return the leaves that are not the same in all objects, and how many are. */
export function differencesOf(objects: readonly unknown[]): { readonly rows: Difference[]; readonly same: number } {
  const leaves = objects.map((each) => leavesOf(each));
  const names = [...new Set(leaves.flatMap((each) => [...each.keys()]))];
  const all = names.map((name) => ({ name, values: leaves.map((each) => each.get(name)) }));
  const rows = all.filter(({ values }) => values.some((each) => each !== values[0]));
  return { rows, same: all.length - rows.length };
}

/** Return curves that have values at different places along all of these places. */
export function aligned(curves: readonly { readonly at: readonly number[]; readonly values: readonly (number | null)[] }[]): {
  readonly at: number[];
  readonly values: (number | null)[][];
} {
  const at = [...new Set(curves.flatMap((each) => each.at))].sort((one, other) => one - other);
  const values = curves.map((curve) => {
    const known = new Map(curve.at.map((place, index) => [place, curve.values[index] ?? null]));
    return at.map((place) => known.get(place) ?? null);
  });
  return { at, values };
}
