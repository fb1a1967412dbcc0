/** Acting on all that match: what would be done first, then how far it is, then the way back. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Item, JOBS, type Noun, type Verb } from "../lib/acted_on";
import { begin, dismiss, goOn, isBusy, stop, type Work, work } from "../lib/bulk";
import { Refusal, State, Words } from "./parts";
import { act, tell } from "./toasts";

const SAMPLE = 5;
const DONE: Readonly<Record<Verb, string>> = { cancel: "Cancel was requested for", retry: "Submitted again:", discard: "Discarded:" };
const ALL: Readonly<Record<Verb, string>> = { cancel: "Cancel all that match", retry: "Retry all that match", discard: "Discard all that match" };
/** The texts of the dialog for each action: its question, which of the matching records are meant, and its answer. */
const ASKED: Readonly<Record<Verb, readonly [question: (many: string) => string, meant: string, yes: string]>> = {
  cancel: [(many) => `Cancel ${many}?`, " and have not ended.", "Cancel them"],
  retry: [(many) => `Submit ${many} again?`, " and have ended; each is submitted as a new job.", "Submit them again"],
  discard: [(many) => `Discard ${many}?`, ". They are left as they are, for good, and no longer listed.", "Discard them"],
};

const isHarsh = (verb: Verb) => verb !== "retry";
const counted = (noun: Noun, number: number) => `${number.toLocaleString()} ${number === 1 ? noun.one : noun.many}`;

interface Preview {
  readonly noun: Noun;
  readonly verb: Verb;
  readonly filter: string;
  /** Number of records; a lower bound when there are `more`. */
  readonly number: number;
  readonly more: boolean;
  readonly total: number;
  readonly capped: boolean;
  readonly sample: readonly Item[];
}

/** Buttons for everything that a filter means, and the question before anything is done. */
export function ActOnAll({ noun = JOBS, q, look }: { noun?: Noun; q: string; look: () => void }) {
  const preview = useSignal<Preview | undefined>(undefined);
  async function show(verb: Verb): Promise<void> {
    await act("", async () => {
      const found = await previewOf(noun, verb, q);
      if (found.number) preview.value = found;
      else tell(`No ${noun.one} that matches can be acted on.`);
    });
  }
  return (
    <>
      {noun.verbs.map((verb) => (
        <button key={verb} type="button" class={isHarsh(verb) ? "danger" : ""} disabled={isBusy()} onClick={() => show(verb)}>
          {ALL[verb]}
        </button>
      ))}
      {preview.value && (
        <Question
          preview={preview.value}
          close={(agreed) => {
            const { verb, filter, total, capped } = preview.value as Preview;
            preview.value = undefined;
            if (agreed) void begin(noun, verb, { filter }, total, { capped }).then(look);
          }}
        />
      )}
    </>
  );
}

async function previewOf(noun: Noun, verb: Verb, filter: string): Promise<Preview> {
  const [dry, page] = await Promise.all([noun.act(verb, { filter, dry_run: true, limit: 1_000 }), noun.list(filter, 50, "")]);
  const number = dry.done?.length ?? 0;
  const more = dry.more ?? false;
  return {
    noun,
    verb,
    filter,
    number,
    more,
    total: Math.max(number, page.count?.number ?? 0),
    capped: page.count ? (page.count.capped ?? false) : more,
    sample: page.items.filter((item) => noun.concerns(verb, item)).slice(0, SAMPLE),
  };
}

function Question({ preview, close }: { preview: Preview; close: (agreed: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const { noun, verb, filter, number, more, sample } = preview;
  const many = `${number.toLocaleString()}${more ? " or more" : ""} ${number === 1 && !more ? noun.one : noun.many}`;
  const [question, meant, yes] = ASKED[verb];
  return (
    <dialog ref={dialog} aria-labelledby="bulk-title" onClose={() => close(false)}>
      <h2 id="bulk-title">{question(many)}</h2>
      <p>
        {number === 1 ? "It matches" : "They match"} <code>{filter}</code>
        {meant}
      </p>
      <ul class="tree">
        {sample.map((item) => (
          <li key={item.id}>
            <span class="mono">{item.id}</span> <State machine="job" state={item.state} /> <span class="mono">{item.task}</span>{" "}
            <span class="quiet">{item.queue}</span>
          </li>
        ))}
        {(number > sample.length || more) && <li class="quiet">and others</li>}
      </ul>
      <p class="head">
        <button type="button" class={isHarsh(verb) ? "danger" : "primary"} onClick={() => close(true)}>
          {yes}
        </button>
        <button type="button" onClick={() => close(false)}>
          Do nothing
        </button>
      </p>
    </dialog>
  );
}

/** The progress of the latest bulk action, and its buttons. */
export function Progress({ look }: { look: () => void }) {
  const now = work.value;
  if (!now) return null;
  return (
    <section class="panel" aria-label="Progress">
      <p role="status">
        <Words text={sentenceOf(now)} />
      </p>
      {!now.over && (
        <p class="head">
          <progress class="grows" aria-label={`${now.noun.many} looked at`} value={now.looked} max={Math.max(now.total, now.looked, 1)} />
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

function sentenceOf({ noun, verb, done, refused, why, over, stopped }: Work): string {
  const many = counted(noun, done);
  const ended = over ? (stopped ? " Stopped; the others are as they were." : "") : " So far.";
  return `${DONE[verb]} ${many}.${ended}${refused ? ` ${refused.toLocaleString()} refused: ${why}` : ""}`;
}

/** The way back. New jobs can be canceled before they run; a canceled job stays canceled, and is done by a new one. */
function Back({ now, look }: { now: Work; look: () => void }) {
  if (!now.back.length) return null;
  const many = counted(JOBS, now.back.length);
  const [verb, label, onlyWaiting] =
    now.verb === "retry"
      ? (["cancel", "Undo: cancel the new jobs that have not begun", true] as const)
      : (["retry", `Submit ${many} again that had not begun`, false] as const);
  return (
    <button type="button" onClick={() => void begin(JOBS, verb, { ids: now.back }, now.back.length, { onlyWaiting }).then(look)}>
      {label}
    </button>
  );
}
