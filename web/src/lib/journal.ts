/** The filter of the journal: the same words in the address, in the API, and for what comes in live. */

const WORDS = ["kind", "id", "state", "actor", "trigger"] as const;

export type Filter = Partial<Record<(typeof WORDS)[number], string>>;

interface Told {
  readonly kind: string;
  readonly id: string;
  readonly actor?: string;
  readonly steps?: readonly { readonly event: string; readonly to: string; readonly moves?: boolean }[];
}

/** Return the filter that an address holds. */
export function filterOf(query: URLSearchParams): Filter {
  const said = WORDS.map((word) => [word, query.get(word)?.trim() ?? ""] as const);
  return Object.fromEntries(said.filter(([, value]) => value));
}

/** Return whether an entry is asked for. */
export function wants(filter: Filter, entry: Told): boolean {
  const { kind, id, state, actor, trigger } = filter;
  const steps = entry.steps ?? [];
  return (
    (!kind || entry.kind === kind) &&
    (!id || entry.id === id) &&
    (!actor || entry.actor === actor) &&
    (!state || steps.some((step) => step.moves !== false && fold(step.to) === fold(state))) &&
    (!trigger || steps.some((step) => fold(step.event) === fold(trigger)))
  );
}

/** Names are the same in any case, and with either spelling of cancel(l)ed. */
function fold(name: string): string {
  return name.toLowerCase().replaceAll("-", "_").replaceAll("cancelled", "canceled");
}
