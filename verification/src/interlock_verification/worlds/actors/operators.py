"""Operators: they pause, resume, drain and terminate the workers of a world, at any time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from interlock.errors import InterlockError
from interlock.lifecycles import worker
from interlock.lifecycles.worker import WORKER, WorkerState
from interlock.store.records import Query
from interlock.systems.runtime import Runtime
from interlock.wire.workers import WorkerView
from interlock_verification.worlds.actors.clients import ClientTasks, retry_until_answered
from interlock_verification.worlds.network import ActorProcess
from interlock_verification.worlds.storage import SharedStore, StoreLink
from interlock_verification.worlds.worlds import HOUR_S

HOLDS_S = (5.0, 900.0)
"""Duration of a pause."""
LOOK_EVERY_S = 120.0


class OperatorActor:
    """An operator of workers."""

    def __init__(self, store: SharedStore, until_s: float) -> None:
        self._store = store
        self._until_s = until_s

    async def live(self, process: ActorProcess) -> None:
        """Send orders; at the end resume all paused workers."""
        network = process.network
        runtime = Runtime(StoreLink(process, self._store), network.world.settings, process.host)
        orders = OperatorOrders(process, runtime)
        drawn = random.Random(f"{network.seed}/operators")
        tasks, number = ClientTasks(process), 0
        while True:
            await asyncio.sleep(drawn.expovariate(network.world.arrivals.orders_per_h / HOUR_S))
            if network.schedule.now >= self._until_s:
                break
            number += 1
            tasks.begin(orders.order(f"order{number}", random.Random(f"{network.seed}/order/{number}")))
        while True:
            await orders.resume_all()
            await asyncio.sleep(LOOK_EVERY_S)


class OperatorOrders:
    """Sends orders."""

    def __init__(self, process: ActorProcess, runtime: Runtime) -> None:
        self._process = process
        self._workers = runtime.workers
        self._saw = process.network.watcher.saw
        self._resumed = 0

    async def order(self, name: str, drawn: random.Random) -> None:
        """Send one order to one worker."""
        found = await self._found(*worker.LIVING)
        if not found:
            return
        whom = drawn.choice(found).id
        (what,) = drawn.choices(("pause", "pause and give back", "drain", "terminate"), (4, 2, 2, 2))
        if what == "drain":
            await self._order_until_answered(what, lambda: self._workers.drain(whom, request_id=name))
        elif what == "terminate":
            await self._order_until_answered(what, lambda: self._workers.terminate(whom, request_id=name))
        else:
            give_back = what != "pause"
            await self._order_until_answered(
                what, lambda: self._workers.pause(whom, request_id=name, give_back=give_back)
            )
            await asyncio.sleep(drawn.uniform(*HOLDS_S))
            await self._order_until_answered(
                "resume", lambda: self._workers.resume(whom, request_id=f"{name}.resume")
            )

    async def resume_all(self) -> None:
        """Resume all paused workers."""
        for each in await self._found(worker.PAUSED):
            self._resumed += 1
            resume = partial(self._workers.resume, each.id, request_id=f"resume{self._resumed}")
            await self._order_until_answered("resume", resume)

    async def _found(self, *states: WorkerState) -> list[WorkerView]:
        query = Query(kind=WORKER.name, states=states, limit=100)
        answer = await retry_until_answered(self._process, lambda: self._workers.find(query))
        return answer[0] if answer is not None else []

    async def _order_until_answered(self, what: str, attempt: Callable[[], Awaitable[Any]]) -> None:
        try:
            if await retry_until_answered(self._process, attempt) is not None:
                self._saw(f"the supervisor orders: {what}")
        except InterlockError:
            return  # it has ended, or is already in that state
