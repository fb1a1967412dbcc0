"""Jobs that a filter means, page by page: what the store cannot filter by is looked at here."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from interlock.remote.interfaces import JobsApi
from interlock.wire.filter_language import LOOKS
from interlock.wire.filters import MAX_SCANNED, Filter, Selection
from interlock.wire.jobs import JobView

PAGE = 500


@dataclass(slots=True)
class Found:
    """Jobs that match, newest first."""

    views: list[JobView] = field(default_factory=list)
    cursor: str = ""
    """Where the next page begins; empty at the end."""
    scanned: int = 0
    short: int = 0
    """How many pages have ended before they were full, because so much was looked at for them."""
    stopped_early: bool = False
    """There was too much to look through: what lies behind `cursor` has not been looked at."""


async def find(jobs: JobsApi, wanted: Filter, *, limit: int, cursor: str = "") -> Found:
    """Return up to `limit` jobs that match."""
    selection = wanted.selection(await jobs.now(), limit=PAGE, cursor=cursor)
    found = Found()
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


async def _one_page(jobs: JobsApi, selection: Selection, found: Found, limit: int) -> str:
    """Add what matches on one page; return where the next one begins."""
    missing = limit - len(found.views)
    size = min(PAGE, missing) if selection.exact else PAGE
    query = msgspec.structs.replace(selection.query, limit=size)
    views, cursor = await jobs.find(query)
    kept = [place for place, view in enumerate(views, 1) if selection.keeps(view)]
    found.scanned += len(views)
    found.short += len(views) < size
    found.views += [views[place - 1] for place in kept[:missing]]
    if len(kept) > missing or (len(kept) == missing and kept[-1:] != [len(views)]):
        # More than were asked for: the next page begins right after the last one that is shown.
        _, cursor = await jobs.find(msgspec.structs.replace(query, limit=kept[missing - 1]))
    return cursor
