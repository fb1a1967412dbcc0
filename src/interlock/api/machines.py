"""The transition tables as data and as pictures, and the number of records in each state."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from interlock.api.messages import Input, Output
from interlock.api.operation import Operation, Parameter, QueueConfinement
from interlock.errors import UnknownMachine, UnknownState
from interlock.machine import Blueprint, Tone
from interlock.wire.access import Role

_NAME = {"name": Parameter("The name of a machine.")}

SVG = "image/svg+xml"


class PictureQuery(Input, frozen=True, kw_only=True):
    """States and path to highlight in a picture."""

    state: Annotated[str, Meta(max_length=64, description="The current state.")] = ""
    path: Annotated[
        str, Meta(max_length=1_000, description="The states passed so far, separated by commas.")
    ] = ""


class MachineView(Output, frozen=True, kw_only=True):
    """Summary of a machine."""

    name: str
    doc: str
    initial: str
    states: tuple[str, ...]
    terminal: tuple[str, ...]
    fingerprint: str
    meanings: dict[str, Tone]
    """Tone of each state for display."""
    recorded: bool = True
    """Whether the store keeps records of it; others are part of a record of another kind."""


class MachineList(Output, frozen=True, kw_only=True):
    """The machines that occur in the journal."""

    machines: tuple[MachineView, ...]


class StandOfState(Output, frozen=True, kw_only=True):
    """The records in one state."""

    state: str
    number: int
    capped: bool = False
    """The number is a lower bound."""
    oldest_id: str = ""
    oldest_at: datetime | None = None
    """Creation time of the oldest."""
    median_stay_s: float | None = None
    """Median time in this state of the hundred oldest."""


class Standing(Output, frozen=True, kw_only=True):
    """Number of live records of a machine by state."""

    machine: str
    states: tuple[StandOfState, ...]


LIST_MACHINES = Operation(
    name="listMachines",
    request="GET /api/machines",
    summary="List the machines.",
    role=Role.VIEWER,
    confined=QueueConfinement.NOTHING,
    output=MachineList,
)

DRAW_INTERLOCKING = Operation(
    name="drawInterlocking",
    request="GET /api/machines/interlocking.svg",
    summary="Draw how the machines depend on each other.",
    role=Role.VIEWER,
    confined=QueueConfinement.NOTHING,
    media=SVG,
)

DRAW_MACHINE = Operation(
    name="drawMachine",
    request="GET /api/machines/{name}.svg",
    summary="Draw a machine, with its current state and the path to it highlighted.",
    role=Role.VIEWER,
    confined=QueueConfinement.NOTHING,
    parameters=_NAME,
    input=PictureQuery,
    media=SVG,
    errors=(UnknownMachine, UnknownState),
)

SHOW_STANDING = Operation(
    name="showStanding",
    request="GET /api/machines/{name}/standing",
    summary="Count the live records of a machine by state, with their time in it.",
    role=Role.VIEWER,
    parameters=_NAME,
    output=Standing,
    errors=(UnknownMachine,),
)

GET_MACHINE = Operation[None, Any](
    name="getMachine",
    request="GET /api/machines/{name}",
    summary="Show the table of a machine.",
    role=Role.VIEWER,
    confined=QueueConfinement.NOTHING,
    parameters=_NAME,
    output=Blueprint,
    errors=(UnknownMachine,),
)
