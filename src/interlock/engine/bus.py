"""In-process events: a system notifies the others of its process of a change.

An event is a hint and never essential: the change is in the store, and a sweep finds it later in any case. So
a handler takes no decision; it wakes a loop, or leaves a note for one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

E = TypeVar("E")


class Bus:
    """Delivers events to the handlers of their type, in the order in which they subscribed."""

    def __init__(self) -> None:
        self._handlers: defaultdict[type, list[Callable[[Any], None]]] = defaultdict(list)

    def subscribe(self, event: type[E], handler: Callable[[E], None]) -> None:
        """Call a handler with every event of this type."""
        self._handlers[event].append(handler)

    def publish(self, event: object) -> None:
        """Call the handlers of an event, if there are any."""
        for handler in self._handlers[type(event)]:
            handler(event)
