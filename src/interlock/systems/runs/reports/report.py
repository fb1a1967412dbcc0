"""A report: the notifications of one reporter about one run; its table, and the interface of reporters.

Guarantees of the table:

* One sender at a time, and never an earlier status after a later one: so a receiver never sees an
  outcome replaced by "running".
* It ends. A report that cannot be delivered is given up after `report_for_s`, visibly, even if no process
  is left that could deliver it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from interlock.lifecycles import run
from interlock.machine import (
    STAY,
    Deadline,
    Event,
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
    """The status of a run for reporters, in order."""

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
        """Its place in the order of statuses."""
        return len(_ON_THE_WAY) if self.final else _ON_THE_WAY.index(self)


_ON_THE_WAY = (RunStatus.AWAITING_APPROVAL, RunStatus.PENDING, RunStatus.RUNNING)
STATUSES: dict[str, RunStatus] = {
    run.AWAITING_APPROVAL: RunStatus.AWAITING_APPROVAL,
    run.QUEUED: RunStatus.PENDING,
    run.RUNNING: RunStatus.RUNNING,
    run.SUCCESS: RunStatus.SUCCESS,
    run.FAILED: RunStatus.FAILED,
    run.CANCELED: RunStatus.CANCELED,
    run.TIMEOUT: RunStatus.TIMEOUT,
}
"""The status for each reported state of a run."""


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a notification."""

    run: RunView
    status: RunStatus
    at: datetime
    url: str = ""
    """URL of the run for people."""

    @property
    def id(self) -> str:
        """The id, the same for every repeat."""
        return f"{self.run.id}.{self.status}"


class DeliveryFailed(Exception):
    """A delivery failed, temporarily or permanently."""

    def __init__(
        self, sentence: str, *, after_s: float | None = None, never: bool = False, for_all: bool = False
    ) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.after_s = after_s
        """Pause that the receiver requests; None if it names none."""
        self.never = never
        """Whether the failure is permanent."""
        self.for_all = for_all
        """Whether the pause applies to all reports of the receiver."""


class Reporter(Protocol):
    """Notifies an external system. Calls have a deadline, and may be repeated."""

    @property
    def name(self) -> str:
        """Its name in the settings."""
        ...

    @property
    def able(self) -> bool:
        """Whether it has its credentials; otherwise another process has to send."""
        ...

    def wants(self, run: RunView, status: RunStatus) -> bool:
        """Return whether it reports this run."""
        ...

    def replaces(self, newer: RunView, run: RunView) -> bool:
        """Return whether the receiver shows the newer run's status instead.

        It is shown in place of the status of the other run.
        """
        ...

    async def deliver(self, report: RunReport, memory: str) -> str:
        """Send the report; raise `DeliveryFailed`.

        The result is passed as `memory` the next time.
        """
        ...


ReadTime: TypeAlias = Callable[[], Awaitable[datetime]]
"""Returns the store's time: signatures contain it, and receivers give times to wait until."""


class ReportState(StrEnum):
    """The states of a report."""

    WAITING = "waiting"
    SENDING = "sending"
    TOLD = "told"
    DONE = "done"
    GIVEN_UP = "given_up"
    DROPPED = "dropped"


WAITING, SENDING, TOLD = ReportState.WAITING, ReportState.SENDING, ReportState.TOLD
DONE, GIVEN_UP, DROPPED = ReportState.DONE, ReportState.GIVEN_UP, ReportState.DROPPED

ENDED = (DONE, GIVEN_UP, DROPPED)

take: Event = command("take", "A sender delivers it.", by="reporter")
told: Event = command("told", "The receiver has it; a later status will follow.", by="reporter")
told_outcome: Event = command("told_outcome", "The receiver has the outcome.", by="reporter")
failed: Event = command("failed", "The receiver does not have it.", by="reporter")
missed: Event = command(
    "missed", "The receiver does not have it; only the outcome is retried.", by="reporter"
)
refused: Event = command("refused", "The receiver has refused it permanently.", by="reporter")
news: Event = command("news", "There is a later status to report.", by="orchestrator")
sender_lost: Event = timer("sender_lost", "The sender has not reported in time.", by="clock")
give_up: Event = timer("give_up", "It was tried for long enough.", by="clock")
drop: Event = consequence(
    "drop", "The reporter was removed, or reports a newer run instead.", by="orchestrator"
)

PATIENCE = Deadline(sender_lost, "telling_s", 60.0)
LONG_ENOUGH = Deadline(give_up, "report_for_s", 3 * 86_400.0, since="the status was known")

# fmt: off
REPORT = Machine[ReportState, None](
    "report",
    "The notification of one reporter about one run.",
    initial=WAITING,
    spine=(WAITING, SENDING, DONE),
    stop=(drop,),
    states=(
        state(WAITING, "A status is to be sent, now or at the next try.",
              turn="reporter", within=LONG_ENOUGH),
        state(SENDING, "A sender delivers it.", turn="reporter", within=PATIENCE),
        state(TOLD, "The current status was delivered; the outcome will follow.", turn="orchestrator"),
        end(DONE, "The receiver has the outcome."),
        end(GIVEN_UP, "The receiver does not have the outcome, and there are no more tries."),
        end(DROPPED, "No longer delivered: its reporter was removed, or reports a newer run."),
    ),
    rows=(
        on(take, WAITING, SENDING, owner="reporter", why="One sender at a time."),
        on(told, SENDING, TOLD, owner="reporter", why="It was not the final status."),
        on(missed, SENDING, TOLD, owner="reporter", why="An intermediate status is not retried."),
        on(told_outcome, SENDING, DONE, owner="reporter", why="It was the final status."),
        on(failed, SENDING, WAITING, owner="reporter", why="It is retried after a pause."),
        on(refused, SENDING, GIVEN_UP, owner="reporter", why="It would be refused again."),
        on(sender_lost, SENDING, WAITING, owner="reporter", why="It may have arrived; it is sent again."),
        on(give_up, WAITING, GIVEN_UP, owner="reporter", why="An unreachable receiver must not block a run."),
        on(news, TOLD, WAITING, owner="orchestrator", why="The run has a new status."),
        on(news, (WAITING, SENDING), STAY, owner="orchestrator", why="The later status is sent instead."),
        on(drop, (WAITING, SENDING, TOLD), DROPPED, owner="orchestrator",
           why="There is no reporter, or it reports a newer run."),
        ignore(sender_lost, (WAITING, TOLD, *ENDED), why="no sender is delivering it"),
        ignore(give_up, (SENDING, TOLD, *ENDED), why="it is not waiting to be sent"),
        ignore(drop, ENDED, why="it is over"),
    ),
)
# fmt: on


class ReportBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a report's record."""

    status: RunStatus = msgspec.field(name="word")
    """The latest status to send."""
    since: datetime
    """Time at which that status was reached."""
    told: RunStatus | None = None
    """The latest status that the receiver has."""
    memory: str = ""
    """Data of the reporter, such as the number of a check run."""
    beside: tuple[str, ...] = ()
    """All reporters of the run, once there is an outcome; the run is reported when all have ended."""
    tries: int = 0
    """Number of failed deliveries of the status."""
    last_error: str = ""


def report_id(run_id: str, reporter: str) -> str:
    """Return the id of the report of one run by one reporter."""
    return f"{run_id}.{reporter}"
