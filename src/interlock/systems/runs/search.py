"""Search runs by filters that a store cannot evaluate fully. The rest is filtered here, within limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from interlock.errors import UnknownRun
from interlock.wire.filter_language import LOOKS
from interlock.wire.filters import WantedRuns
from interlock.wire.runs import RunFilter, RunView

PAGE = 200
MAX_SCANNED = 10_000


class FindsRuns(Protocol):
    """A source of runs: a store or a server."""

    async def outline(self, run_id: str) -> RunView:
        """Return the run without its jobs."""
        ...

    async def find(
        self, wanted: RunFilter = ..., *, newest_first: bool = ..., cursor: str = ..., limit: int = ...
    ) -> tuple[list[RunView], str]:
        """Return a page of runs without their jobs, and the next cursor."""
        ...


@dataclass(slots=True)
class FoundRuns:
    """Runs that match, newest first."""

    views: list[RunView] = field(default_factory=list)
    cursor: str = ""
    """Start of the next page; empty at the end."""
    stopped_early: bool = False
    """The search limit was reached: runs after the cursor have not been examined."""


async def found_runs(
    runs: FindsRuns, wanted: WantedRuns, now: datetime, *, limit: int, cursor: str = "", looks: int = LOOKS
) -> FoundRuns:
    """Return up to `limit` matching runs.

    At most `looks` pages are read that ended before they were full.
    """
    if wanted.ids:
        return FoundRuns(await _named(runs, wanted, limit))
    query, found, scanned = wanted.query(now), FoundRuns(cursor=cursor), 0
    while True:
        room = limit - len(found.views)
        size = min(PAGE, room) if wanted.exact else PAGE
        views, following = await runs.find(query, cursor=found.cursor, limit=size)
        kept = [place for place, view in enumerate(views, 1) if wanted.keeps(view)]
        found.views += [views[place - 1] for place in kept[:room]]
        scanned += len(views)
        if len(kept) > room or (len(kept) == room and kept[-1] < len(views)):
            # More than requested: the next page begins right after the last run shown.
            _, following = await runs.find(query, cursor=found.cursor, limit=kept[room - 1])
        found.cursor = following
        if not following or len(found.views) >= limit:
            return found
        looks -= len(views) < size
        if scanned >= MAX_SCANNED or looks <= 0:
            found.stopped_early = True
            return found


async def _named(runs: FindsRuns, wanted: WantedRuns, limit: int) -> list[RunView]:
    views = []
    for run_id in wanted.ids:
        try:
            view = await runs.outline(run_id)
        except UnknownRun:
            continue
        if wanted.keeps(view):
            views.append(view)
    return views[:limit]
