"""Looking at jobs, stopping one, and doing one again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import msgspec

from interlock.errors import RequestIdReused, TransitionNotAllowed, UnknownJob
from interlock.lifecycles.job import JOB
from interlock.server.api.visibility import (
    Sight,
    filter_of,
    job_of,
    page_of,
    place_asked,
    place_told,
    selection_of,
    shaped,
    shown,
    sight_of,
    unknown_job,
)
from interlock.server.messages import (
    CancelRequest,
    CountView,
    EntryView,
    HistoryPage,
    HistoryQuery,
    JobPage,
    JobsQuery,
    LogLineView,
    LogPage,
    PageQuery,
    RetryRequest,
    Submitted,
    entry_view,
)
from interlock.server.routes import Call, Confined, Link, Route
from interlock.store.records import Entry, Key, Query
from interlock.systems.access.principals import Role
from interlock.systems.orchestrator.attachments import LOG, Chunk, lines_of
from interlock.systems.orchestrator.explanation import Explanation
from interlock.wire.filter_words import BadFilter
from interlock.wire.jobs import JobView
from interlock.wire.wanted import LOOKED_AT

A = TypeVar("A")

MAX_COUNT = 10_000


async def list_jobs(call: Call) -> JobPage:
    """A page of what a filter means; the first one with a count."""
    asked: JobsQuery = call.query
    place = await place_asked(call)
    selection = await selection_of(call, filter_of(call, asked.q), limit=asked.limit, cursor=place)
    views, cursor = await page_of(call, selection)
    count = None
    if not asked.cursor and not cursor:
        count = CountView(number=len(views))
    elif not asked.cursor and len(views) < asked.limit:
        # Looking ended before the page was full: a count would look at the same jobs again.
        count = CountView(number=len(views), capped=True)
    elif not asked.cursor:
        found = await call.parts.runtime.jobs.count(selection.query, cap=MAX_COUNT, within=LOOKED_AT)
        # What the store cannot filter by is not counted: so many at least are on this page.
        count = (
            CountView(number=found.number, capped=found.capped)
            if selection.exact
            else CountView(number=len(views), capped=True)
        )
    jobs = tuple(await shown(call, views))
    return JobPage(jobs=jobs, cursor=await place_told(call, cursor), count=count)


async def get_job(call: Call) -> JobView:
    """A job as it stands."""
    (view,) = await shown(call, [await job_of(call)])
    return view


async def get_history(call: Call) -> HistoryPage:
    """What the journal says about a job, oldest first."""
    job, asked = await job_of(call), call.query
    key = Key(JOB.name, job.id)
    feed = await call.parts.store.history(key, after_version=asked.after, limit=asked.limit)
    full = len(feed.entries) == asked.limit
    notes = [entry.note for entry in feed.entries]
    sight = await sight_of(call, [text for note in notes for text in (note.reason, note.cause, note.refusal)])
    entries = tuple(_entry(call, sight, entry) for entry in feed.entries)
    return HistoryPage(entries=entries, after=feed.entries[-1].version if full else None)


def _entry(call: Call, sight: Sight, entry: Entry) -> EntryView:
    """Return an entry; a confined token may not read the journal, so it is not told the place in it."""
    view = entry_view(entry)
    if not call.principal.scoped:
        return view
    reason, cause, refusal = map(sight.text, (view.reason, view.cause, view.refusal))
    return msgspec.structs.replace(view, cursor="", reason=reason, cause=cause, refusal=refusal)


async def explain_job(call: Call) -> Explanation:
    """What a job waits for, or how it ended."""
    job = await job_of(call)
    told = await call.parts.runtime.jobs.explain(job.id, in_general=not call.principal.scoped)
    sight = await sight_of(call, [told.sentence, *(line.sentence for line in told.lines)])
    lines = [msgspec.structs.replace(line, sentence=sight.text(line.sentence)) for line in told.lines]
    return msgspec.structs.replace(told, sentence=sight.text(told.sentence), lines=tuple(lines))


async def get_logs(call: Call) -> LogPage:
    """What its attempts have written."""
    job, asked = await job_of(call), call.query
    page = await call.parts.store.find(
        Query(
            kind=LOG.name,
            parent=job.id,
            newest_first=False,
            cursor=await place_asked(call),
            limit=asked.limit,
        )
    )
    chunks = [msgspec.json.decode(record.body, type=Chunk) for record in page.records]
    lines = tuple(
        LogLineView(
            at=placed.line.at,
            level=placed.line.level,
            text=placed.line.text,
            shard=chunk.shard,
            attempt=chunk.attempt,
            offset=placed.offset,
        )
        for chunk in chunks
        for placed in lines_of(chunk)
    )
    return LogPage(lines=lines, cursor=await place_told(call, page.cursor))


async def cancel_job(call: Call) -> JobView:
    """Ask a job to stop; the view says how far that is."""
    asked: CancelRequest = call.body
    cancel = partial(
        call.parts.runtime.jobs.cancel, reason=asked.reason, actor=call.actor, request_id=call.request_id
    )
    return (await shown(call, [await _with_own(call, cancel)]))[0]


async def retry_job(call: Call) -> Submitted:
    """Do an ended job again, as a new one."""
    retry = partial(call.parts.runtime.jobs.retry, actor=call.actor, request_id=call.request_id)
    new_id = await _with_own(call, retry)
    return Submitted(ids=(new_id,), id=new_id)


async def _with_own(call: Call, do: Callable[[str], Awaitable[A]]) -> A:
    """Do something with the job in the address; one that the token does not see is not there.

    One that was pruned is left to `do`: a repeat gets the answer that was recorded.
    """
    job_id = shaped(call.path["job_id"])
    if call.principal.scoped:
        (view,) = await call.parts.runtime.jobs.get_many([job_id])
        if view is not None and not call.principal.sees(view.queue):
            raise unknown_job(job_id)
    try:
        return await do(job_id)
    except UnknownJob:
        raise unknown_job(job_id) from None


_JOB = {"job_id": "The id of a job."}

ROUTES = (
    Route(
        method="GET",
        path="/api/jobs",
        name="listJobs",
        summary="List jobs, newest first, by a filter.",
        handler=list_jobs,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        query=JobsQuery,
        answer=JobPage,
        errors=(BadFilter,),
        links=(Link("listJobs", "cursor", "$response.body#/cursor"),),
    ),
    Route(
        method="GET",
        path="/api/jobs/{job_id}",
        name="getJob",
        summary="Show a job with its attempts.",
        handler=get_job,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        parameters=_JOB,
        answer=JobView,
        errors=(UnknownJob,),
    ),
    Route(
        method="GET",
        path="/api/jobs/{job_id}/history",
        name="getJobHistory",
        summary="Show everything that has happened to a job.",
        handler=get_history,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        parameters=_JOB,
        query=HistoryQuery,
        answer=HistoryPage,
        errors=(UnknownJob,),
    ),
    Route(
        method="GET",
        path="/api/jobs/{job_id}/explain",
        name="explainJob",
        summary="Say what a job waits for, whose turn it is, and when the next deadline is.",
        handler=explain_job,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        parameters=_JOB,
        answer=Explanation,
        errors=(UnknownJob,),
    ),
    Route(
        method="GET",
        path="/api/jobs/{job_id}/logs",
        name="getJobLogs",
        summary="Show what the attempts of a job have written.",
        handler=get_logs,
        role=Role.VIEWER,
        confined=Confined.HIDES,
        parameters=_JOB,
        query=PageQuery,
        answer=LogPage,
        errors=(UnknownJob,),
    ),
    Route(
        method="POST",
        path="/api/jobs/{job_id}/cancel",
        name="cancelJob",
        summary="Ask a job to stop.",
        handler=cancel_job,
        role=Role.OPERATOR,
        confined=Confined.HIDES,
        fires=(JOB.name, "cancel"),
        parameters=_JOB,
        bodies=(CancelRequest,),
        body_required=False,
        repeatable=True,
        answer=JobView,
        errors=(UnknownJob, TransitionNotAllowed, RequestIdReused),
        example={"reason": "not needed any more", "request_id": "stop-17"},
    ),
    Route(
        method="POST",
        path="/api/jobs/{job_id}/retry",
        name="retryJob",
        summary="Do an ended job again, as a new one.",
        handler=retry_job,
        role=Role.SUBMITTER,
        confined=Confined.HIDES,
        parameters=_JOB,
        bodies=(RetryRequest,),
        body_required=False,
        repeatable=True,
        answer=Submitted,
        status=201,
        errors=(UnknownJob, TransitionNotAllowed, RequestIdReused),
        example={"request_id": "again-17"},
        answer_example={"id": "j_0123456789ac", "ids": ["j_0123456789ac"]},
        links=(Link("getJob", "job_id"),),
    ),
)
