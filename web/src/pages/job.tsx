/** One job: its place in its lifecycle, its way there, its log, and its actions. */
import { ask, client, type Attempt, type components, type Job, requestId } from "../api/client";
import { useLoaded } from "../lib/loading";
import { hasEnded, pictureOf } from "../lib/machines";
import { sees } from "../lib/session";
import { go } from "../lib/router";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Answers } from "../ui/answers";
import { History, pathOf } from "../ui/history";
import { CopyAs } from "../ui/copy";
import { Log } from "../ui/log";
import { Timeline } from "../ui/timeline";
import { limitPage } from "./limits";
import { Facts, Head, Json, Panel, Part, Picture, Refusal, State, Took, Waiting, When, Words } from "../ui/parts";

type Node = components["schemas"]["TreeNode"];
type Artifact = components["schemas"]["ArtifactView"];
type Explanation = components["schemas"]["Explanation"];

export function JobPage({ id }: { id: string }) {
  const path = { params: { path: { job_id: id } } };
  // Each part is read by itself: a refusal of one takes nothing from the others.
  const { data, problem, look } = useLoaded(`job ${id}`, (signal) => ask(client.GET("/api/jobs/{job_id}", { ...path, signal })));
  const explanation = useLoaded(`explain ${id}`, (signal) => ask(client.GET("/api/jobs/{job_id}/explain", { ...path, signal })));
  const history = useLoaded(`history ${id}`, (signal) =>
    ask(client.GET("/api/jobs/{job_id}/history", { params: { ...path.params, query: { newest: true } }, signal })),
  );
  const tree = useLoaded(`tree ${id}`, (signal) =>
    ask(client.GET("/api/jobs/{job_id}/tree", { params: { ...path.params, query: { limit: 200 } }, signal })),
  );
  const artifacts = useLoaded(`artifacts ${id}`, (signal) => ask(client.GET("/api/jobs/{job_id}/artifacts", { ...path, signal })));
  const looks: readonly (() => void)[] = [look, explanation.look, history.look, tree.look, artifacts.look];
  const lookAgain = () => looks.forEach((each) => each());
  useNews((entry) => entry.id === id || entry.id.startsWith(`${id}.`), lookAgain);
  useNews((entry) => entry.kind === "worker" && data.value?.state === explanation.data.value?.state, explanation.look, 1_000);
  const job = data.value;
  if (!job) return <Waiting title={id} problem={problem.value} />;
  const passed = pathOf(history.data.value?.entries ?? [], "job");
  return (
    <>
      <Head
        title={
          <>
            <span class="mono">{job.id}</span> <State machine="job" state={job.state} />
          </>
        }
      >
        <Actions job={job} look={lookAgain} />
      </Head>
      <Refusal problem={problem.value} again={look} />
      <Part of={explanation}>{(told) => <Explained told={told} />}</Part>
      <Answers waits={(job.waits ?? []).map((wait) => ({ job: job.id, wait }))} look={lookAgain} />
      <div class="columns">
        <Panel title="About">
          <Facts
            rows={[
              ["task", <code>{job.task}</code>],
              ["queue", <a href={`/jobs?q=${encodeURIComponent(`queue:${job.queue}`)}`}>{job.queue}</a>],
              ["labels", job.labels?.join(", ")],
              ["description", job.description],
              ["submitted", <When at={job.created_at} />],
              ["started", job.started_at && <When at={job.started_at} />],
              ["took", job.started_at && <Took from={job.started_at} to={job.completed_at} />],
              ["ready", !hasEnded("job", job.state) && job.ready_at && <When at={job.ready_at} />],
              ["deadline", !hasEnded("job", job.state) && job.deadline_at && <When at={job.deadline_at} />],
              ["unique key", job.unique_key && <code>{job.unique_key}</code>],
              ["unique", job.unique && uniqueness(job.unique)],
              ["dead letter", isLetter(job) && <a href={`/dead-letters/${encodeURIComponent(job.id)}`}>edit its input, retry or discard it</a>],
              ["limits", job.limits?.length && <LimitLinks job={job} />],
              ["schedule", job.schedule && <a href={`/schedules/${encodeURIComponent(job.schedule)}`}>{job.schedule}</a>],
              ["scheduled for", job.scheduled_for && <When at={job.scheduled_for} />],
              ["parent", job.parent_job_id && <JobLink id={job.parent_job_id} />],
              ["does again", job.origin_job_id && <JobLink id={job.origin_job_id} />],
              ["run", job.run_id && <a class="mono" href={`/runs/${encodeURIComponent(job.run_id)}`}>{job.run_id}</a>],
              ["stopped", job.stop_reason && [job.stop_reason, job.cancel_reason].filter(Boolean).join(": ")],
              ["losses", job.losses || ""],
            ]}
          />
        </Panel>
        <Panel title="Lifecycle">
          <Picture
            src={pictureOf("job", job.state, passed)}
            alt={`The lifecycle of a job. It is ${job.state}, after ${passed.join(", ") || "nothing"}.`}
          />
        </Panel>
      </div>
      {job.failure && (
        <Panel title="Failure">
          <p>
            <b>{job.failure.failure_class}</b>: {job.failure.error}
          </p>
          {job.failure.details && (
            <details>
              <summary>Details</summary>
              <Json value={job.failure.details} />
            </details>
          )}
          <Alike id={job.id} />
        </Panel>
      )}
      <Attempts attempts={job.attempts ?? []} />
      <Timeline created={job.created_at} attempts={job.attempts ?? []} />
      <Log key={job.id} job={job.id} />
      <Part of={tree}>
        {(whole) => whole.nodes.length > 1 && <Tree nodes={whole.nodes} here={job.id} cut={whole.cut ?? false} />}
      </Part>
      <Part of={artifacts}>
        {(page) => page.artifacts.length > 0 && <Artifacts artifacts={page.artifacts} />}
      </Part>
      <div class="columns">
        <Panel title="Input">
          <Json value={job.input} />
        </Panel>
        {job.result !== undefined && (
          <Panel title="Result">
            <Json value={job.result} />
          </Panel>
        )}
      </div>
      <CopyAs
        ways={[
          ["a terminal", `interlock job show ${job.id}`],
          ["curl", `curl ${location.origin}/api/jobs/${job.id}`],
          ["Python", `await il.job("${job.id}")`],
        ]}
      />
      <Part of={history}>{(page) => <History entries={page.entries} older={page.older ?? false} />}</Part>
    </>
  );
}

/** The reason why a job waits, or how it ended; the next step, and the role that acts next. */
function Explained({ told }: { told: Explanation }) {
  return (
    <div class="explained">
      <p>
        <Words text={told.sentence} />
      </p>
      {told.todo && (
        <p>
          → <code><Words text={told.todo} /></code>
        </p>
      )}
      {told.lines && told.lines.length > 0 && (
        <details>
          <summary>Unfinished parts, and the role that acts next</summary>
          <ul class="tree">
            {told.lines.map((line) => (
              <li key={line.entity}>
                {line.entity} <span class="quiet">{line.state}:</span> <Words text={line.sentence} />
                {line.turn && <span class="quiet"> The turn of: {line.turn}.</span>}
                {line.deadline_at && (
                  <span class="quiet">
                    {" "}
                    {line.deadline_event} <When at={line.deadline_at} />.
                  </span>
                )}
              </li>
            ))}
          </ul>
        </details>
      )}
    </div>
  );
}

/** The same failure elsewhere: how many of the newest failed jobs, and since when. */
function Alike({ id }: { id: string }) {
  const alike = useLoaded(`alike ${id}`, (signal) =>
    ask(client.GET("/api/jobs/{job_id}/alike", { params: { path: { job_id: id } }, signal })),
  );
  return (
    <Part of={alike}>
      {({ number, looked_at: looked, more, since, ids = [] }) => {
        const among = `${more ? "newest " : ""}${looked.toLocaleString()} failed ${looked === 1 ? "job" : "jobs"}`;
        if (number <= 1) return looked > 0 && <p class="quiet">No other of the {among} failed the same way.</p>;
        return (
          <p>
            {number.toLocaleString()} of the {among} failed the same way, the first <When at={since} />.{" "}
            <a href={`/jobs?q=${encodeURIComponent(`id:${ids.join(",")}`)}`}>
              Show {ids.length < number ? `${ids.length} of them` : "them"}
            </a>
          </p>
        );
      }}
    </Part>
  );
}

function Tree({ nodes, here, cut }: { nodes: readonly Node[]; here: string; cut: boolean }) {
  return (
    <Panel title="Tree">
      <ul class="tree">
        {nodes.map((node) => (
          <li key={node.id} style={{ paddingLeft: `${(node.depth ?? 0) * 1.4}rem` }} aria-current={node.id === here ? "true" : undefined}>
            <JobLink id={node.id} /> <State machine="job" state={node.state} /> <span class="mono">{node.task}</span>{" "}
            <span class="quiet">{node.waits_for || node.description || node.failure?.error || ""}</span>
          </li>
        ))}
      </ul>
      {cut && <p class="quiet">There are more; only these are shown.</p>}
    </Panel>
  );
}

function Artifacts({ artifacts }: { artifacts: readonly Artifact[] }) {
  return (
    <Panel title="Artifacts">
      <ul class="tree">
        {artifacts.map((one) => (
          <li key={`${one.attempt} ${one.name}`}>
            <a href={`/api/jobs/${encodeURIComponent(one.job_id)}/artifacts/${encodeURIComponent(one.name)}`} download>
              {one.name}
            </a>{" "}
            <span class="quiet">
              {one.size.toLocaleString()} bytes, attempt {one.shard}.{one.attempt}
            </span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}

/** Return whether a job may be a dead letter: a run handles the failures of its own jobs. */
const isLetter = (job: Job) => job.failure != null && !job.run_id && hasEnded("job", job.state);

const POLICIES: Readonly<Record<string, string>> = {
  reject: "another submission is refused",
  existing: "another submission returns this job",
  replace: "another submission replaces its input",
  debounce: "another submission replaces its input and delays it anew",
};

/** The rule of a unique key in words: among which jobs, how long it counts, and what becomes of another submission. */
function uniqueness({ scope = "task", within, states, policy = "reject" }: NonNullable<Job["unique"]>): string {
  const parts = [`among the jobs of its ${scope}`];
  if (states?.length) parts.push(`while ${states.join(", ")}`);
  if (within) parts.push(`for ${within} after its end`);
  return `${parts.join(", ")}; ${POLICIES[policy] ?? policy}`;
}

/** The limits that a job counts against, each with its page, and whether it waits for a slot. */
function LimitLinks({ job }: { job: Job }) {
  const waits = !job.admitted_at && !hasEnded("job", job.state);
  return (
    <span class="linked">
      {(job.limits ?? []).map((key, place) => (
        <>
          {place > 0 && ", "}
          {sees("GET /api/limits") ? <a href={limitPage(key)}>{key}</a> : key}
        </>
      ))}
      {waits && <span class="quiet"> (it waits in line)</span>}
    </span>
  );
}

function JobLink({ id }: { id: string }) {
  return (
    <a class="mono" href={`/jobs/${encodeURIComponent(id)}`}>
      {id}
    </a>
  );
}

function Actions({ job, look }: { job: Job; look: () => void }) {
  const path = { params: { path: { job_id: job.id } } };
  if (!hasEnded("job", job.state)) {
    return (
      <Action
        request="POST /api/jobs/{job_id}/cancel"
        done="Cancel was requested."
        danger
        run={() => ask(client.POST("/api/jobs/{job_id}/cancel", { ...path, body: { request_id: requestId() } }))}
        then={look}
      >
        Cancel
      </Action>
    );
  }
  return (
    <Action
      request="POST /api/jobs/{job_id}/retry"
      done="It was submitted again."
      run={async () => {
        const made = await ask(client.POST("/api/jobs/{job_id}/retry", { ...path, body: { request_id: requestId() } }));
        if (made.id) go(`/jobs/${made.id}`);
      }}
    >
      Retry
    </Action>
  );
}

function Attempts({ attempts }: { attempts: readonly Attempt[] }) {
  if (!attempts.length) return null;
  return (
    <Panel title="Attempts">
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>Attempt</th>
              <th>State</th>
              <th>Runner</th>
              <th>Lease</th>
              <th>Started</th>
              <th class="number">Took</th>
              <th>Progress</th>
              <th>What happened</th>
            </tr>
          </thead>
          <tbody>
            {attempts.map((one) => (
              <tr key={one.id}>
                <td class="mono">
                  {one.shard}.{one.index}
                </td>
                <td>
                  <State machine="attempt" state={one.state} />
                </td>
                <td class="mono">{one.lease?.runner_id ?? ""}</td>
                <td class="nowrap">
                  {one.lease && <State machine="lease" state={one.lease.state} />}{" "}
                  {one.lease && !hasEnded("lease", one.lease.state) && (
                    <span class="quiet">
                      ends <When at={one.lease.expires_at} />
                    </span>
                  )}
                </td>
                <td>
                  <When at={one.started_at} />
                </td>
                <td class="number">
                  <Took from={one.started_at} to={one.ended_at} />
                </td>
                <td>{one.progress?.total ? `${one.progress.done} of ${one.progress.total}` : ""}</td>
                <td class="quiet">{one.failure?.error ?? ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
