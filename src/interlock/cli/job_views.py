"""Find the jobs that the user names, and show them: `job list|show|history|explain`, `queue …`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
import typer

from interlock.cli import output
from interlock.cli.bulk_actions import filter_among, too_many
from interlock.cli.connection import actor, ask
from interlock.cli.journal import StepShown, steps_in
from interlock.cli.output import Sheet, ago, iso, lasting, print_struct, shown
from interlock.errors import UnknownJob
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.remote.interfaces import JobsApi, Reach
from interlock.remote.search import Found, find
from interlock.store.records import Query
from interlock.systems.orchestrator.explanation import Explanation
from interlock.systems.orchestrator.ids import drawn_at
from interlock.systems.orchestrator.queues import QueueState
from interlock.text import harmless, harmless_lines
from interlock.wire.filter_language import ID_DIGITS
from interlock.wire.filters import MAX_SCANNED, Filter, job_id_of, read_filter
from interlock.wire.jobs import AttemptView, JobView, QueueHold, QueueView
from interlock.wire.runner import Progress

PAGE = 500
MAX_CANDIDATES = 10
MOST_BLOCKED = 5
"""For how many kinds of pending jobs it is looked up whether a worker takes them."""
_PREFIX = "j_"
# An id names the time at which it was drawn. The job is stored a little later, and in a bulk the ids
# run ahead of the time: so far around it a job may have been created.
_AHEAD, _LATE = timedelta(minutes=5), timedelta(minutes=1)


async def chosen(jobs: JobsApi, words: Sequence[str], *, among: Sequence[str] = ()) -> list[JobView]:
    """The jobs that ids or a filter name; of a filter only those in one of the states `among`."""
    wanted = filter_in(words)
    if wanted is None:
        ids = [await whole_id(jobs, word) for word in words]
        return [await jobs.get(job_id) for job_id in dict.fromkeys(ids)]
    found = await find(jobs, wanted.among(among) if among else wanted, limit=MAX_SCANNED)
    if found.cursor:
        raise too_many("job", wanted, MAX_SCANNED, keys="since:, until:, queue: or state:")
    return found.views


def filter_in(words: Sequence[str]) -> Filter | None:
    """The filter that words make together; None when they are ids."""
    return filter_among(words, job_id_of, read_filter)


async def whole_id(jobs: JobsApi, text: str) -> str:
    """The id of a job from what somebody typed: the beginning is enough where it is the only one."""
    job_id = job_id_of(text)
    if job_id is None:
        raise UnknownJob(
            f"{text!r} is not the id of a job, which is {_PREFIX} and {ID_DIGITS} hex digits.",
            todo="Take ids from `interlock job list`; the beginning is enough.",
            facts={"job_id": text},
        )
    if len(job_id) == len(_PREFIX) + ID_DIGITS:
        return job_id
    return await _completed(jobs, job_id)


async def _completed(jobs: JobsApi, beginning: str) -> str:
    """The only job whose id begins like this."""
    digits = beginning.removeprefix(_PREFIX)
    first = int(digits.ljust(ID_DIGITS, "0"), 16)
    last = int(digits.ljust(ID_DIGITS, "f"), 16)
    query = Query(
        kind=JOB.name,
        since=drawn_at(first) - _AHEAD,
        until=drawn_at(last) + _LATE,
        limit=PAGE,
    )
    candidates: list[JobView] = []
    scanned = 0
    while True:
        views, cursor = await jobs.find(query)
        candidates += [view for view in views if view.id.startswith(beginning)]
        scanned += len(views)
        if not cursor or scanned >= MAX_SCANNED or len(candidates) > MAX_CANDIDATES:
            break
        query = msgspec.structs.replace(query, cursor=cursor)
    if len(candidates) == 1 and not cursor:
        return candidates[0].id
    raise _not_one(beginning, candidates, more=bool(cursor))


def _not_one(beginning: str, candidates: Sequence[JobView], *, more: bool) -> UnknownJob:
    ids = [view.id for view in candidates[:MAX_CANDIDATES]]
    facts: dict[str, object] = {"job_id": beginning, "candidates": ids}
    if not candidates and not more:
        return UnknownJob(
            f"There is no job whose id begins with {beginning}.",
            todo="Look for it with `interlock job list`; ended jobs are pruned after a while.",
            facts=facts,
        )
    number = f"{len(ids)}{' or more' if more or len(candidates) > len(ids) else ''}" if ids else "Too many"
    return UnknownJob(
        f"{number} jobs could be meant by {beginning}.",
        allowed=ids,
        todo="Give more of the id.",
        facts=facts,
    )


async def blocked(jobs: JobsApi, views: Iterable[JobView]) -> list[Explanation]:
    """Explain the pending jobs that no live worker takes; of jobs that are alike, one."""
    alike = {
        (view.queue, view.labels, view.task): view.id
        for view in views
        if view.state == job.PENDING and view.ready_at is not None
    }
    stuck = []
    for job_id in list(alike.values())[:MOST_BLOCKED]:
        with suppress(UnknownJob):  # it was pruned meanwhile
            told = await jobs.explain(job_id)
            stuck += [told] if told.blocked else []
    return stuck


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


LIST_PAGE = 1_000


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of jobs for a program."""

    jobs: list[JobView]
    cursor: str
    """Where it goes on; empty at the end."""
    stopped_early: bool
    """There was too much to look through; go on at the cursor."""


def list_jobs(
    store: str | None, words: Sequence[str], *, limit: int | None, cursor: str, as_json: bool
) -> None:
    """Print the jobs that match; without a limit all of them."""
    wanted = read_filter(" ".join(words))

    async def work(port: Reach) -> tuple[Found, list[Explanation], datetime]:
        found = await find(port.here.jobs, wanted, limit=limit or LIST_PAGE, cursor=cursor)
        while limit is None and found.cursor:
            more = await find(port.here.jobs, wanted, limit=LIST_PAGE, cursor=found.cursor)
            found = Found([*found.views, *more.views], more.cursor)
        return found, [] if as_json else await blocked(port.here.jobs, found.views), await port.now()

    found, stuck, now = ask(store, work)
    if as_json:
        print_struct(JobList(jobs=found.views, cursor=found.cursor, stopped_early=found.stopped_early))
        return
    terminal = output.on_terminal()
    output.print_sheets([list_sheet(found.views, now, terminal=terminal)])
    _tell_the_rest(found)
    for told in stuck:
        typer.echo(harmless(f"Waiting ({told.job_id}): {told.blocked}"), err=True)


def _tell_the_rest(found: Found) -> None:
    """What is not in the list is said beside it: whoever reads the list must not take it for all."""
    if found.stopped_early:
        typer.echo(
            "Stopped before all jobs were looked at. Narrow the filter with since: or state:, or go on with "
            f"--cursor {found.cursor}",
            err=True,
        )
    elif found.cursor:
        typer.echo(f"There are more: --cursor {found.cursor}, or --all.", err=True)
    elif not found.views:
        typer.echo("No job matches.", err=True)


def show(store: str | None, text: str, *, as_json: bool) -> None:
    """Print one job."""

    async def work(port: Reach) -> tuple[JobView, datetime]:
        return await port.here.jobs.get(await whole_id(port.here.jobs, text)), await port.now()

    view, now = ask(store, work)
    if as_json:
        print_struct(view)
    else:
        output.print_sheets(job_sheets(view, now, terminal=output.on_terminal()))
        if view.failure is not None and view.failure.details and output.on_terminal():
            typer.echo(harmless_lines(view.failure.details))


def history(store: str | None, text: str, *, as_json: bool) -> None:
    """Print every step of a job."""

    async def work(port: Reach) -> list[StepShown]:
        job_id = await whole_id(port.here.jobs, text)
        return list(steps_in(await port.here.jobs.history(job_id)))

    steps = ask(store, work)
    if as_json:
        print_struct(steps)
    else:
        output.print_sheets([history_sheet(steps, terminal=output.on_terminal())])


def explain(store: str | None, text: str, *, as_json: bool) -> None:
    """Print what a job waits for."""

    async def work(port: Reach) -> tuple[Explanation, datetime]:
        job_id = await whole_id(port.here.jobs, text)
        return await port.here.jobs.explain(job_id), await port.now()

    told, now = ask(store, work)
    if as_json:
        print_struct(told)
        return
    terminal = output.on_terminal()
    typer.echo(harmless(f"{told.job_id} is {told.state}. {told.sentence}"))
    output.print_sheets([explanation_sheet(told, now, terminal=terminal)])
    if told.todo:
        typer.echo(f"→ {told.todo}")


def list_queues(store: str | None, *, as_json: bool) -> None:
    """Print the queues that have jobs which have not ended."""

    async def work(port: Reach) -> tuple[list[QueueView], datetime]:
        return await port.here.queues.list(), await port.now()

    queues, now = ask(store, work)
    if as_json:
        print_struct(queues)
        return
    output.print_sheets([queues_sheet(queues, now, terminal=output.on_terminal())])
    if not queues:
        typer.echo("No queue has a job that has not ended, and none is paused.", err=True)


def hold_queue(store: str | None, verb: str, name: str, reason: str, *, as_json: bool) -> None:
    """Pause or resume a queue."""

    async def work(port: Reach) -> QueueHold:
        held: QueueHold = await getattr(port.here.queues, verb)(name, reason=reason, actor=actor())
        return held

    held = ask(store, work)
    if as_json:
        print_struct(held)
    elif held.state == QueueState.PAUSED:
        typer.echo(f"The queue {harmless(name)} is paused: its jobs wait, and those that run go on.")
    else:
        typer.echo(f"The jobs of the queue {harmless(name)} are given out.")
