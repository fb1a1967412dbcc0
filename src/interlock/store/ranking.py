"""In which order ready records are given out.

Queue, labels and handler make a *lane*: whoever may take one record of a lane may take all of them, so a
claim looks at the heads of a few lanes and never at records that it cannot have.

Within and across lanes the *rank* decides: the time at which a record became ready, less a head
start for its priority. An old record outranks every newer one in the end, so nothing starves, and
the order never changes while a record waits, so an index can hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from interlock.store.records import Claim

PRIORITY_STEP = timedelta(seconds=60)
"""What one step of priority is worth."""

MIN_PRIORITY, MAX_PRIORITY = -100, 100

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_STEP_US = PRIORITY_STEP // _MICROSECOND
_TOLD_APART_US = 2**32 * 1_000_000
"""Until then, in 2106, seconds as a float are exact to a quarter of a microsecond."""
_from_seconds = datetime.fromtimestamp
_SEPARATOR = "\x1f"
HANDLER_MARK = "\x1d"
"""Begins the part of a lane that names its handler. It is no printable character, so no label begins so."""


def microseconds(at: datetime) -> int:
    """A moment as whole microseconds since 1970: what databases without such a type keep."""
    return (at - _EPOCH) // _MICROSECOND


@lru_cache(maxsize=4096)
def moment(us: int) -> datetime:
    """The moment that `microseconds` was made from. Records of one batch share most of theirs."""
    if 0 <= us < _TOLD_APART_US:
        return _from_seconds(us / 1_000_000, UTC)  # takes half the time
    return _EPOCH + timedelta(0, 0, us)


def moment_in_seconds(seconds: float) -> datetime:
    """The moment so many seconds after 1970; exact to the microsecond, if nobody has calculated with it."""
    return _from_seconds(seconds, UTC)


def rank_of(ready_at: datetime, priority: int) -> int:
    """The smaller, the earlier it is given out."""
    return microseconds(ready_at) - priority * _STEP_US


def ready_at_of(rank: int, priority: int) -> datetime:
    """The time that a rank was made from. Not remembered: who reads many compares each with the last."""
    return moment.__wrapped__(rank + priority * _STEP_US)


def lane_of(queue: str, labels: Sequence[str], handler: str = "") -> str:
    """The lane of a record. Labels are sorted and cannot hold the separator."""
    if handler:
        return _SEPARATOR.join((queue, *labels, HANDLER_MARK + handler))
    return _SEPARATOR.join((queue, *labels))


def lanes_for(lanes: Iterable[str], claim: Claim) -> list[str]:
    """Return those of the lanes that exist from which this claim may take."""
    asked = set(claim.queues)
    return [
        lane for lane in lanes if (parts := lane.split(_SEPARATOR))[0] in asked and may_take(parts[1:], claim)
    ]


def may_take(parts: Sequence[str], claim: Claim) -> bool:
    """Whether a claimer has the labels and the handler of a lane, which are its parts after the queue."""
    handler = ""
    if parts and parts[-1].startswith(HANDLER_MARK):
        *parts, handler = parts
    return has_labels(parts, claim) and has_handler(handler.removeprefix(HANDLER_MARK), claim)


def has_labels(labels: Sequence[str], claim: Claim) -> bool:
    """Whether a claimer has all of these labels."""
    return not labels or set(claim.labels).issuperset(labels)


def has_handler(handler: str, claim: Claim) -> bool:
    """Whether a claimer may be given what needs this handler."""
    if not handler or claim.handlers is None:
        return True
    return HANDLER_MARK + handler in had_by(claim.labels, claim.handlers)


@lru_cache(maxsize=256)
def had_by(labels: tuple[str, ...], handlers: tuple[str, ...] | None) -> frozenset[str]:
    """Return all parts of lanes that a claimer has. Claimers are few, and claim again and again."""
    return frozenset((*labels, *(HANDLER_MARK + handler for handler in handlers or ())))
