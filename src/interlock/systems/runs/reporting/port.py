"""What is told about a run, what a reporter is, and what can become of telling."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from interlock.wire.runs import RunView


class Word(StrEnum):
    """What there is to tell. A later word is never followed by an earlier one."""

    AWAITING_APPROVAL = "awaiting_approval"
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELED = "canceled"
    TIMEOUT = "timeout"

    @property
    def final(self) -> bool:
        """Whether it is an outcome."""
        return self not in _ON_THE_WAY

    @property
    def rank(self) -> int:
        """How late it comes in the life of a run."""
        return len(_ON_THE_WAY) if self.final else _ON_THE_WAY.index(self)


_ON_THE_WAY = (Word.AWAITING_APPROVAL, Word.PENDING, Word.RUNNING)
WORDS = {
    "AWAITING_APPROVAL": Word.AWAITING_APPROVAL,
    "QUEUED": Word.PENDING,
    "RUNNING": Word.RUNNING,
    "SUCCESS": Word.SUCCESS,
    "FAILED": Word.FAILED,
    "CANCELED": Word.CANCELED,
    "TIMEOUT": Word.TIMEOUT,
}
"""What is told when a run comes into a state; of the others nothing is."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is told."""

    run: RunView
    word: Word
    at: datetime
    url: str = ""
    """Where somebody can look at the run."""

    @property
    def id(self) -> str:
        """The same whenever the same is told again."""
        return f"{self.run.id}.{self.word}"


class NotTold(Exception):
    """It could not be told this time, or never can be."""

    def __init__(
        self, sentence: str, *, after_s: float | None = None, never: bool = False, for_all: bool = False
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.after_s = after_s
        """How long the receiver wants to be left alone; None when it did not say."""
        self.never = never
        """Telling it again would not help."""
        self.for_all = for_all
        """The receiver means all reports, not only this one."""


class Reporter(Protocol):
    """Tells somebody outside. It is asked with a deadline, and may be told to tell the same again."""

    @property
    def name(self) -> str:
        """What the settings call it."""
        ...

    @property
    def able(self) -> bool:
        """Whether it has what it needs to tell; else it is left to a process that has."""
        ...

    def wants(self, run: RunView, word: Word) -> bool:
        """Whether this is its business."""
        ...

    def replaces(self, newer: RunView, run: RunView) -> bool:
        """Whether the receiver shows word of the newer run in the place of that of the other one."""
        ...

    async def tell(self, report: Report, memory: str) -> str:
        """Tell it; raises `NotTold`. What it returns it is given as `memory` the next time."""
        ...


Now: TypeAlias = Callable[[], Awaitable[datetime]]
"""What time it is, by the store's clock: signatures carry it, and receivers say until when to wait."""
