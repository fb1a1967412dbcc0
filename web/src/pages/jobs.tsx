/** Jobs: one box with the filter grammar of the command line and the API, and a list that stays where it is. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ask, client, type Job, requestId } from "../api/client";
import { useLoaded } from "../lib/loading";
import { hasEnded } from "../lib/machines";
import { query } from "../lib/router";
import { useNews } from "../live/live";
import { FilterBox } from "../ui/filter";
import { Empty, Head, Refusal, State, Took, When } from "../ui/parts";
import { act } from "../ui/toasts";

const PAGE = 50;
const WORDS = ["state:failed", "queue:default", "since:1h", "state:running", "-state:completed", "task:", "label:"];

export function Jobs() {
  const q = query.value.get("q") ?? "";
  const more = useSignal<readonly { jobs: readonly Job[]; cursor: string }[]>([]);
  const selected = useSignal<ReadonlySet<string>>(new Set());
  const { data, problem, look } = useLoaded(`jobs ${q}`, (signal) =>
    ask(client.GET("/api/jobs", { params: { query: { q, limit: PAGE } }, signal })),
  );
  useEffect(() => {
    more.value = [];
    selected.value = new Set();
  }, [q]);
  useNews((entry) => entry.kind === "job", look);

  const pages = [data.value, ...more.value];
  const jobs = pages.flatMap((page) => page?.jobs ?? []);
  const cursor = pages.at(-1)?.cursor ?? "";
  const count = data.value?.count;

  async function loadMore(): Promise<void> {
    const page = await ask(client.GET("/api/jobs", { params: { query: { q, limit: PAGE, cursor } } }));
    more.value = [...more.value, page];
  }

  async function act_on(action: "cancel" | "retry"): Promise<void> {
    const ids = [...selected.value];
    const filter = `id:${ids.join(",")}`;
    const body = { filter, action, limit: ids.length, request_id: requestId() };
    const noun = ids.length === 1 ? "job" : "jobs";
    const done = `${action === "cancel" ? "Cancel was requested for" : "Submitted again:"} ${ids.length} ${noun}.`;
    if (await act(done, () => ask(client.POST("/api/jobs/actions", { body })))) selected.value = new Set();
    look();
  }

  return (
    <>
      <Head title="Jobs">
        {selected.value.size > 0 && (
          <>
            <span class="quiet">{selected.value.size} selected</span>
            <button type="button" class="danger" onClick={() => act_on("cancel")}>
              Cancel
            </button>
            <button type="button" onClick={() => act_on("retry")}>
              Retry
            </button>
          </>
        )}
      </Head>
      <FilterBox q={q} words={WORDS} />
      <Refusal problem={problem.value} />
      <section class="panel scroll" aria-label="List of jobs">
        <table>
          <caption class="hidden-text">Jobs, newest first</caption>
          <thead>
            <tr>
              <th>
                <span class="hidden-text">Select</span>
              </th>
              <th>Id</th>
              <th>State</th>
              <th>Task</th>
              <th>Queue</th>
              <th>Submitted</th>
              <th class="number">Took</th>
              <th>What happened</th>
            </tr>
          </thead>
          <tbody>
            {jobs.map((job) => (
              <Row key={job.id} job={job} selected={selected} />
            ))}
          </tbody>
        </table>
        {data.value && jobs.length === 0 && (
          <Empty>
            {q ? "No job matches this filter." : "No jobs yet."} Submit one with <code>interlock submit shop.py:greet</code>.
          </Empty>
        )}
        {cursor && (
          <p>
            <button type="button" onClick={loadMore}>
              Show more
            </button>
            {count && (
              <span class="quiet">
                {" "}
                {jobs.length} of {count.number}
                {count.capped ? "+" : ""}
              </span>
            )}
          </p>
        )}
      </section>
    </>
  );
}

function Row({ job, selected }: { job: Job; selected: { value: ReadonlySet<string> } }) {
  const isSelected = selected.value.has(job.id);
  function toggle(): void {
    const next = new Set(selected.value);
    if (!next.delete(job.id)) next.add(job.id);
    selected.value = next;
  }
  return (
    <tr aria-selected={isSelected}>
      <td>
        <input type="checkbox" checked={isSelected} onChange={toggle} aria-label={`Select ${job.id}`} />
      </td>
      <td>
        <a class="mono nowrap" href={`/jobs/${encodeURIComponent(job.id)}`}>
          {job.id}
        </a>
      </td>
      <td>
        <State machine="job" state={job.state} />
      </td>
      <td class="mono">{job.task}</td>
      <td>{job.queue}</td>
      <td>
        <When at={job.created_at} />
      </td>
      <td class="number">
        <Took from={job.started_at} to={job.completed_at ?? (hasEnded("job", job.state) ? job.updated_at : null)} />
      </td>
      <td class="quiet">{job.failure?.error ?? job.stop_reason ?? ""}</td>
    </tr>
  );
}
