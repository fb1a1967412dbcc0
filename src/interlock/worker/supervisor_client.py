"""Where a worker stands with its supervisor: it registers, gives signs of life, and hears its orders.

It has a thread, an event loop and a port of its own: a handler that blocks the worker's event loop
does not make the worker look dead, and does not keep it from hearing that it has to go. What is
ordered is carried out in the event loop of the worker (`orders`); here it is only passed on.

A store that is away costs nothing but silence. A worker that was silent for too long has been
written off; when it comes back it registers anew, as another life under the same name.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from typing import Protocol, runtime_checkable

import msgspec

from interlock.errors import InterlockError, StoreUnavailable, UnknownWorker
from interlock.processes import groups
from interlock.wire.workers import WorkerBeat, WorkerOrders, WorkerSpec, WorkerView
from interlock.worker.host import MACHINE, Join, Threads, done_within, set_within
from interlock.worker.port import DeathBook, OrchestratorPort
from interlock.worker.telemetry import Log

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_LET_GO_S = 0.2
_LAST_WORD_S = 3.0
_JOIN_S = 30.0
"""The thread ends by itself, unless its host stands still."""
_PATIENCE_S = 10.0
SYSTEM, BEGAN = "system", "began"
"""In the metadata of a worker: where its process number means something, and when the process began."""


@runtime_checkable
class Supervised(Protocol):
    """A port behind which there is a supervisor."""

    async def register(self, spec: WorkerSpec) -> str:
        """A new life; answers its id."""
        ...

    async def beat(self, worker_id: str, beat: WorkerBeat) -> WorkerOrders:
        """A sign of life, answered with orders. `UnknownWorker` when nobody knows of it any more."""
        ...

    async def orders(self, worker_id: str, after: int, wait_s: float) -> WorkerOrders:
        """The orders, as soon as they are newer than those with this number, or after so long."""
        ...

    async def leave(self, worker_id: str, reason: str) -> None:
        """It goes, with nothing left to do."""
        ...


def identity() -> dict[str, str]:
    """What tells this process from every other, on this system and elsewhere; nothing where it is unknown."""
    system, began = groups.running_system(), groups.began(os.getpid())
    return {SYSTEM: system, BEGAN: began} if system and began else {}


def versions() -> dict[str, str]:
    """Return what this process is made of."""
    return {"interlock": version("interlock"), "python": platform.python_version()}


def is_dead(worker: WorkerView) -> bool:
    """Whether a worker was a process of this very system that is gone now."""
    known = worker.metadata
    here = SYSTEM in known and known[SYSTEM] == groups.running_system()
    return here and known.get(BEGAN, "") != groups.began(worker.pid)


class SupervisorClient:
    """A thread that speaks with the supervisor."""

    def __init__(
        self,
        spec: WorkerSpec,
        connect: Callable[[], OrchestratorPort],
        *,
        beat: Callable[[], WorkerBeat],
        heed: Callable[[WorkerOrders], None],
        look: Callable[[], None],
        log: Log,
        threads: Threads = MACHINE,
    ) -> None:
        self._spec = spec
        self._connect = connect
        self._beat = beat
        self._heed = heed
        self._look = look
        self._looked = 0
        self._log = log
        self.worker_id = ""
        self._trouble = ""
        self._reason = ""
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._over: asyncio.Event | None = None
        self._port: OrchestratorPort | None = None
        self._threads = threads
        self._join: Join | None = None

    def start(self) -> None:
        """Begin to speak."""
        self._join = self._threads.serve("interlock-standing", self._serve)

    def stop(self, reason: str) -> None:
        """Say goodbye, if somebody listens, and end the thread; one that hangs is left behind."""
        self._reason = reason
        self._stopping = True
        loop, over = self._loop, self._over
        if loop is not None and over is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(over.set)
        if self._join is not None:
            self._join(_JOIN_S)

    def nudge(self) -> None:
        """There is something to say; from any thread."""
        loop, news = self._loop, self._news
        if loop is not None and news is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(news.set)

    def trouble(self, kind: str, reason: str) -> None:
        """Something is wrong with this worker; it is told with the next sign of life."""
        self._trouble, self._reason = kind, reason
        self.nudge()

    # In the thread

    async def _serve(self) -> None:
        self._loop, self._news, self._over = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        if self._stopping:
            return
        speaking = asyncio.create_task(self._speak_on())
        await self._over.wait()
        speaking.cancel()
        await asyncio.wait([speaking])
        await self._say_goodbye()

    async def _speak_on(self) -> None:
        """From one connection to the next."""
        assert self._news is not None
        loop, pause_s = asyncio.get_running_loop(), _FIRST_PAUSE_S
        while True:
            began = loop.time()
            try:
                await self._speak()
            except StoreUnavailable:
                pass  # the main loop says so as well, and more loudly
            except Exception as error:  # noqa: BLE001 - a loop outlives whatever its body meets
                self._note(error)
            await self._let_go()
            if loop.time() - began > _LONGEST_PAUSE_S:  # that connection was a good one
                pause_s = _FIRST_PAUSE_S
            self._news.clear()  # what there is to say is said with the first sign of life
            await set_within(self._news, pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _note(self, error: Exception) -> None:
        """Say what went wrong; who is not known there any more begins another life."""
        facts = error.facts if isinstance(error, InterlockError) else {}
        code = error.code if isinstance(error, InterlockError) else type(error).__name__
        if UnknownWorker.code in (code, facts.get("code")):
            self.worker_id = ""
        self._log.warning("supervisor_not_heard", code=code, error=str(error))

    async def _speak(self) -> None:
        """From a connection to its end."""
        port = self._connect()
        if not isinstance(port, Supervised):
            await asyncio.Event().wait()  # there is nobody to speak with, ever
            return
        self._port = port
        async with asyncio.timeout(_PATIENCE_S):
            await port.connect()
        while True:
            await self._round(port)

    async def _round(self, port: Supervised) -> None:
        """One sign of life, and what is ordered until the next one."""
        assert self._news is not None
        if not self.worker_id:
            self.worker_id, self._looked = await self._register(port), 0
            self._log.info("worker_registered", supervised_as=self.worker_id)
            await self._report_dead_namesakes(port)
        self._news.clear()
        trouble, self._trouble = self._trouble, ""
        told = self._beat()
        if trouble:
            told = msgspec.structs.replace(told, trouble=trouble, reason=self._reason)
        orders = await port.beat(self.worker_id, told)
        if not self._take(orders):
            return
        if orders.stop == "terminate":  # it is the last order, so that nothing newer can be waited for
            await set_within(self._news, orders.beat_every_s)
        else:
            newer = asyncio.ensure_future(port.orders(self.worker_id, orders.number, orders.beat_every_s))
            news = asyncio.ensure_future(self._news.wait())
            try:
                await asyncio.wait((newer, news), return_when=asyncio.FIRST_COMPLETED)
                if newer.done():
                    self._take(newer.result())
            finally:
                newer.cancel()
                news.cancel()
                await asyncio.wait((newer, news))

    async def _report_dead_namesakes(self, port: object) -> None:
        """Say which earlier lives under this name have ended here, so that nobody waits for their leases."""
        if not isinstance(port, DeathBook):
            return
        try:
            for other in await port.namesakes(self.worker_id):
                if is_dead(other):
                    reason = f"process {other.pid} is gone, and {self._spec.name} was started again"
                    await port.died(other.name, other.incarnation, reason)
                    self._log.info("dead_worker_reported", supervised_as=other.id, worker_pid=other.pid)
        except StoreUnavailable:
            raise
        except InterlockError as error:  # a server that does not know how; the leases end by themselves
            self._log.warning("dead_workers_not_reported", code=error.code, error=str(error))

    async def _register(self, port: Supervised) -> str:
        """Register with the tasks; without them where a server of an earlier version refuses them."""
        try:
            return await port.register(self._spec)
        except StoreUnavailable:
            raise
        except InterlockError:
            if self._spec.tasks is None:
                raise
            return await port.register(msgspec.structs.replace(self._spec, tasks=None))

    def _take(self, orders: WorkerOrders) -> bool:
        """Pass orders on; answers whether there may be others."""
        if orders.anew:
            self._log.warning("worker_written_off", supervised_as=self.worker_id, reason=orders.reason)
            self.worker_id = ""
            return False
        if orders.look > self._looked:
            self._looked = orders.look
            self._look()
        self._heed(orders)
        return True

    async def _say_goodbye(self) -> None:
        """With what it has done in all, if somebody listens at this very moment; else silence says it."""
        port: object = self._port
        if isinstance(port, Supervised) and self.worker_id:
            leaving = asyncio.ensure_future(self._leave(port))
            if not await done_within(leaving, _LAST_WORD_S):
                leaving.cancel()
        await self._let_go()

    async def _leave(self, port: Supervised) -> None:
        with contextlib.suppress(Exception):
            await port.beat(self.worker_id, self._beat())
            await port.leave(self.worker_id, self._reason)

    async def _let_go(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_LET_GO_S):
                    await port.disconnect()
