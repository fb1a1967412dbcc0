"""A small lifecycle, a store with a clock that jumps, and a store whose answers get lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest

from interlock.errors import StoreUnavailable
from interlock.machine import Machine, command, end, on, state
from interlock.store.catalogue import Catalogue, catalogue_of
from interlock.store.memory import MemoryStore
from interlock.store.records import Change, Commit, Note, Outcome, StepLine, Work

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class Parcel(StrEnum):
    PACKED = "packed"
    SENT = "sent"
    DELIVERED = "delivered"


send = command("send", "It is on its way.", by="sender")
deliver = command("deliver", "It has arrived.", by="carrier")
burn = command("burn", "It is no more.", by="fate")

PARCEL = Machine[Parcel, None](
    "parcel",
    "Something on its way.",
    initial=Parcel.PACKED,
    stop=(burn,),
    states=(
        state(Parcel.PACKED, "Waits.", turn="sender"),
        state(Parcel.SENT, "Travels.", turn="carrier"),
        end(Parcel.DELIVERED, "Arrived, or is no more."),
    ),
    rows=(
        on(send, Parcel.PACKED, Parcel.SENT, owner="sender", why="It is time."),
        on(deliver, Parcel.SENT, Parcel.DELIVERED, owner="carrier", why="It is there."),
        on(burn, (Parcel.PACKED, Parcel.SENT), Parcel.DELIVERED, owner="fate", why="Fire."),
    ),
)


class Clock:
    """A clock that stands until it is told to jump."""

    def __init__(self) -> None:
        self.at = BEGINNING

    def __call__(self) -> datetime:
        return self.at

    def jump(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class LossyStore(MemoryStore):
    """Loses the next answers: before the commit (nothing happened) or after it (all of it did)."""

    def __init__(self, catalogue: Catalogue, clock: Callable[[], datetime]) -> None:
        super().__init__(catalogue, clock=clock)
        self.losses: list[str] = []
        self.calls = 0

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        self.calls += 1
        loss = self.losses.pop(0) if self.losses else ""
        if loss == "before":
            raise StoreUnavailable("The connection broke.")
        outcomes = await super().commit(commits)
        if loss == "after":
            raise StoreUnavailable("The answer was lost.")
        return outcomes


def change(
    name: str, expected: int, into: str, *, actor: str = "", deadline_at: datetime | None = None
) -> Change:
    """A change of a parcel, with a note of the step where there was one."""
    ways = {"sent": ("send", "packed", "sender"), "delivered": ("deliver", "sent", "carrier")}
    steps: tuple[StepLine, ...] = ()
    if expected and into in ways:
        event, source, owner = ways[into]
        steps = (StepLine("parcel", name, event, source, into, owner),)
    return Change(
        kind="parcel",
        id=name,
        expected=expected,
        state=into,
        body=b"{}",
        deadline_at=deadline_at,
        note=Note(steps=steps, actor=actor),
    )


def commit_of(name: str, expected: int, into: str, *, actor: str = "") -> Commit:
    """A commit of one such change."""
    return Commit(changes=(change(name, expected, into, actor=actor),))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> LossyStore:
    return LossyStore(catalogue_of([PARCEL]), clock)


@pytest.fixture
def make_commit() -> Callable[..., Commit]:
    return commit_of


@pytest.fixture
def make_change() -> Callable[..., Change]:
    return change


@pytest.fixture
def parcel() -> Machine[Parcel, None]:
    return PARCEL
