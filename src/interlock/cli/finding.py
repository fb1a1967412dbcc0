"""From what somebody typed to the jobs that they mean: ids, beginnings of ids, filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta

import msgspec

from interlock.cli.many import filter_among, too_many
from interlock.errors import UnknownJob
from interlock.lifecycles import job
from interlock.lifecycles.job import JOB
from interlock.remote.interfaces import JobsApi
from interlock.remote.search import Found, find
from interlock.store.records import Query
from interlock.systems.orchestrator.explanation import Explanation
from interlock.systems.orchestrator.ids import drawn_at
from interlock.wire.filters import MAX_SCANNED, Filter, job_id_of, read_filter
from interlock.wire.jobs import JobView
from interlock.wire.wanted import ID_DIGITS

__all__ = ["Found", "blocked", "chosen", "filter_in", "find", "whole_id"]

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
