"""The setup and the result of a harness."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

SHOWN = 8
"""Number of broken guarantees to print."""


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one harness."""

    store: str
    rounds: int
    seed: int = 1
    broken: bool = False
    """Disable a guarantee on purpose: the harness has to detect it."""
    timed: bool = False
    """Judge guarantees about time as well, which needs an idle machine."""


class ChaosVerdict(msgspec.Struct, kw_only=True):
    """The counts of a harness, and the broken guarantees."""

    harness: str
    setup: Setup
    counts: dict[str, int] = {}
    remarks: list[str] = []
    broken_promises: list[str] = []
    seconds: float = 0.0

    def add(self, **counts: int) -> None:
        """Add to the counts."""
        for name, number in counts.items():
            self.counts[name] = self.counts.get(name, 0) + number

    def blame(self, sentence: str) -> None:
        """Record a broken guarantee."""
        self.broken_promises.append(sentence)

    def rate(self, what: str) -> float:
        """Return a count per minute."""
        return 60 * self.counts.get(what, 0) / self.seconds if self.seconds else 0.0

    def counts_text(self) -> str:
        """Return the counts in words."""
        return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in self.counts.items())

    def lines(self) -> Iterator[str]:
        """Yield the report; its first line is the command that replays it."""
        setup = self.setup
        mode = (" --timed" if setup.timed else "") + (" --broken" if setup.broken else "")
        yield (
            f"python -m interlock_verification.chaos --only {self.harness} --store {setup.store}"
            f" --rounds {setup.rounds} --seed {setup.seed}{mode}"
        )
        yield f"    {self.counts_text()} in {self.seconds:.1f} s"
        yield from (f"    {remark}" for remark in self.remarks)
        yield from (f"    broken promise: {sentence}" for sentence in self.broken_promises[:SHOWN])
        if len(self.broken_promises) > SHOWN:
            yield f"    and {len(self.broken_promises) - SHOWN} more"


def table(verdicts: Sequence[ChaosVerdict]) -> Iterator[str]:
    """Yield all results as a table for the documentation."""
    yield "| harness | store | steps done and counted | broken promises | seconds |"
    yield "|---|---|---|---|---|"
    for verdict in verdicts:
        counts, broken = verdict.counts_text(), len(verdict.broken_promises)
        seconds = round(verdict.seconds)
        yield f"| {verdict.harness} | {verdict.setup.store} | {counts} | {broken} | {seconds:,} |"


class Harness(Protocol):
    """The interface of a harness: a module with these names, and a docstring that names its claim."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 - constants of a module

    @property
    def STORES(self) -> tuple[str, ...]: ...  # noqa: N802

    @property
    def SHORT(self) -> int: ...  # noqa: N802

    @property
    def LONG(self) -> int: ...  # noqa: N802

    def run(self, setup: Setup) -> ChaosVerdict:
        """Inject the faults in every round, and return the verdict."""
        ...


@contextmanager
def judging(harness: str, setup: Setup) -> Iterator[ChaosVerdict]:
    """Yield a verdict to fill in; record the duration."""
    verdict = ChaosVerdict(harness=harness, setup=setup, counts={}, remarks=[], broken_promises=[])
    began = time.monotonic()
    try:
        yield verdict
    finally:
        verdict.seconds = time.monotonic() - began
