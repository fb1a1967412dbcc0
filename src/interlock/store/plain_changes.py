"""Plain creations: records that are created with nothing but a body, such as the keys of unique jobs.

A commit that creates many of them has them at its end, as far as they are of one kind and state. Stores write
these together, because only ids and bodies differ.

Why: decision 0527.
"""

from __future__ import annotations

from collections.abc import Sequence

from interlock.store.records import Change

FEW: int = 8
"""Below this many it makes no difference."""


def split_plain(changes: Sequence[Change]) -> tuple[Sequence[Change], Sequence[Change]]:
    """Return the first changes, and the plain creations at the end.

    These are none if they are few.
    """
    if len(changes) < FEW:
        return changes, ()
    last = changes[-1]
    kind, state = last.kind, last.state
    start = len(changes)
    while start and _is_plain(changes[start - 1], kind, state):
        start -= 1
    return (changes, ()) if len(changes) - start < FEW else (changes[:start], changes[start:])


def _is_plain(change: Change, kind: str, state: str) -> bool:
    return (
        change.note is None
        and change.expected == 0
        and change.kind == kind
        and change.state == state
        and change.queue is None
        and change.given is None
        and change.ready_at is None
        and change.deadline_at is None
        and change.expected_at is None
        and change.parent is None
        and change.result is None
        and not change.labels
        and not change.handler
        and not change.priority
    )
