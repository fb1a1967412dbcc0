"""The table of a runner's standing: whether it is given work, from its first lost lease on.

What it promises:

* A runner that keeps losing work is given none: a full disk or a broken network costs a few attempts, not all
  of them.
* Nobody is shut out for ever. A quarantine ends by itself, and sooner when an operator lifts it; then the
  runner begins with a clean sheet.
* A runner that has lost nothing has no standing at all, and costs nothing.
"""

from __future__ import annotations

from enum import StrEnum

from interlock.machine import STAY, Deadline, Machine, command, consequence, end, ignore, on, state, timer


class StandingState(StrEnum):
    """Where a runner stands."""

    WATCHED = "watched"
    QUARANTINED = "quarantined"
    CLEARED = "cleared"


WATCHED, QUARANTINED, CLEARED = StandingState.WATCHED, StandingState.QUARANTINED, StandingState.CLEARED

lost = command("lost", "It has lost work once more, and not too often yet.", by="orchestrator")
forgiven = command(
    "forgiven", "Work that it lost was lost by others too, so it was not its fault.", by="orchestrator"
)
too_often = consequence("too_often", "It has lost work too often.", by="orchestrator")
lift = command("lift", "Somebody has seen to it.", by="operator")
served = timer("served", "Its time is over.", by="clock")
forget = timer("forget", "It has lost nothing for long.", by="clock")

SENTENCE = Deadline(served, "quarantine_s", 1_800.0)
MEMORY = Deadline(forget, "losses_remembered_s", 3_600.0, since="it last lost something")

# fmt: off
STANDING = Machine[StandingState, None](
    "standing",
    "How far a runner is trusted that has lost work.",
    initial=WATCHED,
    spine=(WATCHED, QUARANTINED, CLEARED),
    stop=(lift,),
    states=(
        state(WATCHED, "It is given work, and what it loses is counted.", turn="orchestrator", within=MEMORY),
        state(QUARANTINED, "It is given no work.", turn="operator", within=SENTENCE),
        end(CLEARED, "What it has lost is forgotten."),
    ),
    rows=(
        on(lost, WATCHED, STAY, owner="orchestrator", arms=MEMORY,
           why="Now and then everybody loses something."),
        on(forgiven, (WATCHED, QUARANTINED), STAY, owner="orchestrator", why="It was the fault of the job."),
        on(too_often, WATCHED, QUARANTINED, owner="orchestrator", why="It would lose the next one as well."),
        on(lift, (WATCHED, QUARANTINED), CLEARED, owner="operator", why="It is in order again."),
        on(served, QUARANTINED, CLEARED, owner="clock", why="It may be in order by now."),
        on(forget, WATCHED, CLEARED, owner="clock", why="It was long ago."),
        ignore(lost, QUARANTINED, why="it is given nothing; what it still had was lost"),
        ignore(too_often, (QUARANTINED, CLEARED), why="nothing is counted there"),
        ignore(served, (WATCHED, CLEARED), why="it is not quarantined"),
        ignore(forget, (QUARANTINED, CLEARED), why="nothing is counted"),
        ignore(lift, CLEARED, why="it is over"),
    ),
)
# fmt: on
