/** Reading from the server into a page: the latest answer wins, and what is shown stays while it is renewed. */
import { type Signal, useSignal } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";
import { Problem } from "../api/client";

export interface Loaded<T> {
  /** The latest answer; kept while a newer one is on its way. */
  readonly data: Signal<T | undefined>;
  readonly problem: Signal<Problem | undefined>;
  /** Read again. */
  readonly look: () => void;
}

/** Load something whenever `key` changes, and again when `look` is called; never two at once. */
export function useLoaded<T>(key: string, read: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const data = useSignal<T | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const latest = useRef({ read, busy: false, wanted: false, stop: new AbortController() });
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
        state.busy = false;
        if (state.wanted) {
          state.wanted = false;
          look();
        }
      });
  }, []);

  useEffect(() => {
    const state = latest.current;
    state.stop = new AbortController();
    state.busy = state.wanted = false;
    data.value = undefined;
    problem.value = undefined;
    look();
    return () => state.stop.abort();
  }, [key]);

  return { data, problem, look };
}
