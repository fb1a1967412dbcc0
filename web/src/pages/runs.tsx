/** Runs of CI: ended ones, current ones, and those that wait for approval. */
import { ask, client, type components } from "../api/client";
import { useLoaded } from "../lib/loading";
import { useNewest } from "../lib/newest";
import { query } from "../lib/router";
import { useNews } from "../live/live";
import { FilterBox } from "../ui/filter";
import { FlakyTable } from "../ui/flaky";
import { NewRows } from "../ui/new_rows";
import { Empty, Head, Refusal, State, Tally, Took, When } from "../ui/parts";

type Run = components["schemas"]["RunView"];

const WORDS = ["state:running", "state:failed", "state:awaiting_approval", "workflow:", "since:1d"];

const VIEWS = [
  ["All runs", "/runs"],
  ["Waiting for approval", "/runs?q=state%3Aawaiting_approval"],
  ["Flaky jobs", "/runs?view=flaky"],
] as const;

export function Runs() {
  const flaky = query.value.get("view") === "flaky";
  return (
    <>
      <Head title={flaky ? "Flaky jobs" : "Runs"} />
      <nav class="views" aria-label="Views of runs">
        {VIEWS.map(([title, to]) => (
          <a key={to} href={to} aria-current={isHere(to) ? "true" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      {flaky ? <Flaky /> : <RunList />}
    </>
  );
}

function isHere(to: string): boolean {
  const wanted = new URL(to, location.href).searchParams;
  return ["q", "view"].every((name) => (wanted.get(name) ?? "") === (query.value.get(name) ?? ""));
}

function Flaky() {
  const { data, problem } = useLoaded("flaky jobs", (signal) =>
    ask(client.GET("/api/flaky", { params: { query: { limit: 200 } }, signal })),
  );
  const jobs = data.value?.jobs ?? [];
  return (
    <>
      <p class="quiet">Jobs that have passed and failed on one commit, of the latest 20 commits of each.</p>
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of flaky jobs">
        <FlakyTable jobs={jobs} where />
        {data.value && jobs.length === 0 && <Empty>No job has passed and failed on one commit lately.</Empty>}
        {data.value?.cursor && (
          <p class="quiet">
            There are more; <code>interlock run flaky</code> lists all of them.
          </p>
        )}
      </section>
    </>
  );
}

function RunList() {
  const q = query.value.get("q") ?? "";
  const { data, problem, look } = useLoaded(`runs ${q}`, (signal) =>
    ask(client.GET("/api/runs", { params: { query: { q, limit: 100 } }, signal })),
  );
  useNews((entry) => entry.kind === "run", look);
  const newest = useNewest(`runs ${q}`, data.value?.runs ?? [], (run) => run.id);
  const runs = newest.rows;
  return (
    <>
      <NewRows of={newest} />
      <FilterBox q={q} words={WORDS} />
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of runs">
        <table>
          <thead>
            <tr>
              <th>Run</th>
              <th>State</th>
              <th>Outcome</th>
              <th>Workflow</th>
              <th>What</th>
              <th>Jobs</th>
              <th>Submitted</th>
              <th class="number">Took</th>
            </tr>
          </thead>
          <tbody>
            {runs.map((run) => (
              <tr key={run.id}>
                <td>
                  <a class="mono nowrap" href={`/runs/${encodeURIComponent(run.id)}`}>
                    {run.id}
                  </a>
                </td>
                <td>
                  <State machine="run" state={run.state} />
                </td>
                <td>{run.outcome && <State machine="run" state={run.outcome} />}</td>
                <td>{run.workflow}</td>
                <td>{titleOf(run)}</td>
                <td class="chips">
                  <Tally tally={run.tally ?? {}} />
                </td>
                <td>
                  <When at={run.created_at} />
                </td>
                <td class="number">
                  <Took from={run.started_at} to={run.completed_at ?? run.reported_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {data.value && runs.length === 0 && (
          <Empty>
            {q ? "No run matches this filter." : "No runs yet."} Start one with <code>interlock run submit</code>.
          </Empty>
        )}
      </section>
    </>
  );
}

function titleOf(run: Run): string {
  const { repository, ref, sha, title } = run.source ?? {};
  return [title, repository, ref?.replace("refs/heads/", ""), sha?.slice(0, 9)].filter(Boolean).join(" · ");
}
