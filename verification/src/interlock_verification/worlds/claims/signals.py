"""Claims about signals: each is received once, in order, and again by a handler that runs again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from interlock.systems.orchestrator.wait_records import KEPT, WAITING
from interlock_verification.claims import FactClaim

Answer = int | None
"""The number that a signal carried; None for a wait that has timed out."""


class RepeatedWait(NamedTuple):
    """A wait of a handler that runs again."""

    wait: int
    before: Answer
    now: Answer

    def __str__(self) -> str:
        return f"wait {self.wait} got {self.before}, then {self.now}"


class ReceivedSignals(NamedTuple):
    """The signals that a handler has received, in the order of its waits."""

    values: Sequence[int]

    def __str__(self) -> str:
        return f"the handler got {list(self.values)}"


class AnsweredWait(NamedTuple):
    """A wait with its answer, and the acknowledged signals that were sent for it."""

    wait: int
    answer: Answer
    sent: Sequence[int]

    def __str__(self) -> str:
        return f"wait {self.wait} got {self.answer}, and signals {list(self.sent)} were for it"


class WaitAtEnd(NamedTuple):
    """A wait or kept signal at the end of an episode, when every job has ended."""

    name: str
    state: str

    def __str__(self) -> str:
        return f"{self.name} is {self.state}"


SIGNAL_CLAIMS: Sequence[FactClaim[Any]] = (
    FactClaim(
        "signal.same_again",
        "a handler that runs again gets the answers that it got before",
        RepeatedWait,
        lambda wait: wait.before == wait.now,
    ),
    FactClaim(
        "signal.once_in_order",
        "a signal is received once, in the order of sending",
        ReceivedSignals,
        lambda got: list(got.values) == sorted(set(got.values)),
    ),
    FactClaim(
        "signal.answers_its_wait",
        "an acknowledged signal is the answer to the wait of its number",
        AnsweredWait,
        lambda wait: not wait.sent or list(wait.sent) == [wait.answer],
    ),
    FactClaim(
        "signal.none_left",
        "no wait is open, and no signal is kept, when every job has ended",
        WaitAtEnd,
        lambda wait: wait.state not in (WAITING, KEPT),
    ),
)
