"""The objects that routes use, and the background loops of a server."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from interlock.api.operation import Operation
from interlock.engine.bus import CommitsAnswered, RequestRecalled
from interlock.engine.coalescer import Coalescer
from interlock.engine.loops import Loop, run_loops
from interlock.errors import InterlockError
from interlock.server import event_streams
from interlock.server.authentication import ClaimCheck, Door, Endings, door_for
from interlock.server.event_streams import Broadcast, JournalReader, Readers, WorkerWakeups
from interlock.server.limits import Buckets, ConnectionTable
from interlock.server.logs import ServerLog
from interlock.server.long_poll import LongPoll, messages_together
from interlock.server.metrics import RecordGauges, ServerMetrics
from interlock.server.queues import QueueBoard
from interlock.server.settings import ServerSettings
from interlock.store.contract import Store, StoreStatus
from interlock.store.urls import store_for
from interlock.systems.access.authentication import BELIEVED_S, Sessions, TokenCheck
from interlock.systems.access.principals import Principal
from interlock.systems.access.tokens import Tokens
from interlock.systems.blobs import blobs_for, caches_for
from interlock.systems.figures import figures
from interlock.systems.kinds import OURS, Lifecycles
from interlock.systems.orchestrator.vault import Vault
from interlock.systems.runs.triggers import IdempotentSubmitter, Triggers
from interlock.systems.runs.workflows.git import Repositories
from interlock.systems.runtime import DELIVERY, SWEEP, Runtime
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.systems.supervisor.workers import OrdersChanged
from interlock.wire.figures import LoopHealth
from interlock.wire.runner import Answer, Message

TOKENS_EVERY_S = 30.0
ACCESS_EVERY_S = BELIEVED_S
"""Interval in which tokens and sessions with open streams are checked again."""
LAST_USES_S = 2.0
"""Deadline to store the last use of tokens at shutdown."""


class Parts:
    """One server's runtime and services."""

    def __init__(
        self,
        url: str,
        runtime: Runtime,
        settings: ServerSettings,
        log: ServerLog,
        door: Door,
        lifecycles: Lifecycles = OURS,
    ) -> None:
        self.url = url
        self.runtime = runtime
        self.settings = settings
        self.log = log
        self.door = door
        self.lifecycles = lifecycles
        self.routes: Sequence[Operation[Any, Any]] = ()
        """The operations of all routes; set when the application is made."""
        self.tokens: Tokens = door.tokens
        self.connections: ConnectionTable = ConnectionTable(settings)
        self.check: TokenCheck = TokenCheck(self.tokens, runtime.engine.clock)
        self.sessions: Sessions = Sessions(runtime.engine, self.check)
        self.sign_ins: Buckets = Buckets(settings.sign_in_rate)
        self.endings: Endings = Endings(self.sessions)
        self.claims: ClaimCheck = ClaimCheck(runtime.store, runtime.engine.clock)
        self.metrics: ServerMetrics = ServerMetrics(lifecycles.machines.values())
        self.record_gauges: RecordGauges = RecordGauges(runtime.store, runtime.records.catalogue)
        self.queue_board: QueueBoard = QueueBoard(runtime)
        self.following: JournalReader = JournalReader(runtime.store)
        self.long_poll: LongPoll = LongPoll(runtime.store)
        self.messages: Coalescer[Sequence[Message], list[Answer]] = messages_together(
            runtime.orchestrator.report
        )
        edges = runtime.settings.runs
        self.triggers: Triggers = Triggers(
            IdempotentSubmitter(runtime.runs), edges.triggers, runtime.engine.clock
        )
        self.broadcast: Broadcast = Broadcast(runtime.store, self.following)
        self.readers: Readers = Readers()
        self.worker_wakeups: WorkerWakeups = WorkerWakeups(self.following)
        bus = runtime.engine.bus
        bus.subscribe(OrdersChanged, lambda event: self.worker_wakeups.wake(event.worker_id))
        bus.subscribe(CommitsAnswered, lambda event: self.metrics.committed(event.work, event.outcomes))
        bus.subscribe(RequestRecalled, lambda event: self.metrics.count_request(event.outcome))
        self.stopping: asyncio.Event = asyncio.Event()
        """Set at shutdown: streams and long polls end then."""
        self.started_at: datetime | None = None
        self.store_status: tuple[float, StoreStatus] | None = None
        """The cached status of the store, and its time."""
        self._loops: tuple[Loop, ...] = ()
        self._running: asyncio.Task[None] | None = None
        self.following.add(self.metrics.follow)
        self.following.add(door.follow)

    @property
    def tokens_required(self) -> bool:
        """Whether every request needs a token, as far as is known."""
        return self.door.closed

    def ending(self, principal: Principal) -> asyncio.Event:
        """Return the event that is set when streams of a principal have to end."""
        if principal.claim:
            return self.stopping
        return self.endings.of(principal) if principal.token_id else self.door.over

    @property
    def store(self) -> Store:
        """The store."""
        return self.runtime.store

    async def start(self) -> None:
        """Start the background loops."""
        self.started_at = await self.runtime.engine.clock.now()
        settings = self.runtime.settings
        for lack in (*settings.runs.lacking, *Vault(policy=settings.secrets).warnings()):
            self.log.warning(lack)
        await self.following.start()
        self._loops = self._make_loops()
        self._running = asyncio.create_task(run_loops(self._loops), name="loops")

    def hang_up(self) -> None:
        """End streams and long polls, because the server shuts down."""
        self.stopping.set()
        self.door.over.set()
        self.endings.close()

    async def stop(self) -> None:
        """Stop the loops, finish pending work, and close the store."""
        self.hang_up()
        self.following.stop()
        self.long_poll.close()
        self.broadcast.close()
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        with suppress(InterlockError, TimeoutError):
            async with asyncio.timeout(LAST_USES_S):
                await self.check.store_uses()
        await self.runtime.close()
        self.log.summarise(ending=True)

    def health(self) -> list[LoopHealth]:
        """Return the health of the loops."""
        return [loop.health() for loop in self._loops]

    @property
    def looked_after(self) -> bool:
        """Whether the loops are running."""
        return self._running is not None and not self._running.done()

    def _make_loops(self) -> tuple[Loop, ...]:
        clock, settings = self.runtime.engine.clock, self.settings
        sweep_s = self.runtime.settings.durations.sweep_every_s
        follow = Loop(
            "journal",
            self.following.round,
            clock,
            every_s=event_streams.READER_EVERY_S,
            full=event_streams.READER_PAGE,
            sleep=self.following.pause,
        )
        return (
            Loop("deadlines", self._sweep, clock, every_s=sweep_s, full=SWEEP),
            Loop("runs", self._keep_runs, clock, every_s=settings.deliver_every_s),
            Loop("messages", self._deliver, clock, every_s=settings.deliver_every_s, full=DELIVERY),
            Loop("tokens", self._keep_tokens, clock, every_s=TOKENS_EVERY_S),
            Loop("figures", self._count, clock, every_s=figures.EVERY_S, full=figures.ENTRIES),
            Loop("access", self.endings.round, clock, every_s=ACCESS_EVERY_S),
            Loop("retention", self._retain, clock, every_s=settings.retain_every_s, full=SWEEP),
            follow,
        )

    async def _sweep(self) -> int:
        return await self.runtime.sweep()

    async def _keep_runs(self) -> int:
        return await self.runtime.runs.keep(wait_for_planners=False)

    async def _keep_tokens(self) -> int:
        return await self.tokens.sweep() + await self.sessions.sweep() + await self.check.store_uses()

    async def _deliver(self) -> int:
        return await self.runtime.deliver()

    async def _count(self) -> int:
        return await self.runtime.figures.round(self.broadcast.feed) + await self.runtime.figures.sweep()

    async def _retain(self) -> int:
        await self.runtime.runs.analyser.sweep(limit=SWEEP)
        batch = await self.runtime.retain(self.settings.retention)
        self.metrics.pruned(self.runtime.pruned)
        return batch


@asynccontextmanager
async def open_parts(
    url: str,
    settings: ServerSettings | None = None,
    *,
    orchestration: Settings = DEFAULT_SETTINGS,
    log: ServerLog | None = None,
    store: Callable[[], Store] | None = None,
    lifecycles: Lifecycles = OURS,
) -> AsyncIterator[Parts]:
    """Open the parts of a server, run its loops, and close them at the end."""
    settings = settings or ServerSettings()
    opened = store() if store else store_for(url, lifecycles.kinds)
    try:
        await opened.open()
    except BaseException:
        await opened.close()
        raise
    policy = orchestration.secrets.naming(settings.repository_secrets)
    orchestration = msgspec.structs.replace(orchestration, secrets=policy)
    mirrors = settings.mirrors or tempfile.mkdtemp(prefix="interlock-mirrors-")
    runtime = Runtime(
        opened,
        orchestration,
        repositories=Repositories(
            settings.repositories,
            Path(mirrors),
            secrets=settings.repository_secrets,
            find=Vault().value,
        ),
        blobs=blobs_for(url, orchestration.blobs),
        caches=caches_for(url, orchestration.blobs),
        kinds=lifecycles.own,
    )
    try:
        door = await door_for(settings, runtime.tokens)
        parts = Parts(url, runtime, settings, log or ServerLog(), door, lifecycles)
        await parts.start()
    except BaseException:
        await runtime.close()
        raise
    try:
        yield parts
    finally:
        await parts.stop()
        if settings.mirrors is None:
            shutil.rmtree(mirrors, ignore_errors=True)
