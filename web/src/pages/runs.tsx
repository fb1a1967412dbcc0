/** Runs: what CI has done, what it does, and what waits for approval. */
import { ask, client, type components, requestId } from "../api/client";
import { layersOf, timesOf } from "../lib/graph";
import { useLoaded } from "../lib/loading";
import { hasEnded } from "../lib/machines";
import { go, query } from "../lib/router";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { FilterBox } from "../ui/filter";
import { History } from "../ui/history";
import { Empty, Facts, Head, Panel, Refusal, State, Took, Waiting, When } from "../ui/parts";

type Run = components["schemas"]["RunView"];
type RunJob = components["schemas"]["RunJobView"];

const WORDS = ["state:running", "state:failed", "state:awaiting_approval", "workflow:", "since:1d"];

export function Runs() {
  const q = query.value.get("q") ?? "";
  const { data, problem, look } = useLoaded(`runs ${q}`, (signal) =>
    ask(client.GET("/api/runs", { params: { query: { q, limit: 100 } }, signal })),
  );
  useNews((entry) => entry.kind === "run", look);
  const runs = data.value?.runs ?? [];
  return (
    <>
      <Head title="Runs" />
      <FilterBox q={q} words={WORDS} />
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of runs">
        <table>
          <thead>
            <tr>
              <th>Run</th>
              <th>State</th>
              <th>Outcome</th>
              <th>Workflow</th>
              <th>What</th>
              <th>Jobs</th>
              <th>Submitted</th>
              <th class="number">Took</th>
            </tr>
          </thead>
          <tbody>
            {runs.map((run) => (
              <tr key={run.id}>
                <td>
                  <a class="mono nowrap" href={`/runs/${encodeURIComponent(run.id)}`}>
                    {run.id}
                  </a>
                </td>
                <td>
                  <State machine="run" state={run.state} />
                </td>
                <td>{run.outcome && <State machine="run" state={run.outcome} />}</td>
                <td>{run.workflow}</td>
                <td>{titleOf(run)}</td>
                <td class="chips">
                  <Tally tally={run.tally ?? {}} />
                </td>
                <td>
                  <When at={run.created_at} />
                </td>
                <td class="number">
                  <Took from={run.started_at} to={run.completed_at ?? run.reported_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {data.value && runs.length === 0 && (
          <Empty>
            {q ? "No run matches this filter." : "No runs yet."} Start one with <code>interlock run submit</code>.
          </Empty>
        )}
      </section>
    </>
  );
}

function titleOf(run: Run): string {
  const { repository, ref, sha, title } = run.source ?? {};
  return [title, repository, ref?.replace("refs/heads/", ""), sha?.slice(0, 9)].filter(Boolean).join(" · ");
}

function Tally({ tally }: { tally: Readonly<Record<string, number>> }) {
  return (
    <>
      {Object.entries(tally).map(([state, number]) => (
        <span key={state} class="nowrap">
          {number} <State machine="job" state={state} />
        </span>
      ))}
    </>
  );
}

export function RunPage({ id }: { id: string }) {
  const path = { params: { path: { run_id: id } } };
  const { data, problem, look } = useLoaded(`run ${id}`, async (signal) => {
    const [run, explanation, history] = await Promise.all([
      ask(client.GET("/api/runs/{run_id}", { params: { path: { run_id: id }, query: { jobs: true } }, signal })),
      ask(client.GET("/api/runs/{run_id}/explain", { ...path, signal })),
      ask(client.GET("/api/runs/{run_id}/history", { ...path, signal })),
    ]);
    return { run, explanation, entries: history.entries };
  });
  useNews((entry) => entry.id === id || entry.kind === "job", look);
  const shown = data.value;
  if (!shown) return <Waiting title={id} problem={problem.value} />;
  const { run, explanation, entries } = shown;
  const jobs = run.jobs ?? [];
  return (
    <>
      <Head
        title={
          <>
            <span class="mono">{run.id}</span> <State machine="run" state={run.state} />{" "}
            {run.outcome && <State machine="run" state={run.outcome} />}
          </>
        }
      >
        <RunActions run={run} look={look} />
      </Head>
      <Refusal problem={problem.value} />
      <p>{explanation.sentence}</p>
      {run.awaiting && (
        <div class="notice waiting">
          It waits for approval: {run.awaiting.reason}. <ApproveButtons run={run} look={look} />
        </div>
      )}
      <Panel title="Jobs">{jobs.length ? <Graph jobs={jobs} /> : <Empty>There is no plan yet.</Empty>}</Panel>
      <div class="columns">
        <Panel title="About">
          <Facts
            rows={[
              ["workflow", run.workflow],
              ["title", run.source?.title],
              ["repository", run.source?.repository],
              ["ref", run.source?.ref],
              ["commit", run.source?.sha && <code>{run.source.sha}</code>],
              ["by", run.source?.actor],
              ["fork", run.source?.from_fork && "the change comes from a fork"],
              ["submitted", <When at={run.created_at} />],
              ["took", run.started_at && <Took from={run.started_at} to={run.completed_at ?? run.reported_at} />],
              ["group", run.concurrency_group],
              ["culprit", run.culprit],
              ["error", run.error],
              ["reason", run.reason],
              ["does again", run.origin_run_id && <RunLink id={run.origin_run_id} />],
              ["superseded by", run.superseded_by && <RunLink id={run.superseded_by} />],
            ]}
          />
        </Panel>
        {(run.skipped ?? []).length > 0 && (
          <Panel title="Left out">
            <Facts rows={(run.skipped ?? []).map((job) => [job.name, job.why] as const)} />
          </Panel>
        )}
      </div>
      <History entries={entries} />
    </>
  );
}

function RunLink({ id }: { id: string }) {
  return (
    <a class="mono" href={`/runs/${encodeURIComponent(id)}`}>
      {id}
    </a>
  );
}

function RunActions({ run, look }: { run: Run; look: () => void }) {
  const path = { params: { path: { run_id: run.id } } };
  const again = (which: "failed" | "all", label: string) => (
    <Action
      request="POST /api/runs/{run_id}/rerun"
      done="A new run was submitted."
      run={async () => {
        const made = await ask(
          client.POST("/api/runs/{run_id}/rerun", { ...path, body: { which, request_id: requestId() } }),
        );
        go(`/runs/${made.id}`);
      }}
    >
      {label}
    </Action>
  );
  if (run.outcome || hasEnded("run", run.state)) {
    return (
      <>
        {again("failed", "Rerun what failed")}
        {again("all", "Rerun all")}
      </>
    );
  }
  return (
    <Action
      request="POST /api/runs/{run_id}/cancel"
      legal={["run", run.state, "cancel"]}
      done="Cancel was requested."
      danger
      run={() => ask(client.POST("/api/runs/{run_id}/cancel", { ...path, body: { request_id: requestId() } }))}
      then={look}
    >
      Cancel
    </Action>
  );
}

function ApproveButtons({ run, look }: { run: Run; look: () => void }) {
  const path = { params: { path: { run_id: run.id } } };
  const body = () => ({ request_id: requestId() });
  return (
    <>
      <Action
        request="POST /api/runs/{run_id}/approve"
        done="It was approved."
        run={() => ask(client.POST("/api/runs/{run_id}/approve", { ...path, body: body() }))}
        then={look}
      >
        Approve
      </Action>{" "}
      <Action
        request="POST /api/runs/{run_id}/decline"
        done="It was declined."
        danger
        run={() => ask(client.POST("/api/runs/{run_id}/decline", { ...path, body: body() }))}
        then={look}
      >
        Decline
      </Action>
    </>
  );
}

const WIDTH = 190;
const HEIGHT = 46;
const GAP_X = 56;
const GAP_Y = 16;

/** The jobs of a run, each to the right of what it needs; those that decide how long it takes are marked. */
function Graph({ jobs }: { jobs: readonly RunJob[] }) {
  const layers = layersOf(jobs);
  const critical = timesOf(jobs).critical;
  const at = new Map<string, { x: number; y: number }>();
  layers.forEach((layer, column) =>
    layer.forEach((job, row) => at.set(job.name, { x: column * (WIDTH + GAP_X), y: row * (HEIGHT + GAP_Y) })),
  );
  const width = layers.length * (WIDTH + GAP_X) - GAP_X;
  const height = Math.max(...layers.map((layer) => layer.length)) * (HEIGHT + GAP_Y) - GAP_Y;
  return (
    <div class="scroll">
      <div class="graph" style={{ width: `${width}px`, height: `${height}px` }}>
        <svg width={width} height={height} aria-hidden="true">
          {jobs.flatMap((job) =>
            (job.needs ?? []).map((need) => {
              const from = at.get(need);
              const to = at.get(job.name);
              if (!from || !to) return null;
              const [x1, y1, x2, y2] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
              const middle = (x1 + x2) / 2;
              return (
                <path
                  key={`${need} ${job.name}`}
                  class={critical.has(job.name) && critical.has(need) ? "edge critical" : "edge"}
                  d={`M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`}
                />
              );
            }),
          )}
        </svg>
        {jobs.map((job) => {
          const place = at.get(job.name) ?? { x: 0, y: 0 };
          return (
            <a
              key={job.name}
              class={`node ${critical.has(job.name) ? "critical" : ""}`}
              style={{ left: `${place.x}px`, top: `${place.y}px`, width: `${WIDTH}px`, height: `${HEIGHT}px` }}
              href={`/jobs/${encodeURIComponent(job.job_id)}`}
              title={[job.why, job.reason, job.failure?.error].filter(Boolean).join(" · ")}
            >
              <b>{job.name}</b>
              <span>
                <State machine="job" state={job.state} /> {job.started_at && <Took from={job.started_at} to={job.completed_at} />}
                {job.required === false && <span class="quiet"> optional</span>}
              </span>
            </a>
          );
        })}
      </div>
    </div>
  );
}
