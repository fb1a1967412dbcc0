"""`Interlock.records`: records of a kind that the user has declared.

orders = il.records(ORDERS)
order = await orders.create(Order(customer="ada", amount=40))
order = await orders.send(order.id, "pay", amount=40, expected=order.version)
async for order in orders.watch(order.id):
    print(order.state, order.data)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from interlock.errors import ResultNotReady, StoreUnavailable
from interlock.machine import Event
from interlock.machine.events import payload_of
from interlock.remote.interfaces import RecordsApi, Services
from interlock.store.records import Entry
from interlock.systems.kinds import AT, DeclaredKind
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.records import RecordExplanation, StoredRecord

D = TypeVar("D")

Views: TypeAlias = list[StoredRecord]
Entries: TypeAlias = list[Entry]

LOOK_EVERY_S = 1.0
"""A wake-up may be lost; then the record is read after so long."""


class RecordsClient(Generic[D]):
    """The records of one kind, in a store or behind a server."""

    def __init__(
        self,
        kind: DeclaredKind[D] | str,
        here: Callable[[], Services],
        learn: Callable[[DeclaredKind[Any]], Awaitable[None]],
        recover: Callable[[], Awaitable[Any]],
        actor: str,
    ) -> None:
        self._declared = None if isinstance(kind, str) else kind
        self.kind = kind if isinstance(kind, str) else kind.name
        self._here = here
        self._learn = learn
        self._recover = recover
        self._actor = actor

    async def create(
        self, data: D | Mapping[str, Any], *, record_id: str = "", request_id: str | None = None
    ) -> StoredRecord:
        """Create a record in the initial state. Without an id one is drawn."""
        records = await self._records()
        if self._declared is not None:
            self._declared.made(data)  # checked here, so that a server is not asked in vain
        made = await records.create(
            self.kind, data, record_id=record_id, actor=self._actor, request_id=request_id
        )
        return self._read(made)

    async def send(
        self,
        record_id: str,
        event: str | Event,
        /,
        *,
        expected: int | None = None,
        reason: str = "",
        request_id: str | None = None,
        **data: Any,
    ) -> StoredRecord:
        """Send an event, with what it carries by name.

        With `expected` it is refused unless the record is in that version (`VersionChanged`). The same
        request id is done once, however often it is sent. The table's refusals are raised as they are.
        """
        name, carried = (event, data) if isinstance(event, str) else (event.name, {**_carried(event), **data})
        records = await self._records()
        sent = await records.send(
            self.kind,
            record_id,
            name,
            carried,
            expected=expected,
            reason=reason,
            actor=self._actor,
            request_id=request_id,
        )
        return self._read(sent)

    async def get(self, record_id: str) -> StoredRecord:
        """Return the record as it stands."""
        return self._read(await (await self._records()).get(self.kind, record_id))

    async def list(
        self,
        *,
        states: Sequence[str] = (),
        queue: str = "",
        parent: str = "",
        limit: int = 100,
        cursor: str = "",
        **where: Any,
    ) -> tuple[Views, str]:
        """Return a page of records, newest first, and the cursor of the next one.

        Fields that the kind declares as labels are filtered by name: `list(customer="ada")`.
        """
        found, after = await (await self._records()).find(
            self.kind, states=states, where=where, queue=queue, parent=parent, limit=limit, cursor=cursor
        )
        return [self._read(each) for each in found], after

    async def history(self, record_id: str) -> Entries:
        """Return everything that has happened to a record, oldest first."""
        return await (await self._records()).history(self.kind, record_id)

    async def explain(self, record_id: str) -> RecordExplanation:
        """Return what a record waits for, whose turn it is and when its timer fires."""
        return await (await self._records()).explain(self.kind, record_id)

    async def watch(self, record_id: str) -> AsyncIterator[StoredRecord]:
        """Yield the record now and after every change, until it has ended.

        With a store, the watcher also fires timers that have run out.
        """
        seen, called = 0, asyncio.Event()
        view = await self.get(record_id)
        stop = self._here().store.subscribe(waker(called))
        try:
            while True:
                if view.version != seen:
                    seen = view.version
                    yield view
                if view.ended:
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await called.wait()
                called.clear()
                with suppress(StoreUnavailable):  # it may come back; who waits has a timeout
                    await self._recover()
                    view = await self.get(record_id)
        finally:
            stop()

    async def wait(self, record_id: str, *states: str, timeout_s: float | None = None) -> StoredRecord:
        """Return the record once it is in one of these states, or has ended."""
        try:
            async with asyncio.timeout(timeout_s):
                async for view in self.watch(record_id):
                    if view.state in states:
                        break
        except TimeoutError:
            view = await self.get(record_id)
            raise ResultNotReady(
                f"The {self.kind} {record_id} is still {view.state} after {timeout_s:g} s.",
                todo=f"Wait for longer, or see why with `interlock record explain {self.kind} {record_id}`.",
                facts={"kind": self.kind, "id": record_id, "state": view.state, "timeout_s": timeout_s},
            ) from None
        return view

    async def _records(self) -> RecordsApi:
        if self._declared is not None:
            await self._learn(self._declared)
        return self._here().records

    def _read(self, view: StoredRecord) -> StoredRecord:
        """Return it with data of the type of the kind."""
        data = msgspec.json.decode(view.data) if isinstance(view.data, msgspec.Raw) else view.data
        if self._declared is not None:
            data = self._declared.made(data)
        return msgspec.structs.replace(view, data=data)


def _carried(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in payload_of(type(event)) if name != AT}
