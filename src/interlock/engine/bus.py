"""Typed events within a process: systems publish events that others subscribe to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from interlock.store.records import Outcome, Repeated, RequestReused, Work

E = TypeVar("E")


class Bus:
    """Delivers events between the systems of a process, to the handlers of their type in order.

    An event is a hint and never essential: the change is in the store, and a sweep finds it later in any
    case. So a handler takes no decision; it wakes a loop, or leaves a note for one.
    """

    def __init__(self) -> None:
        self._handlers: defaultdict[type, list[Callable[[Any], None]]] = defaultdict(list)

    def subscribe(self, event: type[E], handler: Callable[[E], None]) -> None:
        """Call a handler with every event of this type."""
        self._handlers[event].append(handler)

    def publish(self, event: object) -> None:
        """Call the handlers of an event, if there are any."""
        for handler in self._handlers[type(event)]:
            handler(event)


class CommitsAnswered(msgspec.Struct, frozen=True):
    """Event: the store has answered a call with commits; each has an outcome."""

    work: Sequence[Work]
    outcomes: Sequence[Outcome]


class RequestRecalled(msgspec.Struct, frozen=True):
    """Event: a request was recognised without a commit."""

    outcome: Repeated | RequestReused
