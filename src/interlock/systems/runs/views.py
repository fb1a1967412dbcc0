"""Views of a run: its state, why it waits, and how it compares with the last green run.

An explanation names the reason why the run and each of its jobs wait, the role that acts next, and the
deadline. All of it is derived from the records and the tables that decide.

The last green run of the same workflow, repository and ref is found by the labels of run records, newest
first. A store cannot search for an outcome, so at most `LOOKS_BACK` settled runs of the last `WITHIN` are
read until one is green; jobs are loaded for that one only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal

import msgspec

from interlock.lifecycles import job, run
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.run import RUN, RunState
from interlock.store.records import Record
from interlock.systems.orchestrator import explanation as jobs
from interlock.systems.orchestrator.body import JobBody, decode_body
from interlock.systems.orchestrator.explanation import Blocker
from interlock.systems.orchestrator.mailboxes import wait_of
from interlock.systems.orchestrator.views import failure_view
from interlock.systems.runs import body as letters
from interlock.systems.runs.body import RunBody, decode_run
from interlock.systems.runs.plan_validation import confined
from interlock.systems.runs.plans import PlanGraph, PlanPiece
from interlock.text import counted
from interlock.wire.runs import (
    HeldTo,
    JobChange,
    RunComparison,
    RunExplanation,
    RunFilter,
    RunJobView,
    RunView,
    RunWaiting,
    SkippedJob,
)
from interlock.wire.waits import OpenWait


def view_of(
    record: Record, *, jobs: Sequence[RunJobView] = (), skipped: Sequence[SkippedJob] = ()
) -> RunView:
    """Return the view of a run."""
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
    """Return the number of these jobs in each state.

    A run receives job changes a moment later, and one response must be consistent.
    """
    return dict(Counter([job.state for job in jobs]))


def _confirmed_dead(state: RunState, body: RunBody) -> bool | None:
    """Return whether all stopped jobs are known to have ended.

    Return None while this is open.
    """
    if body.unconfirmed or (body.forced and body.left):
        return False
    stopped = state in run.SETTLED and body.data.outcome is not run.SUCCESS
    return True if stopped and not body.left and body.states else None


def job_views(body: RunBody, pieces: Iterable[PlanPiece], found: Mapping[str, Record]) -> list[RunJobView]:
    """Return the jobs of these pieces, in the order of the plan."""
    return [
        _job_view(body, piece, place, found.get(piece.ids[place - piece.first]))
        for piece in pieces
        for place in range(piece.first, piece.first + len(piece.jobs))
    ]


def _job_view(body: RunBody, piece: PlanPiece, place: int, record: Record | None) -> RunJobView:
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
        failure=failure_view(known.failure) if known is not None and known.failure is not None else None,
        started_at=known.data.started_at if known else None,
        completed_at=known.data.completed_at if known else None,
        workflow=planned.workflow,
        awaiting=_awaiting(known) if known is not None and known.mail else None,
    )


def _awaiting(known: JobBody) -> OpenWait | None:
    """Return the open wait of a job, for a person or a program."""
    waits = (wait_of(one, known) for one in known.attempts)
    return next((each for each in waits if each is not None), None)


def _reason(letter: str, known: JobBody | None) -> str:
    if letter == letters.CARRIED:
        return "carried_over"
    return (known.data.stop_reason or "") if known else ""


MOST_LINES = 100
MOST_NAMES = 5

_REASONS = {
    "plan_failed": "there was no plan",
    "planner_timeout": "the planner took too long",
    "required_job_failed": "a required job has failed",
    "job_canceled": "a required job was stopped",
    "timeout": "it exceeded its timeout",
    "superseded": "a newer run of its group has taken its place",
    "cancel": "a user cancelled it",
    "declined": "an operator has declined it",
    "not_approved": "no operator has approved it in time",
}


def unfinished(body: RunBody) -> list[int]:
    """Return the places of jobs that have not ended."""
    return [place for place, letter in enumerate(body.states) if letter not in letters.ENDED]


def explain(
    record: Record,
    graph: PlanGraph | None,
    found: Mapping[str, Record],
    now: datetime,
    blockers: Mapping[str, Blocker] = MappingProxyType({}),
) -> RunExplanation:
    """Return the explanation of a run; `found` are its loaded jobs.

    `blockers` has the reasons why no live worker takes some of them.
    """
    body, state = decode_run(record.body), RunState(record.state)
    places = unfinished(body) if graph is not None else []
    shown = places[:MOST_LINES]
    lines = [] if state is run.REPORTED else [_about_run(record, body, state, graph, places)]
    if graph is not None:
        for place in shown:
            job_id = graph.ids[place]
            lines.append(_about_job(body, graph, place, found.get(job_id), now, blockers.get(job_id)))
    deadlines = [line.deadline_at for line in lines if line.deadline_at is not None]
    return RunExplanation(
        run_id=record.id,
        state=state,
        sentence=_ended(body) if state is run.REPORTED else lines[0].sentence,
        lines=tuple(lines),
        more=len(places) - len(shown),
        next_deadline_at=min(deadlines) if deadlines else None,
        todo=_todo(record.id, body, state)
        or next((blocker.todo for blocker in blockers.values()), "")
        or next(filter(None, map(_to_answer, found.values())), ""),
    )


def _to_answer(record: Record) -> str:
    """Return the command that ends the wait of a job.

    It is empty if it waits for nothing.
    """
    if record.state in job.ENDED or b'"awaits"' not in record.body:
        return ""
    return jobs.to_answer(record, decode_body(record.body))


def _ended(body: RunBody) -> str:
    sentence = f"It ended as {body.data.outcome}, and was reported"
    return f"{sentence}: {_reason_text(body)}." if body.reason else f"{sentence}."


def _reason_text(body: RunBody) -> str:
    why = _REASONS.get(body.reason, body.reason)
    if body.culprit:
        return f"{why} ({body.culprit})"
    return f"{why}: {body.error.rstrip('.')}" if body.error else why


def _todo(run_id: str, body: RunBody, state: RunState) -> str:
    if state is run.AWAITING_APPROVAL:
        return f"interlock run approve {run_id}"
    if body.data.outcome in (None, run.SUCCESS) or body.superseded_by:
        return ""
    return f"interlock run rerun {run_id}" + (" --failed" if body.states else "")


def _about_run(
    record: Record, body: RunBody, state: RunState, graph: PlanGraph | None, places: list[int]
) -> RunWaiting:
    entry = RUN.table.entry(state)
    return RunWaiting(
        entity=f"run {record.id}",
        state=state,
        sentence=_run_sentence(body, state, graph, places),
        turn=str(entry.turn or ""),
        deadline_at=record.deadline_at,
        deadline_event=entry.within.event.name if entry.within and record.deadline_at else "",
        accepts=RUN.accepts(state),
    )


def _run_sentence(body: RunBody, state: RunState, graph: PlanGraph | None, places: list[int]) -> str:
    total = len(body.states)
    names = _listed([graph.names[place] for place in places]) if graph is not None else "its jobs"
    match state:
        case run.CREATED:
            return "It waits to be planned."
        case run.AWAITING_APPROVAL:
            return f"It waits for an operator's approval: {_awaited(body)}."
        case run.PLANNING:
            return f"The planner {body.spec.planner} works out the jobs."
        case run.QUEUED:
            return f"None of its {counted(total, 'job')} has begun; they wait for runners: {names}."
        case run.RUNNING:
            return f"{total - body.left} of {counted(total, 'job')} ended; it waits for {names}."
        case run.CANCEL_REQUESTED:
            return f"It is being stopped ({body.stop_reason}); it waits for {names}."
        case _:
            why = f": {_reason_text(body)}" if body.reason else ""
            return f"It ended as {body.data.outcome}{why}; that waits to be reported."


def _awaited(body: RunBody) -> str:
    """Return the subject of the approval, the requester and the commit."""
    source, awaits = body.spec.source, body.awaits
    what = "the change comes from a fork"
    if awaits is not None and awaits.environments:
        what = f"its jobs use the environment {' and '.join(awaits.environments)}"
    of = " of ".join(filter(None, (f"commit {source.sha[:12]}" if source.sha else "", source.repository)))
    by = f"asked for by {source.actor}" if source.actor else ""
    return ", ".join(filter(None, (what, of, by)))


def _about_job(
    body: RunBody, graph: PlanGraph, place: int, record: Record | None, now: datetime, blocker: Blocker | None
) -> RunWaiting:
    letter, name = body.states[place], graph.names[place]
    if letter == letters.WAITING or record is None or JobState(record.state) in job.ENDED:
        return RunWaiting(
            entity=name,
            job_id=graph.ids[place],
            state=letters.NAMES[letter],
            sentence=_waiting_sentence(body, graph, place, record),
            turn=str(JOB.table.entry(job.PENDING).turn or ""),
            accepts=JOB.accepts(job.PENDING),
        )
    known = jobs.explain(record, now, blocker=blocker)
    first = known.lines[-1] if known.lines else None
    return RunWaiting(
        entity=name,
        job_id=record.id,
        state=letters.NAMES[letter] if letter == letters.STOPPING else record.state,
        sentence=known.sentence,
        turn=first.turn if first else "",
        deadline_at=known.next_deadline_at,
        deadline_event=first.deadline_event if first else "",
        accepts=JOB.accepts(JobState(record.state)),
    )


def _waiting_sentence(body: RunBody, graph: PlanGraph, place: int, record: Record | None) -> str:
    if record is not None and JobState(record.state) in job.ENDED:
        return f"It is {record.state}; the run has not been notified of that yet."
    needed = [each for each in graph.needs[place] if body.states[each] not in letters.ENDED]
    if not needed:
        return "It is about to be released to runners."
    return (
        "It waits for "
        + _listed([f"{graph.names[each]} ({letters.NAMES[body.states[each]]})" for each in needed])
        + "."
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


LOOKS_BACK = 100
"""Maximum number of earlier runs to read."""
WITHIN = timedelta(days=14)
MOST_CHANGES = 200
SLOWER_BY = 1.25
SLOWER_BY_S = 2.0
"""Smaller differences are noise: a busy machine, a cold cache."""
_WORST_FIRST = ("failed", "slower", "new", "gone")


def earlier_runs(view: RunView) -> RunFilter | None:
    """Return the filter for settled runs of the same kind.

    Return None if the kind is undefined.
    """
    if not (view.workflow or view.source.repository):
        return None
    return RunFilter(
        states=(str(run.SUCCESS), str(run.REPORTED)),
        workflow=view.workflow,
        repository=view.source.repository,
        ref=view.source.ref,
        since=view.created_at - WITHIN,
        until=view.created_at,
    )


def is_green(view: RunView, other: RunView) -> bool:
    """Return whether a run is green and of the same kind.

    A filter ignores empty fields.
    """
    return view.outcome == run.SUCCESS and _kind(view) == _kind(other)


def compared(view: RunView, green: RunView | None, looked_at: int) -> RunComparison:
    """Return the jobs that have changed since the last green run."""
    if green is None:
        return RunComparison(run_id=view.id, looked_at=looked_at)
    found = compared_with(view, green)
    return msgspec.structs.replace(found, green=found.other, other=None, looked_at=looked_at)


def compared_with(view: RunView, other: RunView) -> RunComparison:
    """Return the jobs that differ from those of another run."""
    changes = sorted(_changes(view.jobs, other.jobs), key=lambda each: _WORST_FIRST.index(each.change))
    return RunComparison(
        run_id=view.id,
        other=msgspec.structs.replace(other, jobs=(), skipped=()),
        changes=tuple(changes[:MOST_CHANGES]),
        more=max(0, len(changes) - MOST_CHANGES),
    )


def _changes(now: Sequence[RunJobView], green: Sequence[RunJobView]) -> Iterator[JobChange]:
    before = {each.name: each for each in green}
    for one in now:
        known = before.pop(one.name, None)
        if known is None:
            yield JobChange(name=one.name, change="new", job_id=one.job_id, took_s=_took_s(one))
        elif known.job_id != one.job_id and (change := _change(one, known)):
            yield change
    for gone in before.values():
        yield JobChange(name=gone.name, change="gone", before_job_id=gone.job_id, before_s=_took_s(gone))


def _change(one: RunJobView, known: RunJobView) -> JobChange | None:
    took_s, before_s = _took_s(one), _took_s(known)
    if one.state == job.FAILED and known.state == job.COMPLETED:
        return _differs(one, known, "failed")
    if took_s is None or before_s is None or one.state != job.COMPLETED:
        return None
    is_slower = took_s >= before_s * SLOWER_BY and took_s - before_s >= SLOWER_BY_S
    return _differs(one, known, "slower") if is_slower else None


def _differs(one: RunJobView, known: RunJobView, change: Literal["failed", "slower"]) -> JobChange:
    return JobChange(
        name=one.name,
        change=change,
        job_id=one.job_id,
        before_job_id=known.job_id,
        took_s=_took_s(one),
        before_s=_took_s(known),
    )


def _took_s(one: RunJobView) -> float | None:
    if one.started_at is None or one.completed_at is None:
        return None
    return (one.completed_at - one.started_at).total_seconds()


def _kind(view: RunView) -> tuple[str, str, str]:
    return view.workflow, view.source.repository, view.source.ref
