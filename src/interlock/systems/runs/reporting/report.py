"""A report: what one reporter has to deliver about one run; its table, and the interface of reporters.

What the table promises:

* One sender at a time, and never an earlier status after a later one: so a receiver that takes them in
  the order in which they come never sees an outcome replaced by "running".
* It ends. A report that cannot be delivered is given up on after `report_for_s`, visibly, also when no
  process is left that could deliver it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from interlock.machine import (
    STAY,
    Deadline,
    Machine,
    command,
    consequence,
    end,
    ignore,
    on,
    state,
    timer,
)
from interlock.wire.runs import RunView


class RunStatus(StrEnum):
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


_ON_THE_WAY = (RunStatus.AWAITING_APPROVAL, RunStatus.PENDING, RunStatus.RUNNING)
WORDS = {
    "AWAITING_APPROVAL": RunStatus.AWAITING_APPROVAL,
    "QUEUED": RunStatus.PENDING,
    "RUNNING": RunStatus.RUNNING,
    "SUCCESS": RunStatus.SUCCESS,
    "FAILED": RunStatus.FAILED,
    "CANCELED": RunStatus.CANCELED,
    "TIMEOUT": RunStatus.TIMEOUT,
}
"""What is told when a run comes into a state; of the others nothing is."""


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is told."""

    run: RunView
    word: RunStatus
    at: datetime
    url: str = ""
    """Where somebody can look at the run."""

    @property
    def id(self) -> str:
        """The same whenever the same is told again."""
        return f"{self.run.id}.{self.word}"


class DeliveryFailed(Exception):
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

    def wants(self, run: RunView, word: RunStatus) -> bool:
        """Whether this is its business."""
        ...

    def replaces(self, newer: RunView, run: RunView) -> bool:
        """Whether the receiver shows word of the newer run in the place of that of the other one."""
        ...

    async def tell(self, report: RunReport, memory: str) -> str:
        """Tell it; raises `DeliveryFailed`. What it returns it is given as `memory` the next time."""
        ...


Now: TypeAlias = Callable[[], Awaitable[datetime]]
"""What time it is, by the store's clock: signatures carry it, and receivers say until when to wait."""


class ReportState(StrEnum):
    """Where a report stands."""

    WAITING = "waiting"
    SENDING = "sending"
    TOLD = "told"
    DONE = "done"
    GIVEN_UP = "given_up"
    DROPPED = "dropped"


WAITING, SENDING, TOLD = ReportState.WAITING, ReportState.SENDING, ReportState.TOLD
DONE, GIVEN_UP, DROPPED = ReportState.DONE, ReportState.GIVEN_UP, ReportState.DROPPED

ENDED = (DONE, GIVEN_UP, DROPPED)

take = command("take", "Somebody tells it.", by="reporter")
told = command("told", "The receiver has it; a later word will follow.", by="reporter")
told_outcome = command("told_outcome", "The receiver has the outcome.", by="reporter")
failed = command("failed", "The receiver does not have it.", by="reporter")
missed = command("missed", "The receiver does not have it; the outcome will say more.", by="reporter")
refused = command("refused", "The receiver has said that it will never take it.", by="reporter")
news = command("news", "There is a later word to tell.", by="orchestrator")
sender_lost = timer("sender_lost", "Nothing was heard of whoever tells it.", by="clock")
give_up = timer("give_up", "It was tried for long enough.", by="clock")
drop = consequence("drop", "The reporter is gone, or tells of a newer run instead.", by="orchestrator")

PATIENCE = Deadline(sender_lost, "telling_s", 60.0)
LONG_ENOUGH = Deadline(give_up, "report_for_s", 3 * 86_400.0, since="the word was known")

# fmt: off
REPORT = Machine[ReportState, None](
    "report",
    "What one reporter has to tell about one run.",
    initial=WAITING,
    spine=(WAITING, SENDING, DONE),
    stop=(drop,),
    states=(
        state(WAITING, "There is something to tell, now or at the next try.",
              turn="reporter", within=LONG_ENOUGH),
        state(SENDING, "Somebody tells it.", turn="reporter", within=PATIENCE),
        state(TOLD, "Told how it stands; the outcome is to come.", turn="orchestrator"),
        end(DONE, "The receiver has the outcome."),
        end(GIVEN_UP, "The receiver does not have the outcome, and is not told any more."),
        end(DROPPED, "It is not told any more: its reporter is gone, or tells of a newer run."),
    ),
    rows=(
        on(take, WAITING, SENDING, owner="reporter", why="One sender at a time."),
        on(told, SENDING, TOLD, owner="reporter", why="It was not the last word."),
        on(missed, SENDING, TOLD, owner="reporter", why="How it stands is told as well as that can be done."),
        on(told_outcome, SENDING, DONE, owner="reporter", why="It was the last word."),
        on(failed, SENDING, WAITING, owner="reporter", why="It is told again, a little later."),
        on(refused, SENDING, GIVEN_UP, owner="reporter", why="It would be refused every time."),
        on(sender_lost, SENDING, WAITING, owner="reporter", why="It may have arrived; it is told again."),
        on(give_up, WAITING, GIVEN_UP, owner="reporter", why="A receiver that is gone must not hold a run."),
        on(news, TOLD, WAITING, owner="orchestrator", why="It has gone on."),
        on(news, (WAITING, SENDING), STAY, owner="orchestrator", why="The later word is told instead."),
        on(drop, (WAITING, SENDING, TOLD), DROPPED, owner="orchestrator",
           why="There is nobody to tell, or a newer run is told of."),
        ignore(sender_lost, (WAITING, TOLD, *ENDED), why="nobody is telling it"),
        ignore(give_up, (SENDING, TOLD, *ENDED), why="it is not waiting to be told"),
        ignore(drop, ENDED, why="it is over"),
    ),
)
# fmt: on


class ReportBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a report knows."""

    word: RunStatus
    """The latest that there is to tell."""
    since: datetime
    """When that was known."""
    told: RunStatus | None = None
    """The latest that the receiver has."""
    memory: str = ""
    """What the reporter wants to remember: the number of a check run, say."""
    beside: tuple[str, ...] = ()
    """All reporters of the run, once there is an outcome: it is reported when none of them is left."""
    tries: int = 0
    """How often the word was told in vain."""
    last_error: str = ""


def report_id(run_id: str, reporter: str) -> str:
    """The name of the report of one run by one reporter."""
    return f"{run_id}.{reporter}"
