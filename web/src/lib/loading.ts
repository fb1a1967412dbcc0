/** Reading from the server into a page: the latest answer wins, and the page keeps its content while it is renewed. */
import { effect, type Signal, signal, useSignal } from "@preact/signals";
import { useCallback, useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Problem } from "../api/client";
import { onceKnown } from "../live/live";
import { path } from "./router";

/** Whether a page that was opened waits for its parts. It is shown when all are there, so that nothing moves. */
export const assembling = signal(true);
let missing = 0;

effect(() => {
  assembling.value = path.value !== ""; // another page begins anew
  seeWhetherAllIsThere();
});

/** Look again after drawing: a part may have parts of its own. */
function seeWhetherAllIsThere(): void {
  setTimeout(() => {
    if (!missing) assembling.value = false;
  });
}

/** Let a page that is opened wait for a part of it; return how to tell that the part is there. */
export function holdPage(): () => void {
  let held = true;
  missing += 1;
  return () => {
    if (held) missing -= 1;
    held = false;
    if (!missing) seeWhetherAllIsThere();
  };
}

export interface Loaded<T> {
  /** The latest answer; kept while a newer one is on its way. */
  readonly data: Signal<T | undefined>;
  readonly problem: Signal<Problem | undefined>;
  /** Read again. */
  readonly look: () => void;
}

/** For what changes although nothing happens: the last hour moves on, and a server that has begun catches up with its figures. */
export const TIME_PASSES_MS = 10_000;

/** Call `look` at intervals while the page is visible; never while `everyMs` is 0. */
export function useEvery(everyMs: number, look: () => void): void {
  const latest = useRef(look);
  latest.current = look;
  useEffect(() => {
    if (!everyMs) return;
    const timer = setInterval(() => {
      if (!document.hidden) latest.current();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
}

/** Load something whenever `key` changes, and again when `look` is called; never two at once. */
export function useLoaded<T>(key: string, read: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const data = useSignal<T | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const latest = useRef({ read, busy: false, wanted: false, stop: new AbortController(), release: () => {} });
  latest.current.read = read;

  const look = useCallback((): void => {
    const state = latest.current;
    if (state.busy) {
      state.wanted = true;
      return;
    }
    state.busy = true;
    const { signal } = state.stop;
    state
      .read(signal)
      .then(
        (answer) => {
          if (signal.aborted) return;
          data.value = answer;
          problem.value = undefined;
        },
        (error: unknown) => {
          if (signal.aborted) return;
          problem.value = error instanceof Problem ? error : new Problem("unexpected", String(error));
        },
      )
      .finally(() => {
        if (signal.aborted) return;
        state.release();
        state.busy = false;
        if (state.wanted) {
          state.wanted = false;
          look();
        }
      });
  }, []);

  useLayoutEffect(() => {
    const state = latest.current;
    state.stop = new AbortController();
    state.busy = state.wanted = false;
    state.release = holdPage();
    data.value = undefined;
    problem.value = undefined;
    const { signal } = state.stop;
    onceKnown(() => {
      if (!signal.aborted) look();
    });
    return () => {
      state.stop.abort();
      state.release();
    };
  }, [key]);

  return { data, problem, look };
}
