"""From what somebody typed to the jobs that they mean: ids, beginnings of ids, filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec

from interlock.cli.many import filter_among, too_many
from interlock.errors import UnknownJob
from interlock.lifecycles.job import JOB
from interlock.remote.offering import JobsOffer
from interlock.store.records import Query
from interlock.systems.orchestrator.ids import drawn_at
from interlock.wire.filters import MAX_SCANNED, Filter, Selection, job_id_of, read_filter
from interlock.wire.jobs import JobView
from interlock.wire.wanted import ID_DIGITS

PAGE = 500
MAX_CANDIDATES = 10
_PREFIX = "j_"
# An id names the time at which it was drawn. The job is stored a little later, and in a bulk the ids
# run ahead of the time: so far around it a job may have been created.
_AHEAD, _LATE = timedelta(minutes=5), timedelta(minutes=1)


@dataclass(slots=True)
class Found:
    """Jobs that match, newest first."""

    views: list[JobView] = field(default_factory=list)
    cursor: str = ""
    """Where the next page begins; empty at the end."""
    scanned: int = 0
    stopped_early: bool = False
    """There was too much to look through: what lies behind `cursor` has not been looked at."""


async def find(jobs: JobsOffer, wanted: Filter, *, limit: int, cursor: str = "") -> Found:
    """Up to `limit` jobs that match."""
    selection = wanted.selection(await jobs.now(), limit=PAGE, cursor=cursor)
    found = Found()
    if selection.impossible:
        return found
    if wanted.ids:
        loaded = await jobs.get_many(wanted.ids)
        found.views = [view for view in loaded if view is not None and selection.keeps(view)][:limit]
        return found
    while len(found.views) < limit:
        if found.scanned >= MAX_SCANNED and not selection.exact:
            found.stopped_early = True
            break
        found.cursor = await _one_page(jobs, selection, found, limit)
        selection = Selection(wanted, msgspec.structs.replace(selection.query, cursor=found.cursor))
        if not found.cursor:
            break
    return found


async def _one_page(jobs: JobsOffer, selection: Selection, found: Found, limit: int) -> str:
    """Add what matches on one page; answers where the next one begins."""
    missing = limit - len(found.views)
    size = min(PAGE, missing) if selection.exact else PAGE
    query = msgspec.structs.replace(selection.query, limit=size)
    views, cursor = await jobs.find(query)
    kept = [place for place, view in enumerate(views, 1) if selection.keeps(view)]
    found.scanned += len(views)
    found.views += [views[place - 1] for place in kept[:missing]]
    if len(kept) > missing or (len(kept) == missing and kept[-1:] != [len(views)]):
        # More than were asked for: the next page begins right after the last one that is shown.
        _, cursor = await jobs.find(msgspec.structs.replace(query, limit=kept[missing - 1]))
    return cursor


async def chosen(jobs: JobsOffer, words: Sequence[str], *, among: Sequence[str] = ()) -> list[JobView]:
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


async def whole_id(jobs: JobsOffer, text: str) -> str:
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


async def _completed(jobs: JobsOffer, beginning: str) -> str:
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
