/** Keys that work on every page: `g j` goes to jobs, `/` and ⌘K open the palette, `?` shows what there is. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { go } from "../lib/router";

export const KEYS: readonly (readonly [string, string, string])[] = [
  ["g o", "Overview", "/"],
  ["g j", "Jobs", "/jobs"],
  ["g b", "Batches", "/batches"],
  ["g p", "Approvals", "/approvals"],
  ["g d", "Dead letters", "/dead-letters"],
  ["g c", "Schedules", "/schedules"],
  ["g q", "Queues", "/queues"],
  ["g i", "Limits", "/limits"],
  ["g w", "Workers", "/workers"],
  ["g r", "Runs", "/runs"],
  ["g s", "Simulations", "/simulations"],
  ["g f", "Workloads", "/workloads"],
  ["g m", "Machines", "/machines"],
  ["g l", "Journal", "/journal"],
  ["g a", "Admin", "/admin"],
];

/** The content of the palette: nothing, a search, or the keys. */
export const palette = signal<"" | "find" | "keys">("");

const SECOND_KEY_MS = 1_200;

export function useKeys(): void {
  useEffect(() => {
    let first = "";
    let forget: ReturnType<typeof setTimeout> | undefined;
    function pressed(event: KeyboardEvent): void {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        palette.value = "find";
        return;
      }
      if (event.metaKey || event.ctrlKey || event.altKey || palette.value || isTyping(event.target)) return;
      const found = KEYS.find(([keys]) => keys === `${first} ${event.key}`);
      clearTimeout(forget);
      if (found) {
        first = "";
        event.preventDefault();
        go(found[2]);
      } else if (event.key === "/") {
        event.preventDefault();
        palette.value = "find";
      } else if (event.key === "?") {
        event.preventDefault();
        palette.value = "keys";
      } else {
        first = event.key;
        forget = setTimeout(() => {
          first = "";
        }, SECOND_KEY_MS);
      }
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

/** Return whether a key that was pressed there is part of a text. A box to tick takes no text. */
export function isTyping(target: EventTarget | null): boolean {
  const texts = "input:not([type=checkbox]), textarea, select";
  return target instanceof HTMLElement && (target.matches(texts) || target.isContentEditable);
}
