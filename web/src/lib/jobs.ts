/** The list of jobs that a filter means. */
import { useSignal } from "@preact/signals";
import { useCallback, useLayoutEffect, useRef } from "preact/hooks";
import { ask, client, type Job, Problem } from "../api/client";
import { useEntries, useNews } from "../live/live";
import { holdPage } from "./loading";
import { gathered } from "./paging";

export const PAGE = 100;
const MOST_IDS = 100;

/** The jobs of a filter: what is shown stays in its place, is renewed in place, and grows at its end. */
export function useJobs(q: string) {
  const jobs = useSignal<readonly Job[]>([]);
  const count = useSignal<{ number: number; capped?: boolean } | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const loaded = useSignal(false);
  const fresh = useSignal(0);
  const unseen = useSignal(false); // not everything was looked at, and the end of the list is not full
  const state = useRef({
    cursor: "",
    busy: false,
    wishes: new Map<"begin" | "more" | "look", () => Promise<void>>(),
    changed: new Set<string>(),
  });

  const page = (more: { cursor?: string; limit?: number; q?: string }) =>
    ask(client.GET("/api/jobs", { params: { query: { q, limit: PAGE, ...more } } }));

  const some = async (cursor: string) => {
    let first: { number: number; capped?: boolean } | undefined;
    const found = await gathered(
      async (at) => {
        const answer = await page(at ? { cursor: at } : {});
        if (!at) first = answer.count ?? undefined;
        return { items: answer.jobs, cursor: answer.cursor };
      },
      cursor,
      PAGE,
    );
    state.current.cursor = found.cursor;
    unseen.value = found.cursor !== "" && found.items.length < PAGE;
    return { jobs: found.items, count: first };
  };

  const alone = useCallback(async (name: "begin" | "more" | "look", work: () => Promise<void>): Promise<void> => {
    if (state.current.busy) {
      state.current.wishes.set(name, work); // each is done once more when this is done
      return;
    }
    state.current.busy = true;
    try {
      await work();
      problem.value = undefined;
    } catch (error) {
      problem.value = error instanceof Problem ? error : new Problem("unexpected", String(error));
    } finally {
      state.current.busy = false;
    }
    const [wish] = state.current.wishes;
    if (!wish) return;
    state.current.wishes.delete(wish[0]);
    await alone(...wish);
  }, []);

  const begin = useCallback(
    () =>
      alone("begin", async () => {
        const found = await some("");
        jobs.value = found.jobs;
        count.value = found.count;
        fresh.value = 0;
        loaded.value = true;
      }),
    [],
  );

  const more = useCallback(() => {
    if (!state.current.cursor || !loaded.value) return;
    void alone("more", async () => {
      if (!state.current.cursor) return;
      const found = await some(state.current.cursor);
      const known = new Set(jobs.value.map((job) => job.id));
      jobs.value = [...jobs.value, ...found.jobs.filter((job) => !known.has(job.id))];
    });
  }, []);

  const look = useCallback(() => {
    if (!loaded.value) return void begin();
    void alone("look", async () => {
      const shown = new Map(jobs.value.map((job) => [job.id, job]));
      const changed = [...state.current.changed].filter((id) => shown.has(id)).slice(0, MOST_IDS);
      state.current.changed.clear();
      const [top, renewed] = await Promise.all([
        page({}),
        changed.length ? page({ q: `id:${changed.join(",")}`, limit: MOST_IDS }) : undefined,
      ]);
      const latest = new Map([...top.jobs, ...(renewed?.jobs ?? [])].map((job) => [job.id, job]));
      if (jobs.value.length) jobs.value = jobs.value.map((job) => latest.get(job.id) ?? job);
      else jobs.value = top.jobs;
      const known = new Set(jobs.value.map((job) => job.id));
      fresh.value = top.jobs.filter((job) => !known.has(job.id)).length;
      count.value = top.count ?? undefined;
    });
  }, []);

  const showFresh = useCallback(() => {
    window.scrollTo(0, 0);
    void begin();
  }, []);

  useLayoutEffect(() => {
    const release = holdPage();
    void begin().finally(release);
    return release;
  }, []);
  useEntries((entries) => {
    for (const entry of entries) if (entry.kind === "job") state.current.changed.add(entry.id);
  });
  useNews((entry) => entry.kind === "job", look);
  return { jobs, count, problem, loaded, fresh, unseen, more, look, showFresh };
}
