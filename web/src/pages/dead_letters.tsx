/** Dead letters: failed jobs without a try left; inspect, edit, retry and discard them, one by one or all that match. */
import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";
import { ask, client, type components, requestId } from "../api/client";
import { LETTERS } from "../lib/acted_on";
import { exactly, Rounded } from "../lib/exact";
import { useLoaded } from "../lib/loading";
import { accepts } from "../lib/machines";
import { usePages } from "../lib/pages";
import { gathered } from "../lib/paging";
import { query } from "../lib/router";
import { may } from "../lib/session";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { ActOnAll, Progress } from "../ui/bulk";
import { CopyAs } from "../ui/copy";
import { FilterBox } from "../ui/filter";
import { Labelled } from "../ui/form";
import { More } from "../ui/more";
import { NewRows } from "../ui/new_rows";
import { Empty, Facts, Head, Json, Panel, Refusal, State, Waiting, When } from "../ui/parts";
import { quoted } from "./queues";

type Letter = components["schemas"]["DeadLetterView"];

const PAGE = 50;
/** How many pages are read until one is full; the server looks at many failed jobs for each. */
const LOOKS = 3;
const LOOK_EVERY_MS = 1_000;
const WORDS = ["queue:default", "task:", "since:1h", "since:1d", "until:30d", "label:", "id:"];

const letterPage = (id: string) => `/dead-letters/${encodeURIComponent(id)}`;
const concerns = (kind: string) => kind === "job" || kind === "dead_letter";

export function DeadLetters() {
  const q = query.value.get("q") ?? "";
  return <List key={q} q={q} />;
}

function List({ q }: { q: string }) {
  const read = (from: string, signal?: AbortSignal) =>
    gathered(
      async (cursor) => {
        const params = { query: { q, limit: PAGE, cursor } };
        const page = await ask(client.GET("/api/dead-letters", { params, ...(signal && { signal }) }));
        return { items: page.letters, cursor: page.cursor };
      },
      from,
      PAGE,
      LOOKS,
    );
  const pages = usePages(`dead letters ${q}`, read, (letter: Letter) => letter.id);
  const { newest, problem, look, cursor } = pages;
  useNews((entry) => concerns(entry.kind), look, LOOK_EVERY_MS);
  if (!pages.first) return <Waiting title="Dead letters" problem={problem} />;
  const shown = newest.rows;

  return (
    <>
      <NewRows of={newest} />
      <Head title="Dead letters">
        {q && shown.length > 0 && may("POST /api/dead-letters/actions") && <ActOnAll noun={LETTERS} q={q} look={look} />}
      </Head>
      <FilterBox q={q} words={WORDS} hint="queue:mail task:shop.send since:1d" />
      <Refusal problem={problem} again={look} />
      <Progress look={look} />
      <section class="panel scroll" aria-label="List of dead letters">
        {shown.length > 0 && (
          <table class="middle">
            <thead>
              <tr>
                <th>Job</th>
                <th>Task</th>
                <th>Queue</th>
                <th>Failed</th>
                <th class="number">Attempts</th>
                <th>What happened</th>
                <th>
                  <span class="hidden-text">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((letter) => (
                <tr key={letter.id}>
                  <td>
                    <a class="mono nowrap" href={letterPage(letter.id)}>
                      {letter.id}
                    </a>
                  </td>
                  <td class="mono">{letter.job.task}</td>
                  <td>{letter.job.queue}</td>
                  <td>
                    <When at={letter.job.completed_at ?? letter.job.updated_at} />
                  </td>
                  <td class="number">{letter.job.attempts?.length ?? 0}</td>
                  <td class="said">
                    {letter.job.failure && (
                      <>
                        <b>{letter.job.failure.failure_class}</b>: {letter.job.failure.error}
                      </>
                    )}
                  </td>
                  <td>
                    <span class="acts">
                      <Acts letter={letter} look={() => pages.drop(letter.id)} />
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {shown.length === 0 && !cursor && <Empty>{q ? "No dead letter matches this filter." : "No dead letters: nothing has failed for good, or all was dealt with."}</Empty>}
        <More of={pages} note={shown.length < PAGE ? "Older failed jobs have not been looked at yet. " : ""} />
      </section>
    </>
  );
}

interface ActsProps {
  readonly letter: Letter;
  readonly look: () => void;
  /** Why, for the journal. */
  readonly reason?: string;
}

/** What its table has for the state that it is in: retry it as it is, or discard it. */
function Acts({ letter, look, reason = "" }: ActsProps) {
  const path = { params: { path: { job_id: letter.id } } };
  const body = () => ({ ...path, body: { reason, request_id: requestId() } });
  return (
    <>
      <Action
        request="POST /api/dead-letters/{job_id}/retry"
        legal={["dead_letter", letter.state, "retry"]}
        done={`${letter.id} was submitted again.`}
        run={() => ask(client.POST("/api/dead-letters/{job_id}/retry", body()))}
        then={look}
      >
        Retry
      </Action>
      <Action
        request="POST /api/dead-letters/{job_id}/discard"
        legal={["dead_letter", letter.state, "discard"]}
        done={`${letter.id} was discarded.`}
        ask={`Discard the dead letter ${letter.id}? The job stays as it is, for good.`}
        danger
        run={() => ask(client.POST("/api/dead-letters/{job_id}/discard", body()))}
        then={look}
      >
        Discard
      </Action>
    </>
  );
}

/** A dead letter, and its input as text in which no number is rounded; none where the browser would round one. */
interface Read {
  readonly letter: Letter;
  readonly input: string | undefined;
}

function readInput(text: string): string | undefined {
  try {
    const { job } = exactly(text) as { job: { input?: unknown } };
    return JSON.stringify(job.input ?? {}, null, 2);
  } catch (error) {
    if (error instanceof Rounded) return undefined;
    throw error;
  }
}

export function DeadLetterPage({ id }: { id: string }) {
  const reason = useSignal("");
  const { data, problem, look } = useLoaded(`dead letter ${id}`, async (signal): Promise<Read> => {
    const params = { path: { job_id: id } };
    const text = await ask(client.GET("/api/dead-letters/{job_id}", { params, parseAs: "text", signal }));
    return { letter: JSON.parse(text) as Letter, input: readInput(text) };
  });
  useNews((entry) => concerns(entry.kind) && entry.id === id, look);
  const shown = data.value;
  if (!shown) return <Waiting title={id} problem={problem.value} />;
  const { letter, input } = shown;
  const { job } = letter;
  return (
    <>
      <Head
        title={
          <>
            <span class="mono">{letter.id}</span> <State machine="dead_letter" state={letter.state} />
          </>
        }
      >
        <a class="button" href={`/jobs/${encodeURIComponent(letter.id)}`}>
          Show the job
        </a>
        <Acts letter={letter} look={look} reason={reason.value} />
      </Head>
      <Refusal problem={problem.value} again={look} />
      <Dealt letter={letter} />
      <Panel title="Failure">
        <p>
          <b>{job.failure?.failure_class ?? "failed"}</b>: {job.failure?.error ?? "It left no error."}
        </p>
        {job.failure?.details && (
          <details>
            <summary>Traceback</summary>
            <Json value={job.failure.details} />
          </details>
        )}
      </Panel>
      <Edit letter={letter} input={input} reason={reason.value} setReason={(text) => (reason.value = text)} look={look} />
      <Panel title="About">
        <Facts
          rows={[
            ["task", <code>{job.task}</code>],
            ["queue", <a href={`/dead-letters?q=${encodeURIComponent(`queue:${quoted(job.queue)}`)}`}>{job.queue}</a>],
            ["description", job.description],
            ["labels", job.labels?.join(", ")],
            ["submitted", <When at={job.created_at} />],
            ["failed", <When at={job.completed_at ?? job.updated_at} />],
            ["attempts", job.attempts?.length],
            ["losses", job.losses || ""],
            ["unique key", job.unique_key && <code>{job.unique_key}</code>],
          ]}
        />
      </Panel>
      <CopyAs
        ways={[
          ["a terminal", `interlock dead-letter show ${letter.id}`],
          ["curl", `curl ${location.origin}/api/dead-letters/${letter.id}`],
          ["Python", `await il.dead_letters.get("${letter.id}")`],
        ]}
      />
    </>
  );
}

/** The actions on it, each with actor and reason. */
function Dealt({ letter }: { letter: Letter }) {
  if (!letter.at) return null;
  return (
    <p class="notice">
      It was {letter.state}
      {letter.edited && " with another input"}
      {letter.retried_as && (
        <>
          {" as "}
          <a class="mono" href={`/jobs/${encodeURIComponent(letter.retried_as)}`}>
            {letter.retried_as}
          </a>
        </>
      )}{" "}
      <When at={letter.at} />
      {letter.by && ` by ${letter.by}`}
      {letter.reason ? `: ${letter.reason}` : "."}
    </p>
  );
}

interface EditProps {
  readonly letter: Letter;
  readonly input: string | undefined;
  readonly reason: string;
  readonly setReason: (text: string) => void;
  readonly look: () => void;
}

/** The input; with a button that submits it as edited, for roles that can. */
function Edit({ letter, input, reason, setReason, look }: EditProps) {
  const edited = useSignal<string | undefined>(undefined);
  const wrong = useSignal("");
  const warning = useId();
  const open = may("POST /api/dead-letters/{job_id}/retry") && accepts("dead_letter", letter.state, "retry");
  if (!open || input === undefined)
    return (
      <Panel title="Input">
        <Json value={input ?? letter.job.input} />
        {open && (
          <p class="quiet">
            The browser would round a number in it. Edit it with <code>interlock dead-letter retry {letter.id} --input …</code>
          </p>
        )}
      </Panel>
    );
  const text = edited.value ?? input;

  function typed(value: string): void {
    edited.value = value;
    try {
      exactly(value);
      wrong.value = "";
    } catch (error) {
      wrong.value = error instanceof Rounded ? error.message : `This is no JSON: ${(error as Error).message}`;
    }
  }

  async function send(): Promise<void> {
    const body = { input: exactly(text), reason, request_id: requestId() };
    await ask(client.POST("/api/dead-letters/{job_id}/retry", { params: { path: { job_id: letter.id } }, body }));
  }

  return (
    <Panel title="Input">
      <div class="form">
        <Labelled name="Input of the new job" about="JSON. Change it to retry with another input; the failed job keeps its own.">
          {(id) => (
            <textarea
              id={id}
              class="mono"
              rows={Math.min(20, text.split("\n").length + 1)}
              spellcheck={false}
              value={text}
              aria-invalid={wrong.value !== ""}
              aria-describedby={warning}
              onInput={(event) => typed(event.currentTarget.value)}
            />
          )}
        </Labelled>
        <Labelled name="Reason" about="For the journal; also if you retry it as it is, or discard it.">
          {(id) => <input id={id} maxLength={1_000} value={reason} onInput={(event) => setReason(event.currentTarget.value)} />}
        </Labelled>
      </div>
      <p id={warning} role="status">
        {wrong.value}
      </p>
      {!wrong.value && text !== input && (
        <Action request="POST /api/dead-letters/{job_id}/retry" done={`${letter.id} was submitted again with another input.`} run={send} then={look}>
          Retry with this input
        </Action>
      )}
    </Panel>
  );
}
