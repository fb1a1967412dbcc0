"""By what simulations are found. Status and priority are searched by the store; text is looked for here.

The filter is applied before the page is cut, newest first. Text has no index, so it is looked for in a
bounded number of simulations at a time; the cursor goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from interlock.lifecycles.simulation import SIMULATION
from interlock.store.contract import Store
from interlock.store.records import Key, Query, Record
from interlock.systems.runs.columns import label
from interlock.systems.simulations.body import decode_body
from interlock.systems.simulations.pulse import PULSE
from interlock.wire.simulations import SimulationFilter, SimulationSpec
from interlock.wire.wanted import LOOKED_AT

PAGE = 200
MAX_SCANNED = 10_000


class Found(msgspec.Struct, frozen=True):
    """Simulations with their pulses, newest first."""

    pairs: list[tuple[Record, Record | None]]
    cursor: str = ""
    """Where the next page begins; empty at the end."""
    stopped_early: bool = False
    """There was too much to look through: what lies behind the cursor has not been looked at."""


def labels_of(spec: SimulationSpec) -> tuple[str, ...]:
    """What the record of a simulation can be found by."""
    return (label("priority", spec.priority),)


def query_of(wanted: SimulationFilter, cursor: str, limit: int) -> Query:
    """The filter, as far as a store can search by it."""
    return Query(
        kind=SIMULATION.name,
        states=tuple(str(SIMULATION.state(name)) for name in wanted.statuses),
        labels=(label("priority", wanted.priority),) if wanted.priority else (),
        cursor=cursor,
        limit=limit,
        within=LOOKED_AT,
    )


async def found(store: Store, wanted: SimulationFilter, *, cursor: str, limit: int) -> Found:
    """Up to `limit` simulations that match."""
    records: list[Record] = []
    scanned, text = 0, wanted.text.casefold()
    while True:
        room = limit - len(records)
        size = PAGE if text else room
        page = await store.find(query_of(wanted, cursor, size))
        kept = [place for place, each in enumerate(page.records, 1) if _says(each, text)]
        records += [page.records[place - 1] for place in kept[:room]]
        scanned, following = scanned + len(page.records), page.cursor
        if len(kept) > room or (len(kept) == room and kept[-1] < len(page.records)):
            # The next page begins right after the last one that is shown.
            following = (await store.find(query_of(wanted, cursor, kept[room - 1]))).cursor
        cursor = following
        early = scanned >= MAX_SCANNED or len(page.records) < size
        if not cursor or len(records) >= limit or early:
            return Found(await with_pulses(store, records), cursor, bool(cursor) and early)


async def with_pulses(store: Store, records: Sequence[Record]) -> list[tuple[Record, Record | None]]:
    """Each with what was heard of it last."""
    pulses = await store.load([Key(PULSE.name, each.id) for each in records]) if records else []
    return list(zip(records, pulses, strict=True))


def _says(record: Record, text: str) -> bool:
    if not text:
        return True
    spec = decode_body(record).spec
    return any(
        text in each.casefold() for each in (record.id, spec.task, spec.scenario_name, spec.scenario_path)
    )
