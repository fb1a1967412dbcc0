/** Workloads: load that many agents make at once, live, and its results. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { ask, client, type components, requestId } from "../api/client";
import { useEvery, useLoaded } from "../lib/loading";
import { hasEnded, meaningOf, pictureOf } from "../lib/machines";
import { useNewest } from "../lib/newest";
import { may } from "../lib/session";
import { precise, span } from "../lib/time";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Chart, type Line } from "../ui/chart";
import { CopyAs } from "../ui/copy";
import { History, pathOf } from "../ui/history";
import { NewRows } from "../ui/new_rows";
import { Empty, Facts, Head, Json, Panel, Picture, Refusal, State, Took, Waiting, When } from "../ui/parts";

type Schemas = components["schemas"];
type Workload = Schemas["WorkloadJob"];
type Agent = Schemas["WorkloadView"];
type Second = Schemas["SecondView"];
type Result = Schemas["WorkloadResult"];

/** Agents report every second, and their records follow every two. */
const LOOK_EVERY_MS = 2_000;
const SECOND_MS = 1_000;

export const duration = (ms: number | null | undefined) => (ms == null ? "–" : precise(ms));
const number = (value: number | null | undefined) => (value == null ? "–" : Math.round(value).toLocaleString());
const perSecond = (value: number) => `${value < 10 ? Number(value.toFixed(1)) : Math.round(value).toLocaleString()}/s`;

export function Workloads() {
  const { data, problem, look } = useLoaded("workloads", (signal) =>
    ask(client.GET("/api/workload-jobs", { params: { query: { limit: 50 } }, signal })),
  );
  const chosen = useSignal<readonly string[]>([]);
  useNews((entry) => entry.kind === "workload" || entry.kind === "job", look, LOOK_EVERY_MS);
  const newest = useNewest("workloads", data.value?.workloads ?? [], (one) => one.id, chosen.value.length > 0);
  const all = newest.rows;
  const choose = (id: string, on: boolean) => {
    chosen.value = on ? [...chosen.value, id].slice(-2) : chosen.value.filter((each) => each !== id);
  };
  return (
    <>
      <NewRows of={newest} />
      <Head title="Workloads">
        {chosen.value.length === 2 && (
          <a class="button" href={`/workloads/compare?${new URLSearchParams(chosen.value.map((id) => ["id", id]))}`}>
            Compare these two
          </a>
        )}
        {may("POST /api/workload-jobs") && (
          <a class="button" href="/workloads/start">
            Start a workload
          </a>
        )}
      </Head>
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of workloads">
        <table>
          <thead>
            <tr>
              <th>
                <span class="hidden-text">Compare</span>
              </th>
              <th>Workload</th>
              <th>State</th>
              <th>Kind</th>
              <th class="number">Agents</th>
              <th>Started</th>
              <th class="number">Took</th>
              <th class="number">Throughput</th>
              <th class="number">p50</th>
              <th class="number">p99</th>
              <th class="number">Errors</th>
              <th>Thresholds</th>
              <th>What happened</th>
            </tr>
          </thead>
          <tbody>
            {all.map((one) => (
              <tr key={one.id} aria-selected={chosen.value.includes(one.id)}>
                <td>
                  <input
                    type="checkbox"
                    aria-label={`Compare ${one.name || one.id}`}
                    checked={chosen.value.includes(one.id)}
                    disabled={!one.verdict}
                    onChange={(event) => choose(one.id, event.currentTarget.checked)}
                  />
                </td>
                <td>
                  <a href={`/workloads/${encodeURIComponent(one.id)}`}>{one.name || one.id}</a>
                  <div class="quiet mono">{one.name && one.id}</div>
                </td>
                <td class="nowrap">
                  <State machine="job" state={one.state} /> <span class="quiet">{one.verdict}</span>
                </td>
                <td>{one.kind}</td>
                <td class="number">{one.agents}</td>
                <td>
                  <When at={one.started_at} />
                </td>
                <td class="number">
                  <Took from={one.started_at} to={one.completed_at} />
                </td>
                <td class="number nowrap">{one.rate == null ? "–" : perSecond(one.rate)}</td>
                <td class="number nowrap">{duration(one.p50_ms)}</td>
                <td class="number nowrap">{duration(one.p99_ms)}</td>
                <td class="number">{number(one.errors)}</td>
                <td class="nowrap">
                  <Kept one={one} />
                </td>
                <td class="quiet">{one.error ?? ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {data.value && all.length === 0 && (
          <Empty>
            No workloads yet. Start one here, or with <code>interlock workload run FILE</code>.
          </Empty>
        )}
      </section>
    </>
  );
}

function Kept({ one }: { one: Workload }) {
  const all = one.thresholds ?? 0;
  if (!all || one.rate == null) return <span class="quiet">{all || ""}</span>;
  const missed = one.missed ?? 0;
  return <span class={`chip ${missed ? "bad" : "good"}`}>{missed ? `${missed} of ${all} missed` : `${all} passed`}</span>;
}

/** Return the seconds of a workload, which grow while it runs and are those of its result afterwards. */
function useSeconds(id: string, ended: boolean | undefined): readonly Second[] {
  const seconds = useSignal<readonly Second[]>([]);
  const { data, look } = useLoaded(`seconds ${id} ${ended ?? false}`, (signal) => {
    const after = ended ? -1 : (seconds.value.at(-1)?.second ?? -1);
    return ask(client.GET("/api/workload-jobs/{job_id}/seconds", { params: { path: { job_id: id }, query: { after } }, signal }));
  });
  useEvery(ended === false ? SECOND_MS : 0, look);
  useLayoutEffect(() => {
    const page = data.value;
    if (!page) return;
    const first = page.seconds[0]?.second ?? Number.POSITIVE_INFINITY;
    seconds.value = ended && page.seconds.length ? page.seconds : [...seconds.value.filter((each) => each.second < first), ...page.seconds];
  }, [data.value]);
  return seconds.value;
}

export function WorkloadPage({ id }: { id: string }) {
  const path = { params: { path: { job_id: id } } };
  const { data, problem, look } = useLoaded(`workload ${id}`, async (signal) => {
    const [view, explanation, history, artifacts] = await Promise.all([
      ask(client.GET("/api/workload-jobs/{job_id}", { ...path, signal })),
      ask(client.GET("/api/jobs/{job_id}/explain", { ...path, signal })),
      ask(client.GET("/api/jobs/{job_id}/history", { ...path, signal })),
      ask(client.GET("/api/jobs/{job_id}/artifacts", { ...path, signal })),
    ]);
    return { ...view, explanation, entries: history.entries, artifacts: artifacts.artifacts };
  });
  const shown = data.value;
  const ended = shown && hasEnded("job", shown.job.state);
  useNews((entry) => entry.id.startsWith(id), look, SECOND_MS);
  useEvery(ended === false ? LOOK_EVERY_MS : 0, look);
  const seconds = useSeconds(id, ended);
  if (!shown) return <Waiting title={id} problem={problem.value} />;
  const { job, spec, result, explanation, entries } = shown;
  return (
    <>
      <Head
        title={
          <>
            {job.name || job.id} <State machine="job" state={job.state} /> {job.verdict && <span class="chip">{job.verdict}</span>}
          </>
        }
      >
        <a class="button" href={`/jobs/${encodeURIComponent(id)}`}>
          Job and log
        </a>
        {job.verdict && (
          <a class="button" href={`/workloads/compare?id=${encodeURIComponent(id)}`}>
            Compare
          </a>
        )}
        <Action
          request="POST /api/jobs/{job_id}/cancel"
          legal={["job", job.state, "cancel"]}
          done="All agents were asked to stop; they have 15 seconds."
          ask="Abort this workload on all of its agents?"
          danger
          run={() => ask(client.POST("/api/jobs/{job_id}/cancel", { ...path, body: { reason: "aborted", request_id: requestId() } }))}
          then={look}
        >
          Abort
        </Action>
      </Head>
      <Refusal problem={problem.value} />
      <p>{result?.sentence ?? explanation.sentence}</p>
      {(result?.warnings ?? []).map((warning) => (
        <div key={warning} class="notice waiting">
          {warning}
        </div>
      ))}
      <Numbers job={job} agents={shown.agents ?? []} last={seconds.at(-1)} result={result} />
      <SecondCharts seconds={seconds} ended={ended ?? false} />
      <Thresholds limits={spec.thresholds ?? {}} judged={result?.thresholds} ended={ended ?? false} />
      <Agents id={id} agents={shown.agents ?? []} more={shown.more_agents ?? false} result={result} />
      <div class="columns">
        <Panel title="Workload">
          <Facts
            rows={[
              ["kind", <code>{spec.kind}</code>],
              ["given", spec.spec && Object.keys(spec.spec).length ? <Json value={spec.spec} /> : ""],
              ["duration", spec.duration_s === 0 ? "until it ends by itself" : span((spec.duration_s ?? 10) * 1_000)],
              ["rate", spec.rate ? `${perSecond(spec.rate)} on each agent` : "as many as can be"],
              ["concurrency", `${spec.concurrency ?? 1} on each agent`],
              ["operations", spec.operations ? `${number(spec.operations)} on each agent` : ""],
              ["policy", spec.policy ?? "all"],
              ["skew limit", span((spec.skew_limit_s ?? 0.1) * 1_000)],
              ["submitted", <When at={job.created_at} />],
              ["took", job.started_at && <Took from={job.started_at} to={job.completed_at} />],
            ]}
          />
        </Panel>
        <Panel title="Lifecycle of its job">
          <Picture src={pictureOf("job", job.state, pathOf(entries, "job"))}
            alt={`The lifecycle of a job. It is ${job.state}.`}
          />
        </Panel>
      </div>
      {shown.artifacts.length > 0 && (
        <Panel title="Report">
          <ul class="tree">
            {shown.artifacts.map((one) => (
              <li key={one.name}>
                <a href={`/api/jobs/${encodeURIComponent(id)}/artifacts/${encodeURIComponent(one.name)}`} download>
                  {one.name}
                </a>{" "}
                <span class="quiet">{one.size.toLocaleString()} bytes</span>
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <CopyAs
        ways={[
          ["a terminal", `interlock workload show ${id}`],
          ["its files", `interlock workload show ${id} --out results`],
          ["curl", `curl ${location.origin}/api/workload-jobs/${id}`],
        ]}
      />
    </>
  );
}

/** The numbers of the result, or of the newest second that all agents have reported. */
function Numbers({ job, agents, last, result }: { job: Workload; agents: readonly Agent[]; last: Second | undefined; result: Result | null | undefined }) {
  const running = agents.filter((one) => meaningOf("workload", one.state) === "active").length;
  const found = result?.latencies ?? last?.latencies;
  const rate = result?.rate ?? last?.operations;
  const done = result?.operations ?? agents.reduce((sum, one) => sum + (one.operations ?? 0), 0);
  const errors = result?.errors ?? agents.reduce((sum, one) => sum + (one.errors ?? 0), 0);
  const apart = spreadOf(agents, result);
  return (
    <div class="tiles">
      <Tile name="throughput" value={rate == null ? "–" : perSecond(rate)} />
      <Tile name="p50" value={duration(found?.p50_ms)} />
      <Tile name="p90" value={duration(found?.p90_ms)} />
      <Tile name="p99" value={duration(found?.p99_ms)} />
      <Tile name="operations" value={number(done)} />
      <Tile name="errors" value={number(errors)} />
      {result ? (
        <Tile name={`of ${job.agents} agents completed`} value={number(result.coverage.completed)} />
      ) : (
        <Tile name={`of ${job.agents} agents running`} value={number(running)} />
      )}
      {apart !== undefined && <Tile name="from the first start to the last" value={duration(apart)} />}
    </div>
  );
}

function Tile({ name, value }: { name: string; value: string }) {
  return (
    <div class="tile">
      <b>{value}</b> <span class="quiet">{name}</span>
    </div>
  );
}

/** Return how far apart the agents began, in milliseconds; undefined while fewer than two are known to have. */
function spreadOf(agents: readonly Agent[], result: Result | null | undefined): number | undefined {
  if (result?.spread) return result.spread.spread_ns / 1e6;
  const began = agents.map((one) => one.began_ms).filter((each) => each != null);
  return began.length > 1 ? Math.max(...began) - Math.min(...began) : undefined;
}

const SECONDS = { name: "second", show: (value: number) => `${value} s`, whole: true };

function SecondCharts({ seconds, ended }: { seconds: readonly Second[]; ended: boolean }) {
  if (!seconds.length && ended) return null;
  const times = seconds.map((each) => each.second);
  const line = (name: string, colour: string, of: (each: Second) => number | null | undefined): Line => ({
    name,
    colour,
    values: seconds.map((each) => of(each) ?? null),
  });
  return (
    <div class="columns">
      <Chart
        title="Operations per second, of all agents"
        times={times}
        along={SECONDS}
        unit={number}
        lines={[line("done", "active", (each) => each.operations), line("failed", "bad", (each) => each.errors)]}
      />
      <Chart
        title="Latency, of all agents merged"
        times={times}
        along={SECONDS}
        unit={duration}
        lines={[
          line("p50", "good", (each) => each.latencies.p50_ms),
          line("p90", "active", (each) => each.latencies.p90_ms),
          line("p99", "waiting", (each) => each.latencies.p99_ms),
          line("max", "bad", (each) => each.latencies.max_ms),
        ]}
      />
    </div>
  );
}

interface Limits {
  readonly limits: Readonly<Record<string, number>>;
  readonly judged: Result["thresholds"];
  readonly ended: boolean;
}

function Thresholds({ limits, judged, ended }: Limits) {
  const names = Object.keys(limits);
  if (!names.length) return null;
  const figure = (name: string, value: number | null | undefined) => {
    if (value == null) return "–";
    if (name.endsWith("_ms")) return duration(value);
    return name === "rate" ? perSecond(value) : `${Number((value * 100).toPrecision(3))} %`;
  };
  return (
    <Panel title="Thresholds">
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Threshold</th>
              <th>Limit</th>
              <th class="number">Measured</th>
              <th>Outcome</th>
            </tr>
          </thead>
          <tbody>
            {names.map((name) => {
              const found = judged?.find((each) => each.name === name);
              return (
                <tr key={name}>
                  <td class="mono">{name}</td>
                  <td>
                    {name === "rate" ? "at least" : "at most"} {figure(name, limits[name])}
                  </td>
                  <td class="number">{figure(name, found?.value)}</td>
                  <td>
                    {found ? (
                      <span class={`chip ${found.passed ? "good" : "bad"}`}>{found.passed ? "passed" : "missed"}</span>
                    ) : (
                      <span class="quiet">{ended ? "not judged: no result was kept" : "judged in the end"}</span>
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Agents({ id, agents, more, result }: { id: string; agents: readonly Agent[]; more: boolean; result: Result | null | undefined }) {
  const ended = new Map((result?.agents ?? []).map((each) => [each.workload_id, each]));
  const most = Math.max(1, ...agents.map((one) => one.operations ?? 0));
  return (
    <Panel title="Agents">
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Agent</th>
              <th>State</th>
              <th class="number">Throughput</th>
              <th class="number">Operations</th>
              <th class="number">Errors</th>
              <th class="number">p99</th>
              <th class="number">Clock ahead by</th>
              <th class="number">Began after</th>
              <th>What happened</th>
            </tr>
          </thead>
          <tbody>
            {agents.map((one) => {
              const done = ended.get(one.id);
              return (
                <tr key={one.id}>
                  <td>
                    <a class="mono" href={`/workloads/${encodeURIComponent(id)}/agents/${encodeURIComponent(one.id)}`}>
                      {one.agent}
                    </a>
                  </td>
                  <td class="nowrap">
                    <State machine="workload" state={one.state} /> <span class="quiet">{one.lost ? "lost" : (one.final ?? "")}</span>
                  </td>
                  <td class="number nowrap">{one.rate ? perSecond(one.rate) : "–"}</td>
                  <td class="number nowrap">
                    <progress class="bar-of" max={most} value={one.operations ?? 0} aria-hidden="true" /> {number(one.operations ?? 0)}
                  </td>
                  <td class="number">{number(one.errors ?? 0)}</td>
                  <td class="number nowrap">{duration(done?.latencies?.p99_ms)}</td>
                  <td class="number nowrap">{offset(one)}</td>
                  <td class="number nowrap">{signed(one.began_ms)}</td>
                  <td class="quiet">{one.error || done?.corrupt || ""}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {!agents.length && <Empty>No agent has taken it yet.</Empty>}
      {more && <p class="quiet">There are more; only these are shown.</p>}
    </Panel>
  );
}

/** How far the clock of an agent is ahead of the controller's, and how well that is known. */
function offset(one: Agent): string {
  if (one.offset_ms == null) return "–";
  return `${signed(one.offset_ms)} ± ${duration(one.uncertainty_ms)}`;
}

function signed(ms: number | null | undefined): string {
  if (ms == null) return "–";
  return `${ms < 0 ? "−" : "+"}${precise(Math.abs(ms))}`;
}

export function AgentPage({ id }: { id: string }) {
  const path = { params: { path: { workload_id: id } } };
  const { data, problem, look } = useLoaded(`agent ${id}`, async (signal) => {
    const [one, history] = await Promise.all([
      ask(client.GET("/api/workloads/{workload_id}", { ...path, signal })),
      ask(client.GET("/api/workloads/{workload_id}/history", { ...path, signal })),
    ]);
    return { one, entries: history.entries };
  });
  useNews((entry) => entry.id === id, look);
  useEvery(data.value && !data.value.one.final ? LOOK_EVERY_MS : 0, look);
  const shown = data.value;
  if (!shown) return <Waiting title={id} problem={problem.value} />;
  const { one, entries } = shown;
  return (
    <>
      <Head
        title={
          <>
            <span class="mono">{one.agent}</span> <State machine="workload" state={one.state} />
          </>
        }
      >
        <a class="button" href={`/workloads/${encodeURIComponent(one.job_id)}`}>
          All agents
        </a>
      </Head>
      <Refusal problem={problem.value} />
      <div class="columns">
        <Panel title="Its share">
          <Facts
            rows={[
              ["outcome", one.final],
              ["what happened", one.error],
              ["throughput", one.rate ? perSecond(one.rate) : ""],
              ["operations", number(one.operations ?? 0)],
              ["errors", number(one.errors ?? 0)],
              ["clock ahead by", one.offset_ms != null && offset(one)],
              ["began", one.began_ms != null && `${signed(one.began_ms)} from the common start`],
              ["taken", <When at={one.created_at} />],
              ["last report", <When at={one.updated_at} />],
              ["written off", one.deadline_at && <When at={one.deadline_at} />],
            ]}
          />
        </Panel>
        <Panel title="Lifecycle">
          <Picture src={pictureOf("workload", one.state, pathOf(entries, "workload"))}
            alt={`The lifecycle of a workload on an agent. It is ${one.state}.`}
          />
        </Panel>
      </div>
      <History entries={entries} />
    </>
  );
}
