/** Acting on many jobs: page by page, with progress, and with a way back where there is one. */
import { signal } from "@preact/signals";
import { ask, client, type Job, Problem, requestId } from "../api/client";
import { hasEnded } from "./machines";

export type Verb = "cancel" | "retry";

/** Which jobs: all that match a filter, or these. */
export type Meant = { readonly filter: string } | { readonly ids: readonly string[] };

/** What is being done with many jobs, and how far it is. */
export interface Work {
  readonly verb: Verb;
  /** How many there are to look at, as far as they were counted. */
  readonly total: number;
  readonly capped: boolean;
  readonly looked: number;
  readonly done: number;
  readonly refused: number;
  /** The first refusal, in the server's words. */
  readonly why: string;
  readonly problem?: Problem | undefined;
  readonly over: boolean;
  readonly stopped: boolean;
  /** The new jobs that a retry has made, or the jobs that were canceled before they ran. */
  readonly back: readonly string[];
}

/** The latest one; it goes on when another page is looked at. */
export const work = signal<Work | undefined>(undefined);

interface Course {
  readonly meant: Meant;
  readonly verb: Verb;
  readonly base: string;
  readonly onlyWaiting: boolean;
  batch: number;
  cursor: string;
  begun: boolean;
  page: readonly Job[] | undefined;
}

const BATCH = 100;
let course: Course | undefined;

/** Return whether an action makes sense for a job: what has ended is not canceled, what has not is not retried. */
export function concerns(verb: Verb, job: Job): boolean {
  return hasEnded("job", job.state) === (verb === "retry");
}

/** Begin to act on jobs; resolves when it is over. With `onlyWaiting` on those that no worker has begun. */
export async function begin(
  verb: Verb,
  meant: Meant,
  total: number,
  { capped = false, onlyWaiting = false } = {},
): Promise<void> {
  if (isBusy()) return;
  course = { meant, verb, base: requestId(), onlyWaiting, batch: 0, cursor: "", begun: false, page: undefined };
  work.value = { verb, total, capped, looked: 0, done: 0, refused: 0, why: "", over: false, stopped: false, back: [] };
  await goOn();
}

/** Return whether jobs are being acted on at this moment. */
export function isBusy(): boolean {
  return work.value !== undefined && !work.value.over && !work.value.problem;
}

/** Go on after a failure, with the very request that failed: what was done already is not done twice. */
export async function goOn(): Promise<void> {
  const mine = course;
  if (!mine) return;
  change({ problem: undefined });
  try {
    while (!work.value?.stopped) {
      mine.page ??= await nextPage(mine);
      if (!mine.page) break;
      await actOn(mine, mine.page);
      mine.batch++;
      mine.page = undefined;
    }
    change({ over: true });
  } catch (error) {
    change({ problem: error instanceof Problem ? error : new Problem("unexpected", String(error)) });
  }
}

/** Stop after the present batch. */
export function stop(): void {
  change({ stopped: true, ...(work.value?.problem && { over: true, problem: undefined }) });
}

/** Forget what was done. */
export function dismiss(): void {
  work.value = undefined;
}

/** Read the next jobs; undefined at the end. The pages of a filter are those of the list: new jobs come before them. */
async function nextPage(mine: Course): Promise<readonly Job[] | undefined> {
  if ("ids" in mine.meant) {
    const ids = mine.meant.ids.slice(mine.batch * BATCH, (mine.batch + 1) * BATCH);
    if (!ids.length) return undefined;
    return (await ask(client.GET("/api/jobs", { params: { query: { q: `id:${ids.join(",")}`, limit: BATCH } } }))).jobs;
  }
  if (mine.begun && !mine.cursor) return undefined;
  const query = { q: mine.meant.filter, limit: BATCH, cursor: mine.cursor };
  const page = await ask(client.GET("/api/jobs", { params: { query } }));
  mine.begun = true;
  mine.cursor = page.cursor;
  return page.jobs;
}

async function actOn(mine: Course, page: readonly Job[]): Promise<void> {
  const { verb } = mine;
  const waiting = new Set(page.filter((job) => !job.started_at).map((job) => job.id));
  const ids = page
    .filter((job) => concerns(verb, job) && (!mine.onlyWaiting || waiting.has(job.id)))
    .map((job) => job.id);
  const before = work.value;
  if (!before) return;
  const looked = before.looked + page.length;
  if (!ids.length) return change({ looked });
  const body = { filter: `id:${ids.join(",")}`, action: verb, limit: ids.length, request_id: `${mine.base}-${mine.batch}` };
  const answer = await ask(client.POST("/api/jobs/actions", { body }));
  const done = answer.done ?? [];
  const back = verb === "retry" ? done.flatMap((one) => one.new_id ?? []) : done.map((one) => one.id).filter((id) => waiting.has(id));
  change({
    looked,
    done: before.done + done.length,
    refused: before.refused + (answer.refused?.length ?? 0),
    why: before.why || (answer.refused?.[0]?.error ?? ""),
    back: [...before.back, ...back],
  });
}

function change(what: Partial<Work>): void {
  if (work.value) work.value = { ...work.value, ...what };
}
