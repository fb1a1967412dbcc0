/** The button behind which new rows of a list wait while it is read; it moves nothing when it comes. */
import { useEffect, useRef } from "preact/hooks";
import type { Newest } from "../lib/newest";
import { isTyping, palette } from "./keys";

export function NewRows({ of }: { of: Pick<Newest<unknown>, "held" | "more" | "show"> }) {
  const show = useRef(of.show);
  show.current = of.show;
  const waits = of.held > 0;
  useEffect(() => {
    if (!waits) return;
    function pressed(event: KeyboardEvent): void {
      if (event.key !== "n" || event.metaKey || event.ctrlKey || event.altKey) return;
      if (!palette.value && !isTyping(event.target)) show.current();
    }
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [waits]);
  if (!waits) return null;
  return (
    <button type="button" class="new-rows" onClick={of.show}>
      Show {of.held}
      {of.more ? "+" : ""} new
    </button>
  );
}
