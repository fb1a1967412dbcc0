/** Simulations: how far each is, and pause, resume and cancel. */
import { ask, client, type components, requestId } from "../api/client";
import { useLoaded } from "../lib/loading";
import { meaningOf, pictureOf } from "../lib/machines";
import { now, span } from "../lib/time";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { History, pathOf } from "../ui/history";
import { Empty, Facts, Head, Json, Panel, Picture, Refusal, State, Took, Waiting, When } from "../ui/parts";

type Simulation = components["schemas"]["SimulationView"];

const concerns = (entry: { kind: string }) => entry.kind === "simulation" || entry.kind === "pulse";

export function Simulations() {
  const { data, problem, look } = useLoaded("simulations", (signal) =>
    ask(client.GET("/api/simulations", { params: { query: { limit: 100 } }, signal })),
  );
  useNews(concerns, look);
  const all = data.value?.simulations ?? [];
  return (
    <>
      <Head title="Simulations" />
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of simulations">
        <table>
          <thead>
            <tr>
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
              <tr key={one.run_id}>
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

/** How long it will take from here, if it goes on as it went. */
function leftOf(one: Simulation): string {
  const step = one.current_step ?? 0;
  if (meaningOf("simulation", one.status) !== "active" || !one.total_steps || !one.started_at || step < 1) return "";
  const perStep = (now.value - Date.parse(one.started_at)) / step;
  return `about ${span(Math.max(0, perStep * (one.total_steps - step)))}`;
}

export function SimulationPage({ id }: { id: string }) {
  const path = { params: { path: { run_id: id } } };
  const { data, problem, look } = useLoaded(`simulation ${id}`, async (signal) => {
    const [one, history] = await Promise.all([
      ask(client.GET("/api/simulations/{run_id}", { ...path, signal })),
      ask(client.GET("/api/simulations/{run_id}/history", { ...path, signal })),
    ]);
    return { one, entries: history.entries };
  });
  useNews((entry) => entry.id.startsWith(id), look);
  const shown = data.value;
  if (!shown) return <Waiting title={id} problem={problem.value} />;
  const { one, entries } = shown;
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
          done="It goes on where it was saved."
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
              ["saved", one.saved_step ? `step ${one.saved_step}` : ""],
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
