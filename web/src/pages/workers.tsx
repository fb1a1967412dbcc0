/** Workers: what each has and does, and the orders that people can give it. */
import { ask, client, requestId } from "../api/client";
import { useLoaded } from "../lib/loading";
import { hasEnded } from "../lib/machines";
import { query } from "../lib/router";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Empty, Facts, Head, Panel, Refusal, State, Waiting, When } from "../ui/parts";

export function Workers() {
  const q = query.value.get("q") ?? "";
  const { data, problem, look } = useLoaded(`workers ${q}`, (signal) =>
    ask(client.GET("/api/workers", { params: { query: { q, limit: 200 } }, signal })),
  );
  useNews((entry) => entry.kind === "worker", look);
  const workers = data.value?.workers ?? [];
  return (
    <>
      <Head title="Workers" />
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of workers">
        <table>
          <thead>
            <tr>
              <th>Worker</th>
              <th>State</th>
              <th>Slots</th>
              <th>Queues</th>
              <th>Host</th>
              <th>Version</th>
              <th class="number">Done</th>
              <th class="number">Failed</th>
              <th>Last heartbeat</th>
            </tr>
          </thead>
          <tbody>
            {workers.map((worker) => (
              <tr key={worker.id}>
                <td>
                  <a href={`/workers/${encodeURIComponent(worker.id)}`}>{worker.name || worker.id}</a>
                </td>
                <td>
                  <State machine="worker" state={worker.state} /> {worker.draining && <span class="quiet">draining</span>}
                </td>
                <td>
                  <Slots active={worker.active ?? 0} capacity={worker.capacity ?? 1} />
                </td>
                <td>{worker.queues?.join(", ")}</td>
                <td>{worker.host}</td>
                <td>{worker.metadata?.["version"] ?? ""}</td>
                <td class="number">{worker.processed ?? 0}</td>
                <td class="number">{worker.failed ?? 0}</td>
                <td>
                  <When at={worker.last_heartbeat_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {data.value && workers.length === 0 && (
          <Empty>
            No worker is alive. Start one with <code>interlock worker start MODULE</code>.
          </Empty>
        )}
      </section>
    </>
  );
}

/** How many slots are taken, as a strip; the numbers are there as text. */
export function Slots({ active, capacity }: { active: number; capacity: number }) {
  return (
    <span class="nowrap">
      <progress class="slots" max={Math.max(capacity, 1)} value={Math.min(active, capacity)} aria-hidden="true" /> {active} of{" "}
      {capacity}
    </span>
  );
}

export function WorkerPage({ id }: { id: string }) {
  const path = { params: { path: { worker_id: id } } };
  const { data, problem, look } = useLoaded(`worker ${id}`, (signal) =>
    ask(client.GET("/api/workers/{worker_id}", { ...path, signal })),
  );
  useNews((entry) => entry.id === id, look);
  const worker = data.value;
  if (!worker) return <Waiting title={id} problem={problem.value} />;
  const order = (label: string, verb: "pause" | "resume" | "drain" | "terminate", done: string, question = "") => (
    <Action
      request={`POST /api/supervisor/workers/{worker_id}/${verb}`}
      {...(verb === "drain" ? {} : { legal: ["worker", worker.state, verb] as const })}
      done={done}
      {...(question ? { ask: question, danger: true } : {})}
      run={() =>
        ask(client.POST(`/api/supervisor/workers/{worker_id}/${verb}`, { ...path, body: { request_id: requestId() } }))
      }
      then={look}
    >
      {label}
    </Action>
  );
  return (
    <>
      <Head
        title={
          <>
            {worker.name || worker.id} <State machine="worker" state={worker.state} />
          </>
        }
      >
        {order("Resume", "resume", "It takes work again.")}
        {order("Pause", "pause", "It takes nothing new.")}
        {!hasEnded("worker", worker.state) && order("Drain", "drain", "It finishes what it has and goes.")}
        {order("Terminate", "terminate", "It was told to go now.", "Terminate this worker? What it has is done again elsewhere.")}
      </Head>
      <Refusal problem={problem.value} />
      <Panel title="About">
        <Facts
          rows={[
            ["id", <code>{worker.id}</code>],
            ["host", `${worker.host ?? ""}${worker.pid ? `, process ${worker.pid}` : ""}`],
            ["slots", <Slots active={worker.active ?? 0} capacity={worker.capacity ?? 1} />],
            ["queues", worker.queues?.join(", ")],
            ["labels", worker.labels?.join(", ")],
            ["tasks", worker.tasks?.join(", ")],
            ["done", worker.processed ?? 0],
            ["failed", worker.failed ?? 0],
            ["started", <When at={worker.started_at} />],
            ["last heartbeat", <When at={worker.last_heartbeat_at} />],
            ["outcome", worker.outcome],
            ["reason", worker.reason],
          ]}
        />
      </Panel>
    </>
  );
}
