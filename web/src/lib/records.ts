/** Where the page of a record is: a kind may have one of its own, and every kind has the general one. */

const OWN: Readonly<Record<string, string>> = {
  job: "/jobs",
  run: "/runs",
  worker: "/workers",
  simulation: "/simulations",
};

/** Return the address of the page of a record. */
export function pageOf(kind: string, id: string): string {
  return `${OWN[kind] ?? `/records/${encodeURIComponent(kind)}`}/${encodeURIComponent(id)}`;
}

/** Return the address of the general page of a record, with everything that its kind declares. */
export function recordPage(kind: string, id: string): string {
  return `/records/${encodeURIComponent(kind)}/${encodeURIComponent(id)}`;
}

/** Return the address of the list of a kind. */
export function listOf(kind: string): string {
  return `/records/${encodeURIComponent(kind)}`;
}
