/** The list of jobs that a filter means. */
import { useSignal } from "@preact/signals";
import { useCallback, useLayoutEffect, useRef } from "preact/hooks";
import { ask, client, type components, type Job, Problem } from "../api/client";
import { onceKnown, useEntries, useNews } from "../live/live";
import { holdPage } from "./loading";
import { isRead, merge, toTheTop, useReturn } from "./newest";
import { gathered } from "./paging";

export const PAGE = 100;
const MOST_IDS = 100;

type Page = Pick<components["schemas"]["JobPage"], "jobs" | "count" | "cursor">;

/**
 * The jobs of a filter, as the page has read them: renewed in place, and growing at the end.
 *
 * New rows come in at the top, or are held back while the user reads or has `chosen` a row.
 */
export function useJobs(q: string, chosen: () => boolean) {
  const jobs = useSignal<readonly Job[]>([]);
  const count = useSignal<{ number: number; capped?: boolean } | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const loaded = useSignal(false);
  const fresh = useSignal({ held: 0, more: false });
  const unseen = useSignal(false); // not everything was looked at, and the end of the list is not full
  const state = useRef({
    cursor: "",
    busy: false,
    wishes: new Map<"begin" | "more" | "look", () => Promise<void>>(),
    changed: new Set<string>(),
  });

  const latest = useRef(chosen);
  latest.current = chosen;

  const page = (more: { cursor?: string; limit?: number; q?: string }) =>
    ask(client.GET("/api/jobs", { params: { query: { q, limit: PAGE, ...more } } }));

  const some = async (cursor: string, first?: Page): Promise<Page> => {
    let count = first?.count ?? null;
    const found = await gathered(
      async (at) => {
        const answer = first && at === cursor ? first : await page(at ? { cursor: at } : {});
        if (!at) count = answer.count ?? null;
        return { items: answer.jobs, cursor: answer.cursor };
      },
      cursor,
      PAGE,
    );
    return { jobs: [...found.items], cursor: found.cursor, count };
  };

  /** Store the cursor of the next page, and whether there may be jobs that are not shown. */
  function goOn(cursor: string, found: number): void {
    state.current.cursor = cursor;
    unseen.value = cursor !== "" && found < PAGE;
  }

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
        take(await some(""));
        loaded.value = true;
      }),
    [],
  );

  /** Show the newest jobs and nothing else; the list is at its beginning, and grows when it is scrolled. */
  function take(top: Page): void {
    jobs.value = top.jobs;
    count.value = top.count ?? undefined;
    goOn(top.cursor, top.jobs.length);
    fresh.value = { held: 0, more: false };
  }

  const more = useCallback(() => {
    if (!state.current.cursor || !loaded.value) return;
    void alone("more", async () => {
      if (!state.current.cursor) return;
      const answer = await some(state.current.cursor);
      const known = new Set(jobs.value.map((job) => job.id));
      jobs.value = [...jobs.value, ...answer.jobs.filter((job) => !known.has(job.id))];
      goOn(answer.cursor, answer.jobs.length);
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
      if (!jobs.value.length || (!latest.current() && !isRead())) return take(await some("", top));
      const { rows, held, more: beyond } = merge(jobs.value, top.jobs, (job) => job.id);
      const others = new Map(renewed?.jobs.map((job) => [job.id, job]));
      jobs.value = others.size ? rows.map((job) => others.get(job.id) ?? job) : rows;
      fresh.value = { held, more: beyond };
      count.value = top.count ?? undefined;
    });
  }, []);

  const show = useCallback(() => {
    toTheTop();
    void begin();
  }, []);

  useLayoutEffect(() => {
    const release = holdPage();
    onceKnown(() => void begin().finally(release));
    return release;
  }, []);
  useEntries((entries) => {
    for (const entry of entries) if (entry.kind === "job") state.current.changed.add(entry.id);
  });
  useNews((entry) => entry.kind === "job", look);
  useReturn(() => {
    if (fresh.value.held && !chosen()) void begin();
  });
  return { jobs, count, problem, loaded, unseen, more, look, newest: { ...fresh.value, show } };
}
