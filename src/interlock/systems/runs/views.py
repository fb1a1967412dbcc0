"""How a run is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from interlock.lifecycles import run
from interlock.lifecycles.run import RunState
from interlock.store.records import Record
from interlock.systems.orchestrator.body import JobBody, decode_body
from interlock.systems.orchestrator.views import failure_view
from interlock.systems.runs import body as letters
from interlock.systems.runs.admission import confined
from interlock.systems.runs.body import RunBody, decode_run
from interlock.systems.runs.plans import Piece
from interlock.wire.runs import HeldTo, RunJobView, RunView, SkippedJob


def view_of(
    record: Record, *, jobs: Sequence[RunJobView] = (), skipped: Sequence[SkippedJob] = ()
) -> RunView:
    """The run as it stands."""
    body, spec = decode_run(record.body), decode_run(record.body).spec
    return RunView(
        id=record.id,
        state=record.state,
        version=record.version,
        workflow=spec.workflow,
        created_at=record.created_at,
        updated_at=record.updated_at,
        outcome=body.data.outcome,
        reason=body.reason,
        source=spec.source,
        planner=spec.planner,
        concurrency_group=body.group,
        labels=spec.labels,
        priority=record.priority,
        planned_at=body.planned_at,
        started_at=body.started_at,
        completed_at=body.completed_at,
        reported_at=body.reported_at,
        deadline_at=record.deadline_at,
        cancel_requested=body.data.cancel_requested,
        confirmed_dead=_confirmed_dead(RunState(record.state), body),
        fail_fast=body.fail_fast,
        tally=_tally(jobs) if jobs else body.tally(),
        jobs=tuple(jobs),
        skipped=tuple(skipped),
        culprit=body.culprit,
        error=body.error,
        origin_run_id=body.origin_run_id,
        superseded_by=body.superseded_by,
        awaiting=body.awaits,
        approvals=body.approvals,
        held_to=_held_to(body),
    )


def _held_to(body: RunBody) -> HeldTo | None:
    terms = body.fork_terms
    return None if terms is None else HeldTo(queue=terms.queue, labels=terms.labels)


def _tally(jobs: Sequence[RunJobView]) -> dict[str, int]:
    """How many of these jobs there are in each state.

    A run hears of its jobs a moment later than they change, and one answer must not say two things.
    """
    return dict(Counter(job.state for job in jobs))


def _confirmed_dead(state: RunState, body: RunBody) -> bool | None:
    """Known once everything that was asked to stop has ended, or once somebody was not heard of in time."""
    if body.unconfirmed or (body.forced and body.left):
        return False
    stopped = state in run.SETTLED and body.data.outcome is not run.SUCCESS
    return True if stopped and not body.left and body.states else None


def job_views(body: RunBody, pieces: Iterable[Piece], found: Mapping[str, Record]) -> list[RunJobView]:
    """The jobs of these pieces, in the order of the plan."""
    return [
        _job_view(body, piece, place, found.get(piece.ids[place - piece.first]))
        for piece in pieces
        for place in range(piece.first, piece.first + len(piece.jobs))
    ]


def _job_view(body: RunBody, piece: Piece, place: int, record: Record | None) -> RunJobView:
    planned, job_id = piece.jobs[place - piece.first], piece.ids[place - piece.first]
    if body.terms is not None:
        planned = confined(planned, body)
    letter = body.states[place] if place < len(body.states) else letters.WAITING
    known: JobBody | None = decode_body(record.body) if record is not None else None
    shown = known if known is not None and letter != letters.WAITING else None
    return RunJobView(
        name=planned.name,
        job_id=job_id,
        state=record.state if shown is not None and record is not None else letters.NAMES[letter],
        required=planned.required,
        needs=planned.needs,
        why=planned.why,
        reason=_reason(letter, known),
        failure=failure_view(known.failure) if known else None,
        started_at=known.data.started_at if known else None,
        completed_at=known.data.completed_at if known else None,
        workflow=planned.workflow,
    )


def _reason(letter: str, known: JobBody | None) -> str:
    if letter == letters.CARRIED:
        return "carried_over"
    return (known.data.stop_reason or "") if known else ""
