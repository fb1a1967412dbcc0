/** The button at the end of a list that has another page. */
import type { Pages } from "../lib/pages";
import { Action } from "./action";

export function More({ of, note = "" }: { of: Pick<Pages<unknown>, "cursor" | "more">; note?: string }) {
  if (!of.cursor) return null;
  return (
    <p class="quiet">
      {note}
      <Action done="" run={of.more}>
        Show more
      </Action>
    </p>
  );
}
