"""Events within a process reach who subscribed to their type, and only those."""

from __future__ import annotations

import msgspec

from interlock.engine.bus import Bus


class Rang(msgspec.Struct, frozen=True):
    """An event."""

    times: int


class Slept(msgspec.Struct, frozen=True):
    """Another one."""


def test_every_handler_of_a_type_is_called_with_the_event_in_the_order_of_subscription() -> None:
    bus, calls = Bus(), list[str]()
    bus.subscribe(Rang, lambda event: calls.append(f"first {event.times}"))
    bus.subscribe(Rang, lambda event: calls.append(f"second {event.times}"))
    bus.subscribe(Slept, lambda _: calls.append("slept"))
    bus.publish(Rang(2))
    assert calls == ["first 2", "second 2"]


def test_an_event_without_subscribers_does_nothing() -> None:
    Bus().publish(Slept())
