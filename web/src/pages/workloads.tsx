/** Workloads: what each agent of a fleet does, and what it has counted. */
import { ask, client } from "../api/client";
import { useLoaded } from "../lib/loading";
import { useNews } from "../live/live";
import { Empty, Head, Refusal, State, When } from "../ui/parts";

export function Workloads() {
  const { data, problem, look } = useLoaded("workloads", (signal) =>
    ask(client.GET("/api/workloads", { params: { query: { limit: 200 } }, signal })),
  );
  useNews((entry) => entry.kind === "workload", look);
  const all = data.value?.workloads ?? [];
  return (
    <>
      <Head title="Workloads" />
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of workloads">
        <table>
          <thead>
            <tr>
              <th>Agent</th>
              <th>State</th>
              <th>Kind</th>
              <th>Job</th>
              <th class="number">Operations</th>
              <th class="number">Errors</th>
              <th>Began</th>
              <th>What happened</th>
            </tr>
          </thead>
          <tbody>
            {all.map((one) => (
              <tr key={one.id}>
                <td class="mono">{one.agent}</td>
                <td>
                  <State machine="workload" state={one.state} /> {one.lost && <span class="quiet">lost</span>}
                </td>
                <td>{one.kind}</td>
                <td>
                  <a class="mono" href={`/jobs/${encodeURIComponent(one.job_id)}`}>
                    {one.job_id}
                  </a>
                </td>
                <td class="number">{one.operations ?? 0}</td>
                <td class="number">{one.errors ?? 0}</td>
                <td>
                  <When at={one.created_at} />
                </td>
                <td class="quiet">{one.error || one.final || ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {data.value && all.length === 0 && (
          <Empty>
            No workloads yet. Start one with <code>interlock workload run</code>.
          </Empty>
        )}
      </section>
    </>
  );
}
