"""Jobs on the command line: search, columns and actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial

import msgspec
import typer

from interlock.cli.connection import actor
from interlock.cli.output import Sheet, ago, full_time, iso, shown, span
from interlock.cli.verbs import (
    Action,
    ListPage,
    Noun,
    filter_among,
    list_records,
    page_answer,
    part_of,
    too_many,
)
from interlock.cli.verbs import whole_id as find_whole_id
from interlock.errors import UnknownJob
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.remote.interfaces import JobsApi, Services
from interlock.remote.search import find
from interlock.remote.service_connection import ServiceConnection
from interlock.store.records import Query
from interlock.text import harmless
from interlock.wire.filters import MAX_SCANNED, job_id_of, read_filter
from interlock.wire.jobs import AttemptView, Explanation, JobView
from interlock.wire.runner import Progress

PAGE = 500
LIST_PAGE = 1_000
MOST_BLOCKED = 5
"""Maximum number of kinds of pending jobs for which to check whether a worker takes them."""
UNFINISHED = tuple(str(state) for state in job.JobState if state not in job.ENDED)


async def chosen(
    connection: ServiceConnection, words: Sequence[str], action: Action[JobView] | None = None
) -> list[JobView]:
    """Return the jobs that ids name, or a filter in states of the action."""
    jobs = connection.services.jobs
    wanted = filter_among(words, job_id_of, read_filter)
    if wanted is None:
        ids = [await whole_id(connection, word) for word in words]
        return [await jobs.get(job_id) for job_id in dict.fromkeys(ids)]
    found = await find(jobs, wanted.among(action.states) if action else wanted, limit=MAX_SCANNED)
    if found.cursor:
        raise too_many("job", wanted, MAX_SCANNED, keys="since:, until:, queue: or state:")
    return found.views


async def whole_id(connection: ServiceConnection, text: str) -> str:
    """Return the id of a job from the text that was typed."""
    return await find_whole_id(connection, text, noun="job", prefix="j", error=UnknownJob, ids=_ids)


async def _ids(
    connection: ServiceConnection, since: datetime, until: datetime, cursor: str
) -> tuple[list[str], str]:
    query = Query(kind=JOB.name, since=since, until=until, limit=PAGE, cursor=cursor)
    views, following = await connection.services.jobs.find(query)
    return [view.id for view in views], following


async def blocked(jobs: JobsApi, views: Iterable[JobView]) -> list[Explanation]:
    """Explain the pending jobs that no live worker takes; one of each kind."""
    alike = {
        (view.queue, view.labels, view.task): view.id
        for view in views
        if view.state == job.PENDING and view.ready_at is not None
    }
    stuck = []
    for job_id in list(alike.values())[:MOST_BLOCKED]:
        with suppress(UnknownJob):  # it was pruned meanwhile
            explanation = await jobs.explain(job_id)
            stuck += [explanation] if explanation.blocked else []
    return stuck


LONGEST = 600
"""Maximum length of an input or a result on a terminal."""


def list_sheet(views: Iterable[JobView], now: datetime, *, terminal: bool) -> Sheet:
    """Return one row for each job."""
    times = ("submitted", "took") if terminal else ("submitted", "started", "ended")
    rows = [
        (view.id, view.state, view.task, view.queue, *_times(view, now, terminal=terminal), job_status(view))
        for view in views
    ]
    columns = ("id", "state", "task", "queue", *times, "message")
    return Sheet("job", "", columns, rows, one_line=True, spare=("queue", "took", "submitted"))


def job_sheets(view: JobView, now: datetime, *, terminal: bool) -> list[Sheet]:
    """Return all tables about one job."""
    about = [(what, value) for what, value in _facts_of(view, now, terminal=terminal) if value]
    attempts = [_attempt_row(one, now, terminal=terminal) for one in view.attempts]
    columns = ("attempt", "state", "runner", "began", "took", "message")
    return [
        Sheet("about", "Job", ("what", "value"), about),
        Sheet("attempt", "Attempts", columns, attempts),
    ]


def job_status(view: JobView) -> str:
    """Return the failure, stop reason, progress or description of a job."""
    if view.failure is not None:
        return f"{view.failure.failure_class}: {view.failure.error}"
    if view.stop_reason is not None:
        return f"stopped: {view.stop_reason}" if view.completed_at else f"stopping: {view.stop_reason}"
    if view.completed_at is None:
        progress = [progress_text(one.progress) for one in view.attempts if one.progress and not one.ended_at]
        return "; ".join(progress) or view.description
    return view.description


def progress_text(progress: Progress) -> str:
    """Return the progress of an attempt."""
    share = ""
    if progress.done is not None and progress.total:
        share = f"{progress.done / progress.total:.0%}"
    elif progress.done is not None:
        share = f"{progress.done:g}"
    return f"{share} {progress.message}".strip()


def _facts_of(view: JobView, now: datetime, *, terminal: bool) -> Iterator[tuple[str, str]]:
    when = partial(full_time, now=now, terminal=terminal)
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
    yield "after", _predecessors_of(view)
    yield "waits for", ", ".join(view.waits_for[:_MOST_NAMED]) if view.completed_at is None else ""
    yield "followers", str(view.followers) if view.followers else ""
    yield "again after", view.origin_job_id or ""
    yield "submitted", when(view.created_at)
    yield "ready", when(view.ready_at)
    yield "not after", when(view.not_after) if view.started_at is None else ""
    yield "unique key", view.unique_key or ""
    yield "started", when(view.started_at)
    yield "ended", when(view.completed_at)
    yield "took", _took(view, now) if terminal else ""
    yield "next deadline", when(view.deadline_at)
    yield "stop reason", ": ".join(filter(None, (view.stop_reason, view.cancel_reason)))
    yield "losses", str(view.losses) if view.losses else ""
    costs = [one.cost for one in view.attempts if one.cost is not None]
    yield "cost", f"{sum(costs):g}" if costs else ""
    yield from _contents(view, terminal=terminal)


_MOST_NAMED = 10


def _predecessors_of(view: JobView) -> str:
    """Return the jobs that a job comes after, as a list with the condition."""
    rule = view.after
    if rule is None:
        return ""
    named = ", ".join(rule.jobs[:_MOST_NAMED])
    more = len(rule.jobs) - _MOST_NAMED
    return f"{named}{f' and {more} more' if more > 0 else ''} ({rule.need}, on {rule.on})"


def _contents(view: JobView, *, terminal: bool) -> Iterator[tuple[str, str]]:
    if view.failure is not None:
        yield "failure", f"{view.failure.failure_class}: {view.failure.error}"
        yield "details", "" if terminal else view.failure.details  # a terminal shows it with its lines, below
    yield "input", _short(_text(view.input), terminal=terminal)
    if isinstance(view.result, msgspec.Raw):
        yield "result", _short(_text(view.result), terminal=terminal)
    for one in view.attempts:
        if isinstance(one.result, msgspec.Raw):
            name = f"result of {one.shard}.{one.index}, after the cancel"
            yield name, _short(_text(one.result), terminal=terminal)


def _attempt_row(one: AttemptView, now: datetime, *, terminal: bool) -> tuple[str, ...]:
    runner = one.lease.runner_id if one.lease else ""
    took = span(one.started_at, one.ended_at, now) if terminal else iso(one.ended_at)
    status = f"{one.failure.failure_class}: {one.failure.error}" if one.failure else ""
    if one.progress is not None and not status:
        status = progress_text(one.progress)
    if one.snoozed_until is not None:
        status = f"snoozed until {shown(one.snoozed_until, now, terminal=terminal)}"
    name = f"{one.shard}.{one.index}"
    return (name, one.state, runner, shown(one.started_at, now, terminal=terminal), took, status)


def _times(view: JobView, now: datetime, *, terminal: bool) -> tuple[str, ...]:
    if terminal:
        return ago(view.created_at, now), _took(view, now)
    return iso(view.created_at), iso(view.started_at), iso(view.completed_at)


def _took(view: JobView, now: datetime) -> str:
    return span(view.started_at, view.completed_at, now)


def _text(raw: msgspec.Raw) -> str:
    return bytes(raw).decode(errors="replace")


def _short(text: str, *, terminal: bool) -> str:
    return f"{text[:LONGEST]}… (--json shows all of it)" if terminal and len(text) > LONGEST else text


def list_jobs(
    store: str | None, words: Sequence[str], *, limit: int | None, cursor: str, as_json: bool
) -> None:
    """Print the jobs that match, all of them without a limit."""
    wanted = read_filter(" ".join(words))
    stuck: list[Explanation] = []

    async def search(connection: ServiceConnection) -> ListPage[JobView]:
        jobs = connection.services.jobs
        found = await find(jobs, wanted, limit=limit or LIST_PAGE, cursor=cursor)
        views = found.views
        while limit is None and found.cursor:
            found = await find(jobs, wanted, limit=LIST_PAGE, cursor=found.cursor)
            views += found.views
        stuck.extend([] if as_json else await blocked(jobs, views))
        return ListPage(views, found.cursor, found.stopped_early if limit else False)

    list_records(NOUN, store, search, partial(page_answer, "job"), as_json=as_json, more=", or --all.")
    for each in stuck:
        typer.echo(harmless(f"Waiting ({each.job_id}): {each.blocked}"), err=True)


def outcome_line(view: JobView) -> str:
    """Return a job with its state, for a pipe."""
    return "\t".join((view.id, view.state, job_status(view)))


def cancel(*, reason: str = "", request_id: str | None = None) -> Action[JobView]:
    """Return the action that requests the cancellation of jobs."""

    async def act(place: Services, job_id: str) -> JobView:
        key = part_of(request_id, job_id)
        return await place.jobs.cancel(job_id, reason=reason, actor=actor(), request_id=key)

    return Action(verb="cancel", act=act, line=outcome_line, states=UNFINISHED)


def retry(*, request_id: str | None = None) -> Action[JobView]:
    """Return the action that submits finished jobs again.

    It prints only the new id, so that it can be used.
    """

    async def act(place: Services, job_id: str) -> JobView:
        key = part_of(request_id, job_id)
        return await place.jobs.get(await place.jobs.retry(job_id, actor=actor(), request_id=key))

    return Action(verb="retry", act=act, line=lambda view: view.id, states=tuple(map(str, job.ENDED)))


NOUN: Noun[JobView] = Noun(
    name="job",
    find=whole_id,
    get=lambda connection, job_id: connection.services.jobs.get(job_id),
    chosen=chosen,
    list_sheet=list_sheet,
    sheets=job_sheets,
    details=lambda view: view.failure.details if view.failure is not None else "",
    history=lambda connection, job_id: connection.services.jobs.history(job_id),
    explain=lambda connection, job_id: connection.services.jobs.explain(job_id),
    actions={"cancel": cancel, "retry": retry},
)
