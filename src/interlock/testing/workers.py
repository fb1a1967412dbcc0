"""The worker of a test: the real one, in the test's own event loop, and mortal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any

from interlock.errors import StoreUnavailable
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Answer, ClaimRequest, Grant, Message
from interlock.wire.trees import ChildPage
from interlock.worker.logs import make_log
from interlock.worker.port import OrchestratorPort, Parental
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.signals import Shutdown
from interlock.worker.tasks import Registry
from interlock.worker.threads import Begins, Join


class Worker:
    """The worker of a test. It can be asked to go, die without a word, and be started again."""

    def __init__(
        self, settings: WorkerSettings, registry: Registry, port: Callable[[], OrchestratorPort]
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._port = port
        self._lives = 0
        self._process: WorkerProcess | None = None
        self._running: asyncio.Task[int] | None = None
        self._beside: list[asyncio.Task[None]] = []
        self._wire = _Wire(port)

    @property
    def name(self) -> str:
        """What the journal calls it; each life has a number."""
        return f"{self._settings.name}#{self._lives}"

    @property
    def elsewhere(self) -> int:
        """How many of its handlers run in threads or processes."""
        return self._process.leftovers().get("elsewhere", 0) if self._process is not None else 0

    async def start(self) -> None:
        """Begin to work; nothing when it does already."""
        if self._running is not None:
            return
        loop = asyncio.get_running_loop()
        self._lives += 1
        self._wire = wire = _Wire(self._port)
        self._process = WorkerProcess(
            self._settings,
            self._registry,
            wire.connected,
            incarnation=str(self._lives),
            log=make_log(self._settings.log_level, "text"),
            shutdown=Shutdown(loop.time),
            monotonic=loop.time,
            local=lambda: datetime.min.replace(tzinfo=UTC),  # until the store has told it the time
            threads=_InLoop(self._beside),
        )
        self._running = asyncio.create_task(self._process.run(), name="worker of a test")

    async def stop(self) -> int:
        """Ask it to go, as SIGTERM does; its exit code."""
        if self._process is None or self._running is None:
            return 0
        self._process.shutdown.request()
        await asyncio.wait([self._running])
        running, self._running, self._process = self._running, None, None
        return running.result()

    async def kill(self) -> None:
        """It dies without a word, as by `kill -9`: nobody hears of it again, and its handlers end."""
        if self._running is None:
            return
        self._wire.cut = True
        ending = [self._running, *self._beside]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
        self._running, self._process = None, None
        self._beside.clear()


class _InLoop:
    """What needs a thread elsewhere runs in the event loop of the test."""

    def __init__(self, tasks: list[asyncio.Task[None]]) -> None:
        self._tasks = tasks

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """A task, which ends by itself."""
        self._tasks.append(asyncio.create_task(main(), name=name))
        if begins is not None:
            begins(asyncio.get_running_loop())
        return lambda _timeout_s: None

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:  # noqa: ARG002
        """Nobody supervises: a loop that hangs is seen by whoever waits for the test."""
        return lambda _timeout_s: None


class _Wire:
    """What one life is heard through; when it is cut, nobody hears of that life again."""

    def __init__(self, port: Callable[[], OrchestratorPort]) -> None:
        self._port = port
        self.cut = False

    def connected(self) -> OrchestratorPort:
        """A new connection."""
        return _Connection(self._port(), self)

    def check(self) -> None:
        """Raises when it is cut."""
        if self.cut:
            raise StoreUnavailable("The worker is dead.")


class _Connection:
    """A port on a wire."""

    def __init__(self, port: OrchestratorPort, wire: _Wire) -> None:
        self._port = port
        self._wire = wire

    async def connect(self) -> None:
        self._wire.check()
        await self._port.connect()

    async def disconnect(self) -> None:
        await self._port.disconnect()

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        self._wire.check()
        return await self._port.claim(request)

    async def hear(self, messages: Sequence[Message]) -> list[Answer]:
        self._wire.check()
        return await self._port.hear(messages)

    async def submit_children(
        self, token: str, runner_id: str, name: str, specs: Sequence[JobSpec]
    ) -> tuple[str, ...]:
        return await self._parental().submit_children(token, runner_id, name, specs)

    async def children(self, token: str, runner_id: str, cursor: str) -> ChildPage:
        return await self._parental().children(token, runner_id, cursor)

    def _parental(self) -> Parental:
        self._wire.check()
        assert isinstance(self._port, Parental)
        return self._port

    async def recover(self) -> int:
        self._wire.check()
        return await self._port.recover()

    async def now(self) -> datetime:
        self._wire.check()
        return await self._port.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._port.subscribe(wake)
