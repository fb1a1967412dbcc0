"""The tables that decide, as data and as pictures."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import lru_cache
from statistics import median
from typing import Any

from msgspec.structs import replace
from starlette.responses import Response

from interlock.errors import UnknownMachine, UnknownState
from interlock.lifecycles import interlocking
from interlock.machine import Blueprint, Machine, blueprint_of
from interlock.server.api.journal import need_kinds
from interlock.server.messages import MachineList, MachineView, PictureQuery, Standing, StandOfState
from interlock.server.routes import Call, Confined, Route
from interlock.store.contract import Store
from interlock.store.records import Query
from interlock.systems.access.principals import Role

SVG = "image/svg+xml"
COUNTED = 10_000
"""How far records are counted."""
SAMPLE = 100
"""From so many records, the oldest, the median stay is taken."""
_PICTURE_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}


async def list_machines(call: Call) -> MachineList:
    """All of them, in short."""
    machines, kinds, _ = call.parts.lifecycles
    views = [replace(_in_short(each), recorded=name in kinds) for name, each in machines.items()]
    return MachineList(machines=tuple(views))


async def get_machine(call: Call) -> dict[str, Any]:
    """One table: states, events, transitions, deadlines, and what is deliberately nothing."""
    return sheet_of(_known(call)).as_dict()


async def draw_machine(call: Call) -> Response:
    """One table as a picture, with a state lit."""
    asked: PictureQuery = call.query
    passed = tuple(part.strip() for part in asked.path.split(",") if part.strip())
    # A picture takes some time to lay out, which nobody else should wait for.
    text = await asyncio.to_thread(_picture, _known(call), asked.state, passed)
    return Response(text, media_type=SVG, headers=_PICTURE_HEADERS)


async def draw_interlocking(_: Call) -> Response:
    """How the machines depend on each other."""
    text = await asyncio.to_thread(_map)
    return Response(text, media_type=SVG, headers=_PICTURE_HEADERS)


async def stand_of_machine(call: Call) -> Standing:
    """Count the records in each state that is not final, and look at how long the oldest have been there."""
    machine, kinds = _known(call), call.parts.lifecycles.kinds
    name = machine.name
    if name not in kinds:  # attempts and leases live inside the record of a job
        return Standing(machine=name, states=())
    need_kinds(call, (name,))
    kind, now = kinds[name], await call.parts.runtime.engine.clock.now()
    living = [state.name for state in sheet_of(machine).states if state.name not in kind.ended]
    states = [await _stand_of(call.parts.store, name, state, now) for state in living]
    return Standing(machine=name, states=tuple(states))


async def _stand_of(store: Store, kind: str, state: str, now: datetime) -> StandOfState:
    count = await store.count(Query(kind=kind, states=(state,)), cap=COUNTED)
    page = await store.find(Query(kind=kind, states=(state,), newest_first=False, limit=SAMPLE))
    stays = [max(0.0, (now - record.updated_at).total_seconds()) for record in page.records]
    return StandOfState(
        state=state,
        number=count.number,
        capped=count.capped,
        oldest_id=page.records[0].id if page.records else "",
        oldest_at=page.records[0].created_at if page.records else None,
        median_stay_s=median(stays) if stays else None,
    )


def _known(call: Call) -> Machine[Any, Any]:
    name, machines = call.path["name"], call.parts.lifecycles.machines
    found = machines.get(name.casefold())
    if found is None:
        raise UnknownMachine(name[:64], tuple(machines))
    return found


@lru_cache(maxsize=64)
def sheet_of(machine: Machine[Any, Any]) -> Blueprint:
    """Return the table of a machine as data."""
    return blueprint_of(machine)


@lru_cache(maxsize=256)
def _picture(machine: Machine[Any, Any], state: str, path: tuple[str, ...]) -> str:
    blueprint = sheet_of(machine)
    current = blueprint.state_named(state) if state else None
    return _drawn(blueprint, current, [blueprint.state_named(part) for part in path])


@lru_cache(maxsize=1)
def _map() -> str:
    return _drawn(interlocking(), None, [])


def _drawn(blueprint: Blueprint, current: str | None, path: list[str]) -> str:
    from interlock.machine.draw import draw_svg  # noqa: PLC0415 - a server starts before it draws

    return draw_svg(blueprint, current=current, path=path)


@lru_cache(maxsize=64)
def _in_short(machine: Machine[Any, Any]) -> MachineView:
    blueprint = sheet_of(machine)
    return MachineView(
        name=machine.name,
        doc=" ".join(blueprint.doc.split()),
        initial=blueprint.initial,
        states=tuple(state.name for state in blueprint.states),
        terminal=tuple(sorted(str(state) for state in machine.terminal)),
        fingerprint=blueprint.fingerprint,
        meanings={str(state): tone for state, tone in machine.tones.items()},
    )


_NAME = {"name": "The name of a machine."}

ROUTES = (
    Route(
        method="GET",
        path="/api/machines",
        name="listMachines",
        summary="List the machines.",
        handler=list_machines,
        role=Role.VIEWER,
        confined=Confined.NOTHING,
        answer=MachineList,
    ),
    Route(
        method="GET",
        path="/api/machines/interlocking.svg",
        name="drawInterlocking",
        summary="Draw how the machines depend on each other.",
        handler=draw_interlocking,
        role=Role.VIEWER,
        confined=Confined.NOTHING,
        media=SVG,
    ),
    Route(
        method="GET",
        path="/api/machines/{name}.svg",
        name="drawMachine",
        summary="Draw a machine, with a state lit and the path that led there.",
        handler=draw_machine,
        role=Role.VIEWER,
        confined=Confined.NOTHING,
        parameters=_NAME,
        query=PictureQuery,
        media=SVG,
        errors=(UnknownMachine, UnknownState),
    ),
    Route(
        method="GET",
        path="/api/machines/{name}/standing",
        name="showStanding",
        summary="Show where the live records of a machine stand: how many in each state, and for how long.",
        handler=stand_of_machine,
        role=Role.VIEWER,
        everything=True,
        parameters=_NAME,
        answer=Standing,
        errors=(UnknownMachine,),
    ),
    Route(
        method="GET",
        path="/api/machines/{name}",
        name="getMachine",
        summary="Show the table of a machine.",
        handler=get_machine,
        role=Role.VIEWER,
        confined=Confined.NOTHING,
        parameters=_NAME,
        answer=Blueprint,
        errors=(UnknownMachine,),
    ),
)
