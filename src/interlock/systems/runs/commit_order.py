"""Which of two runs is of the later change. Pure.

Events arrive in any order: forges deliver late, and operators deliver again. So the time at which a forge
says that something happened goes first. Where two events lack it, or have the same second, the commits
decide: the one whose ref was at the other before is later, then the one that has the other in its history.
What none of these tells apart is ordered by arrival, and so is what people submit themselves.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from interlock.store.records import Record
from interlock.systems.runs.body import decode_run
from interlock.wire.runs import Source

MANUAL = "manual"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared of a run."""

    id: str
    created_at: datetime
    at: datetime
    """When its change happened, as far as that is known."""
    timed: bool
    """Whether somebody has said when."""
    source: Source
    before: str
    """The commit that the ref was at before."""
    again: bool
    """It does an earlier run again."""

    @property
    def arrival(self) -> tuple[datetime, datetime, str]:
        """A total order, for what nothing else tells apart."""
        return self.at, self.created_at, self.id


def standing_of(record: Record) -> Standing:
    """Return what is compared of a run; nothing has happened after word of it arrived."""
    body = decode_run(record.body)
    source, happened = body.spec.source, body.happened
    at = happened.at if happened is not None else None
    before = happened.before if happened is not None else ""
    if not before and source.event == "push":
        before = source.base_sha
    return Standing(
        id=record.id,
        created_at=record.created_at,
        at=record.created_at if at is None else min(at, record.created_at),
        timed=at is not None,
        source=source,
        before=before,
        again=body.origin_run_id is not None,
    )


def is_later(one: Standing, other: Standing) -> bool | None:
    """Whether the first is of the later change, by what their events say; None when they do not."""
    if one.timed and other.timed and one.at != other.at:
        return one.at > other.at
    if not are_of_one_ref(one, other):
        return None
    follows, precedes = one.before == other.source.sha, other.before == one.source.sha
    return follows if follows != precedes else None


def are_of_one_ref(one: Standing, other: Standing) -> bool:
    """Whether the commits of two runs can be compared: two of one ref, which nobody chose by hand."""
    mine, theirs = one.source, other.source
    named = mine.sha and theirs.sha and mine.sha != theirs.sha and MANUAL not in (mine.event, theirs.event)
    return bool(named) and (mine.repository, mine.ref) == (theirs.repository, theirs.ref)


def gives_way(one: Standing, other: Standing, later: bool | None) -> bool:
    """Whether the first gives way to the other; `later` says whether the other is of the later change.

    A run that does an earlier one again is what somebody wants now, of a change that may be old. So it stops
    nothing newer, and gives way only to what arrives after it.
    """
    if later is None:
        later = other.arrival > one.arrival
    if one.again or other.again:
        return later and (other.created_at, other.id) > (one.created_at, one.id)
    return later
