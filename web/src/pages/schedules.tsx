/** Schedules: when each fires next, what became of its last jobs, and pause, resume, run, backfill and delete. */
import { ask, client, type components, requestId } from "../api/client";
import { useLoaded } from "../lib/loading";
import { hasEnded, machines, meaningOf, pictureOf, tableOf } from "../lib/machines";
import { usePages } from "../lib/pages";
import { listOf } from "../lib/records";
import { query } from "../lib/router";
import { sees } from "../lib/session";
import { now } from "../lib/time";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Axis, TimeIn } from "../ui/axis";
import { Backfill } from "../ui/backfill";
import { CopyAs } from "../ui/copy";
import { History, pathOf } from "../ui/history";
import { More } from "../ui/more";
import { NewRows } from "../ui/new_rows";
import { Empty, Facts, Head, Json, Panel, Part, Picture, Refusal, State, States, Waiting, When } from "../ui/parts";
import { quoted } from "./queues";

type Schedule = components["schemas"]["ScheduleView"];
type Fire = components["schemas"]["FireView"];

const PAGE = 100;
const FIRES = 10;
/** How a fire came about, in words; the usual one needs none. */
const HOW: Readonly<Record<string, string>> = { due: "", run: "by hand", backfill: "backfilled" };

export function Schedules() {
  const state = query.value.get("state") ?? "";
  const read = async (cursor: string, signal?: AbortSignal) => {
    const params = { query: { state: state as "", limit: PAGE, cursor } };
    const page = await ask(client.GET("/api/schedules", { params, ...(signal && { signal }) }));
    return { items: page.schedules, cursor: page.cursor ?? "" };
  };
  const pages = usePages(`schedules ${state}`, read, (one: Schedule) => one.name);
  const { newest, problem, look } = pages;
  useNews((entry) => entry.kind === "schedule", look, 1_000);
  if (!pages.first) return <Waiting title="Schedules" problem={problem} />;
  const states = machines.value.has("schedule") ? (tableOf("schedule")?.states ?? []) : [];

  return (
    <>
      <NewRows of={newest} />
      <Head title="Schedules" />
      <States list="/schedules" states={states.map((each) => each.name)} here={state} />
      <Refusal problem={problem} again={look} />
      <section class="panel scroll" aria-label="List of schedules">
        {newest.rows.length > 0 && (
          <table class="middle">
            <thead>
              <tr>
                <th>Schedule</th>
                <th>State</th>
                <th>Fires</th>
                <th>Next</th>
                <th>Last job</th>
                <th>Task</th>
                <th>
                  <span class="hidden-text">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {newest.rows.map((one) => (
                <tr key={one.name}>
                  <td>
                    <a class="mono nowrap" href={`/schedules/${encodeURIComponent(one.name)}`}>
                      {one.name}
                    </a>
                  </td>
                  <td>
                    <State machine="schedule" state={one.state} />
                  </td>
                  <td>{one.text}</td>
                  <td>
                    <When at={one.next_at} />
                  </td>
                  <td class="nowrap">
                    <Last fire={one.recent?.[0]} />
                  </td>
                  <td class="mono">{one.spec.job.task}</td>
                  <td>
                    <span class="acts">
                      <Acts one={one} look={look} />
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {newest.rows.length === 0 && (
          <Empty>
            {state ? `None is ${state}.` : "No schedules yet."} Create one with{" "}
            <code>interlock schedule create nightly shop.py:report --cron '0 2 * * *'</code>.
          </Empty>
        )}
        <More of={pages} />
      </section>
    </>
  );
}

/** Return whether it submits nothing until it is resumed. */
const isHeld = (one: Schedule) => meaningOf("schedule", one.state) === "waiting";

/** The last job of a schedule, and what became of it. */
function Last({ fire }: { fire: Fire | undefined }) {
  if (!fire) return <span class="quiet">none yet</span>;
  if (!fire.state) return <span class="quiet">pruned</span>;
  return (
    <a href={`/jobs/${encodeURIComponent(fire.job_id)}`} aria-label={`${fire.state}, ${fire.job_id}`}>
      <State machine="job" state={fire.state} />
    </a>
  );
}

/** What its table has for the state that it is in: run now, pause or resume. */
function Acts({ one, look }: { one: Schedule; look: () => void }) {
  const path = { params: { path: { schedule: one.name } } };
  const body = () => ({ ...path, body: { request_id: requestId() } });
  return (
    <>
      <Action
        request="POST /api/schedules/{schedule}/run"
        legal={["schedule", one.state, "run_now"]}
        done={`A job of ${one.name} was submitted.`}
        run={() => ask(client.POST("/api/schedules/{schedule}/run", body()))}
        then={look}
      >
        Run now
      </Action>
      <Action
        request="POST /api/schedules/{schedule}/pause"
        legal={["schedule", one.state, "pause"]}
        done={`${one.name} submits nothing until it is resumed.`}
        run={() => ask(client.POST("/api/schedules/{schedule}/pause", body()))}
        then={look}
      >
        Pause
      </Action>
      <Action
        request="POST /api/schedules/{schedule}/resume"
        legal={["schedule", one.state, "resume"]}
        done={`${one.name} continues with its next fire.`}
        run={() => ask(client.POST("/api/schedules/{schedule}/resume", body()))}
        then={look}
      >
        Resume
      </Action>
    </>
  );
}

export function SchedulePage({ name }: { name: string }) {
  const path = { params: { path: { schedule: name } } };
  const { data, problem, look } = useLoaded(`schedule ${name}`, async (signal) => {
    const [one, next] = await Promise.all([
      ask(client.GET("/api/schedules/{schedule}", { ...path, signal })),
      ask(client.GET("/api/schedules/{schedule}/next", { params: { ...path.params, query: { count: FIRES } }, signal })),
    ]);
    return { one, times: next.times };
  });
  const history = useLoaded(`history of ${name}`, (signal) =>
    ask(client.GET("/api/schedules/{schedule}/history", { params: { ...path.params, query: { newest: true } }, signal })),
  );
  useNews(
    (entry) => entry.kind === "schedule" && entry.id === name,
    () => {
      look();
      history.look();
    },
  );
  useNews((entry) => entry.kind === "job" && (data.value?.one.recent ?? []).some((fire) => fire.job_id === entry.id), look);
  const shown = data.value;
  if (!shown) return <Waiting title={name} problem={problem.value} />;
  const { one, times } = shown;
  const passed = pathOf(history.data.value?.entries ?? [], "schedule");
  return (
    <>
      <Head
        title={
          <>
            <span class="mono">{one.name}</span> <State machine="schedule" state={one.state} />
          </>
        }
      >
        <Acts one={one} look={look} />
        <Backfill one={one} times={times} look={look} />
        <Action
          request="POST /api/schedules/{schedule}/delete"
          legal={["schedule", one.state, "delete"]}
          done={`${one.name} has ended.`}
          ask={`Delete the schedule ${one.name}? It will submit no more jobs. Jobs that it has submitted continue.`}
          danger
          run={() => ask(client.POST("/api/schedules/{schedule}/delete", { ...path, body: { request_id: requestId() } }))}
          then={look}
        >
          Delete
        </Action>
      </Head>
      <Refusal problem={problem.value} again={look} />
      <Standing one={one} />
      <Panel title="Next fires">
        <Next one={one} times={times} />
      </Panel>
      <Recent one={one} />
      <div class="columns">
        <Panel title="About">
          <About one={one} />
        </Panel>
        <Panel title="Lifecycle">
          <Picture
            src={pictureOf("schedule", one.state, passed)}
            alt={`The lifecycle of a schedule. It is ${one.state}, after ${passed.join(", ") || "nothing"}.`}
          />
        </Panel>
      </div>
      <CopyAs
        ways={[
          ["a terminal", `interlock schedule show ${one.name}`],
          ["curl", `curl ${location.origin}/api/schedules/${one.name}`],
          ["Python", `await il.schedules.get("${one.name}")`],
        ]}
      />
      <Part of={history}>{(page) => <History entries={page.entries} older={page.older ?? false} />}</Part>
    </>
  );
}

/** When it fires in words, and what keeps it from firing. */
function Standing({ one }: { one: Schedule }) {
  const words = `${one.text.charAt(0).toUpperCase()}${one.text.slice(1)}`;
  const why = [one.by && `by ${one.by}`, one.reason].filter(Boolean).join(": ");
  const waiting = one.waiting?.length ?? 0;
  const held = isHeld(one);
  return (
    <>
      <p class="lead">
        {words}
        {one.next_at && (
          <>
            ; next <When at={one.next_at} />
          </>
        )}
        .
      </p>
      {held && (
        <p class="notice waiting">
          It is paused{why && ` (${why})`}. Fires that pass meanwhile are not caught up with; they can be backfilled.
        </p>
      )}
      {hasEnded("schedule", one.state) && (
        <p class="notice">
          It has ended{why && ` (${why})`}. Create it again to begin anew: <code>interlock schedule create {one.name} …</code>
        </p>
      )}
      {waiting > 0 && (
        <p class="notice waiting">
          {waiting === 1 ? "1 fire waits" : `${waiting.toLocaleString()} fires wait`} for the job before to end
          {held && ", and for the schedule to be resumed"}.
        </p>
      )}
    </>
  );
}

/** The next fires along an axis, to scale, and each by its time. */
function Next({ one, times }: { one: Schedule; times: readonly string[] }) {
  const zone = one.spec.tz ?? "UTC";
  if (!times.length) return <Empty>There is no further fire.</Empty>;
  const many = times.length === 1 ? "The next fire" : `The next ${times.length} fires`;
  return (
    <>
      <Axis title={many} from={now.value} times={times} zone={zone} begin="now" />
      <ol class="fires" aria-label={`${many}, in ${zone}`}>
        {times.map((at) => (
          <li key={at}>
            <TimeIn at={at} zone={zone} />
            <span class="quiet">
              <When at={at} />
            </span>
          </li>
        ))}
      </ol>
      <p class="quiet">
        Times are in {zone}.{isHeld(one) && " These are the fires it would have if it were resumed."}
        {one.spec.jitter && ` Each job is submitted up to ${one.spec.jitter} later.`}
      </p>
    </>
  );
}

/** Its last jobs, newest first, and what became of them. */
function Recent({ one }: { one: Schedule }) {
  const zone = one.spec.tz ?? "UTC";
  const recent = one.recent ?? [];
  return (
    <Panel title="Last fires">
      {recent.length === 0 && <Empty>It has submitted no job yet.</Empty>}
      {recent.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>Scheduled for</th>
                <th>Outcome</th>
                <th>Job</th>
                <th>How</th>
              </tr>
            </thead>
            <tbody>
              {recent.map((fire) => (
                <tr key={fire.job_id}>
                  <td>
                    <TimeIn at={fire.scheduled_for} zone={zone} />{" "}
                    <span class="quiet">
                      <When at={fire.scheduled_for} />
                    </span>
                  </td>
                  <td>{fire.state ? <State machine="job" state={fire.state} /> : <span class="quiet">pruned</span>}</td>
                  <td class="mono">
                    {fire.state ? <a href={`/jobs/${encodeURIComponent(fire.job_id)}`}>{fire.job_id}</a> : fire.job_id}
                  </td>
                  <td class="quiet">{HOW[fire.how ?? "due"] ?? fire.how}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function About({ one }: { one: Schedule }) {
  const { spec } = one;
  const { job } = spec;
  return (
    <>
      <Facts
        rows={[
          ["when", <code>{spec.cron || (spec.every && `every ${spec.every}`) || spec.at?.join(", ")}</code>],
          ["time zone", spec.tz ?? "UTC"],
          ["from", spec.start],
          ["until", spec.end],
          ["except", spec.exclude?.join(", ")],
          ["task", <code>{job.task}</code>],
          ["queue", <a href={`/jobs?q=${encodeURIComponent(`queue:${quoted(job.queue ?? "default")}`)}`}>{job.queue ?? "default"}</a>],
          ["missed fires", spec.catch_up ?? "latest"],
          ["job before still runs", spec.overlap ?? "skip"],
          ["submitted", `${(one.submitted ?? 0).toLocaleString()} jobs`],
          ["left out", one.skipped ? `${one.skipped.toLocaleString()} fires` : ""],
          ["declared in", one.source],
          ["created", <When at={one.created_at} />],
          ["changed", <When at={one.updated_at} />],
          ["record", sees("GET /api/records/{kind}") && <a href={`${listOf("schedule")}/${encodeURIComponent(one.name)}`}>as the store keeps it</a>],
        ]}
      />
      {job.input !== undefined && (
        <details>
          <summary>Input of its jobs</summary>
          <Json value={job.input} />
        </details>
      )}
    </>
  );
}
