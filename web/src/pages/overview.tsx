/** What runs, what waits, and what is wrong now. */
import { ask, client } from "../api/client";
import { useLoaded } from "../lib/loading";
import { useNews } from "../live/live";
import { Empty, Head, Panel, Refusal, State, When } from "../ui/parts";

export function Overview() {
  const { data, problem, look } = useLoaded("overview", async (signal) => {
    const [queues, workers, failed] = await Promise.all([
      ask(client.GET("/api/queues", { signal })),
      ask(client.GET("/api/workers", { params: { query: { limit: 200 } }, signal })),
      ask(client.GET("/api/jobs", { params: { query: { q: "state:failed since:1h", limit: 8 } }, signal })),
    ]);
    return { queues: queues.queues, workers: workers.workers, failed };
  });
  useNews((entry) => entry.kind === "job" || entry.kind === "worker", look);
  const shown = data.value;
  if (!shown) return problem.value ? <Refusal problem={problem.value} /> : <Empty>Loading …</Empty>;
  const sum = (numbers: readonly (number | undefined)[]) => numbers.reduce<number>((all, each) => all + (each ?? 0), 0);
  const busy = sum(shown.workers.map((worker) => worker.active));
  const slots = sum(shown.workers.map((worker) => worker.capacity ?? 1));
  return (
    <>
      <Head title="Overview" />
      <Refusal problem={problem.value} />
      <div class="tiles">
        <Tile name="pending" value={sum(shown.queues.map((queue) => queue.pending))} to="/jobs?q=state:pending" />
        <Tile name="running" value={sum(shown.queues.map((queue) => queue.running))} to="/jobs?q=state:running" />
        <Tile name="failed in the last hour" value={shown.failed.count?.number ?? 0} to="/jobs?q=state:failed since:1h" />
        <Tile name="workers" value={shown.workers.length} to="/workers" />
        <Tile name={`of ${slots} slots busy`} value={busy} to="/workers" />
      </div>
      <Panel title="Latest failures">
        {shown.failed.jobs.length === 0 ? (
          <Empty>No job has failed in the last hour.</Empty>
        ) : (
          <div class="scroll">
            <table>
              <tbody>
                {shown.failed.jobs.map((job) => (
                  <tr key={job.id}>
                    <td>
                      <a class="mono" href={`/jobs/${encodeURIComponent(job.id)}`}>
                        {job.id}
                      </a>
                    </td>
                    <td>
                      <State machine="job" state={job.state} />
                    </td>
                    <td class="mono">{job.task}</td>
                    <td>
                      <When at={job.completed_at} />
                    </td>
                    <td class="quiet">{job.failure?.error ?? ""}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        )}
      </Panel>
    </>
  );
}

function Tile({ name, value, to }: { name: string; value: number; to: string }) {
  return (
    <a class="tile" href={encodeURI(to)}>
      <b>{value}</b> <span class="quiet">{name}</span>
    </a>
  );
}
