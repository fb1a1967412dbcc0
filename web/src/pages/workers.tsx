/** Workers: the jobs of each, its last heartbeat, and the orders that people can give it. */
import { ask, client, type components, requestId } from "../api/client";
import { useLoaded } from "../lib/loading";
import { hasEnded, machines, pictureOf } from "../lib/machines";
import { useNewest } from "../lib/newest";
import { query } from "../lib/router";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { History, pathOf } from "../ui/history";
import { NewRows } from "../ui/new_rows";
import { Empty, Facts, Head, Panel, Picture, Refusal, State, Took, Waiting, When } from "../ui/parts";

type Worker = components["schemas"]["WorkerView"];
type Task = components["schemas"]["WorkerTask"];
type Pool = components["schemas"]["PoolView"];

/** The states in which a worker lives, as a filter. */
export function alive(): string {
  const machine = machines.value.get("worker");
  return machine ? `state:${machine.states.filter((state) => !machine.terminal.includes(state)).join(",")}` : "";
}

export function Workers() {
  const all = query.value.get("all") === "1";
  // Which states are those of a live worker the tables tell, which are read first.
  if (!all && !machines.value.size) return <Waiting title="Workers" problem={undefined} />;
  return <WorkerList all={all} />;
}

function WorkerList({ all }: { all: boolean }) {
  const q = [query.value.get("q") ?? "", all ? "" : alive()].filter(Boolean).join(" ");
  const { data, problem, look } = useLoaded(`workers ${q}`, async (signal) => {
    const [workers, supervisors] = await Promise.all([
      ask(client.GET("/api/workers", { params: { query: { q, limit: 200 } }, signal })),
      ask(client.GET("/api/supervisors", { signal })),
    ]);
    return { workers: workers.workers, more: workers.cursor, pools: supervisors.pools };
  });
  useNews((entry) => entry.kind === "worker", look);
  const newest = useNewest(`workers ${q}`, data.value?.workers ?? [], (worker) => worker.id);
  const workers = newest.rows;
  const pools = data.value?.pools ?? [];
  return (
    <>
      <NewRows of={newest} />
      <Head title="Workers" />
      <nav class="views" aria-label="Which workers">
        <a href="/workers" aria-current={all ? undefined : "true"}>
          Live
        </a>
        <a href="/workers?all=1" aria-current={all ? "true" : undefined}>
          All
        </a>
      </nav>
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of workers">
        {workers.length > 0 && <WorkerTable workers={workers} />}
        {data.value?.more && <p class="quiet">There are more; only the newest are shown.</p>}
        {data.value && workers.length === 0 && (
          <Empty>
            No worker is alive. Start one with <code>interlock worker start MODULE</code>.
          </Empty>
        )}
      </section>
      {pools.map((pool) => (
        <Supervisor key={`${pool.host} ${pool.name} ${pool.pid}`} pool={pool} />
      ))}
    </>
  );
}

export function WorkerTable({ workers }: { workers: readonly Worker[] }) {
  return (
    <div class="scroll">
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
                <WorkerLink worker={worker} />
              </td>
              <td class="nowrap">
                <Standing worker={worker} />
              </td>
              <td>
                <Slots active={worker.active ?? 0} capacity={worker.capacity ?? 1} />
              </td>
              <td>{worker.queues?.join(", ")}</td>
              <td>{worker.host}</td>
              <td>{versionOf(worker)}</td>
              <td class="number">{worker.processed ?? 0}</td>
              <td class="number">{worker.failed ?? 0}</td>
              <td>
                <When at={worker.last_heartbeat_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function WorkerLink({ worker }: { worker: Worker }) {
  return <a href={`/workers/${encodeURIComponent(worker.id)}`}>{worker.name || worker.id}</a>;
}

/** Its state, and what its state does not say. */
function Standing({ worker }: { worker: Worker }) {
  return (
    <>
      <State machine="worker" state={worker.state} /> {worker.silent && <span class="chip bad">silent</span>}{" "}
      {worker.draining && !hasEnded("worker", worker.state) && <span class="chip waiting">draining</span>}{" "}
      {worker.heeded === false && !hasEnded("worker", worker.state) && <span class="quiet">has not answered yet</span>}
    </>
  );
}

function versionOf(worker: Worker): string {
  return worker.code_version || (worker.metadata?.["interlock"] ?? "");
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

/** A supervisor of a host: how many workers it keeps, which of them live, and how the others ended. */
function Supervisor({ pool }: { pool: Pool }) {
  const workers = pool.workers ?? [];
  const { least = 0, most = 0 } = pool;
  const died = pool.died ?? [];
  return (
    <Panel title={`Supervisor ${pool.name} on ${pool.host}`}>
      <Facts
        rows={[
          ["process", pool.pid || ""],
          ["workers wanted", most > least ? `${least} to ${most}` : least || ""],
          [
            "workers alive",
            <>
              {workers.length} {workers.length < least && <span class="chip bad">too few</span>}
            </>,
          ],
          [
            "which",
            workers.length > 0 && (
              <span class="chips">
                {workers.map((worker) => (
                  <span key={worker.id} class="nowrap">
                    <WorkerLink worker={worker} /> <Standing worker={worker} />
                  </span>
                ))}
              </span>
            ),
          ],
          ["started again", pool.restarts ?? 0],
          [
            "ended badly",
            died.length > 0 && (
              <ul class="tree">
                {died.map((worker) => (
                  <li key={worker.id} class="chips">
                    <WorkerLink worker={worker} />
                    <When at={worker.completed_at ?? worker.updated_at} />
                    <span class="quiet">{worker.reason}</span>
                  </li>
                ))}
              </ul>
            ),
          ],
        ]}
      />
    </Panel>
  );
}

export function WorkerPage({ id }: { id: string }) {
  const path = { params: { path: { worker_id: id } } };
  const { data, problem, look } = useLoaded(`worker ${id}`, async (signal) => {
    const [worker, tasks, history] = await Promise.all([
      ask(client.GET("/api/workers/{worker_id}", { ...path, signal })),
      ask(client.GET("/api/workers/{worker_id}/tasks", { ...path, signal })),
      ask(client.GET("/api/workers/{worker_id}/history", { ...path, signal })),
    ]);
    return { worker, tasks, entries: history.entries };
  });
  useNews((entry) => entry.id === id, look);
  useNews((entry) => entry.kind === "job", look, 1_000);
  const shown = data.value;
  if (!shown) return <Waiting title={id} problem={problem.value} />;
  const { worker, tasks, entries } = shown;
  const over = hasEnded("worker", worker.state);
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
            {worker.name || worker.id} <Standing worker={worker} />
          </>
        }
      >
        {order("Resume", "resume", "It claims jobs again.")}
        {order("Pause", "pause", "It claims no further jobs.")}
        {!over && !worker.draining && order("Drain", "drain", "It finishes its jobs and exits.")}
        {!over &&
          order("Terminate", "terminate", "It was ordered to terminate.", "Terminate this worker? Other workers run its jobs again.")}
      </Head>
      <Refusal problem={problem.value} />
      {(over || worker.silent) && <LastBreath worker={worker} tasks={tasks.now ?? []} />}
      {!over && <NowPanel worker={worker} tasks={tasks.now ?? []} more={tasks.more ?? false} />}
      <div class="columns">
        <About worker={worker} />
        <Panel title="Lifecycle">
          <Picture
            src={pictureOf("worker", worker.state, pathOf(entries, "worker"))}
            alt={`The lifecycle of a worker. It is ${worker.state}.`}
          />
        </Panel>
      </div>
      <Lately tasks={tasks.lately ?? []} />
      <History entries={entries} />
    </>
  );
}

function About({ worker }: { worker: Worker }) {
  const known = worker.metadata ?? {};
  return (
    <Panel title="About">
      <Facts
        rows={[
          ["id", <code>{worker.id}</code>],
          ["host", `${worker.host ?? ""}${worker.pid ? `, process ${worker.pid}` : ""}`],
          ["supervisor", known["pool"]],
          ["queues", worker.queues?.join(", ")],
          ["labels", worker.labels?.join(", ")],
          ["tasks", worker.tasks?.join(", ")],
          ["version of its code", worker.code_version],
          ["Interlock", known["interlock"]],
          ["Python", known["python"]],
          ["done", worker.processed ?? 0],
          ["failed", worker.failed ?? 0],
          ["errors lately", worker.transient_errors || ""],
          ["registered", <When at={worker.created_at} />],
          ["first task", worker.started_at && <When at={worker.started_at} />],
          ["last heartbeat", <When at={worker.last_heartbeat_at} />],
          ["written off", worker.deadline_at && <When at={worker.deadline_at} />],
        ]}
      />
    </Panel>
  );
}

/** A strip of all slots, with the job of each that is taken. */
function NowPanel({ worker, tasks, more }: { worker: Worker; tasks: readonly Task[]; more: boolean }) {
  const capacity = worker.capacity ?? 1;
  return (
    <Panel title={`Slots: ${tasks.length} of ${capacity} taken`}>
      <div class="strip" aria-hidden="true">
        {Array.from({ length: Math.min(capacity, MOST_DRAWN) }, (_, place) => (
          <span key={place} class={place < tasks.length ? "taken" : ""} />
        ))}
      </div>
      <ol class="cards" aria-label="Slots that are taken">
        {tasks.map((task) => (
          <li key={`${task.job_id} ${task.attempt}`}>
            <b>{task.task}</b>
            <a class="mono" href={`/jobs/${encodeURIComponent(task.job_id)}`}>
              {task.job_id}
            </a>
            <State machine="attempt" state={task.state} />
            {task.description && <span>{task.description}</span>}
            <span class="quiet">
              for <Took from={task.started_at ?? task.granted_at} to={null} />
              {task.deadline_at && (
                <>
                  , deadline <When at={task.deadline_at} />
                </>
              )}
            </span>
            <span class="quiet">
              lease ends <When at={task.expires_at} />
            </span>
          </li>
        ))}
      </ol>
      {more && <p class="quiet">More jobs run than were looked at; some of its tasks may be missing here.</p>}
    </Panel>
  );
}

const MOST_DRAWN = 200;

/** The known facts about the end of a worker, or about its silence. */
function LastBreath({ worker, tasks }: { worker: Worker; tasks: readonly Task[] }) {
  return (
    <Panel title="Last breath">
      <Facts
        rows={[
          ["last heartbeat", <When at={worker.last_heartbeat_at ?? worker.created_at} />],
          ["it had then", worker.active ? `${worker.active} of ${worker.capacity ?? 1} slots taken` : ""],
          ["ended", worker.completed_at && <When at={worker.completed_at} />],
          ["outcome", worker.outcome && <State machine="worker" state={worker.outcome} />],
          ["last words", worker.reason],
          [
            "not given back yet",
            tasks.length > 0 && (
              <span class="chips">
                {tasks.map((task) => (
                  <a key={task.job_id} class="mono" href={`/jobs/${encodeURIComponent(task.job_id)}`}>
                    {task.job_id}
                  </a>
                ))}
              </span>
            ),
          ],
        ]}
      />
    </Panel>
  );
}

function Lately({ tasks }: { tasks: readonly Task[] }) {
  return (
    <Panel title="Recent jobs">
      {tasks.length === 0 && <Empty>Nothing among the newest jobs that have ended.</Empty>}
      {tasks.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>Job</th>
                <th>Task</th>
                <th>Queue</th>
                <th>Attempt</th>
                <th>Started</th>
                <th class="number">Took</th>
                <th>Error</th>
              </tr>
            </thead>
            <tbody>
              {tasks.map((task) => (
                <tr key={`${task.job_id} ${task.attempt}`}>
                  <td>
                    <a class="mono" href={`/jobs/${encodeURIComponent(task.job_id)}`}>
                      {task.job_id}
                    </a>
                  </td>
                  <td class="mono">{task.task}</td>
                  <td>{task.queue}</td>
                  <td class="nowrap">
                    {task.attempt} <State machine="attempt" state={task.state} />
                  </td>
                  <td>
                    <When at={task.started_at ?? task.granted_at} />
                  </td>
                  <td class="number">
                    <Took from={task.started_at ?? task.granted_at} to={task.ended_at} />
                  </td>
                  <td class="said">{task.error}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}
