/** Approvals: the questions that jobs ask people, the roles that can answer, and the answers. */
import { ask, client, type components } from "../api/client";
import { useLoaded } from "../lib/loading";
import { hasEnded, pictureOf } from "../lib/machines";
import { usePages } from "../lib/pages";
import { gathered } from "../lib/paging";
import { pageOf } from "../lib/records";
import { query } from "../lib/router";
import { useNews } from "../live/live";
import { AnswerButtons, Question } from "../ui/answers";
import { CopyAs } from "../ui/copy";
import { More } from "../ui/more";
import { NewRows } from "../ui/new_rows";
import { Empty, Facts, Head, Panel, Picture, Refusal, State, Waiting, When } from "../ui/parts";

type Approval = components["schemas"]["ApprovalView"];

const MACHINE = "job_wait";
const PAGE = 50;
const LOOK_EVERY_MS = 1_000;
const VIEWS = [
  ["Waiting", "/approvals"],
  ["All", "/approvals?view=all"],
] as const;

export function Approvals() {
  const ended = query.value.get("view") === "all";
  const read = (from: string, signal?: AbortSignal) =>
    gathered(
      async (cursor) => {
        const params = { query: { ended, limit: PAGE, cursor } };
        const page = await ask(client.GET("/api/approvals", { params, ...(signal && { signal }) }));
        return { items: page.approvals, cursor: page.cursor };
      },
      from,
      PAGE,
    );
  const pages = usePages(`approvals ${ended}`, read, (one: Approval) => one.id);
  const { newest, problem, look } = pages;
  useNews((entry) => entry.kind === MACHINE, look, LOOK_EVERY_MS);
  if (!pages.first) return <Waiting title="Approvals" problem={problem} />;
  return (
    <>
      <NewRows of={newest} />
      <Head title="Approvals" />
      <nav class="views" aria-label="Views of approvals">
        {VIEWS.map(([title, to]) => (
          <a key={to} href={to} aria-current={(title === "All") === ended ? "true" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <Refusal problem={problem} again={look} />
      <section class="panel scroll" aria-label="List of approvals">
        {newest.rows.length > 0 && (
          <table class="middle">
            <thead>
              <tr>
                <th>Question</th>
                <th>State</th>
                <th>Job</th>
                <th>Queue</th>
                <th>Asked</th>
                <th>{ended ? "Answered" : "Times out"}</th>
                <th>
                  <span class="hidden-text">Actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {newest.rows.map((one) => (
                <tr key={one.id}>
                  <td class="said">
                    <a href={pageOf("approval", one.id)}>{one.question}</a>
                  </td>
                  <td>
                    <State machine={MACHINE} state={one.state} />
                  </td>
                  <td>
                    <a class="mono nowrap" href={pageOf("job", one.job_id)}>
                      {one.job_id}
                    </a>
                  </td>
                  <td>{one.queue}</td>
                  <td>
                    <When at={one.asked_at} />
                  </td>
                  <td>
                    <When at={ended ? one.answered_at : one.until} />
                    {ended && one.by && ` by ${one.by}`}
                  </td>
                  <td>
                    <span class="acts">
                      <Buttons one={one} look={() => pages.drop(one.id)} />
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {newest.rows.length === 0 && !pages.cursor && (
          <Empty>
            {ended ? "No job has asked for an approval." : "Nothing waits for an approval."} A handler asks with{" "}
            <code>await ctx.approval("Deploy to production?")</code>.
          </Empty>
        )}
        <More of={pages} />
      </section>
    </>
  );
}

function Buttons({ one, look }: { one: Approval; look: () => void }) {
  if (hasEnded(MACHINE, one.state)) return null;
  return <AnswerButtons id={one.id} comment="" approvers={one.approvers ?? []} role={one.role ?? ""} look={look} />;
}

export function ApprovalPage({ id }: { id: string }) {
  const { data, problem, look } = useLoaded(`approval ${id}`, (signal) =>
    ask(client.GET("/api/approvals/{approval_id}", { params: { path: { approval_id: id } }, signal })),
  );
  useNews((entry) => entry.kind === MACHINE && entry.id === id, look);
  const one = data.value;
  if (!one) return <Waiting title={id} problem={problem.value} />;
  return (
    <>
      <Head
        title={
          <>
            <span class="mono">{one.id}</span> <State machine={MACHINE} state={one.state} />
          </>
        }
      >
        <a class="button" href={pageOf("job", one.job_id)}>
          Show the job
        </a>
        {one.run_id && (
          <a class="button" href={pageOf("run", one.run_id)}>
            Show the run
          </a>
        )}
      </Head>
      <Refusal problem={problem.value} again={look} />
      {hasEnded(MACHINE, one.state) && <p class="lead">{one.question}</p>}
      {!hasEnded(MACHINE, one.state) && <Question wait={{ ...one, since: one.asked_at, until: one.until ?? "" }} look={look} />}
      <div class="columns">
        <Panel title="About">
          <Facts
            rows={[
              ["name", one.name],
              ["job", <a class="mono" href={pageOf("job", one.job_id)}>{one.job_id}</a>],
              ["task", <code>{one.task}</code>],
              ["queue", one.queue],
              ["approvers", one.approvers?.join(", ") || `any user with the role ${one.role ?? "operator"}`],
              ["asked", <When at={one.asked_at} />],
              ["times out", one.until && <When at={one.until} />],
              ["answered", one.answered_at && <When at={one.answered_at} />],
              ["answered by", one.by],
              ["comment", one.comment],
            ]}
          />
        </Panel>
        <Panel title="Lifecycle">
          <Picture src={pictureOf(MACHINE, one.state, [])} alt={`The lifecycle of an approval. It is ${one.state}.`} />
        </Panel>
      </div>
      <CopyAs
        ways={[
          ["a terminal", `interlock approval show ${one.id}`],
          ["curl", `curl ${location.origin}/api/approvals/${one.id}`],
          ["Python", `await il.approvals.get("${one.id}")`],
        ]}
      />
    </>
  );
}
