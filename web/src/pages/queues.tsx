/** Queues: the waiting jobs of each and their age, which workers take them, and pausing one. */
import { ask, client, type components, requestId } from "../api/client";
import { TIME_PASSES_MS, useEvery, useLoaded } from "../lib/loading";
import { machines } from "../lib/machines";
import { span } from "../lib/time";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Empty, Facts, Head, Panel, Refusal, State, Waiting, When } from "../ui/parts";
import { Charts } from "./overview";
import { alive, WorkerTable } from "./workers";

type Queue = components["schemas"]["QueueView"];

/** The server looks at the queues anew every two seconds. */
const LOOK_EVERY_MS = 2_000;
const KINDS = new Set(["job", "worker", "queue"]);

export function Queues() {
  const { data, problem, look } = useLoaded("queues", (signal) => ask(client.GET("/api/queues", { signal })));
  useNews((entry) => KINDS.has(entry.kind), look, LOOK_EVERY_MS);
  useNews((entry) => entry.kind === "queue", look);
  useEvery(TIME_PASSES_MS, look);
  const queues = data.value?.queues ?? [];
  return (
    <>
      <Head title="Queues" />
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of queues">
        <table class="middle">
          <thead>
            <tr>
              <th>Queue</th>
              <th>State</th>
              <th class="number">Pending</th>
              <th class="number">Running</th>
              <th>Oldest</th>
              <th>Workers</th>
              <th class="number">Done, 1 h</th>
              <th class="number">Failed, 1 h</th>
              <th>Wait 50, 95 %</th>
              <th>
                <span class="hidden-text">Action</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {queues.map((queue) => (
              <tr key={queue.name}>
                <td>
                  <a href={`/queues/${encodeURIComponent(queue.name)}`}>{queue.name}</a>
                </td>
                <td>
                  <State machine="queue" state={queue.state ?? ""} />
                </td>
                <td class="number">
                  <Number of={queue} state="pending" />
                </td>
                <td class="number">
                  <Number of={queue} state="running" />
                </td>
                <td>
                  <When at={queue.oldest_created_at} />
                </td>
                <td class="nowrap">
                  <Takers queue={queue} />
                </td>
                <td class="number">{queue.lately?.completed ?? "–"}</td>
                <td class="number">{queue.lately?.failed ?? "–"}</td>
                <td class="nowrap">
                  {seconds(queue.lately?.wait_p50_s)}, {seconds(queue.lately?.wait_p95_s)}
                </td>
                <td class="nowrap">
                  <Hold queue={queue} look={look} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {data.value && queues.length === 0 && <Empty>No queue has jobs, workers or a pause.</Empty>}
      </section>
    </>
  );
}

const seconds = (value: number | null | undefined) => (value == null ? "–" : span(value * 1_000));

/** How many jobs are in a state, with the way to them. */
function Number({ of: queue, state }: { of: Queue; state: "pending" | "running" }) {
  return (
    <a href={`/jobs?q=${encodeURIComponent(`queue:${quoted(queue.name)} state:${state}`)}`}>
      {queue[state] ?? 0}
      {queue.capped ? "+" : ""}
    </a>
  );
}

/** The workers that take jobs of a queue; none is said loudly where jobs wait for one. */
function Takers({ queue }: { queue: Queue }) {
  if (queue.workers == null) return <span class="quiet">–</span>;
  if (queue.workers === 0) return queue.pending ? <span class="chip bad">none</span> : <span class="quiet">none</span>;
  return (
    <>
      {queue.workers} <span class="quiet">({queue.busy ?? 0} of {queue.slots ?? 0} slots busy)</span>
    </>
  );
}

/** Pause or resume, whichever its table accepts. */
function Hold({ queue, look }: { queue: Queue; look: () => void }) {
  const { name, state = "" } = queue;
  const body = () => ({ body: { queue: name, request_id: requestId() } });
  return (
    <>
      <Action
        request="POST /api/queues/pause"
        legal={["queue", state, "pause"]}
        done={`The jobs of ${name} wait; running ones continue.`}
        run={() => ask(client.POST("/api/queues/pause", body()))}
        then={look}
      >
        Pause
      </Action>
      <Action
        request="POST /api/queues/resume"
        legal={["queue", state, "resume"]}
        done={`The jobs of ${name} are given out.`}
        run={() => ask(client.POST("/api/queues/resume", body()))}
        then={look}
      >
        Resume
      </Action>
    </>
  );
}

const MINUTES = 60;

export function QueuePage({ name }: { name: string }) {
  const { data, problem, look } = useLoaded(`queue ${name}`, async (signal) => {
    const [queues, figures] = await Promise.all([
      ask(client.GET("/api/queues", { signal })),
      ask(client.GET("/api/figures", { params: { query: { minutes: MINUTES, queue: name } }, signal })),
    ]);
    return { queue: queues.queues.find((each) => each.name === name) ?? { name }, figures };
  });
  useNews((entry) => KINDS.has(entry.kind), look, LOOK_EVERY_MS);
  useNews((entry) => entry.kind === "queue", look);
  useEvery(TIME_PASSES_MS, look);
  const shown = data.value;
  if (!shown) return <Waiting title={name} problem={problem.value} />;
  const { queue, figures } = shown;
  const { totals } = figures;
  return (
    <>
      <Head
        title={
          <>
            {name} {queue.state && <State machine="queue" state={queue.state} />}
          </>
        }
      >
        <a class="button" href={`/jobs?q=${encodeURIComponent(`queue:${quoted(name)}`)}`}>
          Show the jobs
        </a>
        <Hold queue={queue} look={look} />
      </Head>
      <Refusal problem={problem.value} />
      {queue.paused_at && (
        <p class="notice waiting">
          Its jobs are not given out. {queue.paused_by} paused it <When at={queue.paused_at} />
          {queue.reason ? `: ${queue.reason}` : "."}
        </p>
      )}
      <Panel title="Now and in the last hour">
        <Facts
          rows={[
            ["pending", <Number of={queue} state="pending" />],
            ["running", <Number of={queue} state="running" />],
            ["oldest pending", queue.oldest_created_at && <When at={queue.oldest_created_at} />],
            ["workers", queue.workers != null && <Takers queue={queue} />],
            ["submitted", totals?.submitted ?? 0],
            ["completed", totals?.completed ?? 0],
            ["failed", totals?.failed ?? 0],
            ["retried", totals?.retried ?? 0],
            ["wait until the start", `${seconds(totals?.wait_p50_s)} median, ${seconds(totals?.wait_p95_s)} for 95 %`],
            ["time to the end", `${seconds(totals?.run_p50_s)} median, ${seconds(totals?.run_p95_s)} for 95 %`],
          ]}
        />
      </Panel>
      <Charts points={figures.points ?? []} stepS={figures.step_s} />
      {queue.workers != null && machines.value.size > 0 && <WorkersOf name={name} />}
    </>
  );
}

function WorkersOf({ name }: { name: string }) {
  const { data, problem, look } = useLoaded(`workers of ${name}`, (signal) =>
    ask(client.GET("/api/workers", { params: { query: { q: `queue:${quoted(name)} ${alive()}`, limit: 200 } }, signal })),
  );
  useNews((entry) => entry.kind === "worker", look, LOOK_EVERY_MS);
  const workers = data.value?.workers ?? [];
  return (
    <Panel title="Workers that take it">
      <Refusal problem={problem.value} />
      {data.value && workers.length === 0 && (
        <Empty>
          No live worker takes this queue. Start one with{" "}
          <code>interlock worker start MODULE{name === "default" ? "" : ` --queue ${name}`}</code>.
        </Empty>
      )}
      {workers.length > 0 && <WorkerTable workers={workers} />}
    </Panel>
  );
}

/** Return a name as the filter grammar takes it. */
export function quoted(name: string): string {
  return /[\s,"]/.test(name) ? `"${name}"` : name;
}
