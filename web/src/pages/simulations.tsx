/** Simulations: how far each is, its metrics step by step, and pause, resume and cancel. */
import { useSignal } from "@preact/signals";
import { ask, client, type components, requestId } from "../api/client";
import { useEvery, useLoaded } from "../lib/loading";
import { hasEnded, meaningOf, pictureOf } from "../lib/machines";
import { useNewest } from "../lib/newest";
import { noteStep, timeFor } from "../lib/pace";
import { now, span } from "../lib/time";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Chart, SERIES } from "../ui/chart";
import { History, pathOf } from "../ui/history";
import { NewRows } from "../ui/new_rows";
import { Empty, Facts, Head, Json, Panel, Picture, Refusal, State, Took, Waiting, When } from "../ui/parts";

type Simulation = components["schemas"]["SimulationView"];
type Metrics = components["schemas"]["SimulationMetrics"];

/** Steps are no news for the journal, so they are looked for. */
const LOOK_EVERY_MS = 2_000;
const STEP_EVERY_MS = 1_000;
/** So many at most are compared: more lines cannot be told apart. */
const MOST_COMPARED = SERIES.length;
export const STEPS = { name: "step", show: (value: number) => value.toLocaleString(), whole: true };
export const figure = (value: number | null | undefined) => (value == null ? "–" : Number(value.toPrecision(5)).toLocaleString());

const isActive = (one: Simulation) => meaningOf("simulation", one.status) === "active";

const concerns = (entry: { kind: string }) => entry.kind === "simulation" || entry.kind === "pulse";

export function Simulations() {
  const { data, problem, look } = useLoaded("simulations", (signal) =>
    ask(client.GET("/api/simulations", { params: { query: { limit: 100 } }, signal })),
  );
  const chosen = useSignal<readonly string[]>([]);
  useNews(concerns, look);
  const newest = useNewest("simulations", data.value?.simulations ?? [], (one) => one.run_id, chosen.value.length > 0);
  const all = newest.rows;
  useEvery(all.some(isActive) ? LOOK_EVERY_MS : 0, look);
  for (const one of all) noteStep(one.run_id, one.current_step ?? 0, Date.now());
  const choose = (id: string, on: boolean) => {
    chosen.value = on ? [...chosen.value, id].slice(-MOST_COMPARED) : chosen.value.filter((each) => each !== id);
  };
  return (
    <>
      <NewRows of={newest} />
      <Head title="Simulations">
        {chosen.value.length > 1 && (
          <a class="button" href={`/simulations/compare?${new URLSearchParams(chosen.value.map((id) => ["id", id]))}`}>
            Compare these {chosen.value.length}
          </a>
        )}
      </Head>
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of simulations">
        <table>
          <thead>
            <tr>
              <th>
                <span class="hidden-text">Compare</span>
              </th>
              <th>Simulation</th>
              <th>State</th>
              <th>Scenario</th>
              <th>Progress</th>
              <th>Left</th>
              <th>Started</th>
              <th class="number">Took</th>
              <th>What happened</th>
            </tr>
          </thead>
          <tbody>
            {all.map((one) => (
              <tr key={one.run_id} aria-selected={chosen.value.includes(one.run_id)}>
                <td>
                  <input
                    type="checkbox"
                    aria-label={`Compare ${one.run_id}`}
                    checked={chosen.value.includes(one.run_id)}
                    onChange={(event) => choose(one.run_id, event.currentTarget.checked)}
                  />
                </td>
                <td>
                  <a class="mono" href={`/simulations/${encodeURIComponent(one.run_id)}`}>
                    {one.run_id}
                  </a>
                </td>
                <td>
                  <State machine="simulation" state={one.status} />
                </td>
                <td>{one.scenario_name || one.task}</td>
                <td>
                  <Steps one={one} />
                </td>
                <td class="nowrap">{leftOf(one)}</td>
                <td>
                  <When at={one.started_at} />
                </td>
                <td class="number">
                  <Took from={one.started_at} to={one.completed_at} />
                </td>
                <td class="quiet">{one.error ?? one.trouble ?? ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {data.value && all.length === 0 && (
          <Empty>
            No simulations yet. Start one with <code>interlock simulation run MODEL</code>.
          </Empty>
        )}
      </section>
    </>
  );
}

function Steps({ one }: { one: Simulation }) {
  const step = one.current_step ?? 0;
  if (!one.total_steps) return <span>step {step}</span>;
  return (
    <span class="nowrap">
      <progress class="slots" max={one.total_steps} value={step} aria-hidden="true" /> {step} of {one.total_steps}
    </span>
  );
}

/** How long it will take from here, at the pace that was seen, else at that since its start. */
function leftOf(one: Simulation): string {
  const step = one.current_step ?? 0;
  if (!isActive(one) || !one.total_steps || !one.started_at || step < 1) return "";
  const left = one.total_steps - step;
  const ms = timeFor(one.run_id, left) ?? (left * (now.value - Date.parse(one.started_at))) / step;
  return `about ${span(Math.max(0, ms))}`;
}

export function SimulationPage({ id }: { id: string }) {
  const path = { params: { path: { run_id: id } } };
  const { data, problem, look } = useLoaded(`simulation ${id}`, async (signal) => {
    const [one, history, metrics] = await Promise.all([
      ask(client.GET("/api/simulations/{run_id}", { ...path, signal })),
      ask(client.GET("/api/simulations/{run_id}/history", { ...path, signal })),
      ask(client.GET("/api/simulations/{run_id}/metrics", { ...path, signal })),
    ]);
    noteStep(id, one.current_step ?? 0, Date.now());
    return { one, entries: history.entries, metrics };
  });
  useNews((entry) => entry.id.startsWith(id), look);
  useEvery(data.value && isActive(data.value.one) ? STEP_EVERY_MS : 0, look);
  const shown = data.value;
  if (!shown) return <Waiting title={id} problem={problem.value} />;
  const { one, entries, metrics } = shown;
  const body = () => ({ request_id: requestId() });
  return (
    <>
      <Head
        title={
          <>
            <span class="mono">{one.run_id}</span> <State machine="simulation" state={one.status} />
          </>
        }
      >
        {!one.pause_requested && (
          <Action
            request="POST /api/simulations/{run_id}/pause"
            legal={["simulation", one.status, "request_pause"]}
            done="It pauses after the current step."
            run={() => ask(client.POST("/api/simulations/{run_id}/pause", { ...path, body: body() }))}
            then={look}
          >
            Pause
          </Action>
        )}
        <Action
          request="POST /api/simulations/{run_id}/resume"
          legal={["simulation", one.status, "resume"]}
          done="It continues from its saved step."
          run={() => ask(client.POST("/api/simulations/{run_id}/resume", { ...path, body: body() }))}
          then={look}
        >
          Resume
        </Action>
        <Action
          request="POST /api/simulations/{run_id}/cancel"
          legal={["simulation", one.status, "cancel"]}
          done="Cancel was requested."
          ask="Cancel this simulation? It cannot be resumed afterwards."
          danger
          run={() => ask(client.POST("/api/simulations/{run_id}/cancel", { ...path, body: body() }))}
          then={look}
        >
          Cancel
        </Action>
      </Head>
      <Refusal problem={problem.value} />
      {one.stale && (
        <div class="notice waiting">Its worker has not been heard of since <When at={one.last_heartbeat} />.</div>
      )}
      <div class="columns">
        <Panel title="Progress">
          <Facts
            rows={[
              ["step", <Steps one={one} />],
              ["left", leftOf(one)],
              ["started", <When at={one.started_at} />],
              ["paused", one.paused_at && <When at={one.paused_at} />],
              ["took", <Took from={one.started_at} to={one.completed_at} />],
              ["pause requested", one.pause_requested && "yes"],
              ["cancel requested", one.cancel_requested && "yes"],
              ["worker", one.worker_id],
              ["job", one.job_id && <a href={`/jobs/${encodeURIComponent(one.job_id)}`}>{one.job_id}</a>],
              ["error", one.error],
              ["trouble", one.trouble],
            ]}
          />
        </Panel>
        <Panel title="Lifecycle">
          <Picture
            src={pictureOf("simulation", one.status, pathOf(entries, "simulation"))}
            alt={`The lifecycle of a simulation. It is ${one.status}.`}
          />
        </Panel>
      </div>
      <MetricCharts metrics={metrics} />
      <Checkpoint one={one} />
      <div class="columns">
        <Panel title="Input">
          <Json value={one.input} />
        </Panel>
        {one.result !== undefined && (
          <Panel title="Result">
            <Json value={one.result} />
          </Panel>
        )}
      </div>
      <History entries={entries} />
    </>
  );
}

/** One chart for each metric; they grow while it runs. */
function MetricCharts({ metrics }: { metrics: Metrics }) {
  const names = Object.keys(metrics.series ?? {});
  if (!names.length) return null;
  return (
    <div class="columns">
      {names.map((name, place) => (
        <Chart
          key={name}
          title={name}
          times={metrics.steps ?? []}
          along={STEPS}
          unit={figure}
          lines={[{ name, colour: SERIES[place % SERIES.length] ?? "active", values: metrics.series?.[name] ?? [], joined: true }]}
        />
      ))}
    </div>
  );
}

/** The one checkpoint that is kept: each step that is saved replaces it. */
function Checkpoint({ one }: { one: Simulation }) {
  return (
    <Panel title="Checkpoint">
      {one.saved_step ? (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>After step</th>
                <th>Saved</th>
                <th class="number">Size</th>
                <th>Use</th>
              </tr>
            </thead>
            <tbody>
              <tr>
                <td>{one.saved_step.toLocaleString()}</td>
                <td>
                  <When at={one.saved_at} />
                </td>
                <td class="number nowrap">{(one.saved_bytes ?? 0).toLocaleString()} bytes</td>
                <td class="quiet">
                  {hasEnded("simulation", one.status)
                    ? "The simulation has ended and cannot be resumed from here."
                    : `A resumed simulation continues with step ${(one.saved_step + 1).toLocaleString()}, on any worker.`}
                </td>
              </tr>
            </tbody>
          </table>
        </div>
      ) : (
        <Empty>No step was saved yet. The latest saved step is kept, and a resumed simulation continues after it.</Empty>
      )}
    </Panel>
  );
}
