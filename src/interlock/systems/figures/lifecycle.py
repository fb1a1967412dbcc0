"""The life of a record of figures: counts are added to it, and after seven days it is forgotten."""

from __future__ import annotations

from enum import StrEnum

from interlock.machine import STAY, Deadline, Machine, command, end, ignore, on, refuse, state, timer


class FiguresState(StrEnum):
    """Where a record of figures stands."""

    COUNTING = "counting"
    FORGOTTEN = "forgotten"


COUNTING, FORGOTTEN = FiguresState.COUNTING, FiguresState.FORGOTTEN

count = command("count", "More entries of the journal were counted.", by="server")
expire = timer("expire", "The period that it is about is long over.", by="clock")
forget = command("forget", "The figures are not wanted.", by="operator")

KEPT = Deadline(expire, "figures_kept_s", 7 * 86_400.0, since="the end of the period that it is about")

# fmt: off
FIGURES = Machine[FiguresState, None](
    "figures",
    "Counts and durations of jobs, for a quarter of an hour or for half a day.",
    initial=COUNTING,
    spine=(COUNTING, FORGOTTEN),
    stop=(forget,),
    states=(
        state(COUNTING, "Entries of the journal are added to it.", turn="clock", within=KEPT),
        end(FORGOTTEN, "It is too old to be shown."),
    ),
    rows=(
        on(count, COUNTING, STAY, owner="server", why="The journal has gone on."),
        on(expire, COUNTING, FORGOTTEN, owner="clock", why="Figures are shown for seven days."),
        on(forget, COUNTING, FORGOTTEN, owner="operator", why="An operator wants to start anew."),
        refuse(count, FORGOTTEN, why="it is too old to be shown"),
        ignore(expire, FORGOTTEN, why="it is forgotten"),
        ignore(forget, FORGOTTEN, why="it is forgotten"),
    ),
)
# fmt: on
