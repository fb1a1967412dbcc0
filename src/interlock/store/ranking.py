"""The order in which ready records are claimed.

Queue, labels and handler make a *lane*: a claimer that may take one record of a lane may take all of them, so
a claim reads the heads of a few lanes and never records that it cannot have.

Within and across lanes the *rank* decides: the time at which a record became ready, less a head start for its
priority. An old record eventually outranks every newer one, so none starves, and the order never changes
while a record waits, so an index can hold it.

Why: decisions 0111 and 0315.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from interlock.store.records import Claim

PRIORITY_STEP = timedelta(seconds=60)
"""Head start of one step of priority."""

MIN_PRIORITY, MAX_PRIORITY = -100, 100

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STEP_US = PRIORITY_STEP // _MICROSECOND
_TOLD_APART_US = 2**32 * 1_000_000
"""Until then, in 2106, seconds as a float are exact to a quarter of a microsecond."""
_from_seconds = datetime.fromtimestamp
_SEPARATOR = "\x1f"
HANDLER_MARK = "\x1d"
"""Prefix of the handler in a lane. It is not printable, so no label begins with it."""


def microseconds(at: datetime) -> int:
    """Return a time as whole microseconds since 1970, for databases."""
    return (at - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=4096)
def moment(us: int) -> datetime:
    """Return the time of `microseconds`.

    Cached, since records of one batch share most times.
    """
    if 0 <= us < _TOLD_APART_US:
        return _from_seconds(us / 1_000_000, UTC)  # twice as fast
    return _EPOCH + timedelta(0, 0, us)


def moment_in_seconds(seconds: float) -> datetime:
    """Return the time this many seconds after 1970.

    It is exact to the microsecond for unmodified floats.
    """
    return _from_seconds(seconds, UTC)


def rank_of(ready_at: datetime, priority: int) -> int:
    """Return the rank; smaller ranks are claimed first."""
    return microseconds(ready_at) - priority * _STEP_US


def ready_at_of(rank: int, priority: int) -> datetime:
    """Return the ready time of a rank.

    Not cached: callers compare adjacent ones.
    """
    return moment.__wrapped__(rank + priority * _STEP_US)


def lane_of(queue: str, labels: Sequence[str], handler: str = "") -> str:
    """Return the lane of a record.

    Labels are sorted and cannot contain the separator.
    """
    if handler:
        return _SEPARATOR.join((queue, *labels, HANDLER_MARK + handler))
    return _SEPARATOR.join((queue, *labels))


def lanes_for(lanes: Iterable[str], claim: Claim) -> list[str]:
    """Return the existing lanes from which this claim may take."""
    wanted = set(claim.queues)
    return [
        lane
        for lane in lanes
        if (parts := lane.split(_SEPARATOR))[0] in wanted and may_take(parts[1:], claim)
    ]


def may_take(parts: Sequence[str], claim: Claim) -> bool:
    """Return whether a claimer has the labels and the handler of a lane.

    They are the parts of the lane after the queue.
    """
    handler = ""
    if parts and parts[-1].startswith(HANDLER_MARK):
        *parts, handler = parts
    return has_labels(parts, claim) and has_handler(handler.removeprefix(HANDLER_MARK), claim)


def has_labels(labels: Sequence[str], claim: Claim) -> bool:
    """Return whether a claimer has all of these labels."""
    return not labels or set(claim.labels).issuperset(labels)


def has_handler(handler: str, claim: Claim) -> bool:
    """Return whether a claimer has this handler."""
    if not handler or claim.handlers is None:
        return True
    return HANDLER_MARK + handler in lane_parts_of(claim.labels, claim.handlers)


@lru_cache(maxsize=256)
def lane_parts_of(labels: tuple[str, ...], handlers: tuple[str, ...] | None) -> frozenset[str]:
    """Return all parts of lanes that a claimer has, cached.

    Claimers are few.
    """
    return frozenset((*labels, *(HANDLER_MARK + handler for handler in handlers or ())))
