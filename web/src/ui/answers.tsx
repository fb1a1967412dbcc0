/** What jobs wait for, and the buttons that answer: approve, reject, or send a signal. */
import { useSignal } from "@preact/signals";
import { ask, client, type components, requestId } from "../api/client";
import { may, session } from "../lib/session";
import { Action } from "./action";
import { When } from "./parts";

export type OpenWait = components["schemas"]["OpenWait"];

interface Props {
  /** The waits, each with the job that waits. */
  readonly waits: readonly { readonly job: string; readonly name?: string; readonly wait: OpenWait }[];
  readonly look: () => void;
}

export function Answers({ waits, look }: Props) {
  return (
    <>
      {waits.map(({ job, name, wait }) =>
        wait.question ? (
          <Question key={wait.id} name={name} wait={wait} look={look} />
        ) : (
          <Signal key={wait.id} job={job} wait={wait} look={look} />
        ),
      )}
    </>
  );
}

interface QuestionProps {
  readonly name?: string | undefined;
  readonly wait: OpenWait & { readonly approvers?: readonly string[]; readonly role?: string };
  readonly look: () => void;
}

/** A question with its answer buttons, and a comment for the handler and the journal. */
export function Question({ name, wait, look }: QuestionProps) {
  const comment = useSignal("");
  const open = mayAnswer(wait.approvers, wait.role);
  return (
    <div class="notice waiting approval">
      <span>
        {name && <b>{name} </b>}
        {wait.question} <span class="quiet">It times out <When at={wait.until} />.</span>
      </span>
      {open && (
        <span class="acts">
          <label class="note">
            Comment
            <input maxLength={1000} value={comment.value} onInput={(event) => (comment.value = event.currentTarget.value)} />
          </label>
          <AnswerButtons id={wait.id} comment={comment.value} look={look} />
        </span>
      )}
    </div>
  );
}

/** Return whether the signed-in user may answer. */
function mayAnswer(approvers: readonly string[] = [], role = ""): boolean {
  const { name = "", roles = [] } = session.value ?? {};
  const asked = !approvers.length || approvers.includes(name);
  return may("POST /api/approvals/{approval_id}/approve") && asked && (!role || roles.includes(role));
}

interface AnswerProps {
  readonly id: string;
  readonly comment: string;
  readonly approvers?: readonly string[];
  readonly role?: string;
  readonly look: () => void;
}

/** Approve and reject, for roles that can. */
export function AnswerButtons({ id, comment, approvers, role, look }: AnswerProps) {
  if (!mayAnswer(approvers, role)) return null;
  const path = { params: { path: { approval_id: id } } };
  const body = () => ({ comment, request_id: requestId() });
  return (
    <>
      <Action
        request="POST /api/approvals/{approval_id}/approve"
        done="It was approved."
        run={() => ask(client.POST("/api/approvals/{approval_id}/approve", { ...path, body: body() }))}
        then={look}
      >
        Approve
      </Action>
      <Action
        request="POST /api/approvals/{approval_id}/reject"
        done="It was rejected."
        danger
        run={() => ask(client.POST("/api/approvals/{approval_id}/reject", { ...path, body: body() }))}
        then={look}
      >
        Reject
      </Action>
    </>
  );
}

function Signal({ job, wait, look }: { job: string; wait: OpenWait; look: () => void }) {
  const data = useSignal("");
  const name = wait.name ?? "";
  const send = async () => {
    const said: unknown = data.value.trim() ? JSON.parse(data.value) : null;
    const body = { name, data: said as never, request_id: requestId() };
    return ask(client.POST("/api/jobs/{job_id}/signals", { params: { path: { job_id: job } }, body }));
  };
  return (
    <div class="notice waiting approval">
      <span>
        It waits for the signal <code>{name}</code>. <span class="quiet">It times out <When at={wait.until} />.</span>
      </span>
      <span class="acts">
        <label class="note">
          Data as JSON
          <input class="mono" value={data.value} onInput={(event) => (data.value = event.currentTarget.value)} />
        </label>
        <Action request="POST /api/jobs/{job_id}/signals" done="The signal was sent." run={send} then={look}>
          Send signal
        </Action>
      </span>
    </div>
  );
}
