"""What a principal can see: for a token that is confined to queues, the others do not exist."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import msgspec

from interlock.errors import UnknownJob
from interlock.server.declaring import Call
from interlock.wire.filters import MAX_SCANNED, Filter, Selection, read_filter
from interlock.wire.jobs import JobView

SHAPE = r"[A-Za-z0-9_.-]{1,64}"
SCAN = 500
"""How many jobs are looked at in one go for what the store cannot filter by."""

_ID = re.compile(SHAPE)


async def job_of(call: Call, job_id: str | None = None) -> JobView:
    """The job that the address names; one in a queue that is not seen is not there."""
    job_id = shaped(call.path["job_id"] if job_id is None else job_id)
    view = await call.parts.household.jobs.get(job_id)
    if not call.principal.sees(view.queue):
        raise unknown_job(job_id)
    return view


def shaped(job_id: str) -> str:
    """The id, if it can be one at all; nothing else reaches the store."""
    if not is_shaped(job_id):
        raise unknown_job(job_id[:64])
    return job_id


def is_shaped(name: str) -> bool:
    """Whether it can be the id of anything."""
    return _ID.fullmatch(name) is not None


def unknown_job(job_id: str) -> UnknownJob:
    """The same words whether it is not there or not seen."""
    return UnknownJob(
        f"There is no job {job_id}.",
        todo="Look for it with GET /api/jobs; ended jobs are pruned after a while.",
        facts={"job_id": job_id},
    )


def filter_of(call: Call, text: str) -> Filter:
    """What somebody has asked for, within what they can see."""
    wanted = read_filter(text)
    call.principal.need_queues(wanted.queues)
    if call.principal.scoped and not wanted.queues:
        return msgspec.structs.replace(wanted, queues=tuple(sorted(call.principal.queues)))
    return wanted


async def selection_of(call: Call, wanted: Filter, *, limit: int, cursor: str = "") -> Selection:
    """The filter at this moment, as a question to the store."""
    now = await call.parts.household.engine.clock.now()
    return wanted.selection(now, limit=limit, cursor=cursor)


async def page_of(call: Call, selection: Selection) -> tuple[list[JobView], str]:
    """As many jobs as were asked for, and the cursor of the next ones.

    What the store cannot filter by is looked at here, up to a bound; then the page is short, and its
    cursor goes on from there.
    """
    jobs, query = call.parts.household.jobs, selection.query
    if selection.exact:
        return await jobs.find(query)
    found: list[JobView] = []
    scanned = 0
    while True:
        views, cursor = await jobs.find(msgspec.structs.replace(query, limit=SCAN))
        kept = [place for place, view in enumerate(views) if selection.keeps(view)]
        room = query.limit - len(found)
        found += [views[place] for place in kept[:room]]
        if len(kept) >= room:
            seen = kept[room - 1] + 1
            if seen < len(views):  # the next page begins behind the last job of this one
                _, cursor = await jobs.find(msgspec.structs.replace(query, limit=seen))
            return found, cursor
        scanned += len(views)
        if not cursor or scanned >= MAX_SCANNED:
            return found, cursor
        query = msgspec.structs.replace(query, cursor=cursor)


async def every_job(call: Call, wanted: Filter, limit: int) -> AsyncIterator[JobView | None]:
    """The jobs that a filter means, up to a limit, then None when there are or may be more."""
    left, cursor = limit, ""
    for _ in range(100):
        selection = await selection_of(call, wanted, limit=min(left, 500) or 1, cursor=cursor)
        views, cursor = await page_of(call, selection)
        for view in views[:left]:
            yield view
        if left < len(views) or (cursor and left == len(views)):
            yield None
            return
        left -= len(views)
        if not cursor:
            return
