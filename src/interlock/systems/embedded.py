"""An orchestrator in this process, on its own connection to the store.

It is one implementation of the workers' port; the other one is HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from interlock.errors import StoreUnavailable
from interlock.lifecycles.job import MAX_DEPTH
from interlock.store.contract import Store
from interlock.store.urls import store_for
from interlock.systems.blobs import blobs_for, caches_for
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.kinds import DeclaredKind, lifecycles_with
from interlock.systems.runtime import THIS_HOST, Host, Runtime
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.artifacts import ArtifactView, CacheView
from interlock.wire.jobs import ChildPage, JobSpec, PredecessorPage
from interlock.wire.limits import LimitSpec
from interlock.wire.runner import Answer, ClaimRequest, Grant, Message
from interlock.wire.schedules import ScheduleSpec
from interlock.wire.simulations import AnySimulationMessage, SimulationOrders
from interlock.wire.waits import WaitAnswer, WaitRequest
from interlock.wire.workers import WorkerBeat, WorkerOrders, WorkerSpec, WorkerView
from interlock.wire.workloads import WorkloadFact


class EmbeddedOrchestrator:
    """The port, on a store given by a URL or as an object."""

    def __init__(
        self,
        url: str,
        *,
        settings: Settings = DEFAULT_SETTINGS,
        store: Callable[[], Store] | None = None,
        host: Host = THIS_HOST,
        kinds: Iterable[DeclaredKind[Any]] = (),
    ) -> None:
        self.url = url
        self.settings = settings
        self._kinds = {kind.name: kind for kind in kinds}
        self._make_store = store or (lambda: store_for(url, CATALOGUE))
        self._host = host
        self._runtime: Runtime | None = None

    @property
    def services(self) -> Runtime:
        """The connected runtime."""
        if self._runtime is None:
            raise StoreUnavailable(
                f"Not connected to {_without_password(self.url)}.", todo="Connect first; nothing was done."
            )
        return self._runtime

    async def connect(self) -> None:
        """Open the store, or check that it still answers."""
        if self._runtime is not None:
            await self._runtime.store.now()
            self._runtime.orchestrator.forget()
            return
        store = self._make_store()
        try:
            await store.open()
            if self._kinds:
                await store.learn(lifecycles_with(declared=self._kinds.values()).kinds)
        except BaseException:
            await store.close()
            raise
        blobs, caches = (place(self.url, self.settings.blobs) for place in (blobs_for, caches_for))
        self._runtime = Runtime(
            store, self.settings, self._host, blobs=blobs, caches=caches, kinds=self._kinds.values()
        )

    async def learn(self, kind: DeclaredKind[Any]) -> None:
        """Add a kind after the store was opened."""
        await self.services.records.learn(kind)
        self._kinds[kind.name] = kind

    async def disconnect(self) -> None:
        """Close the store. Safe to call twice."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Claim jobs for this runner, unless it is paused or quarantined."""
        return await self.services.claim(request)

    async def report(self, messages: Sequence[Message]) -> list[Answer]:
        """Process messages."""
        return await self.services.orchestrator.report(messages)

    async def keep_artifact(
        self, token: str, runner_id: str, name: str, pieces: AsyncIterable[bytes]
    ) -> ArtifactView:
        """Store an artifact."""
        return await self.services.artifacts.keep(token, runner_id, name, pieces)

    async def simulate(self, token: str, runner_id: str, message: AnySimulationMessage) -> SimulationOrders:
        """Process a message about a simulation."""
        return await self.services.simulations.receive(token, runner_id, message)

    async def keep_cache(
        self, token: str, runner_id: str, key: str, pieces: AsyncIterable[bytes]
    ) -> CacheView:
        """Store a cache."""
        return await self.services.caches.keep(token, runner_id, key, pieces)

    @asynccontextmanager
    async def open_cache(
        self, token: str, runner_id: str, key: str, prefixes: Sequence[str]
    ) -> AsyncIterator[tuple[CacheView, AsyncIterator[bytes]] | None]:
        """Yield a cache of an earlier job."""
        yield await self.services.caches.open(token, runner_id, key, prefixes)

    async def report_workloads(self, token: str, runner_id: str, facts: Sequence[WorkloadFact]) -> None:
        """Record events of agents."""
        await self.services.workloads.apply_under(token, runner_id, facts)

    async def submit_children(
        self, token: str, runner_id: str, name: str, specs: Sequence[JobSpec]
    ) -> tuple[str, ...]:
        """Submit children of a handler's job."""
        return await self.services.trees.submit(token, runner_id, name, specs)

    async def children(self, token: str, runner_id: str, cursor: str) -> ChildPage:
        """Return the children of a job."""
        return await self.services.trees.children(token, runner_id, cursor)

    async def predecessors(self, token: str, runner_id: str, cursor: str) -> PredecessorPage:
        """Return the jobs that a job comes after."""
        return await self.services.followers.predecessors(token, runner_id, cursor)

    async def await_signal(self, request: WaitRequest) -> WaitAnswer:
        """Return the answer to a wait of a handler, or make its job wait."""
        return await self.services.waits.wait(request)

    async def recover(self) -> int:
        """Handle passed deadlines, and deliver pending messages between records."""
        swept = await self.services.sweep()
        for _ in range(MAX_DEPTH + 1):  # a message to children may cause messages to theirs
            delivered = await self.services.deliver()
            swept += delivered
            if not delivered:
                break
        return swept + await self.services.runs.keep(wait_for_planners=False)

    async def declare_schedule(self, name: str, spec: ScheduleSpec, source: str) -> None:
        """Create or update a schedule."""
        await self.services.schedules.put(name, spec, source=source, actor="worker")

    async def declare_limit(self, name: str, spec: LimitSpec, source: str) -> None:
        """Declare a limit, unless it was set by hand."""
        await self.services.limits.declare(name, spec, source=source, actor="worker")

    async def register(self, spec: WorkerSpec) -> str:
        """Register a worker."""
        return (await self.services.workers.register(spec)).id

    async def beat(self, worker_id: str, beat: WorkerBeat) -> WorkerOrders:
        """Record a heartbeat; return the orders."""
        return await self.services.workers.beat(worker_id, beat)

    async def orders(self, worker_id: str, after: int, wait_s: float) -> WorkerOrders:
        """Return the orders, as soon as there are newer ones."""
        return await self.services.workers.orders(worker_id, after=after, wait_s=wait_s)

    async def leave(self, worker_id: str, reason: str) -> None:
        """Record that a worker leaves."""
        await self.services.workers.leave(worker_id, reason=reason)

    async def namesakes(self, worker_id: str) -> tuple[WorkerView, ...]:
        """Return the other live workers of its name."""
        return tuple(await self.services.workers.namesakes(worker_id))

    async def died(self, name: str, incarnation: str, reason: str) -> None:
        """Record the death of a process."""
        await self.services.workers.died(name, incarnation, reason=reason)

    async def now(self) -> datetime:
        """Return the store's time, approximately."""
        return await self.services.engine.clock.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to notifications of jobs."""
        return self.services.store.subscribe(wake)


def _without_password(url: str) -> str:
    scheme, found, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if found else url
