"""The record of a wait: a handler waits for a signal, or for a person who approves or rejects. Pure.

A wait and its answer meet in one record of the kind `job_wait`. Whichever comes first creates it: a signal
that comes before the wait is kept in it until the handler waits. Every decision changes the job in the same
commit, so the version of the job orders waits, answers, timeouts and the end of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from interlock.engine.aggregate import Columns, Entity, RecordKind
from interlock.engine.unit_of_work import Decision
from interlock.errors import (
    JobError,
    NotAllowed,
    TerminalState,
    TransitionNotAllowed,
    UnknownApproval,
)
from interlock.lifecycles import job
from interlock.lifecycles.durations import deadline
from interlock.lifecycles.job import JOB
from interlock.lifecycles.owners import Owner
from interlock.machine import (
    Event,
    Machine,
    Tone,
    command,
    consequence,
    end,
    ignore,
    on,
    refuse,
    state,
    timer,
)
from interlock.machine.cascade import EventRules
from interlock.store.records import Commit, Key, Record
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.attachments import WaitHeartbeat
from interlock.systems.orchestrator.body import Mail, unknown_job
from interlock.systems.orchestrator.cancellation import commit_of
from interlock.systems.orchestrator.mailboxes import (
    GATE,
    NO_MAIL,
    answered,
    check_number,
    id_of,
    next_signal,
    put,
)
from interlock.systems.orchestrator.runner_messages import decide_message
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.tokens import Token
from interlock.wire.access import Role
from interlock.wire.runner import Heard
from interlock.wire.waits import ApprovalQuestion, ApprovalView, WaitAnswer, WaitRequest

_INSTANT = timedelta(microseconds=1)


class WaitState(StrEnum):
    """States of a wait."""

    CREATED = "CREATED"
    WAITING = "WAITING"
    KEPT = "KEPT"
    RECEIVED = "RECEIVED"
    APPROVED = "APPROVED"
    REJECTED = "REJECTED"
    TIMED_OUT = "TIMED_OUT"
    CANCELED = "CANCELED"


CREATED, WAITING, KEPT = WaitState.CREATED, WaitState.WAITING, WaitState.KEPT
RECEIVED, APPROVED, REJECTED = WaitState.RECEIVED, WaitState.APPROVED, WaitState.REJECTED
TIMED_OUT, CANCELED = WaitState.TIMED_OUT, WaitState.CANCELED
OPEN = (CREATED, WAITING, KEPT)
ENDED = (RECEIVED, APPROVED, REJECTED, TIMED_OUT, CANCELED)


class Wait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of the record of a wait."""

    job_id: str
    address: str
    number: int
    task: str = ""
    run_id: str | None = None
    question: ApprovalQuestion | None = None
    """Question to a person; None for a signal."""
    asked_at: datetime | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")
    by: str = ""
    comment: str = ""
    answered_at: datetime | None = None


ask: Event = command("ask", "The handler waits.", by=Owner.RUNNER)
send: Event = command("send", "A signal comes.", by=Owner.USER)
approve: Event = command("approve", "A person approves.", by=Owner.USER)
reject: Event = command("reject", "A person rejects.", by=Owner.USER)
time_out: Event = timer("time_out", "No answer has come in time.", by=Owner.CLOCK)
cancel: Event = consequence("cancel", "The job has ended.", by=Owner.ORCHESTRATOR)


def wants_signal(wait: Wait, _: Event) -> bool:
    """it waits for a person, who approves or rejects"""
    return wait.question is None


def wants_decision(wait: Wait, _: Event) -> bool:
    """it waits for a signal, not for a person"""
    return wait.question is not None


WAIT_DEADLINE = deadline(time_out, "approval_timeout_s", since="the wait, unless the handler says how long")
_OVER = "it has its answer, or its job has ended"

# fmt: off
JOB_WAIT = Machine[WaitState, Wait](
    "job_wait",
    "A wait of a job for a signal or an approval, and the answer.",
    initial=CREATED,
    spine=(CREATED, WAITING, RECEIVED),
    stop=(cancel,),
    states=(
        state(CREATED, "Being created, by a wait or by a signal.", turn=Owner.ORCHESTRATOR),
        state(WAITING, "The job waits, without a lease.", turn=Owner.USER, tone=Tone.WAITING,
              within=WAIT_DEADLINE),
        state(KEPT, "The signal came first; it is kept until the handler waits.", turn=Owner.RUNNER,
              tone=Tone.WAITING),
        end(RECEIVED, "The handler gets the signal."),
        end(APPROVED, "A person has approved.", tone=Tone.GOOD),
        end(REJECTED, "A person has rejected."),
        end(TIMED_OUT, "No answer came in time."),
        end(CANCELED, "The job has ended before."),
    ),
    rows=(
        on(ask, CREATED, WAITING, owner=Owner.ORCHESTRATOR, why="No signal has come yet."),
        on(send, CREATED, KEPT, owner=Owner.ORCHESTRATOR, why="No handler waits yet."),
        on(ask, KEPT, RECEIVED, owner=Owner.ORCHESTRATOR, why="The signal has come before."),
        on(send, WAITING, RECEIVED, owner=Owner.ORCHESTRATOR, when=wants_signal, why="The handler waits."),
        on(approve, WAITING, APPROVED, owner=Owner.ORCHESTRATOR, when=wants_decision,
           why="A person has approved it."),
        on(reject, WAITING, REJECTED, owner=Owner.ORCHESTRATOR, when=wants_decision,
           why="A person has rejected it."),
        on(time_out, WAITING, TIMED_OUT, owner=Owner.ORCHESTRATOR, why="The handler waits no longer."),
        on(cancel, OPEN, CANCELED, owner=Owner.ORCHESTRATOR, why="The job does not wait any more."),

        ignore(ask, WAITING, why="it waits already"),
        ignore(time_out, (CREATED, KEPT, *ENDED), why="the job does not wait"),
        ignore(cancel, ENDED, why="it is over"),
        *(refuse(answer, (CREATED, KEPT), why="no handler waits for an answer")
          for answer in (approve, reject)),
        *(refuse(answer, ENDED, why=_OVER) for answer in (ask, send, approve, reject)),
        refuse(send, KEPT, why="the signal has come before"),
    ),
)
# fmt: on

_WAITS = RecordKind(JOB_WAIT, Wait, events=EventRules(sent=(cancel,)))
REJECTED_JOB, NOT_APPROVED = "rejected", "not_approved"
"""Stop reasons of jobs of runs that were not approved."""
MOVED = object()
"""Answer of a decider that needs another wait than the one it was given: load again."""
OVERDUE = object()
"""Answer of a decider about a wait that has timed out, which no sweep has noticed yet."""


def wait_key(wait_id: str) -> Key:
    """Return the key of the record of a wait."""
    return Key(JOB_WAIT.name, wait_id)


def body_of(record: Record) -> Wait:
    """Return the body of a wait."""
    return _WAITS.body_of(record)


def new_wait(wait: Wait, queue: str | None, now: datetime, waits_s: float) -> Entity[Wait]:
    """Return the record of a new wait, which times out after `waits_s`."""
    label = "signal" if wait.question is None else "approval"
    columns = Columns(parent=wait.job_id, queue=queue, labels=(label,))
    name = id_of(wait.job_id, wait.address, wait.number)
    return _WAITS.lasting(approval_timeout_s=waits_s).new(name, wait, now, columns)


# A handler waits


def wait_asked(job_id: str, address: str, record: Record | None, number: int) -> str:
    """Return the wait that a handler means: its own, or an open one."""
    mail = NO_MAIL if record is None else _mailbox(record).get(address, NO_MAIL)
    return mail.wait if mail.wait and number > mail.asked else id_of(job_id, address, number)


def decide_ask(
    found: Sequence[Record | None],
    now: datetime,
    *,
    token: Token,
    request: WaitRequest,
    address: str,
    wait_id: str,
    commit_id: str,
    settings: OrchestratorSettings,
) -> Decision[object]:
    """Return the answer that a wait has, or make the job wait.

    The attempt has to have the live lease. The answer is that to the runner's message if it is refused,
    `MOVED`, or the `WaitAnswer`.
    """
    record, wait = found
    mail = NO_MAIL if record is None else _mailbox(record).get(address, NO_MAIL)
    if wait_id != wait_asked(token.job_id, address, record, request.number):
        return Decision(MOVED)
    waits_s = request.timeout_s or settings.durations.approval_timeout_s
    until = now + timedelta(seconds=waits_s)
    new = _mail_asked(mail, request, wait_id, now, until)
    message = WaitHeartbeat(token=request.token, runner_id=request.runner_id, address=address, mail=new)
    decision = decide_message(record, token, message, now, commit_id, settings)
    if record is None or decision.commit is None or not isinstance(decision.answer, Heard):
        return Decision(decision.answer, decision.commit)
    check_number(mail, request.name, request.number)
    if new is mail:
        return Decision(_known(wait, wait_id))
    entity = _opened(wait, record, request, address, now, waits_s)
    change = entity.change(commit_id=commit_id, actor=request.runner_id)
    commit = replace(decision.commit, changes=(*decision.commit.changes, change))
    return Decision(_answer(wait_id, entity.state, entity.body), commit)


def _mail_asked(mail: Mail, request: WaitRequest, wait_id: str, now: datetime, until: datetime) -> Mail:
    """Return the mailbox after the wait; the same one if it is no new wait."""
    if mail.wait or request.number <= mail.asked:
        return mail
    if mail.signalled >= request.number:
        return replace(mail, asked=request.number)
    question = None if request.question is None else request.question.text
    return replace(mail, asked=request.number, wait=wait_id, since=now, until=until, question=question)


def _opened(
    kept: Record | None, record: Record, request: WaitRequest, address: str, now: datetime, waits_s: float
) -> Entity[Wait]:
    if kept is not None:
        entity = _WAITS.of(kept, now)
        entity.must(ask)
        entity.body = replace(entity.body, asked_at=now)
        return entity
    seen = _seen(record)
    wait = Wait(
        job_id=record.id,
        address=address,
        number=request.number,
        task=seen.task,
        run_id=None if seen.run is None else seen.run.run_id,
        question=request.question,
        asked_at=now,
    )
    entity = new_wait(wait, record.queue, now, waits_s)
    entity.must(ask)
    return entity


def _known(wait: Record | None, wait_id: str) -> WaitAnswer:
    if wait is None:
        raise JobError(
            f"The answer to the wait {wait_id} is no longer stored.",
            todo="Keep records for longer than jobs wait: see the setting `retention`.",
            facts={"wait_id": wait_id},
        )
    return _answer(wait.id, WaitState(wait.state), body_of(wait))


def _answer(wait_id: str, is_in: WaitState, wait: Wait) -> WaitAnswer:
    data = wait.data if is_in is RECEIVED else msgspec.UNSET
    return WaitAnswer(
        id=wait_id, state=is_in, data=data, by=wait.by, comment=wait.comment, at=wait.answered_at
    )


# A signal comes


class SentSignal(msgspec.Struct, frozen=True):
    """A signal, and its sender."""

    job_id: str
    address: str
    data: msgspec.Raw
    by: str


def decide_signal(
    found: Sequence[Record | None],
    now: datetime,
    *,
    sent: SentSignal,
    wait_id: str,
    commit_id: str,
    settings: OrchestratorSettings,
) -> Decision[object]:
    """Give a signal to the handler that waits for it.

    Without a handler that waits, it is kept until one does. The answer is `MOVED`, `OVERDUE`, or the state
    and the number of the signal.
    """
    record, wait = found
    if record is None:
        raise unknown_job(sent.job_id)
    draft = _living(record, now, settings)
    number = next_signal(draft.body.mail, sent.address)
    if wait_id != id_of(record.id, sent.address, number):
        return Decision(MOVED)
    mail = draft.body.mail.get(sent.address, NO_MAIL)
    if wait is None:
        first = Wait(job_id=record.id, address=sent.address, number=number)
        entity = new_wait(first, record.queue, now, settings.durations.approval_timeout_s)
        put(draft, sent.address, replace(mail, signalled=number))
    elif _is_overdue(wait, now):
        return Decision(OVERDUE)
    else:
        entity = _WAITS.of(wait, now)
        answered(draft, sent.address, signalled=number)
    entity.must(send)
    entity.body = replace(entity.body, data=sent.data, by=sent.by, answered_at=now)
    reason = f"the signal {sent.address.partition('.')[2]} has come"
    commit = _both(draft, entity, commit_id=commit_id, actor=sent.by, reason=reason, until=_until(wait))
    return Decision((entity.state, number), commit)


# A person answers


class ApprovalReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a person, and the roles of that person."""

    approved: bool
    by: str
    roles: tuple[Role, ...] = (Role.ADMIN,)
    comment: str = ""

    @property
    def event(self) -> Event:
        """The event of the table."""
        return approve if self.approved else reject


def decide_reply(
    found: Sequence[Record | None],
    now: datetime,
    *,
    reply: ApprovalReply,
    commit_id: str,
    settings: OrchestratorSettings,
) -> Decision[object]:
    """Approve or reject, and resume the job; `OVERDUE` if it timed out."""
    record, wait = found
    assert wait is not None
    request = body_of(wait)
    assert request.question is not None
    _check_reply(wait, request, request.question, reply)
    if _is_overdue(wait, now):
        return Decision(OVERDUE)
    if record is None:
        raise unknown_job(request.job_id)
    draft = _living(record, now, settings)
    entity = _WAITS.of(wait, now)
    entity.must(reply.event)
    entity.body = replace(request, by=reply.by, comment=reply.comment, answered_at=now)
    answered(draft, request.address, wakes=reply.approved or request.address != GATE)
    if request.address == GATE and not reply.approved:
        _shut(draft, REJECTED_JOB)
        draft.body.cancel_reason = reply.comment
    verb = "approved" if reply.approved else "rejected"
    reason = f"{verb} by {reply.by}" + (f": {reply.comment}" if reply.comment else "")
    commit = _both(draft, entity, commit_id=commit_id, actor=reply.by, reason=reason, until=_until(wait))
    return Decision(None, commit)


def _check_reply(wait: Record, request: Wait, question: ApprovalQuestion, reply: ApprovalReply) -> None:
    if wait.state != WAITING:
        by = f" by {request.by}" if request.by else ""
        raise TransitionNotAllowed(
            f"The approval {wait.id} is {wait.state}{by}, so {reply.event.name} is refused.",
            todo=f"See the answer: interlock approval show {wait.id}",
            facts={"approval_id": wait.id, "state": wait.state, "by": request.by, "machine": JOB_WAIT.name},
        )
    if not any(role.includes(question.role) for role in reply.roles):
        raise NotAllowed(
            f"{reply.by} is {', '.join(reply.roles)}, and this approval needs {question.role}.",
            todo=f"Ask a person whose token has the role {question.role}.",
            allowed=[question.role],
            facts={"principal": reply.by, "approval_id": wait.id, "needed": question.role},
        )
    if question.approvers and reply.by not in question.approvers:
        raise NotAllowed(
            f"{reply.by} is not an approver of the approval {wait.id}.",
            todo=f"Ask one of: {', '.join(question.approvers)}.",
            allowed=question.approvers,
            facts={"principal": reply.by, "approval_id": wait.id},
        )


def _shut(draft: JobAggregate, why: str) -> None:
    """Cancel a job of a run that was not approved."""
    draft.stop_reason = why
    draft.send(job.Cancel(at=draft.now, still_active=draft.body.active, reason=why))


# No answer comes


def decide_timeout(
    found: Sequence[Record | None], now: datetime, *, commit_id: str, settings: OrchestratorSettings
) -> Decision[bool]:
    """Let a wait time out, and the handler continue with that."""
    record, wait = found
    if wait is None or wait.state != WAITING or not _is_overdue(wait, now):
        return Decision(False)
    entity = _WAITS.fired(wait, now)
    request = entity.body
    if record is None or record.state in job.ENDED:
        return Decision(True, Commit(changes=(entity.change(commit_id=commit_id, actor="clock"),)))
    draft = JobAggregate.of(record, now, settings)
    draft.fire_due()
    if draft.root.state not in job.ENDED:
        answered(draft, request.address, wakes=request.address != GATE)
        if request.address == GATE:
            _shut(draft, NOT_APPROVED)
    reason = f"the wait {wait.id} has timed out"
    return Decision(True, _both(draft, entity, commit_id=commit_id, actor="clock", reason=reason))


def decide_close(record: Record | None, now: datetime, commit_id: str) -> Decision[None]:
    """Cancel a wait, or drop a kept signal, of a job that has ended."""
    if record is None or record.state in ENDED:
        return Decision(None)
    entity = _WAITS.of(record, now)
    entity.must(cancel)
    change = entity.change(commit_id=commit_id, actor="orchestrator", reason="its job has ended")
    return Decision(None, Commit(changes=(change,)))


def _both(
    draft: JobAggregate,
    entity: Entity[Wait],
    *,
    commit_id: str,
    actor: str,
    reason: str,
    until: datetime | None = None,
) -> Commit:
    """Return the commit of a job and its wait, valid before the timeout."""
    commit = commit_of(draft, commit_id=commit_id, actor=actor, reason=reason)
    changes = (*commit.changes, entity.change(commit_id=commit_id, actor=actor, reason=reason))
    return replace(commit, changes=changes, not_after=until - _INSTANT if until else None)


def _until(wait: Record | None) -> datetime | None:
    return None if wait is None else wait.deadline_at


def _is_overdue(wait: Record, now: datetime) -> bool:
    return wait.deadline_at is not None and wait.deadline_at <= now


def _living(record: Record, now: datetime, settings: OrchestratorSettings) -> JobAggregate:
    """Return the working copy of a job; raise if it ended or has expired."""
    draft = JobAggregate.of(record, now, settings)
    draft.fire_due()
    if draft.root.state in job.ENDED:
        raise TerminalState(
            f"The job {record.id} is {draft.root.state}, so it receives nothing any more.",
            todo=f"See how it ended: interlock job explain {record.id}",
            facts={"job_id": record.id, "machine": JOB.name, "state": str(draft.root.state)},
        )
    return draft


class _SeenRun(msgspec.Struct):
    run_id: str


class _Seen(msgspec.Struct):
    """The part of a job that its waits need."""

    task: str
    run: _SeenRun | None = None
    mail: dict[str, Mail] = {}


_SEEN = msgspec.json.Decoder(_Seen)


def _seen(record: Record) -> _Seen:
    return _SEEN.decode(record.body)


def _mailbox(record: Record) -> dict[str, Mail]:
    return _seen(record).mail


def signal_asked(job_id: str, address: str, record: Record | None) -> str:
    """Return the wait that the next signal is for.

    Raise if there is no job, or no more signals can be kept.
    """
    if record is None:
        raise unknown_job(job_id)
    return id_of(job_id, address, next_signal(_mailbox(record), address))


def approval_view(record: Record) -> ApprovalView:
    """Return an approval for display."""
    wait = body_of(record)
    assert wait.question is not None
    return ApprovalView(
        id=record.id,
        state=record.state,
        version=record.version,
        job_id=wait.job_id,
        task=wait.task,
        queue=record.queue or "",
        question=wait.question.text,
        name=wait.address.partition(".")[2],
        approvers=wait.question.approvers,
        role=wait.question.role,
        run_id=wait.run_id,
        asked_at=wait.asked_at or record.created_at,
        until=record.deadline_at,
        by=wait.by,
        comment=wait.comment,
        answered_at=wait.answered_at,
    )


def unknown_approval(approval_id: str) -> UnknownApproval:
    """Return the error for an id that no approval has."""
    return UnknownApproval(
        f"There is no approval {approval_id}.",
        todo="List those that wait: interlock approval list",
        facts={"approval_id": approval_id},
    )
