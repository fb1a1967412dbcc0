/** A dialog for the fires that have passed: a range, how many jobs it means, and submitting them. */
import { useSignal } from "@preact/signals";
import { useId, useRef } from "preact/hooks";
import { ask, client, type components, Problem, requestId } from "../api/client";
import { accepts, meaningOf } from "../lib/machines";
import { may } from "../lib/session";
import { fieldOf } from "../lib/zones";
import { Axis } from "./axis";
import { Labelled } from "./form";
import { Refusal } from "./parts";
import { act } from "./toasts";
import "../styles/preview.css";

type Schedule = components["schemas"]["ScheduleView"];
type Foreseen = components["schemas"]["Backfilled"];

const REQUEST = "/api/schedules/{schedule}/backfill";
const WEEK_MS = 7 * 86_400_000;

const counted = (number: number, noun: string) => `${number.toLocaleString()} ${noun}${number === 1 ? "" : "s"}`;

interface Props {
  readonly one: Schedule;
  /** Its next fires, from which a likely range is worked out. */
  readonly times: readonly string[];
  readonly look: () => void;
}

export function Backfill({ one, times, look }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const range = useSignal({ since: "", until: "" });
  const queued = useSignal(false);
  const found = useSignal<Foreseen | undefined>(undefined);
  const problem = useSignal<Problem | undefined>(undefined);
  const busy = useSignal(false);
  const asked = useRef(0);
  const id = useId();
  if (!may(`POST ${REQUEST}`) || !accepts("schedule", one.state, "backfill")) return null;
  const zone = one.spec.tz ?? "UTC";
  const path = { params: { path: { schedule: one.name } } };
  const fires = found.value?.fires ?? [];
  const present = found.value?.present ?? 0;

  /** Learn which fires a range means; only the answer to the latest question counts. */
  async function foresee(since: string, until: string): Promise<void> {
    range.value = { since, until };
    const question = ++asked.current;
    try {
      const answer = since && until ? await ask(client.POST(REQUEST, { ...path, body: { since, until, dry_run: true } })) : undefined;
      if (question === asked.current) [found.value, problem.value] = [answer, undefined];
    } catch (error) {
      if (question !== asked.current) return;
      [found.value, problem.value] = [undefined, error instanceof Problem ? error : new Problem("unexpected", String(error))];
    }
  }

  function open(): void {
    const until = Date.now();
    const spread = Date.parse(times.at(-1) ?? "") - Date.parse(times[0] ?? "");
    const usual = spread > 0 ? (spread / (times.length - 1)) * 10 : WEEK_MS; // about ten fires
    void foresee(fieldOf(until - usual, zone), fieldOf(until, zone));
    dialog.current?.showModal();
  }

  async function go(): Promise<void> {
    busy.value = true;
    const body = { ...range.value, queued: queued.value, request_id: requestId() };
    const done = queued.value ? `${counted(fires.length, "fire")} will be submitted one after the other.` : `${counted(fires.length, "job")} submitted.`;
    const good = await act(done, () => ask(client.POST(REQUEST, { ...path, body })));
    busy.value = false;
    if (good) dialog.current?.close();
    look();
  }

  return (
    <>
      <button type="button" onClick={open}>
        Backfill …
      </button>
      <dialog ref={dialog} class="preview backfill" aria-labelledby={id}>
        <h2 id={id}>Submit the jobs of fires that have passed</h2>
        <div class="form">
          <Labelled name="From" about={`in ${zone}`}>
            {(field) => (
              <input
                id={field}
                type="datetime-local"
                value={range.value.since}
                onInput={(event) => void foresee(event.currentTarget.value, range.value.until)}
              />
            )}
          </Labelled>
          <Labelled name="Until" about={`in ${zone}, not included`}>
            {(field) => (
              <input
                id={field}
                type="datetime-local"
                value={range.value.until}
                onInput={(event) => void foresee(range.value.since, event.currentTarget.value)}
              />
            )}
          </Labelled>
          <Labelled name="One after the other" about="Each waits for the job before it to end." flag>
            {(field) => (
              <input
                id={field}
                type="checkbox"
                checked={queued.value}
                onChange={(event) => {
                  queued.value = event.currentTarget.checked;
                }}
              />
            )}
          </Labelled>
        </div>
        <div class="foreseen">
          <Refusal problem={problem.value} always />
          {found.value && (
            <p role="status">
              <b>{fires.length ? counted(fires.length, "fire") : "No fire"}</b> of this range {fires.length === 1 ? "has" : "have"} no job
              yet{present > 0 && `; ${counted(present, "fire")} ${present === 1 ? "has" : "have"} one already`}.
            </p>
          )}
          {fires.length > 0 && <Axis title={counted(fires.length, "fire")} from={Date.parse(fires[0] ?? "")} times={fires} zone={zone} />}
          {queued.value && meaningOf("schedule", one.state) === "waiting" && <p class="quiet">It is paused: they wait until it is resumed.</p>}
        </div>
        <div class="acts">
          <button type="button" class="primary" disabled={busy.value || !fires.length} onClick={go}>
            {fires.length ? `Submit ${counted(fires.length, "job")}` : "Submit"}
          </button>
          <button type="button" onClick={() => dialog.current?.close()}>
            Close
          </button>
        </div>
      </dialog>
    </>
  );
}
