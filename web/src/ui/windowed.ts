/** Lists of any length: only the rows near the window are there, and the rest is empty space of the same height. */
import { useSignal } from "@preact/signals";
import { type RefObject } from "preact";
import { useEffect } from "preact/hooks";

const BEYOND = 12;

export interface Stretch {
  readonly first: number;
  readonly last: number;
}

/** Return which rows of a list to draw; `near` is called when its end comes into view. */
export function useWindowed(body: RefObject<HTMLElement | null>, count: number, height: number, near: () => void): Stretch {
  const stretch = useSignal<Stretch>({ first: 0, last: 40 });
  useEffect(() => {
    let waiting = 0;
    function look(): void {
      waiting = 0;
      const top = body.current?.getBoundingClientRect().top ?? 0;
      const first = Math.max(0, Math.floor(-top / height) - BEYOND);
      const last = Math.min(count, Math.ceil((innerHeight - top) / height) + BEYOND);
      if (first !== stretch.value.first || last !== stretch.value.last) stretch.value = { first, last };
      if (last >= count - 1) near();
    }
    function soon(): void {
      waiting ||= requestAnimationFrame(look);
    }
    look();
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    return () => {
      cancelAnimationFrame(waiting);
      removeEventListener("scroll", soon);
      removeEventListener("resize", soon);
    };
  }, [count, height, near]);
  return stretch.value;
}
