"""A worker: the process of production with its crew, its machines and its async executor.

It has no threads: the renewer's loop runs in the one event loop, and the supervisor, which only looks at
loops that hang, does not run. Nor does it register with the supervisor of all workers. Its handlers wait,
save, fail and are deaf as their job says.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TextIO, cast

from interlock.verify.worlds.casts.ports import EmbeddedPort, ServedPort
from interlock.verify.worlds.judging import Judge
from interlock.verify.worlds.scheduling import Loop
from interlock.verify.worlds.stage import Process
from interlock.verify.worlds.storage import SharedStore
from interlock.verify.worlds.watching import Watcher
from interlock.worker.context import Context
from interlock.worker.logs import make_log
from interlock.worker.port import OrchestratorPort
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.signals import Shutdown
from interlock.worker.tasks import Registry
from interlock.worker.threads import Join

AT_ONCE = "a worker runs no more handlers at once than it has slots for"
ALONE = "who has lost a lease has stopped before another begins, unless it was frozen"
DEAF_S = 120.0


class FlakyError(Exception):
    """Raised by a handler that will do better the next time."""


class InLoop:
    """What needs a thread elsewhere runs in the event loop of its process."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def serve(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> Join:
        """A task; it ends by itself."""
        self._loop.create_task(main(), name=name)
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
        self._log = make_log("error", "json", cast(TextIO, _Alarm(watcher)))

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
            supervised=False,  # what it registers with names its host and its pid: no seed decides those
        )
        shutdown = Shutdown(process.loop.time)
        worker = WorkerProcess(
            settings,
            self._registry,
            lambda: self._port(process),
            incarnation=str(process.incarnation),
            log=self._log,
            shutdown=shutdown,
            monotonic=process.loop.time,
            local=process.local,
            threads=InLoop(process.loop),
        )
        process.role = worker
        await worker.run()

    def _port(self, process: Process) -> OrchestratorPort:
        if self._servers:
            return ServedPort(process, self._servers, self._judge)
        return EmbeddedPort(process, self._store, self._judge)


class Bench:
    """The handlers, and who is at which of them."""

    def __init__(self, watcher: Watcher, judge: Judge, slots: int) -> None:
        self._watcher = watcher
        self._judge = judge
        self._slots = slots
        self._busy: Counter[str] = Counter()
        self._at: dict[tuple[str, int], list[tuple[Process, str, float]]] = {}
        """Who is at which shard of which job: the process, the attempt, and since when."""
        self.registry = Registry()
        self.registry.task(name="work")(self._work_of())

    def _work_of(self) -> Callable[..., Coroutine[Any, Any, int]]:
        bench = self

        async def work(number: int, seconds: float, ends: list[str], ctx: Context) -> int:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, Loop)
            end = ends[(ctx.attempt - 1) % len(ends)]
            if end == "deaf":  # it may be left behind, and then its slot is for others
                await _deaf()
                return number
            bench.enter(loop.owner, ctx)
            try:
                await bench.do(seconds, end, ctx)
            finally:
                bench.leave(loop.owner, ctx)
            return number

        return work

    def enter(self, process: Process, ctx: Context) -> None:
        """A handler begins."""
        name = process.loop.name
        self._busy[name] += 1
        if self._busy[name] > self._slots:
            self._watcher.broke(AT_ONCE, f"{name} runs {self._busy[name]} of {self._slots}", ctx.job_id)
        others = self._at.setdefault((ctx.job_id, ctx.shard), [])
        for other, attempt, since in others:
            honest = other.alive and not other.was_held_up_since(since)
            if honest and self._judge.was_lost(ctx.job_id, attempt):
                words = f"{name} begins {ctx.shard}.{ctx.attempt} while {other.loop.name} is at {attempt}"
                self._watcher.broke(ALONE, words, ctx.job_id)
        others.append((process, f"{ctx.shard}.{ctx.attempt}", process.stage.schedule.now))

    def leave(self, process: Process, ctx: Context) -> None:
        """A handler has ended."""
        name, mine = process.loop.name, f"{ctx.shard}.{ctx.attempt}"
        self._busy[name] -= 1
        if not self._busy[name]:
            del self._busy[name]
        others = [one for one in self._at.pop((ctx.job_id, ctx.shard), []) if one[:2] != (process, mine)]
        if others:
            self._at[ctx.job_id, ctx.shard] = others

    async def do(self, seconds: float, end: str, ctx: Context) -> None:
        """Work a while, say how far it is, and end as the job wants."""
        done = ctx.restored(float) or 0.0
        if seconds > 30.0:
            half = max(0.0, seconds / 2 - done)
            await asyncio.sleep(half)
            ctx.progress(done + half, seconds)
            ctx.checkpoint(done + half)
            done += half
        await asyncio.sleep(max(0.0, seconds - done))
        match end:
            case "user":
                raise ValueError("what was asked for cannot be done")
            case "infra":
                raise ConnectionError("connection reset by peer")
            case "flaky":
                raise FlakyError("not this time")
            case "hang":
                await ctx.wait_cancelled()
            case _:
                ctx.log("done")


async def _deaf() -> None:
    """Go on for a while, whatever one is told."""
    loop = asyncio.get_running_loop()
    until = loop.time() + DEAF_S
    while loop.time() < until:
        try:
            await asyncio.sleep(until - loop.time())
        except asyncio.CancelledError:
            continue


class _Alarm:
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
