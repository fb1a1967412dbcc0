/** Batches: many jobs with one progress, one cancel, and a callback when all have ended. */
import { ask, client, type components, requestId } from "../api/client";
import { useEvery, useLoaded } from "../lib/loading";
import { hasEnded, pictureOf } from "../lib/machines";
import { usePages } from "../lib/pages";
import { pageOf, recordPage } from "../lib/records";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { CopyAs } from "../ui/copy";
import { More } from "../ui/more";
import { NewRows } from "../ui/new_rows";
import { Empty, Facts, Head, Panel, Picture, Refusal, State, Tally, Waiting, When } from "../ui/parts";

type Batch = components["schemas"]["BatchView"];
type Member = components["schemas"]["BatchJob"];

const MACHINE = "job_batch";
const PAGE = 50;
/** The ends of jobs are counted without an entry in the journal of the batch, until a part of it is settled. */
const COUNTED_EVERY_MS = 2_000;

const batchPage = (id: string) => `/batches/${encodeURIComponent(id)}`;
const isCounted = (batch: Batch | undefined) => batch !== undefined && !hasEnded(MACHINE, batch.state);

export function Batches() {
  const read = async (cursor: string, signal?: AbortSignal) => {
    const params = { query: { limit: PAGE, cursor } };
    const page = await ask(client.GET("/api/batches", { params, ...(signal && { signal }) }));
    return { items: page.batches, cursor: page.cursor ?? "" };
  };
  const pages = usePages("batches", read, (batch: Batch) => batch.id);
  const { newest, problem, look } = pages;
  useNews((entry) => entry.kind === MACHINE, look, COUNTED_EVERY_MS);
  useEvery(newest.rows.some(isCounted) ? COUNTED_EVERY_MS : 0, look);
  if (!pages.first) return <Waiting title="Batches" problem={problem} />;
  return (
    <>
      <NewRows of={newest} />
      <Head title="Batches" />
      <Refusal problem={problem} again={look} />
      <section class="panel scroll" aria-label="List of batches">
        {newest.rows.length > 0 && (
          <table class="middle">
            <thead>
              <tr>
                <th>Batch</th>
                <th>State</th>
                <th>Progress</th>
                <th>Ended</th>
                <th>Description</th>
                <th>Created</th>
                <th>
                  <span class="hidden-text">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {newest.rows.map((batch) => (
                <tr key={batch.id}>
                  <td>
                    <a class="mono nowrap" href={batchPage(batch.id)}>
                      {batch.id}
                    </a>
                  </td>
                  <td>
                    <State machine={MACHINE} state={batch.state} />
                  </td>
                  <td class="nowrap">
                    <Progress batch={batch} />
                  </td>
                  <td class="chips">
                    <Tally tally={outcomes(batch)} />
                  </td>
                  <td>{batch.description}</td>
                  <td>
                    <When at={batch.created_at} />
                  </td>
                  <td>
                    <span class="acts">
                      <Cancel batch={batch} look={look} />
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {newest.rows.length === 0 && (
          <Empty>
            No batches. Submit one in Python: <code>await il.batches.submit([…])</code>.
          </Empty>
        )}
        <More of={pages} />
      </section>
    </>
  );
}

/** How many jobs have ended, by their outcome; those that there are none of are left out. */
function outcomes({ counts }: Batch): Record<string, number> {
  const all = { COMPLETED: counts.completed ?? 0, FAILED: counts.failed ?? 0, CANCELED: counts.canceled ?? 0 };
  return Object.fromEntries(Object.entries(all).filter(([, number]) => number > 0));
}

function Progress({ batch }: { batch: Batch }) {
  const ended = Object.values(outcomes(batch)).reduce((sum, number) => sum + number, 0);
  const total = batch.counts.total ?? 0;
  return (
    <>
      <progress class="slots" max={Math.max(1, total)} value={ended} aria-hidden="true" /> {ended.toLocaleString()} of{" "}
      {total.toLocaleString()}
    </>
  );
}

function Cancel({ batch, look }: { batch: Batch; look: () => void }) {
  const path = { params: { path: { batch_id: batch.id } } };
  return (
    <Action
      request="POST /api/batches/{batch_id}/cancel"
      legal={[MACHINE, batch.state, "cancel"]}
      done={`The jobs of ${batch.id} are being canceled.`}
      ask={`Cancel all jobs of ${batch.id} that have not ended? Its callback is not submitted.`}
      danger
      run={() => ask(client.POST("/api/batches/{batch_id}/cancel", { ...path, body: { request_id: requestId() } }))}
      then={look}
    >
      Cancel
    </Action>
  );
}

export function BatchPage({ id }: { id: string }) {
  const path = { params: { path: { batch_id: id } } };
  const { data, problem, look } = useLoaded(`batch ${id}`, (signal) => ask(client.GET("/api/batches/{batch_id}", { ...path, signal })));
  const read = async (cursor: string, signal?: AbortSignal) => {
    const params = { ...path.params, query: { cursor } };
    const page = await ask(client.GET("/api/batches/{batch_id}/jobs", { params, ...(signal && { signal }) }));
    return { items: page.jobs, cursor: page.cursor ?? "" };
  };
  const jobs = usePages(`jobs of ${id}`, read, (job: Member) => job.id);
  const batch = data.value;
  function lookAgain(): void {
    look();
    jobs.look();
  }
  useNews((entry) => entry.kind === MACHINE && entry.id === id, lookAgain);
  useEvery(isCounted(batch) ? COUNTED_EVERY_MS : 0, lookAgain);
  if (!batch) return <Waiting title={id} problem={problem.value} />;
  return (
    <>
      <NewRows of={jobs.newest} />
      <Head
        title={
          <>
            <span class="mono">{batch.id}</span> <State machine={MACHINE} state={batch.state} />
          </>
        }
      >
        <Cancel batch={batch} look={look} />
      </Head>
      <Refusal problem={problem.value} again={look} />
      <p class="lead">
        <Progress batch={batch} /> jobs have ended.
      </p>
      <div class="columns">
        <Panel title="About">
          <Facts
            rows={[
              ["description", batch.description],
              ["ended", <span class="chips"><Tally tally={outcomes(batch)} /></span>],
              ["callback", batch.callback && <code>{batch.callback}</code>],
              ["its job", batch.callback_job_id && <a class="mono" href={pageOf("job", batch.callback_job_id)}>{batch.callback_job_id}</a>],
              ["created", <When at={batch.created_at} />],
              ["created by", batch.by],
              [hasEnded(MACHINE, batch.state) ? "ended at" : "changed", <When at={batch.updated_at} />],
              ["why canceled", batch.reason],
              ["its record", <a href={recordPage(MACHINE, batch.id)}>state, versions and journal</a>],
            ]}
          />
        </Panel>
        <Panel title="Lifecycle">
          <Picture src={pictureOf(MACHINE, batch.state, [])} alt={`The lifecycle of a batch. It is ${batch.state}.`} />
        </Panel>
      </div>
      <section class="panel scroll" aria-label="Jobs of the batch">
        <h2>Jobs</h2>
        <Refusal problem={jobs.problem} again={jobs.look} />
        {jobs.newest.rows.length > 0 && (
          <table>
            <thead>
              <tr>
                <th>Job</th>
                <th>Outcome</th>
              </tr>
            </thead>
            <tbody>
              {jobs.newest.rows.map((job) => (
                <tr key={job.id}>
                  <td>
                    <a class="mono" href={pageOf("job", job.id)}>
                      {job.id}
                    </a>
                  </td>
                  <td>{job.state ? <State machine="job" state={job.state} /> : <span class="quiet">not ended</span>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {jobs.first && jobs.newest.rows.length === 0 && <Empty>It has no jobs yet.</Empty>}
        <More of={jobs} />
      </section>
      <CopyAs
        ways={[
          ["a terminal", `interlock batch show ${batch.id}`],
          ["curl", `curl ${location.origin}/api/batches/${batch.id}`],
          ["Python", `await il.batches.get("${batch.id}")`],
        ]}
      />
    </>
  );
}
