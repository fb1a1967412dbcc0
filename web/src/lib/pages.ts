/** Lists that are read page by page. */
import { useSignal } from "@preact/signals";
import type { Problem } from "../api/client";
import { useLoaded } from "./loading";
import { type Newest, useNewest } from "./newest";
import type { Page } from "./paging";

export interface Pages<Each, First = Page<Each>> {
  /** The first page, as it was read last; none before that. */
  readonly first: First | undefined;
  /** The rows shown; new ones are held back while the list is read. */
  readonly newest: Newest<Each>;
  readonly problem: Problem | undefined;
  /** The cursor of the next page; empty at the end of the list. */
  readonly cursor: string;
  /** Read the first page again. */
  readonly look: () => void;
  /** Read the next page as well. */
  readonly more: () => Promise<void>;
  /** Take a row out that does not belong to the list any more. */
  readonly drop: (id: string) => void;
}

/** Read a list: its first page again with each look, further ones once. `of` names the list and its filter. */
export function usePages<Each, First extends Page<Each> = Page<Each>>(
  of: string,
  read: (cursor: string, signal?: AbortSignal) => Promise<First>,
  idOf: (row: Each) => string,
): Pages<Each, First> {
  const further = useSignal<(Page<Each> & { readonly of: string }) | undefined>(undefined);
  const { data, problem, look } = useLoaded(of, (signal) => read("", signal));
  const next = further.value?.of === of ? further.value : undefined;
  const first = data.value;
  const items = first?.items ?? [];
  const known = new Set(items.map(idOf));
  const newest = useNewest(of, [...items, ...(next?.items ?? []).filter((row) => !known.has(idOf(row)))], idOf);
  const cursor = (next ?? first)?.cursor ?? "";

  async function more(): Promise<void> {
    const page = await read(cursor);
    further.value = { of, items: [...(next?.items ?? []), ...page.items], cursor: page.cursor };
  }

  function drop(id: string): void {
    if (next) further.value = { ...next, items: next.items.filter((row) => idOf(row) !== id) };
    look();
  }

  return { first, newest, problem: problem.value, cursor, look, more, drop };
}
