"""What is shown of jobs, as rows; how they are shown is not decided here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from interlock.cli.printing import Sheet
from interlock.cli.steps import StepShown
from interlock.cli.times import ago, iso, lasting, shown
from interlock.systems.orchestrator.explanation import Explanation
from interlock.wire.jobs import AttemptView, JobView, QueueView
from interlock.wire.runner import Progress

LONGEST = 600
"""As much of an input or a result is shown on a terminal."""


def list_sheet(views: Iterable[JobView], now: datetime, *, terminal: bool) -> Sheet:
    """One line for each job."""
    times = ("submitted", "took") if terminal else ("submitted", "started", "ended")
    rows = [
        (view.id, view.state, view.task, view.queue, *_times(view, now, terminal=terminal), said(view))
        for view in views
    ]
    columns = ("id", "state", "task", "queue", *times, "says")
    return Sheet("job", "", columns, rows, one_line=True, spare=("queue", "took", "submitted"))


def job_sheets(view: JobView, now: datetime, *, terminal: bool) -> list[Sheet]:
    """Everything about one job."""
    about = [(what, value) for what, value in _about(view, now, terminal=terminal) if value]
    attempts = [_attempt_row(one, now, terminal=terminal) for one in view.attempts]
    columns = ("attempt", "state", "runner", "began", "took", "says")
    return [
        Sheet("about", "Job", ("what", "value"), about),
        Sheet("attempt", "Attempts", columns, attempts),
    ]


def history_sheet(steps: Sequence[StepShown], *, terminal: bool) -> Sheet:
    """Every step, the oldest first."""
    columns = ("when", "what", "event", "from", "to", "owner", "actor", "reason")
    first = steps[0].at if steps else None
    rows = [
        (_when(step.at, first) if terminal else iso(step.at), *_step_cells(step), step.reason)
        for step in steps
    ]  # fmt: skip
    return Sheet("step", "", columns, rows, spare=("owner", "actor", "from"))


def explanation_sheet(told: Explanation, now: datetime, *, terminal: bool) -> Sheet:
    """What it waits for, one line for each thing that has not ended."""
    rows = [
        (line.entity, line.state, line.sentence, line.turn, shown(line.deadline_at, now, terminal=terminal))
        for line in told.lines
    ]
    return Sheet("waiting", "", ("what", "state", "why", "turn", "deadline"), rows)


def queues_sheet(queues: Iterable[QueueView], now: datetime, *, terminal: bool) -> Sheet:
    """One line for each queue."""
    rows = [
        (
            queue.name,
            _count(queue.pending, capped=queue.capped),
            _count(queue.running, capped=queue.capped),
            shown(queue.oldest_created_at, now, terminal=terminal),
            queue.state,
        )
        for queue in queues
    ]
    return Sheet("queue", "", ("name", "pending", "running", "oldest pending", "state"), rows)


def step_row(step: StepShown) -> tuple[str, ...]:
    """A step of some job, for a pipe."""
    return (iso(step.at), step.job_id, *_step_cells(step), step.reason)


def said(view: JobView) -> str:
    """What a job says about itself: how far it is, why it failed, what stops it."""
    if view.failure is not None:
        return f"{view.failure.failure_class}: {view.failure.error}"
    if view.stop_reason is not None:
        return f"stopped: {view.stop_reason}" if view.completed_at else f"stopping: {view.stop_reason}"
    if view.completed_at is None:
        told = [progress_text(one.progress) for one in view.attempts if one.progress and not one.ended_at]
        return "; ".join(told) or view.description
    return view.description


def progress_text(progress: Progress) -> str:
    """How far an attempt says it is."""
    share = ""
    if progress.done is not None and progress.total:
        share = f"{progress.done / progress.total:.0%}"
    elif progress.done is not None:
        share = f"{progress.done:g}"
    return f"{share} {progress.message}".strip()


def _about(view: JobView, now: datetime, *, terminal: bool) -> Iterator[tuple[str, str]]:
    def when(at: datetime | None) -> str:
        return f"{ago(at, now)} ({iso(at)})" if terminal and at else iso(at)

    yield "id", view.id
    yield "state", view.state
    yield "task", view.task
    yield "description", view.description
    yield "queue", view.queue
    yield "priority", str(view.priority) if view.priority else ""
    yield "labels", ", ".join(view.labels)
    yield "shards", str(view.worker_count) if view.worker_count > 1 else ""
    yield "parent", view.parent_job_id or ""
    yield "children", str(view.children) if view.children else ""
    yield "again after", view.origin_job_id or ""
    yield "submitted", when(view.created_at)
    yield "ready", when(view.ready_at)
    yield "started", when(view.started_at)
    yield "ended", when(view.completed_at)
    yield "took", _took(view, now) if terminal else ""
    yield "next deadline", when(view.deadline_at)
    yield "stop reason", ": ".join(filter(None, (view.stop_reason, view.cancel_reason)))
    yield "losses", str(view.losses) if view.losses else ""
    costs = [one.cost for one in view.attempts if one.cost is not None]
    yield "cost", f"{sum(costs):g}" if costs else ""
    yield from _contents(view, terminal=terminal)


def _contents(view: JobView, *, terminal: bool) -> Iterator[tuple[str, str]]:
    if view.failure is not None:
        yield "failure", f"{view.failure.failure_class}: {view.failure.error}"
        yield "details", "" if terminal else view.failure.details  # people get it with its lines, below
    yield "input", _short(_text(view.input), terminal=terminal)
    if isinstance(view.result, msgspec.Raw):
        yield "result", _short(_text(view.result), terminal=terminal)
    for one in view.attempts:
        if isinstance(one.result, msgspec.Raw):
            name = f"result of {one.shard}.{one.index}, after the cancel"
            yield name, _short(_text(one.result), terminal=terminal)


def _attempt_row(one: AttemptView, now: datetime, *, terminal: bool) -> tuple[str, ...]:
    runner = one.lease.runner_id if one.lease else ""
    took = _span(one.started_at, one.ended_at, now) if terminal else iso(one.ended_at)
    told = f"{one.failure.failure_class}: {one.failure.error}" if one.failure else ""
    if one.progress is not None and not told:
        told = progress_text(one.progress)
    name = f"{one.shard}.{one.index}"
    return (name, one.state, runner, shown(one.started_at, now, terminal=terminal), took, told)


def _step_cells(step: StepShown) -> tuple[str, ...]:
    target = "" if step.refused else step.target
    return (step.who, step.event, step.source if step.moves else "", target, step.owner, step.actor)


def _when(at: datetime, first: datetime | None) -> str:
    since = (at - first).total_seconds() if first else 0.0
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}  +{lasting(since)}"


def _times(view: JobView, now: datetime, *, terminal: bool) -> tuple[str, ...]:
    if terminal:
        return ago(view.created_at, now), _took(view, now)
    return iso(view.created_at), iso(view.started_at), iso(view.completed_at)


def _took(view: JobView, now: datetime) -> str:
    return _span(view.started_at, view.completed_at, now)


def _span(start: datetime | None, end: datetime | None, now: datetime) -> str:
    return "" if start is None else lasting(max(0.0, ((end or now) - start).total_seconds()))


def _count(number: int, *, capped: bool) -> str:
    return f"{number}+" if capped and number else str(number)


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode(errors="replace")


def _short(text: str, *, terminal: bool) -> str:
    return f"{text[:LONGEST]}… (--json shows all of it)" if terminal and len(text) > LONGEST else text
