"""The pulse of a simulation: who executes it, when that was heard last, and how far it has come.

It is a record of its own beside the simulation's, for two reasons. A sign of life comes every few
seconds and is no change of the state: people who compare versions must not be disturbed by it. And it
has to be fenced nevertheless: so whatever takes a simulation into or out of running changes its pulse
in the same commit. Whoever beats compares the version of the pulse only, and cannot be believed after
somebody else was given the simulation, or after it has stopped.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from interlock.lifecycles.durations import deadline
from interlock.lifecycles.owners import Owner
from interlock.machine import (
    STAY,
    Machine,
    command,
    consequence,
    end,
    ignore,
    message,
    on,
    refuse,
    state,
    timer,
)
from interlock.wire.samples import Samples


class PulseState(StrEnum):
    """Whether anybody has to be heard."""

    STILL = "still"
    BEATING = "beating"
    OVER = "over"


STILL, BEATING, OVER = PulseState.STILL, PulseState.BEATING, PulseState.OVER

take = consequence("take", "A worker executes the simulation.", by=Owner.SIMULATOR)
rest = consequence("rest", "Nobody executes the simulation.", by=Owner.SIMULATOR)
finish = command("finish", "The simulation has ended.", by=Owner.SIMULATOR)
beat = message("beat", "Its worker is alive.", by=Owner.WORKER)
danger = message("danger", "Its worker warns of something.", by=Owner.WORKER)
fall_silent = timer("fall_silent", "Nothing was heard for too long.", by=Owner.CLOCK)

_SILENCE = deadline(fall_silent, "simulation_silence_s", since="the last heartbeat, or the start")

# fmt: off
PULSE = Machine[PulseState, None](
    "pulse",
    "Who executes a simulation, when that was heard last, and how far it has come.",
    initial=STILL,
    spine=(STILL, BEATING, OVER),
    stop=(finish,),
    states=(
        state(STILL, "Nobody executes it, and nobody has to be heard.", turn=Owner.SIMULATOR),
        state(BEATING, "Its worker is heard every few seconds.", turn=Owner.SIMULATOR, within=_SILENCE),
        end(OVER, "The simulation has ended."),
    ),
    rows=(
        on(take, STILL, BEATING, owner=Owner.SIMULATOR, why="From now on this worker is heard."),
        on(beat, BEATING, STAY, owner=Owner.SIMULATOR, arms=_SILENCE, why="It is being worked on."),
        on(danger, BEATING, STAY, owner=Owner.SIMULATOR, why="It is counted, and told to who listens."),
        on(rest, BEATING, STILL, owner=Owner.SIMULATOR, why="It was paused or interrupted."),
        on(fall_silent, BEATING, STILL, owner=Owner.SIMULATOR, why="Its worker counts as dead."),
        on(finish, (STILL, BEATING), OVER, owner=Owner.SIMULATOR, why="There is nothing more to hear."),
        refuse(take, BEATING, why="another worker is heard"),
        refuse(take, OVER, why="it has ended"),
        *(refuse(said, STILL, why="nobody executes it") for said in (beat, danger)),
        *(refuse(said, OVER, why="it has ended") for said in (beat, danger)),
        ignore(rest, (STILL, OVER), why="nobody has to be heard"),
        ignore(fall_silent, (STILL, OVER), why="nobody has to be heard"),
        ignore(finish, OVER, why="it has ended"),
    ),
)
# fmt: on


class PulseBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the record of a pulse keeps."""

    worker_id: str = ""
    """Who is heard."""
    execution: int = 0
    attempt: int = 0
    at: datetime | None = None
    """When it was heard last."""
    step: int = 0
    total_steps: int | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    saved_step: int = 0
    """The step after which the checkpoint was saved."""
    saved_at: datetime | None = None
    dangers: int = 0
    samples: Samples = Samples()
    """Metrics over the steps, in a bounded number."""
