/** One run: its graph, the steps of its jobs, the changes since it was green, and its actions. */
import { useComputed, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ask, client, type components, requestId } from "../api/client";
import { useLoaded } from "../lib/loading";
import { hasEnded, meaningOf } from "../lib/machines";
import { go, query, setQuery } from "../lib/router";
import { bytes } from "../lib/sizes";
import { span } from "../lib/time";
import { useNews } from "../live/live";
import { Action } from "../ui/action";
import { Answers } from "../ui/answers";
import { FlakyTable } from "../ui/flaky";
import { Graph, type RunJob } from "../ui/graph";
import { History } from "../ui/history";
import { Empty, Facts, Head, Panel, Refusal, State, Took, Waiting, When } from "../ui/parts";
import { Previewed } from "../ui/preview";
import { Steps } from "../ui/steps";

type Schemas = components["schemas"];
type Run = Schemas["RunView"];

export function RunPage({ id }: { id: string }) {
  const path = { params: { path: { run_id: id } } };
  const { data, problem, look } = useLoaded(`run ${id}`, async (signal) => {
    const [run, explanation, history] = await Promise.all([
      ask(client.GET("/api/runs/{run_id}", { params: { path: { run_id: id }, query: { jobs: true } }, signal })),
      ask(client.GET("/api/runs/{run_id}/explain", { ...path, signal })),
      ask(client.GET("/api/runs/{run_id}/history", { ...path, signal })),
    ]);
    return { run, explanation, entries: history.entries };
  });
  const own = useComputed(() => new Set([id, ...(data.value?.run.jobs ?? []).map((job) => job.job_id)]));
  // A record below a job, such as an approval, is named after it.
  useNews((entry) => own.value.has(entry.id) || own.value.has(entry.id.split(".", 1)[0] ?? ""), look);
  const analysis = useLoaded(`analysis of ${id}`, (signal) =>
    ask(client.GET("/api/runs/{run_id}/analysis", { ...path, signal })),
  );
  useAgain(data.value?.run.state, analysis.look);
  const shown = data.value;
  if (!shown) return <Waiting title={id} problem={problem.value} />;
  const { run, explanation, entries } = shown;
  const jobs = run.jobs ?? [];
  const flaky = analysis.data.value?.flaky ?? [];
  const chosen = jobs.find((job) => job.name === (query.value.get("job") ?? run.culprit));
  return (
    <>
      <Head
        title={
          <>
            <span class="mono">{run.id}</span> <State machine="run" state={run.state} />{" "}
            {run.outcome && <State machine="run" state={run.outcome} />}
          </>
        }
      >
        <RunActions run={run} look={look} />
      </Head>
      <Refusal problem={problem.value} />
      <p class="lead">{explanation.sentence}</p>
      {(explanation.findings ?? []).length > 0 && (
        <ul>
          {(explanation.findings ?? []).map((finding) => (
            <li key={finding}>{finding}</li>
          ))}
        </ul>
      )}
      {run.awaiting && !run.outcome && <Approval run={run} look={look} />}
      {!run.outcome && (
        <Answers
          waits={jobs.flatMap((job) => (job.awaiting ? [{ job: job.job_id, name: job.name, wait: job.awaiting }] : []))}
          look={look}
        />
      )}
      <Panel title="Jobs">
        {jobs.length ? (
          <Graph
            jobs={jobs}
            chosen={chosen?.name ?? ""}
            choose={(name) => setQuery("job", name, { replace: true })}
            flaky={new Set(flaky.map((job) => job.job))}
          />
        ) : (
          <Empty>There is no plan yet.</Empty>
        )}
      </Panel>
      {chosen ? <JobPanel key={chosen.name} run={run} job={chosen} /> : jobs.length > 0 && <Hint />}
      <Comparison run={run} />
      {flaky.length > 0 && (
        <Panel title="Flaky jobs of this run">
          <div class="scroll">
            <FlakyTable jobs={flaky} />
          </div>
        </Panel>
      )}
      <Artifacts run={run} />
      <div class="columns">
        <Panel title="About">
          <Facts
            rows={[
              ["workflow", run.workflow],
              ["title", run.source?.title],
              ["repository", run.source?.repository],
              ["ref", run.source?.ref],
              ["commit", run.source?.sha && <code>{run.source.sha}</code>],
              ["by", run.source?.actor],
              ["fork", run.source?.from_fork && "the change comes from a fork"],
              ...(run.approvals ?? []).map((each) => [`${each.reason} approved`, <Approved approval={each} />] as const),
              ["submitted", <When at={run.created_at} />],
              ["took", run.started_at && <Took from={run.started_at} to={run.completed_at ?? run.reported_at} />],
              ["group", run.concurrency_group],
              ["culprit", run.culprit],
              ["error", run.error],
              ["reason", run.reason],
              ["does again", run.origin_run_id && <RunLink id={run.origin_run_id} />],
              ["superseded by", run.superseded_by && <RunLink id={run.superseded_by} />],
            ]}
          />
        </Panel>
        {(run.skipped ?? []).length > 0 && (
          <Panel title="Left out">
            <Facts rows={(run.skipped ?? []).map((job) => [job.name, job.why] as const)} />
          </Panel>
        )}
      </div>
      <History entries={entries} />
    </>
  );
}

/** Read again after a change, but not for the first time: the page has just been read. */
function useAgain(when: unknown, look: () => void): void {
  const before = useRef<unknown>(undefined);
  useEffect(() => {
    if (before.current !== undefined && before.current !== when) look();
    before.current = when;
  }, [when]);
}

function RunLink({ id }: { id: string }) {
  return (
    <a class="mono" href={`/runs/${encodeURIComponent(id)}`}>
      {id}
    </a>
  );
}

function JobLink({ id, children }: { id: string; children: ComponentChildren }) {
  return <a href={`/jobs/${encodeURIComponent(id)}`}>{children}</a>;
}

// Doing it again, and stopping it

function isSettled(run: Run): boolean {
  return Boolean(run.outcome) || hasEnded("run", run.state);
}

interface RerunProps {
  readonly run: Run;
  readonly which: "all" | "failed" | "from";
  readonly job?: string;
  readonly children: ComponentChildren;
}

function Rerun({ run, which, job = "", children }: RerunProps) {
  const path = { run_id: run.id };
  return (
    <Previewed
      request="POST /api/runs/{run_id}/rerun"
      title={which === "from" ? `Rerun from ${job}` : which === "failed" ? "Rerun what failed" : "Rerun all"}
      prepare={() => ask(client.GET("/api/runs/{run_id}/rerun", { params: { path, query: { which, job } } }))}
      show={(preview) => <RerunPreview preview={preview} />}
      confirm={({ again }) => (again?.length ? `Rerun ${again.length === 1 ? "1 job" : `${again.length} jobs`}` : "Rerun")}
      done="A new run was submitted."
      run={async () => {
        const made = await ask(
          client.POST("/api/runs/{run_id}/rerun", { params: { path }, body: { which, job, request_id: requestId() } }),
        );
        go(`/runs/${made.id}`);
      }}
    >
      {children}
    </Previewed>
  );
}

function RerunPreview({ preview }: { preview: Schemas["RerunPreview"] }) {
  if (preview.planned_anew) return <p>The run has no plan, so its planner makes one and all of it is executed.</p>;
  return (
    <>
      <p>A new run executes these jobs:</p>
      <Names names={preview.again ?? []} />
      {(preview.kept ?? []).length > 0 && (
        <>
          <p>These have succeeded and count as done:</p>
          <Names names={preview.kept ?? []} />
        </>
      )}
    </>
  );
}

function Names({ names }: { names: readonly string[] }) {
  const shown = names.slice(0, 100);
  return (
    <>
      <ul class="names" tabIndex={0}>
        {shown.map((name) => (
          <li key={name}>{name}</li>
        ))}
      </ul>
      {names.length > shown.length && <p class="quiet">and {names.length - shown.length} more</p>}
    </>
  );
}

function RunActions({ run, look }: { run: Run; look: () => void }) {
  const path = { params: { path: { run_id: run.id } } };
  if (isSettled(run)) {
    const jobs = run.jobs ?? [];
    const allGood = jobs.length > 0 && jobs.every((job) => meaningOf("job", job.state) === "good");
    return (
      <>
        {!allGood && (
          <Rerun run={run} which="failed">
            Rerun what failed
          </Rerun>
        )}
        <Rerun run={run} which="all">
          Rerun all
        </Rerun>
      </>
    );
  }
  return (
    <Action
      request="POST /api/runs/{run_id}/cancel"
      legal={["run", run.state, "cancel"]}
      done="Cancel was requested."
      danger
      run={() => ask(client.POST("/api/runs/{run_id}/cancel", { ...path, body: { request_id: requestId() } }))}
      then={look}
    >
      Cancel
    </Action>
  );
}

// Approving it

function Approved({ approval }: { approval: Schemas["Approval"] }) {
  return (
    <>
      by {approval.by}, <When at={approval.at} />
      {approval.comment && `: ${approval.comment}`}
    </>
  );
}

function Approval({ run, look }: { run: Run; look: () => void }) {
  const said = useSignal("");
  const path = { params: { path: { run_id: run.id } } };
  const why = run.awaiting?.environments?.length
    ? `its jobs use ${run.awaiting.environments.join(", ")}`
    : run.source?.from_fork
      ? "the change comes from a fork"
      : run.awaiting?.reason;
  const note = (label: string) => (
    <label class="note">
      {label}
      <input
        class="wide"
        maxLength={1000}
        value={said.value}
        onInput={(event) => {
          said.value = event.currentTarget.value;
        }}
      />
    </label>
  );
  return (
    <div class="notice waiting approval">
      <span>It waits for approval: {why}.</span>
      <span class="acts">
        <Previewed
          request="POST /api/runs/{run_id}/approve"
          legal={["run", run.state, "approve"]}
          title="Approve this run"
          prepare={async () => run}
          show={() => (
            <>
              <ToApprove run={run} />
              {note("Comment for the journal")}
            </>
          )}
          confirm={() => "Approve"}
          done="It was approved."
          run={() =>
            ask(client.POST("/api/runs/{run_id}/approve", { ...path, body: { comment: said.value, request_id: requestId() } }))
          }
          then={look}
        >
          Approve …
        </Previewed>
        <Previewed
          request="POST /api/runs/{run_id}/decline"
          legal={["run", run.state, "decline"]}
          title="Decline this run"
          prepare={async () => run}
          show={() => (
            <>
              <p>The run is canceled, and nothing of it is executed.</p>
              {note("Reason for the journal")}
            </>
          )}
          confirm={() => "Decline"}
          done="It was declined."
          danger
          run={() =>
            ask(client.POST("/api/runs/{run_id}/decline", { ...path, body: { reason: said.value, request_id: requestId() } }))
          }
          then={look}
        >
          Decline …
        </Previewed>
      </span>
    </div>
  );
}

/** The subject of an approval: this commit, and the limits of its jobs. */
function ToApprove({ run }: { run: Run }) {
  const { source, held_to: held, awaiting } = run;
  const paths = source?.changed_paths ?? [];
  return (
    <>
      <Facts
        rows={[
          ["title", source?.title],
          ["repository", source?.repository],
          ["ref", source?.ref],
          ["pull request", source?.pull_request ? `#${source.pull_request}` : ""],
          ["commit", source?.sha && <code>{source.sha}</code>],
          ["by", source?.actor],
          ["workflow", run.workflow],
          ["environments", awaiting?.environments?.join(", ")],
          ["queue", held && `${held.queue}, for all its jobs, regardless of its workflow file`],
          ["labels", held?.labels.join(", ")],
          ["secrets", source?.from_fork && "none: the change comes from a fork"],
          ["changes", paths.length > 0 && <Names names={paths} />],
        ]}
      />
      <p class="quiet">The approval is for this commit only; the next push waits again.</p>
    </>
  );
}

// A job of it

function Hint() {
  return <p class="quiet">Choose a job to see its steps and its output.</p>;
}

function JobPanel({ run, job }: { run: Run; job: RunJob }) {
  const box = useRef<HTMLElement>(null);
  const asked = query.value.get("job");
  useEffect(() => {
    if (asked) box.current?.scrollIntoView({ block: "nearest" });
  }, []);
  const story = [job.why, job.reason, job.failure?.error].filter(Boolean).join(" · ");
  return (
    <section ref={box} class="panel" aria-label={`The job ${job.name}`}>
      <div class="head">
        <h2>
          {job.name} <State machine="job" state={job.state} />
        </h2>
        {job.started_at && (
          <span class="quiet">
            <Took from={job.started_at} to={job.completed_at} />
          </span>
        )}
        <div class="acts">
          {isSettled(run) && (
            <Rerun run={run} which="from" job={job.name}>
              Rerun from here
            </Rerun>
          )}
          {job.started_at && (
            <a class="button" href={`/jobs/${encodeURIComponent(job.job_id)}`}>
              Open the job
            </a>
          )}
        </div>
      </div>
      {story && <p class="quiet">{story}</p>}
      {job.started_at ? <Steps key={job.job_id} job={job.job_id} /> : <Empty>It has not started.</Empty>}
    </section>
  );
}

// Beside the last green run

const CHANGES: Readonly<Record<Schemas["JobChange"]["change"], readonly [string, string]>> = {
  failed: ["bad", "failed, had passed"],
  slower: ["waiting", "slower"],
  new: ["active", "new"],
  gone: ["stopped", "gone"],
};

function Comparison({ run }: { run: Run }) {
  const { data, problem, look } = useLoaded(`comparison of ${run.id}`, (signal) =>
    ask(client.GET("/api/runs/{run_id}/comparison", { params: { path: { run_id: run.id } }, signal })),
  );
  useAgain(`${run.state} ${(run.jobs ?? []).filter((job) => job.failure).length}`, look);
  const found = data.value;
  if (!found) return <Refusal problem={problem.value} />;
  const { green, looked_at: looked, changes = [], more = 0 } = found;
  if (!green) {
    if (!looked) return null; // it is the first of its kind: there is nothing to compare it with
    return (
      <Panel title="Since the last green run">
        <p class="quiet">
          None of the {looked === 1 ? "one earlier run" : `${looked} earlier runs`} of this workflow and ref is green.
        </p>
      </Panel>
    );
  }
  return (
    <Panel title="Since the last green run">
      <p>
        <RunLink id={green.id} /> {green.source?.sha && <code>{green.source.sha.slice(0, 9)}</code>} <When at={green.created_at} />,
        which took <Took from={green.started_at} to={green.completed_at ?? green.reported_at} />.{" "}
        {changes.length === 0 && "No job has failed that had passed, none is slower, and none is new or gone."}
      </p>
      {changes.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>Job</th>
                <th>Change</th>
                <th class="number">Took</th>
                <th class="number">Before</th>
              </tr>
            </thead>
            <tbody>
              {changes.map((change) => (
                <Change key={change.name} change={change} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {more > 0 && <p class="quiet">and {more} more</p>}
    </Panel>
  );
}

function Change({ change }: { change: Schemas["JobChange"] }) {
  const [meaning, words] = CHANGES[change.change];
  const took = typeof change.took_s === "number" ? span(change.took_s * 1000) : "–";
  const before = typeof change.before_s === "number" ? span(change.before_s * 1000) : "–";
  return (
    <tr>
      <td>{change.name}</td>
      <td>
        <span class={`chip ${meaning}`}>{words}</span>
      </td>
      <td class="number">{change.job_id && change.took_s ? <JobLink id={change.job_id}>{took}</JobLink> : took}</td>
      <td class="number">{change.before_job_id ? <JobLink id={change.before_job_id}>{before}</JobLink> : before}</td>
    </tr>
  );
}

// What its jobs have left behind

const JOBS_AT_ONCE = 50;

function Artifacts({ run }: { run: Run }) {
  const pages = useSignal(1);
  const { data, problem, look } = useLoaded(`artifacts of ${run.id}`, async (signal) => {
    const found: Schemas["RunArtifact"][] = [];
    let first: number | null | undefined = 0;
    for (let page = 0; page < pages.value && typeof first === "number"; page++) {
      const answer: Schemas["RunArtifacts"] = await ask(
        client.GET("/api/runs/{run_id}/artifacts", {
          params: { path: { run_id: run.id }, query: { first, limit: JOBS_AT_ONCE } },
          signal,
        }),
      );
      found.push(...answer.artifacts);
      first = answer.next;
    }
    return { found, more: typeof first === "number" };
  });
  useAgain((run.jobs ?? []).filter((job) => job.completed_at).length, look);
  const shown = data.value;
  if (!shown) return <Refusal problem={problem.value} />;
  if (!shown.found.length && !shown.more) return null;
  return (
    <Panel title="Artifacts">
      {shown.found.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>File</th>
                <th>Job</th>
                <th class="number">Attempt</th>
                <th class="number">Size</th>
                <th>When</th>
              </tr>
            </thead>
            <tbody>
              {shown.found.map(({ job, artifact }) => (
                <Artifact key={`${artifact.job_id} ${artifact.shard}.${artifact.attempt} ${artifact.name}`} {...{ job, artifact }} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {shown.more && (
        <button
          type="button"
          onClick={() => {
            pages.value += 1;
            look();
          }}
        >
          Look at {JOBS_AT_ONCE} more jobs
        </button>
      )}
    </Panel>
  );
}

function Artifact({ job, artifact }: Schemas["RunArtifact"]) {
  const attempt = `${artifact.shard}.${artifact.attempt}`;
  const where = `/api/jobs/${encodeURIComponent(artifact.job_id)}/artifacts/${encodeURIComponent(artifact.name)}`;
  return (
    <tr>
      <td>
        <a href={`${where}?attempt=${attempt}`} download>
          {artifact.name}
        </a>
      </td>
      <td>
        <JobLink id={artifact.job_id}>{job}</JobLink>
      </td>
      <td class="number">{attempt}</td>
      <td class="number" title={`${artifact.size.toLocaleString()} bytes`}>
        {bytes(artifact.size)}
      </td>
      <td>
        <When at={artifact.created_at} />
      </td>
    </tr>
  );
}
