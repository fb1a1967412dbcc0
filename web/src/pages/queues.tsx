/** Queues: how much waits, how much runs, and since when the oldest job waits. */
import { ask, client } from "../api/client";
import { useLoaded } from "../lib/loading";
import { useNews } from "../live/live";
import { Empty, Head, Refusal, When } from "../ui/parts";

export function Queues() {
  const { data, problem, look } = useLoaded("queues", (signal) => ask(client.GET("/api/queues", { signal })));
  useNews((entry) => entry.kind === "job", look);
  const queues = data.value?.queues ?? [];
  return (
    <>
      <Head title="Queues" />
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of queues">
        <table>
          <thead>
            <tr>
              <th>Queue</th>
              <th class="number">Pending</th>
              <th class="number">Running</th>
              <th>Oldest pending</th>
            </tr>
          </thead>
          <tbody>
            {queues.map((queue) => (
              <tr key={queue.name}>
                <td>
                  <a href={`/jobs?q=${encodeURIComponent(`queue:${quoted(queue.name)} -state:completed`)}`}>{queue.name}</a>
                </td>
                <td class="number">
                  {queue.pending ?? 0}
                  {queue.capped ? "+" : ""}
                </td>
                <td class="number">
                  {queue.running ?? 0}
                  {queue.capped ? "+" : ""}
                </td>
                <td>
                  <When at={queue.oldest_created_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {data.value && queues.length === 0 && <Empty>No queue has jobs that are pending or running.</Empty>}
      </section>
    </>
  );
}

/** Return a name as the filter grammar takes it. */
export function quoted(name: string): string {
  return /[\s,"]/.test(name) ? `"${name}"` : name;
}
