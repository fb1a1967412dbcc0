/** Where the page of a record is: a kind may have one of its own, and every kind has the general one. */

const OWN: Readonly<Record<string, string>> = {
  approval: "/approvals",
  dead_letter: "/dead-letters",
  job: "/jobs",
  job_batch: "/batches",
  run: "/runs",
  worker: "/workers",
  schedule: "/schedules",
  simulation: "/simulations",
};

/** Ids begin with a letter that names their kind. */
const LETTERS: Readonly<Record<string, string>> = { b: "job_batch", j: "job", w: "worker", r: "run", s: "simulation" };

/** Return the kind that an id is of, or that the beginning of one is of; empty when it is no such id. */
export function kindOf(id: string): string {
  const letter = /^([a-z])_[0-9a-f]*$/.exec(id)?.[1] ?? "";
  return LETTERS[letter] ?? "";
}

/** Return a text in pieces, in which every second one is a whole id that `kindOf` knows. */
export function idsIn(text: string): string[] {
  return text.split(/\b([bjwrs]_[0-9a-f]{12})\b/);
}

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
