"""`LimitViews`: show how full limits are, which jobs hold their slots, and which wait in line."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from interlock.engine.unit_of_work import Engine
from interlock.lifecycles import lease
from interlock.lifecycles.job import JOB
from interlock.store.records import Key, Query, Record
from interlock.systems.orchestrator.admissions import TICKETS_AT_ONCE
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.orchestrator.gates import (
    FREE,
    FULL,
    GATE,
    GATES,
    HELD,
    TICKET,
    TICKETS,
    WAITING,
    GateBody,
    gate_key,
    in_line,
)
from interlock.wire.limits import Holder, KeyPage, KeyView, LimitView, LimitWaiter

SHOWN_KEYS, SHOWN_HOLDERS, SHOWN_LINE = 100, 20, 20
COUNTED = 1_000
"""Maximum number of keys of a limit that are counted."""
IN_USE = (HELD, FULL)


class LimitViews:
    """Reads gates, tickets and jobs; changes nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store

    async def limit(self, view: LimitView, *, keys: int = SHOWN_KEYS, holders: bool = False) -> LimitView:
        """Return a limit with some keys in use, and the number of these."""
        query = Query(kind=GATE.name, parent=view.name, states=IN_USE, limit=max(keys, 1))
        page = await self._store.find(query)
        some = [await self._key(gate, view, holders=holders) for gate in page.records[:keys]]
        in_use, full = len(page.records), sum(gate.state == FULL for gate in page.records)
        if page.cursor:
            in_use, full = await self._count(view.name, IN_USE), await self._count(view.name, (FULL,))
        return replace(
            view,
            keys=tuple(sorted(some, key=lambda each: each.key)),
            more_keys=in_use > len(some),
            in_use=in_use,
            full=full,
            capped=in_use >= COUNTED,
        )

    async def limits(self, views: Sequence[LimitView], *, keys: int) -> list[LimitView]:
        """Return limits with some of their keys.

        The keys of all limits without a pattern are read at once.
        """
        plain = [view.name for view in views if not view.name.endswith("*")]
        found = await self._store.load([gate_key(name) for name in plain]) if plain else []
        gates = dict(zip(plain, found, strict=True))
        return [
            await (
                self._plain(view, gates[view.name], keys)
                if view.name in gates
                else self.limit(view, keys=keys)
            )
            for view in views
        ]

    async def _plain(self, view: LimitView, gate: Record | None, keys: int) -> LimitView:
        if gate is None or gate.state == FREE:
            return view
        shown = (await self._key(gate, view, holders=False),) if keys else ()
        return replace(view, keys=shown, more_keys=not shown, in_use=1, full=int(gate.state == FULL))

    async def one_key(self, view: LimitView, key: str) -> LimitView:
        """Return a limit with one of its keys.

        It has the jobs that hold slots of the key, and the first ones in line.
        """
        (gate,) = await self._store.load([gate_key(key)])
        if gate is None or gate.state == FREE:
            return view
        shown = await self._with_line(await self._key(gate, view, holders=True))
        return replace(view, keys=(shown,), in_use=1, full=int(gate.state == FULL))

    async def keys(self, view: LimitView, state: str, *, limit: int, cursor: str) -> KeyPage:
        """Return a page of the keys of a limit, in use or in this `state`."""
        states = (state,) if state else IN_USE
        query = Query(kind=GATE.name, parent=view.name, states=states, limit=limit, cursor=cursor)
        page = await self._store.find(query)
        keys = [await self._key(gate, view, holders=False) for gate in page.records]
        return KeyPage(limit=await self.limit(view, keys=0), keys=tuple(keys), cursor=page.cursor)

    async def _count(self, name: str, states: Sequence[str]) -> int:
        query = Query(kind=GATE.name, parent=name, states=tuple(states))
        return (await self._store.count(query, cap=COUNTED)).number

    async def _key(self, gate: Record, view: LimitView, *, holders: bool) -> KeyView:
        """Return how full a key is, and how many wait for it."""
        body, spec = GATES.body_of(gate), view.spec
        tickets, capped = await self._tickets(gate.id) if gate.state == FULL else ((), False)
        now = await self._engine.clock.now()
        held, left = await self._holders(body) if holders else ((), 0)
        return KeyView(
            key=gate.id,
            limit=view.name,
            state=gate.state,
            max=spec.max,
            used=sum(body.inside.values()) - left,
            waiting=sum(len(TICKETS.body_of(each).ids) for each in tickets),
            capped=capped,
            holders=held,
            behind=body.behind,
            starts_left=body.starts_left(spec, now),
        )

    async def _tickets(self, key: str) -> tuple[Sequence[Record], bool]:
        query = Query(
            kind=TICKET.name, parent=key, states=(WAITING,), newest_first=False, limit=TICKETS_AT_ONCE
        )
        page = await self._store.find(query)
        return page.records, bool(page.cursor)

    async def _with_line(self, view: KeyView) -> KeyView:
        """Return a key with the first jobs in its line."""
        tickets, _ = await self._tickets(view.key)
        places = [(name, each) for each in in_line(tickets) for name in TICKETS.body_of(each).ids]
        first = dict(places[:SHOWN_LINE])
        found = await self._store.load([Key(JOB.name, name) for name in first])
        line = [_waiter(record, first[record.id].created_at) for record in found if record is not None]
        return replace(view, line=tuple(line))

    async def _holders(self, body: GateBody) -> tuple[tuple[Holder, ...], int]:
        """Return jobs that hold slots, and the released slots not yet known."""
        some = dict(list(body.inside.items())[:SHOWN_HOLDERS])
        records = await self._store.load([Key(JOB.name, job_id) for job_id in some])
        held = [_holder(record, some[record.id]) for record in records if record is not None]
        there = tuple(each for each in held if each.since is not None)
        return there, sum(some.values()) - sum(each.weight for each in there)


def _waiter(record: Record, since: datetime) -> LimitWaiter:
    task = decode_body(record.body).task
    return LimitWaiter(
        job_id=record.id, task=task, queue=record.queue or "", priority=record.priority, since=since
    )


def _holder(record: Record, slots: int) -> Holder:
    body = decode_body(record.body)
    held = [one.lease.data for one in body.attempts if one.lease and one.lease.state in lease.LIVE]
    return Holder(
        job_id=record.id,
        weight=slots,
        runner_id=held[-1].runner_id if held else None,
        since=body.limits.since if body.limits is not None else None,
        task=body.task,
        queue=record.queue or "",
        expires_at=held[-1].expires_at if held else None,
    )
