"""Why a run is not done yet: what it and each of its jobs wait for, whose turn it is, and until when.

Everything is read from the records and from the tables, the same that decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from interlock.lifecycles import job, run
from interlock.lifecycles.job import JOB, JobState
from interlock.lifecycles.run import RUN, RunState
from interlock.plurals import counted
from interlock.store.records import Record
from interlock.systems.orchestrator import explanation as jobs
from interlock.systems.orchestrator.claimers import Lack
from interlock.systems.runs import body as letters
from interlock.systems.runs.body import RunBody, decode_run
from interlock.systems.runs.plans import Graph
from interlock.wire.runs import RunExplanation, RunWaiting

MOST_LINES = 100
MOST_NAMES = 5

_REASONS = {
    "plan_failed": "there was no plan",
    "planner_timeout": "the planner took too long",
    "required_job_failed": "a required job has failed",
    "job_canceled": "a required job was stopped",
    "timeout": "it lasted for longer than it may",
    "superseded": "a newer run of its group has taken its place",
    "cancel": "somebody asked for that",
    "declined": "an operator has declined it",
    "not_approved": "no operator has approved it in time",
}


def unfinished(body: RunBody) -> list[int]:
    """The places of jobs that have not ended."""
    return [place for place, letter in enumerate(body.states) if letter not in letters.ENDED]


def explain(
    record: Record,
    graph: Graph | None,
    found: Mapping[str, Record],
    now: datetime,
    lacks: Mapping[str, Lack] = MappingProxyType({}),
) -> RunExplanation:
    """What is known about a run at this moment; `found` are those of its jobs that were loaded.

    `lacks` says of some of them why no live worker takes them.
    """
    body, state = decode_run(record.body), RunState(record.state)
    places = unfinished(body) if graph is not None else []
    shown = places[:MOST_LINES]
    lines = [] if state is run.REPORTED else [_about_run(record, body, state, graph, places)]
    if graph is not None:
        for place in shown:
            job_id = graph.ids[place]
            lines.append(_about_job(body, graph, place, found.get(job_id), now, lacks.get(job_id)))
    deadlines = [line.deadline_at for line in lines if line.deadline_at is not None]
    return RunExplanation(
        run_id=record.id,
        state=state,
        sentence=_ended(body) if state is run.REPORTED else lines[0].sentence,
        lines=tuple(lines),
        more=len(places) - len(shown),
        next_deadline_at=min(deadlines) if deadlines else None,
        todo=_todo(record.id, body, state) or next((lack.todo for lack in lacks.values()), ""),
    )


def _ended(body: RunBody) -> str:
    told = f"It ended as {body.data.outcome}, and was reported"
    return f"{told}: {_because(body)}." if body.reason else f"{told}."


def _because(body: RunBody) -> str:
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
    record: Record, body: RunBody, state: RunState, graph: Graph | None, places: list[int]
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


def _run_sentence(body: RunBody, state: RunState, graph: Graph | None, places: list[int]) -> str:
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
            why = f": {_because(body)}" if body.reason else ""
            return f"It ended as {body.data.outcome}{why}; that waits to be reported."


def _awaited(body: RunBody) -> str:
    """What has to be approved, who asks, and for which commit."""
    source, awaits = body.spec.source, body.awaits
    what = "the change comes from a fork"
    if awaits is not None and awaits.environments:
        what = f"its jobs use the environment {' and '.join(awaits.environments)}"
    of = " of ".join(filter(None, (f"commit {source.sha[:12]}" if source.sha else "", source.repository)))
    by = f"asked for by {source.actor}" if source.actor else ""
    return ", ".join(filter(None, (what, of, by)))


def _about_job(
    body: RunBody, graph: Graph, place: int, record: Record | None, now: datetime, lack: Lack | None
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
    known = jobs.explain(record, now, lack=lack)
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


def _waiting_sentence(body: RunBody, graph: Graph, place: int, record: Record | None) -> str:
    if record is not None and JobState(record.state) in job.ENDED:
        return f"It is {record.state}; the run has not heard of that yet."
    needed = [each for each in graph.needs[place] if body.states[each] not in letters.ENDED]
    if not needed:
        return "It is about to be given to runners."
    return (
        "It waits for "
        + _listed([f"{graph.names[each]} ({letters.NAMES[body.states[each]]})" for each in needed])
        + "."
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
