/** Lists with the newest first: new rows come in at the top, unless the user reads further down. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

/** So far down a page still shows the beginning of its list. */
const TOP_PX = 8;

export interface Merged<T> {
  readonly rows: readonly T[];
  /** How many rows wait to be shown. */
  readonly held: number;
  /** Whether there are more of them than the latest answer has. */
  readonly more: boolean;
}

/**
 * Keep the rows that are shown in their places, renewed from the latest answer, and let the list grow at its end.
 *
 * New rows that would come before the last one that is shown are held back; so are all where the latest answer has
 * none of those that are shown.
 */
export function merge<T>(shown: readonly T[], latest: readonly T[], idOf: (row: T) => string): Merged<T> {
  const renewed = new Map(latest.map((row) => [idOf(row), row]));
  const known = new Set(shown.map(idOf));
  const end = latest.findLastIndex((row) => known.has(idOf(row))) + 1;
  const before = end ? latest.slice(0, end) : latest;
  return {
    rows: [...shown.map((row) => renewed.get(idOf(row)) ?? row), ...(end ? latest.slice(end) : [])],
    held: before.filter((row) => !known.has(idOf(row))).length,
    more: end === 0 && latest.length > 0 && shown.length > 0,
  };
}

/** Return whether the user is in the middle of a list: has scrolled, is at a row with the keyboard, or marks text. */
export function isRead(): boolean {
  const marked = getSelection();
  const at = [document.activeElement, marked?.isCollapsed === false ? marked.anchorNode?.parentElement : undefined];
  return scrollY > TOP_PX || at.some((each) => each?.closest("main tbody"));
}

/** Go to the beginning of the page, where new rows are; the button that led there is gone. */
export function toTheTop(): void {
  document.getElementById("content")?.focus({ preventScroll: true });
  getSelection()?.removeAllRanges();
  scrollTo(0, 0);
}

/** Call `look` when the user is back at the beginning of the list. */
export function useReturn(look: () => void): void {
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    const scrolled = (): void => {
      if (!isRead()) latest.current();
    };
    addEventListener("scroll", scrolled, { passive: true });
    return () => removeEventListener("scroll", scrolled);
  }, []);
}

export interface Newest<T> extends Merged<T> {
  /** Show the rows that were held back. */
  readonly show: () => void;
}

/** Hold new rows of a list back while the user reads it; `of` names the list, `selected` says that a row is chosen. */
export function useNewest<T>(of: string, latest: readonly T[], idOf: (row: T) => string, selected = false): Newest<T> {
  const kept = useRef<{ of: string; rows: readonly T[] }>({ of, rows: [] });
  const shows = useSignal(0);
  void shows.value;
  if (kept.current.of !== of) kept.current = { of, rows: [] };
  const shown = kept.current.rows;
  const free = !shown.length || (!selected && !isRead());
  const merged = free ? { rows: latest, held: 0, more: false } : merge(shown, latest, idOf);
  kept.current.rows = merged.rows;
  useReturn(() => {
    if (merged.held) shows.value += 1;
  });
  function show(): void {
    kept.current.rows = [];
    toTheTop();
    shows.value += 1;
  }
  return { ...merged, show };
}
