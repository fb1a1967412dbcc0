/** Acting on all jobs that match: what would be done first, then how far it is, then the way back. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ask, client, type Job } from "../api/client";
import { begin, concerns, dismiss, goOn, isBusy, stop, type Verb, type Work, work } from "../lib/bulk";
import { Refusal, State } from "./parts";
import { act, tell } from "./toasts";

const SAMPLE = 5;
const DONE: Readonly<Record<Verb, string>> = { cancel: "Cancel was requested for", retry: "Submitted again:" };

interface Preview {
  readonly verb: Verb;
  readonly filter: string;
  /** How many it would be; at least so many when there are `more`. */
  readonly number: number;
  readonly more: boolean;
  readonly total: number;
  readonly capped: boolean;
  readonly sample: readonly Job[];
}

/** Buttons for everything that a filter means, and the question before anything is done. */
export function ActOnAll({ q, look }: { q: string; look: () => void }) {
  const preview = useSignal<Preview | undefined>(undefined);
  async function show(verb: Verb): Promise<void> {
    await act("", async () => {
      const found = await previewOf(verb, q);
      if (found.number) preview.value = found;
      else tell("No job that matches can be acted on.");
    });
  }
  return (
    <>
      <button type="button" class="danger" disabled={isBusy()} onClick={() => show("cancel")}>
        Cancel all that match
      </button>
      <button type="button" disabled={isBusy()} onClick={() => show("retry")}>
        Retry all that match
      </button>
      {preview.value && (
        <Question
          preview={preview.value}
          close={(agreed) => {
            const { verb, filter, total, capped } = preview.value as Preview;
            preview.value = undefined;
            if (agreed) void begin(verb, { filter }, total, { capped }).then(look);
          }}
        />
      )}
    </>
  );
}

async function previewOf(verb: Verb, filter: string): Promise<Preview> {
  const body = { filter, action: verb, dry_run: true, limit: 1_000 };
  const [dry, page] = await Promise.all([
    ask(client.POST("/api/jobs/actions", { body })),
    ask(client.GET("/api/jobs", { params: { query: { q: filter, limit: 50 } } })),
  ]);
  const number = dry.done?.length ?? 0;
  return {
    verb,
    filter,
    number,
    more: dry.more ?? false,
    total: Math.max(number, page.count?.number ?? 0),
    capped: page.count?.capped ?? false,
    sample: page.jobs.filter((job) => concerns(verb, job)).slice(0, SAMPLE),
  };
}

function Question({ preview, close }: { preview: Preview; close: (agreed: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const { verb, filter, number, more, sample } = preview;
  const many = `${number.toLocaleString()}${more ? " or more" : ""} ${number === 1 && !more ? "job" : "jobs"}`;
  const title = verb === "cancel" ? `Cancel ${many}?` : `Submit ${many} again?`;
  return (
    <dialog ref={dialog} aria-labelledby="bulk-title" onClose={() => close(false)}>
      <h2 id="bulk-title">{title}</h2>
      <p>
        {number === 1 ? "It matches" : "They match"} <code>{filter}</code>
        {verb === "retry" ? " and have ended; each is submitted as a new job." : " and have not ended."}
      </p>
      <ul class="tree">
        {sample.map((job) => (
          <li key={job.id}>
            <span class="mono">{job.id}</span> <State machine="job" state={job.state} /> <span class="mono">{job.task}</span>{" "}
            <span class="quiet">{job.queue}</span>
          </li>
        ))}
        {(number > sample.length || more) && <li class="quiet">and others</li>}
      </ul>
      <p class="head">
        <button type="button" class={verb === "cancel" ? "danger" : "primary"} onClick={() => close(true)}>
          {verb === "cancel" ? "Cancel them" : "Submit them again"}
        </button>
        <button type="button" onClick={() => close(false)}>
          Do nothing
        </button>
      </p>
    </dialog>
  );
}

/** How far the latest action on many jobs is, and what can be done about it. */
export function Progress({ look }: { look: () => void }) {
  const now = work.value;
  if (!now) return null;
  return (
    <section class="panel" aria-label="Progress">
      <p role="status">{sentenceOf(now)}</p>
      {!now.over && (
        <p class="head">
          <progress class="grows" aria-label="Jobs looked at" value={now.looked} max={Math.max(now.total, now.looked, 1)} />
          <span class="number">
            {now.looked.toLocaleString()} of {now.total.toLocaleString()}
            {now.capped ? "+" : ""}
          </span>
          <button type="button" disabled={now.stopped} onClick={stop}>
            Stop
          </button>
        </p>
      )}
      <Refusal problem={now.problem} again={() => void goOn().then(look)} always />
      {now.over && (
        <p class="head">
          <Back now={now} look={look} />
          <button type="button" class="plain" onClick={dismiss}>
            Close
          </button>
        </p>
      )}
    </section>
  );
}

function sentenceOf({ verb, done, refused, why, over, stopped }: Work): string {
  const many = `${done.toLocaleString()} ${done === 1 ? "job" : "jobs"}`;
  const ended = over ? (stopped ? " Stopped; the others are as they were." : "") : " So far.";
  return `${DONE[verb]} ${many}.${ended}${refused ? ` ${refused.toLocaleString()} refused: ${why}` : ""}`;
}

/** The way back. New jobs can be canceled before they run; a canceled job stays canceled, and is done by a new one. */
function Back({ now, look }: { now: Work; look: () => void }) {
  if (!now.back.length) return null;
  const many = `${now.back.length.toLocaleString()} ${now.back.length === 1 ? "job" : "jobs"}`;
  const [verb, label, onlyWaiting] =
    now.verb === "retry"
      ? (["cancel", "Undo: cancel the new jobs that have not begun", true] as const)
      : (["retry", `Submit ${many} again that had not begun`, false] as const);
  return (
    <button type="button" onClick={() => void begin(verb, { ids: now.back }, now.back.length, { onlyWaiting }).then(look)}>
      {label}
    </button>
  );
}
