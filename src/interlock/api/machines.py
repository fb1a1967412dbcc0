"""The tables that decide, as data and as pictures, and where records stand in them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

from interlock.api.messages import Input, Output
from interlock.api.operation import Confined, Operation, Parameter
from interlock.errors import UnknownMachine, UnknownState
from interlock.machine import Blueprint, Tone
from interlock.wire.access import Role

_NAME = {"name": Parameter("The name of a machine.")}

SVG = "image/svg+xml"


class PictureQuery(Input, frozen=True, kw_only=True):
    """What to light in a picture."""

    state: Annotated[str, Meta(max_length=64)] = ""
    path: Annotated[str, Meta(max_length=1_000, description="The states passed so far: A,B,C")] = ""


class MachineView(Output, frozen=True, kw_only=True):
    """A machine in short."""

    name: str
    doc: str
    initial: str
    states: tuple[str, ...]
    terminal: tuple[str, ...]
    fingerprint: str
    meanings: dict[str, Tone]
    """How each state looks to people."""
    recorded: bool = True
    """Whether the store keeps records of it; others live inside of a record of another kind."""


class MachineList(Output, frozen=True, kw_only=True):
    """The machines that a journal may speak of."""

    machines: tuple[MachineView, ...]


class StandOfState(Output, frozen=True, kw_only=True):
    """The records in one state."""

    state: str
    number: int
    capped: bool = False
    """There are at least so many."""
    oldest_id: str = ""
    oldest_at: datetime | None = None
    """When the oldest of them was created."""
    median_stay_s: float | None = None
    """How long the hundred oldest have been as they are, in the middle."""


class Standing(Output, frozen=True, kw_only=True):
    """Where the live records of a machine stand."""

    machine: str
    states: tuple[StandOfState, ...]


LIST_MACHINES = Operation(
    name="listMachines",
    request="GET /api/machines",
    summary="List the machines.",
    role=Role.VIEWER,
    confined=Confined.NOTHING,
    output=MachineList,
)

DRAW_INTERLOCKING = Operation(
    name="drawInterlocking",
    request="GET /api/machines/interlocking.svg",
    summary="Draw how the machines depend on each other.",
    role=Role.VIEWER,
    confined=Confined.NOTHING,
    media=SVG,
)

DRAW_MACHINE = Operation(
    name="drawMachine",
    request="GET /api/machines/{name}.svg",
    summary="Draw a machine, with a state lit and the path that led there.",
    role=Role.VIEWER,
    confined=Confined.NOTHING,
    parameters=_NAME,
    input=PictureQuery,
    media=SVG,
    errors=(UnknownMachine, UnknownState),
)

SHOW_STANDING = Operation(
    name="showStanding",
    request="GET /api/machines/{name}/standing",
    summary="Show where the live records of a machine stand: how many in each state, and for how long.",
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
    confined=Confined.NOTHING,
    parameters=_NAME,
    output=Blueprint,
    errors=(UnknownMachine,),
)
