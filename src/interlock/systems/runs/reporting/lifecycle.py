"""The table of a report: what one reporter has to tell about one run, from the first word to the last.

What it promises:

* One sender at a time, and never an earlier word after a later one: so a receiver that takes words in
  the order in which they come never sees an outcome replaced by "running".
* It ends. Whoever cannot be told is given up on after `report_for_s`, visibly, also when nobody is left
  who could tell it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

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
from interlock.systems.runs.reporting.port import Word


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

    word: Word
    """The latest that there is to tell."""
    since: datetime
    """When that was known."""
    told: Word | None = None
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
