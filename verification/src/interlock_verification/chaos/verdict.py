"""What a harness is asked, and what it answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

SHOWN = 8
"""Broken promises that are printed."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one harness."""

    store: str
    rounds: int
    seed: int = 1
    broken: bool = False
    """Give up a promise on purpose: the harness has to notice."""
    timed: bool = False
    """Promises about time are judged as well, which needs a machine that has the time."""


class Verdict(msgspec.Struct, kw_only=True):
    """What was done, what was counted, and which promises were broken."""

    harness: str
    setup: Setup
    counts: dict[str, int] = {}
    remarks: list[str] = []
    broken_promises: list[str] = []
    seconds: float = 0.0

    def add(self, **counts: int) -> None:
        """Count more of something."""
        for name, number in counts.items():
            self.counts[name] = self.counts.get(name, 0) + number

    def blame(self, sentence: str) -> None:
        """A promise was broken."""
        self.broken_promises.append(sentence)

    def rate(self, what: str) -> float:
        """How many of something there were in a minute."""
        return 60 * self.counts.get(what, 0) / self.seconds if self.seconds else 0.0

    def told(self) -> str:
        """The counts in words."""
        return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in self.counts.items())

    def lines(self) -> Iterator[str]:
        """For people; the first line replays it."""
        setup = self.setup
        mode = (" --timed" if setup.timed else "") + (" --broken" if setup.broken else "")
        yield (
            f"python -m interlock_verification.chaos --only {self.harness} --store {setup.store}"
            f" --rounds {setup.rounds} --seed {setup.seed}{mode}"
        )
        yield f"    {self.told()} in {self.seconds:.1f} s"
        yield from (f"    {remark}" for remark in self.remarks)
        yield from (f"    broken promise: {sentence}" for sentence in self.broken_promises[:SHOWN])
        if len(self.broken_promises) > SHOWN:
            yield f"    and {len(self.broken_promises) - SHOWN} more"


def table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """All of them together, as a page of documentation would show it."""
    yield "| harness | store | what was done and counted | broken promises | seconds |"
    yield "|---|---|---|---|---|"
    for verdict in verdicts:
        broken, seconds = len(verdict.broken_promises), round(verdict.seconds)
        yield f"| {verdict.harness} | {verdict.setup.store} | {verdict.told()} | {broken} | {seconds:,} |"


class Harness(Protocol):
    """What every harness is: a module with these names, and a docstring that says what it shows."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 - constants of a module

    @property
    def STORES(self) -> tuple[str, ...]: ...  # noqa: N802

    @property
    def SHORT(self) -> int: ...  # noqa: N802

    @property
    def LONG(self) -> int: ...  # noqa: N802

    def run(self, setup: Setup) -> Verdict:
        """Do the worst, as often as there are rounds."""
        ...


@contextmanager
def judging(harness: str, setup: Setup) -> Iterator[Verdict]:
    """A verdict to be filled in; it notes how long that took."""
    verdict = Verdict(harness=harness, setup=setup, counts={}, remarks=[], broken_promises=[])
    began = time.monotonic()
    try:
        yield verdict
    finally:
        verdict.seconds = time.monotonic() - began
