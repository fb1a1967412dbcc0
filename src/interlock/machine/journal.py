"""The audit trail of a decision: one entry per step taken, in the order in which it was taken."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from interlock.machine.decision import Moved


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Who moved what, from where to where, by which event, when and why."""

    at: datetime
    machine: str
    entity: str
    event: str
    source: str
    target: str
    owner: str
    reason: str = ""
    cause: str = ""
    """The entity whose move brought this one about, where a coupling did."""
    moves: bool = True
    """False when the event was accepted without a transition."""


def entries_of(
    moved: Moved[Any, Any], *, entity: str, at: datetime, reason: str = "", cause: str = ""
) -> tuple[Entry, ...]:
    """The entries that have to be written together with the move, or not at all."""
    entries: tuple[Entry, ...] = ()
    for step in moved.steps:  # mostly one; a comprehension would cost a call of its own before Python 3.12
        entries += (
            Entry(
                at,
                step.machine,
                entity,
                step.event,
                step.source,
                step.target,
                step.owner,
                reason,
                cause,
                step.moves,
            ),
        )
    return entries
