"""Search of jobs, page by page; the parts of a filter that the store cannot evaluate are tested here."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from interlock.remote.interfaces import JobsApi
from interlock.wire.filter_language import LOOKS
from interlock.wire.filters import MAX_SCANNED, Filter, Selection
from interlock.wire.jobs import JobView

PAGE = 500


@dataclass(slots=True)
class FoundJobs:
    """Matching jobs, newest first."""

    views: list[JobView] = field(default_factory=list)
    cursor: str = ""
    """Cursor of the next page; empty at the end."""
    scanned: int = 0
    short: int = 0
    """Number of pages that ended early, because the store had examined too many records."""
    stopped_early: bool = False
    """The search stopped early: jobs behind `cursor` were not examined."""


async def find(jobs: JobsApi, wanted: Filter, *, limit: int, cursor: str = "") -> FoundJobs:
    """Return up to `limit` matching jobs."""
    selection = wanted.selection(await jobs.now(), limit=PAGE, cursor=cursor)
    found = FoundJobs()
    if selection.impossible:
        return found
    if wanted.ids:
        loaded = await jobs.get_many(wanted.ids)
        found.views = [view for view in loaded if view is not None and selection.keeps(view)][:limit]
        return found
    while len(found.views) < limit:
        if found.short >= LOOKS or (found.scanned >= MAX_SCANNED and not selection.exact):
            found.stopped_early = True
            break
        found.cursor = await _one_page(jobs, selection, found, limit)
        selection = Selection(wanted, msgspec.structs.replace(selection.query, cursor=found.cursor))
        if not found.cursor:
            break
    return found


async def _one_page(jobs: JobsApi, selection: Selection, found: FoundJobs, limit: int) -> str:
    """Add the matches of one page and return the cursor of the next one."""
    missing = limit - len(found.views)
    size = min(PAGE, missing) if selection.exact else PAGE
    query = msgspec.structs.replace(selection.query, limit=size)
    views, cursor = await jobs.find(query)
    kept = [place for place, view in enumerate(views, 1) if selection.keeps(view)]
    found.scanned += len(views)
    found.short += len(views) < size
    found.views += [views[place - 1] for place in kept[:missing]]
    if len(kept) > missing or (len(kept) == missing and kept[-1:] != [len(views)]):
        # There were more matches than needed: the next page starts right after the last one returned.
        _, cursor = await jobs.find(msgspec.structs.replace(query, limit=kept[missing - 1]))
    return cursor
