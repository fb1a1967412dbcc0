/** Overview: current problems, each with its button, and figures over time. */
import { ask, client, type components, requestId } from "../api/client";
import { TIME_PASSES_MS, useEvery, useLoaded } from "../lib/loading";
import { query, setQuery } from "../lib/router";
import { span } from "../lib/time";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Chart, type Line } from "../ui/chart";
import { Empty, Head, Panel, Refusal, Waiting, When } from "../ui/parts";

type Finding = NonNullable<components["schemas"]["OverviewView"]["findings"]>[number];
type Point = components["schemas"]["FigurePoint"];

const RANGES: readonly (readonly [string, string])[] = [
  ["15", "15 minutes"],
  ["60", "1 hour"],
  ["360", "6 hours"],
  ["1440", "1 day"],
  ["10080", "7 days"],
];

/** Figures are counted every few seconds, so there is nothing to see in between. */
const LOOK_EVERY_MS = 2_000;

export function Overview() {
  const minutes = RANGES.find(([value]) => value === query.value.get("minutes"))?.[0] ?? "60";
  const { data, problem, look } = useLoaded(`overview ${minutes}`, async (signal) => {
    const [overview, figures] = await Promise.all([
      ask(client.GET("/api/overview", { signal })),
      ask(client.GET("/api/figures", { params: { query: { minutes: Number(minutes) } }, signal })),
    ]);
    return { overview, figures };
  });
  useNews((entry) => entry.kind === "job" || entry.kind === "worker", look, LOOK_EVERY_MS);
  useEvery(TIME_PASSES_MS, look);
  const shown = data.value;
  if (!shown) return <Waiting title="Overview" problem={problem.value} />;
  const { overview, figures } = shown;
  const { numbers } = overview;
  const plus = numbers.capped ? "+" : "";
  return (
    <>
      <Head title="Overview">
        <label>
          <span class="hidden-text">Time</span>
          <select value={minutes} onChange={(event) => setQuery("minutes", event.currentTarget.value)}>
            {RANGES.map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
      </Head>
      <Refusal problem={problem.value} />
      <div class="tiles">
        <Tile name="pending" value={`${numbers.pending}${plus}`} to="/jobs?q=state:pending" />
        <Tile name="running" value={`${numbers.running}${plus}`} to="/jobs?q=state:running" />
        <Tile name="completed" value={figures.totals?.completed ?? 0} to="/jobs?q=state:completed" />
        <Tile name="failed" value={figures.totals?.failed ?? 0} to="/jobs?q=state:failed" />
        {numbers.workers != null && (
          <Tile name={numbers.workers === 1 ? "worker" : "workers"} value={numbers.workers} to="/workers" />
        )}
        {numbers.slots != null && <Tile name={`of ${numbers.slots} slots busy`} value={numbers.busy ?? 0} to="/workers" />}
      </div>
      <Findings findings={overview.findings ?? []} more={overview.more ?? 0} look={look} />
      <Charts points={figures.points ?? []} stepS={figures.step_s} />
      <Tasks tasks={figures.tasks ?? []} />
    </>
  );
}

function Tile({ name, value, to }: { name: string; value: number | string; to: string }) {
  return (
    <a class="tile" href={encodeURI(to)}>
      <b>{value}</b> <span class="quiet">{name}</span>
    </a>
  );
}

function Findings({ findings, more, look }: { findings: readonly Finding[]; more: number; look: () => void }) {
  return (
    <Panel title="Current problems">
      {findings.length === 0 && <Empty>Nothing that this server can see.</Empty>}
      <ul class="findings">
        {findings.map((finding) => (
          <li key={`${finding.code} ${finding.kind} ${finding.id}`} class={`notice ${finding.level === "error" ? "bad" : "waiting"}`}>
            <span>
              {finding.sentence} {finding.since && <When at={finding.since} />}
            </span>
            <Remedy finding={finding} look={look} />
          </li>
        ))}
      </ul>
      {more > 0 && <p class="quiet">And {more} more.</p>}
    </Panel>
  );
}

/** The button of a finding; what only a command can do is shown as one. */
function Remedy({ finding, look }: { finding: Finding; look: () => void }) {
  const remedy = finding.remedy;
  if (!remedy) return null;
  const id = remedy.id ?? "";
  const body = { request_id: requestId() };
  const path = { params: { path: { worker_id: id } } };
  switch (`${remedy.verb} ${remedy.kind}`) {
    case "resume worker":
      return (
        <Action
          request="POST /api/supervisor/workers/{worker_id}/resume"
          done="It claims jobs again."
          run={() => ask(client.POST("/api/supervisor/workers/{worker_id}/resume", { ...path, body }))}
          then={look}
        >
          Resume
        </Action>
      );
    case "resume queue":
      return (
        <Action
          request="POST /api/queues/resume"
          done={`The jobs of ${id} are given out.`}
          run={() => ask(client.POST("/api/queues/resume", { body: { queue: id, ...body } }))}
          then={look}
        >
          Resume
        </Action>
      );
    case "terminate worker":
      return (
        <Action
          request="POST /api/supervisor/workers/{worker_id}/terminate"
          done="It was terminated; its work is done elsewhere."
          ask="Terminate this worker? Other workers run its jobs again."
          danger
          run={() => ask(client.POST("/api/supervisor/workers/{worker_id}/terminate", { ...path, body }))}
          then={look}
        >
          Terminate
        </Action>
      );
    case "lift runner":
      return (
        <Action
          request="POST /api/quarantine/lift"
          done={`${id} may take work again.`}
          run={() => ask(client.POST("/api/quarantine/lift", { body: { runner: id, ...body } }))}
          then={look}
        >
          Lift
        </Action>
      );
    case "open jobs":
      return (
        <a class="button" href={`/jobs?q=${encodeURIComponent(id)}`}>
          Show the jobs
        </a>
      );
    case "open worker":
      return (
        <a class="button" href={`/workers/${encodeURIComponent(id)}`}>
          Show the worker
        </a>
      );
    case "open server":
      return (
        <a class="button" href="/admin">
          Show the server
        </a>
      );
    default:
      return remedy.command ? <code>{remedy.command}</code> : null;
  }
}

const seconds = (value: number) => span(value * 1_000);

export function Charts({ points, stepS }: { points: readonly Point[]; stepS: number }) {
  const times = points.map((point) => Date.parse(point.at) / 1_000);
  const line = (name: string, colour: string, of: (point: Point) => number | null | undefined): Line => ({
    name,
    colour,
    values: points.map((point) => (point.gap ? null : (of(point) ?? null))),
  });
  const each = stepS === 60 ? "a minute" : `each ${span(stepS * 1_000)}`;
  return (
    <div class="columns">
      <Chart
        title={`Jobs ${each}`}
        times={times}
        lines={[
          line("submitted", "quiet", (point) => point.submitted),
          line("completed", "good", (point) => point.completed),
          line("failed", "bad", (point) => point.failed),
          line("retried", "waiting", (point) => point.retried),
        ]}
      />
      <Chart
        title="Backlog"
        times={times}
        lines={[
          line("pending", "waiting", (point) => point.pending),
          line("running", "active", (point) => point.running),
        ]}
      />
      <Chart
        title="Time until the first start"
        times={times}
        unit={seconds}
        lines={[
          line("median", "active", (point) => point.wait_p50_s),
          line("95 %", "waiting", (point) => point.wait_p95_s),
        ]}
      />
      <Chart
        title="Time from the first start to the end"
        times={times}
        unit={seconds}
        lines={[line("median", "active", (point) => point.run_p50_s), line("95 %", "waiting", (point) => point.run_p95_s)]}
      />
    </div>
  );
}

function Tasks({ tasks }: { tasks: readonly components["schemas"]["TaskFigure"][] }) {
  if (!tasks.length) return null;
  return (
    <Panel title="By queue and task">
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Queue</th>
              <th>Task</th>
              <th class="number">Submitted</th>
              <th class="number">Completed</th>
              <th class="number">Failed</th>
              <th class="number">Retried</th>
              <th class="number">Wait, median</th>
              <th class="number">Run, median</th>
              <th class="number">Run, 95 %</th>
            </tr>
          </thead>
          <tbody>
            {tasks.map((one) => (
              <tr key={`${one.queue} ${one.task}`}>
                <td>{one.queue || "others"}</td>
                <td class="mono">{one.task || "others"}</td>
                <td class="number">{one.submitted ?? 0}</td>
                <td class="number">{one.completed ?? 0}</td>
                <td class="number">{one.failed ?? 0}</td>
                <td class="number">{one.retried ?? 0}</td>
                <td class="number">{one.wait_p50_s == null ? "–" : seconds(one.wait_p50_s)}</td>
                <td class="number">{one.run_p50_s == null ? "–" : seconds(one.run_p50_s)}</td>
                <td class="number">{one.run_p95_s == null ? "–" : seconds(one.run_p95_s)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
