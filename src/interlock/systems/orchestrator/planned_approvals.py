"""Approvals that the plan of a run demands before a job starts. Pure.

The job is held as one that waits for its needs is. It waits under an address of its own, so that approvals
which its handler asks for are others. A rejection and a timeout cancel it, and the run is notified as of
every end of a job.

Why: decision 0423.
"""

from __future__ import annotations

from interlock.lifecycles import attempt, job
from interlock.store.records import Change
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import Mail
from interlock.systems.orchestrator.mailboxes import GATE, put
from interlock.systems.orchestrator.wait_records import Wait, ask, new_wait
from interlock.wire.runs import PlannedApproval
from interlock.wire.waits import ApprovalQuestion


def open_gate(draft: JobAggregate, commit_id: str) -> tuple[Change, ...]:
    """Make a job of a run wait for the approval that its plan demands.

    Return the change of the wait. Return nothing for a job that needs none, or has waited before.
    """
    part = draft.body.run
    if part is None or part.approval is None or GATE in draft.body.mail or draft.root.state in job.ENDED:
        return ()
    terms = part.approval
    wait = Wait(
        job_id=draft.id,
        address=GATE,
        number=1,
        task=draft.body.task,
        run_id=part.run_id,
        question=question_of(terms),
        asked_at=draft.now,
    )
    waits_s = draft.settings.durations.approval_timeout_s if terms.timeout_s is None else terms.timeout_s
    entity = new_wait(wait, draft.place.queue, draft.now, waits_s)
    entity.must(ask)
    until = entity.deadline_at
    put(draft, GATE, Mail(asked=1, wait=entity.id, since=draft.now, until=until, question=terms.question))
    for one in draft.body.attempts:
        if one.state is attempt.CREATED:
            one.awaits = entity.id
    return (entity.change(commit_id=commit_id, actor="orchestrator"),)


def question_of(terms: PlannedApproval) -> ApprovalQuestion:
    """Return the question of a plan."""
    return ApprovalQuestion(text=terms.question, approvers=terms.approvers, role=terms.role)
