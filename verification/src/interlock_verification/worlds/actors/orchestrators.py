"""A server: a runtime, its background loops, and the requests of workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from interlock.engine.loops import Loop, run_loops
from interlock.engine.retention import Retention
from interlock.errors import ClaimOver
from interlock.lifecycles.job import JOB
from interlock.systems.quarantine import QUARANTINED, STANDING
from interlock.systems.runtime import DELIVERY, SWEEP, Runtime
from interlock.wire.runner import Answer, ClaimRequest, Grant, Message
from interlock_verification.worlds.judge import Judge
from interlock_verification.worlds.network import ActorProcess
from interlock_verification.worlds.storage import SharedStore, StoreLink


class ObservedOrchestrator:
    """An orchestrator's answers, observed by the judge."""

    def __init__(self, runtime: Runtime, judge: Judge) -> None:
        self.runtime = runtime
        self._judge = judge

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Claim jobs for a runner."""
        store = self.runtime.store
        assert isinstance(store, StoreLink)
        looked_at = store.looked_at(STANDING.name, QUARANTINED)
        try:
            grants = await self.runtime.claim(request)
        except ClaimOver:
            grants = []  # as its HTTP route answers it
        self._judge.workers.given(request, grants, looked_at)
        for grant in grants:
            self._judge.granted(grant)
        return grants

    async def report(self, messages: Sequence[Message]) -> list[Answer]:
        """Process messages."""
        answers = await self.runtime.orchestrator.report(messages)
        for message, answer in zip(messages, answers, strict=True):
            self._judge.answered(message, answer)
        return answers


class ServerInterface(ObservedOrchestrator):
    """The interface of a server for reachable processes."""

    def __init__(self, runtime: Runtime, judge: Judge, store: SharedStore) -> None:
        super().__init__(runtime, judge)
        self._store = store
        self.wakes: dict[object, Callable[[], None]] = {}
        """Subscribers to notifications of jobs."""

    async def now(self) -> datetime:
        """Return the store's time, approximately."""
        return await self.runtime.engine.clock.now()

    def wake(self) -> None:
        """Notify waiting workers after a commit, if a job is ready.

        A long poll does the same.
        """
        if not self._store.has_ready(JOB.name):
            return
        for wake in list(self.wakes.values()):
            wake()


class OrchestratorActor:
    """A server, until it is killed."""

    def __init__(self, store: SharedStore, judge: Judge) -> None:
        self._store = store
        self._judge = judge

    async def live(self, process: ActorProcess) -> None:
        """Open the store, serve, and run the loops."""
        world = process.network.world
        store = StoreLink(process, self._store)
        runtime = Runtime(store, world.settings, process.host)
        process.role = served = ServerInterface(runtime, self._judge, self._store)
        store.subscribe(served.wake)
        retention = Retention(default=timedelta(seconds=world.keeps_s))

        async def retain() -> int:
            return await runtime.retain(retention)

        async def keep_runs() -> int:
            return await runtime.runs.keep(wait_for_planners=False)

        clock, sweep_s = runtime.engine.clock, world.durations.sweep_every_s
        await run_loops(
            (
                Loop("deadlines", runtime.sweep, clock, every_s=sweep_s, full=SWEEP),
                Loop("runs", keep_runs, clock, every_s=world.deliver_every_s),
                Loop("messages", runtime.deliver, clock, every_s=world.deliver_every_s, full=DELIVERY),
                Loop("retention", retain, clock, every_s=world.retain_every_s, full=SWEEP),
            )
        )
