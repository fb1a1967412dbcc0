"""The supervisor client of a worker: it registers, sends heartbeats, and receives orders.

It has a separate thread, event loop and port: a handler that blocks the worker's event loop does not make the
worker look dead, and does not keep it from receiving the order to exit. Orders are carried out in the event
loop of the worker (`components`); here they are only passed on.

An unavailable store only causes silence. A worker that was silent for too long was declared lost; when it
returns it registers again, as another life under the same name.

Why: decision 0214.
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

from interlock.backoff import Backoff
from interlock.errors import InterlockError, StoreUnavailable, UnknownWorker
from interlock.processes import groups
from interlock.wire.workers import WorkerBeat, WorkerOrders, WorkerSpec, WorkerView
from interlock.worker.host import MACHINE, Threads, done_within
from interlock.worker.port import DeadWorkerPort, OrchestratorPort
from interlock.worker.side_loop import SideLoop
from interlock.worker.telemetry import Log

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_SIGN_OFF_S = 3.0
_JOIN_S = 30.0
"""Timeout to join the thread, which ends by itself unless its host stalls."""
_CONNECT_S = 10.0
SYSTEM, BEGAN = "system", "began"
"""Keys in the metadata of a worker: the system of its process id, and the start time of the process."""


@runtime_checkable
class SupervisorPort(Protocol):
    """A port to a supervisor."""

    async def register(self, spec: WorkerSpec) -> str:
        """Register a worker; return its id."""
        ...

    async def beat(self, worker_id: str, beat: WorkerBeat) -> WorkerOrders:
        """Send a heartbeat; return the orders.

        Raise `UnknownWorker` if the worker is not known.
        """
        ...

    async def orders(self, worker_id: str, after: int, wait_s: float) -> WorkerOrders:
        """Return the orders once they are newer, or after the wait time."""
        ...

    async def leave(self, worker_id: str, reason: str) -> None:
        """Report that the worker leaves, without remaining tasks."""
        ...


def identity() -> dict[str, str]:
    """Return the identity of this process across systems; empty if unknown."""
    system, began = groups.running_system(), groups.began(os.getpid())
    return {SYSTEM: system, BEGAN: began} if system and began else {}


def versions() -> dict[str, str]:
    """Return the versions of this process."""
    return {"interlock": version("interlock"), "python": platform.python_version()}


def is_dead(worker: WorkerView) -> bool:
    """Return whether a worker was a process of this system that has ended."""
    known = worker.metadata
    here = SYSTEM in known and known[SYSTEM] == groups.running_system()
    return here and known.get(BEGAN, "") != groups.began(worker.pid)


class SupervisorClient:
    """A thread that talks to the supervisor."""

    def __init__(
        self,
        spec: WorkerSpec,
        connect: Callable[[], OrchestratorPort],
        *,
        beat: Callable[[], WorkerBeat],
        on_orders: Callable[[WorkerOrders], None],
        look: Callable[[], None],
        log: Log,
        threads: Threads = MACHINE,
    ) -> None:
        self._spec = spec
        self._beat = beat
        self._on_orders = on_orders
        self._look = look
        self._looked = 0
        self._log = log
        self.worker_id: str = ""
        self._trouble = ""
        self._reason = ""
        self._side = SideLoop(
            "interlock-supervision",
            connect,
            self._use_connection,
            failed=self._failed,
            finish=self._sign_off,
            backoff=Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S),
            threads=threads,
        )

    def start(self) -> None:
        """Start the thread."""
        self._side.start()

    def stop(self, reason: str) -> None:
        """Sign off if the supervisor is reachable, and stop the thread.

        A thread that hangs is abandoned.
        """
        self._reason = reason
        self._side.stop(_JOIN_S)

    def nudge(self) -> None:
        """Send a heartbeat soon; from any thread."""
        self._side.wake()

    def trouble(self, kind: str, reason: str) -> None:
        """Report a problem of this worker with the next heartbeat."""
        self._trouble, self._reason = kind, reason
        self.nudge()

    # In the thread

    def _failed(self, error: Exception) -> None:
        """Log an error; forget the id of an unknown worker."""
        if isinstance(error, StoreUnavailable):
            return  # the main loop logs it as well
        facts = error.facts if isinstance(error, InterlockError) else {}
        code = error.code if isinstance(error, InterlockError) else type(error).__name__
        if UnknownWorker.code in (code, facts.get("code")):
            self.worker_id = ""
        self._log.warning("supervisor_not_heard", code=code, error=str(error))

    async def _use_connection(self) -> None:
        """Use one connection, until it fails."""
        async with asyncio.timeout(_CONNECT_S):
            port: object = await self._side.connected()
        if not isinstance(port, SupervisorPort):
            await asyncio.Event().wait()  # the port has no supervisor
            return
        while True:
            await self._round(port)

    async def _round(self, port: SupervisorPort) -> None:
        """Send one heartbeat, and handle orders until the next one."""
        if not self.worker_id:
            self.worker_id, self._looked = await self._register(port), 0
            self._log.info("worker_registered", supervised_as=self.worker_id)
            await self._report_dead_namesakes(port)
        self._side.forget_wakes()
        trouble, self._trouble = self._trouble, ""
        beat = self._beat()
        if trouble:
            beat = msgspec.structs.replace(beat, trouble=trouble, reason=self._reason)
        orders = await port.beat(self.worker_id, beat)
        if not self._take(orders):
            return
        if orders.stop == "terminate":  # it is the last order, so none can follow
            await self._side.wait(orders.beat_every_s)
        else:
            newer = asyncio.ensure_future(port.orders(self.worker_id, orders.number, orders.beat_every_s))
            woken = asyncio.ensure_future(self._side.wait())
            try:
                await asyncio.wait((newer, woken), return_when=asyncio.FIRST_COMPLETED)
                if newer.done():
                    self._take(newer.result())
            finally:
                newer.cancel()
                woken.cancel()
                await asyncio.wait((newer, woken))

    async def _report_dead_namesakes(self, port: object) -> None:
        """Report earlier processes of this name that have died here.

        So their leases end at once.
        """
        if not isinstance(port, DeadWorkerPort):
            return
        try:
            for other in await port.namesakes(self.worker_id):
                if is_dead(other):
                    reason = f"process {other.pid} is gone, and {self._spec.name} was started again"
                    await port.died(other.name, other.incarnation, reason)
                    self._log.info("dead_worker_reported", supervised_as=other.id, worker_pid=other.pid)
        except StoreUnavailable:
            raise
        except InterlockError as error:  # an older server; the leases expire by themselves
            self._log.warning("dead_workers_not_reported", code=error.code, error=str(error))

    async def _register(self, port: SupervisorPort) -> str:
        """Register with the tasks; without them if an older server refuses them."""
        try:
            return await port.register(self._spec)
        except StoreUnavailable:
            raise
        except InterlockError:
            if self._spec.tasks is None:
                raise
            return await port.register(msgspec.structs.replace(self._spec, tasks=None))

    def _take(self, orders: WorkerOrders) -> bool:
        """Forward orders; return whether more may follow."""
        if orders.anew:
            self._log.warning("worker_written_off", supervised_as=self.worker_id, reason=orders.reason)
            self.worker_id = ""
            return False
        if orders.look > self._looked:
            self._looked = orders.look
            self._look()
        self._on_orders(orders)
        return True

    async def _sign_off(self) -> None:
        """Send the final counts if the supervisor answers at once."""
        port: object = self._side.port
        if isinstance(port, SupervisorPort) and self.worker_id:
            leaving = asyncio.ensure_future(self._leave(port))
            if not await done_within(leaving, _SIGN_OFF_S):
                leaving.cancel()

    async def _leave(self, port: SupervisorPort) -> None:
        with contextlib.suppress(Exception):
            await port.beat(self.worker_id, self._beat())
            await port.leave(self.worker_id, self._reason)
