"""Routes of machines: their tables as data and as diagrams."""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import lru_cache
from statistics import median
from typing import Any

from msgspec.structs import replace
from starlette.responses import Response

from interlock.api import machines as api
from interlock.errors import UnknownMachine
from interlock.lifecycles import interlocking
from interlock.machine import Blueprint, Machine, blueprint_of
from interlock.server.api.journal import need_kinds
from interlock.server.routes import Call, handles
from interlock.store.contract import Store
from interlock.store.records import Query

COUNTED = 10_000
"""Maximum number of records to count."""
SAMPLE = 100
"""Number of oldest records from which the median time in a state is computed."""
_PICTURE_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}


@handles(api.LIST_MACHINES)
async def list_machines(call: Call) -> api.MachineList:
    """Return all machines, as summaries."""
    machines, kinds, _ = call.parts.lifecycles
    views = [replace(_in_short(each), recorded=name in kinds) for name, each in machines.items()]
    return api.MachineList(machines=tuple(views))


@handles(api.GET_MACHINE)
async def get_machine(call: Call) -> dict[str, Any]:
    """Return one table.

    It has states, events, transitions, deadlines, and deliberately ignored events.
    """
    return sheet_of(_known(call)).as_dict()


@handles(api.DRAW_MACHINE)
async def draw_machine(call: Call) -> Response:
    """Return the diagram of a table, with a highlighted state."""
    query: api.PictureQuery = call.query
    passed = tuple(part.strip() for part in query.path.split(",") if part.strip())
    # The layout takes time, so it must not block the event loop.
    text = await asyncio.to_thread(_picture, _known(call), query.state, passed)
    return Response(text, media_type=api.SVG, headers=_PICTURE_HEADERS)


@handles(api.DRAW_INTERLOCKING)
async def draw_interlocking(_: Call) -> Response:
    """Return the diagram of couplings between machines."""
    text = await asyncio.to_thread(_map)
    return Response(text, media_type=api.SVG, headers=_PICTURE_HEADERS)


@handles(api.SHOW_STANDING)
async def stand_of_machine(call: Call) -> api.Standing:
    """Count the records in each state that is not final.

    It also measures how long the oldest ones have been there.
    """
    machine, kinds = _known(call), call.parts.lifecycles.kinds
    name = machine.name
    if name not in kinds:  # attempts and leases live inside the record of a job
        return api.Standing(machine=name, states=())
    need_kinds(call, (name,))
    kind, now = kinds[name], await call.parts.runtime.engine.clock.now()
    living = [state.name for state in sheet_of(machine).states if state.name not in kind.ended]
    states = [await _stand_of(call.parts.store, name, state, now) for state in living]
    return api.Standing(machine=name, states=tuple(states))


async def _stand_of(store: Store, kind: str, state: str, now: datetime) -> api.StandOfState:
    count = await store.count(Query(kind=kind, states=(state,)), cap=COUNTED)
    page = await store.find(Query(kind=kind, states=(state,), newest_first=False, limit=SAMPLE))
    stays = [max(0.0, (now - record.updated_at).total_seconds()) for record in page.records]
    return api.StandOfState(
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
def _in_short(machine: Machine[Any, Any]) -> api.MachineView:
    blueprint = sheet_of(machine)
    return api.MachineView(
        name=machine.name,
        doc=" ".join(blueprint.doc.split()),
        initial=blueprint.initial,
        states=tuple(state.name for state in blueprint.states),
        terminal=tuple(sorted(str(state) for state in machine.terminal)),
        fingerprint=blueprint.fingerprint,
        meanings={str(state): tone for state, tone in machine.tones.items()},
    )
