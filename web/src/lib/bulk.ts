/** Acting on many: page by page, with progress, and with a way back where there is one. */
import { signal } from "@preact/signals";
import { Problem, requestId } from "../api/client";
import type { Item, Noun, Verb } from "./acted_on";

/** Which ones: all that match a filter, or these. */
export type Meant = { readonly filter: string } | { readonly ids: readonly string[] };

/** An action on many records, and its progress. */
export interface Work {
  readonly noun: Noun;
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
  /** The jobs that a retry created, or those that were canceled before they ran; discarding has no undo. */
  readonly back: readonly string[];
}

/** The latest action; it continues when another page is opened. */
export const work = signal<Work | undefined>(undefined);

interface Course {
  readonly noun: Noun;
  readonly meant: Meant;
  readonly verb: Verb;
  readonly base: string;
  readonly onlyWaiting: boolean;
  batch: number;
  cursor: string;
  begun: boolean;
  page: readonly Item[] | undefined;
}

const BATCH = 100;
let course: Course | undefined;

/** Begin to act on many; resolves when it is over. With `onlyWaiting` on those that no worker has begun. */
export async function begin(
  noun: Noun,
  verb: Verb,
  meant: Meant,
  total: number,
  { capped = false, onlyWaiting = false } = {},
): Promise<void> {
  if (isBusy()) return;
  course = { noun, meant, verb, base: requestId(), onlyWaiting, batch: 0, cursor: "", begun: false, page: undefined };
  work.value = { noun, verb, total, capped, looked: 0, done: 0, refused: 0, why: "", over: false, stopped: false, back: [] };
  await goOn();
}

/** Return whether something is being done at this moment. */
export function isBusy(): boolean {
  return work.value !== undefined && !work.value.over && !work.value.problem;
}

/** Continue after a failure with the request that failed: its idempotency key keeps the server from repeating it. */
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

/** Forget the latest action. */
export function dismiss(): void {
  work.value = undefined;
}

/** Read the next ones; undefined at the end. The pages of a filter are those of the list: new ones come before them. */
async function nextPage(mine: Course): Promise<readonly Item[] | undefined> {
  if ("ids" in mine.meant) {
    const ids = mine.meant.ids.slice(mine.batch * BATCH, (mine.batch + 1) * BATCH);
    if (!ids.length) return undefined;
    return (await mine.noun.list(`id:${ids.join(",")}`, BATCH, "")).items;
  }
  if (mine.begun && !mine.cursor) return undefined;
  const page = await mine.noun.list(mine.meant.filter, BATCH, mine.cursor);
  mine.begun = true;
  mine.cursor = page.cursor;
  return page.items;
}

async function actOn(mine: Course, page: readonly Item[]): Promise<void> {
  const { noun, verb } = mine;
  const waiting = new Set(page.filter((item) => !item.started_at).map((item) => item.id));
  const ids = page
    .filter((item) => noun.concerns(verb, item) && (!mine.onlyWaiting || waiting.has(item.id)))
    .map((item) => item.id);
  const before = work.value;
  if (!before) return;
  const looked = before.looked + page.length;
  if (!ids.length) return change({ looked });
  const order = { filter: `id:${ids.join(",")}`, limit: ids.length, request_id: `${mine.base}-${mine.batch}` };
  const answer = await noun.act(verb, order);
  const done = answer.done ?? [];
  const back = verb === "retry" ? done.flatMap((one) => one.new_id ?? []) : done.map((one) => one.id).filter((id) => verb === "cancel" && waiting.has(id));
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
