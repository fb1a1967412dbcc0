"""A worker: the process of production with its crew, its machines and its async executor.

It has no threads: what has a loop in a thread elsewhere (the renewer, the voice of simulations, whoever
speaks with the supervisor of all workers) runs in the one event loop, and the supervisor that only looks at
loops which hang does not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TextIO, cast

from interlock.verify.worlds.casts.ports import EmbeddedPort, ServedPort
from interlock.verify.worlds.judge import Judge
from interlock.verify.worlds.scheduler import Loop
from interlock.verify.worlds.stage import Process
from interlock.verify.worlds.storage import SharedStore
from interlock.verify.worlds.watcher import Watcher
from interlock.worker.logs import make_log
from interlock.worker.port import OrchestratorPort
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.signals import Shutdown
from interlock.worker.tasks import Registry
from interlock.worker.threads import Begins, Join

LAST_WORD_S = 0.7
"""How long a thread that is asked to end is waited for, elsewhere."""


class InLoop:
    """What needs a thread elsewhere runs in the event loop of its process."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._serving: list[asyncio.Task[Any]] = []

    async def joined(self) -> None:
        """Whoever has a last word has said it, or there was no time for that."""
        if self._serving:
            await asyncio.wait(self._serving, timeout=LAST_WORD_S)

    def serve(
        self, name: str, main: Callable[[], Coroutine[Any, Any, None]], begins: Begins | None = None
    ) -> Join:
        """A task; it ends by itself."""
        self._serving.append(self._loop.create_task(main(), name=name))
        if begins is not None:
            begins(self._loop)
        return lambda _timeout_s: None

    def repeat(self, name: str, every_s: float, body: Callable[[], None]) -> Join:  # noqa: ARG002
        """Nobody supervises: there are no threads that could hang."""
        return lambda _timeout_s: None


class WorkerCast:
    """A worker, from its start to its end."""

    def __init__(
        self, store: SharedStore, judge: Judge, watcher: Watcher, registry: Registry, servers: Sequence[str]
    ) -> None:
        self._store = store
        self._judge = judge
        self._registry = registry
        self._servers = servers
        self._log = make_log("error", "json", cast(TextIO, Alarm(watcher)))

    async def live(self, process: Process) -> None:
        """Work until somebody asks it to go."""
        world = process.stage.world
        settings = WorkerSettings(
            name=process.name,
            labels=("gpu",) if process.name.endswith("1") else (),
            concurrency=world.slots,
            prefetch=world.prefetch,
            durations=world.durations,
            first_backoff_s=world.first_backoff_s,
            supervised=world.supervised,
        )
        shutdown, threads = Shutdown(process.loop.time), InLoop(process.loop)
        worker = WorkerProcess(
            settings,
            self._registry,
            lambda: self._port(process),
            incarnation=str(process.incarnation),
            log=self._log,
            shutdown=shutdown,
            monotonic=process.loop.time,
            local=process.local,
            threads=threads,
        )
        process.role = worker
        await worker.run()
        await threads.joined()

    def _port(self, process: Process) -> OrchestratorPort:
        if self._servers:
            return ServedPort(process, self._servers, self._judge)
        return EmbeddedPort(process, self._store, self._judge)


class Alarm:
    """A worker that writes an error about itself has met something that should not be."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def write(self, line: str) -> None:
        self._watcher.broke("no loop of a worker crashes", line.strip())

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        """No."""
        return False
