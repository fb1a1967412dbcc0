"""The messages of simulations, sent from a thread with a separate connection.

A step may take minutes and block other work; so the heartbeat of a simulation is sent from here until its
handler has ended, independent of steps. Essential messages (begin, pause, end) are retried until they are
answered, or until the lease would have expired.

Why: decision 0218.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from interlock.backoff import Backoff
from interlock.errors import JobError, StoreUnavailable
from interlock.wire.simulations import AnySimulationMessage, Beat, SimulationOrders
from interlock.worker.host import MACHINE, Join, Threads
from interlock.worker.port import OrchestratorPort, SimulationPort

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
BEAT_S = 5.0
"""Timeout of a heartbeat: the next one is newer."""

T = TypeVar("T")
Latest: TypeAlias = Callable[[], Beat]
ReceiveOrders: TypeAlias = Callable[[SimulationOrders], None]


class SimulationChannel(Protocol):
    """The channel for messages of a simulation, from any thread or loop."""

    def send(
        self, token: str, message: AnySimulationMessage, patience_s: float, /
    ) -> Future[SimulationOrders]:
        """Send a message; raise `StoreUnavailable` if it could not be delivered in that time."""
        ...

    def living(
        self, token: str, latest: Latest, receive: ReceiveOrders, /
    ) -> contextlib.AbstractContextManager[None]:
        """Send heartbeats while entered."""
        ...


class LeaseChannel(NamedTuple):
    """A channel for one lease."""

    channel: SimulationChannel
    token: str
    ttl_s: float

    def send(self, message: AnySimulationMessage) -> Future[SimulationOrders]:
        """Send a message: a heartbeat may be missed; others are retried for the time of the lease."""
        patience_s = BEAT_S if isinstance(message, Beat) else self.ttl_s
        return self.channel.send(self.token, message, patience_s)

    def living(self, latest: Latest, receive: ReceiveOrders) -> contextlib.AbstractContextManager[None]:
        """Send heartbeats of the simulation while entered."""
        return self.channel.living(self.token, latest, receive)


class Simulators:
    """The channel of all simulations of one worker."""

    def __init__(
        self,
        connect: Callable[[], OrchestratorPort],
        runner_id: str,
        *,
        threads: Threads = MACHINE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connect = connect
        self._runner_id = runner_id
        self._threads = threads
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._closed = False
        """Whether the loop accepts no more work."""
        self._join: Join | None = None
        self._port: OrchestratorPort | None = None
        self._connecting = asyncio.Lock()

    def send(self, token: str, message: AnySimulationMessage, patience_s: float) -> Future[SimulationOrders]:
        """Send a message from the thread."""
        return self._scheduled(self._send(token, message, patience_s))

    @contextlib.contextmanager
    def living(self, token: str, latest: Latest, receive: ReceiveOrders) -> Iterator[None]:
        """Send a heartbeat at once, and then at the interval in the answer."""
        beating = self._scheduled(self._send_beats(token, latest, receive))
        try:
            yield
        finally:
            beating.cancel()

    def stop(self, timeout_s: float = 1.0) -> None:
        """Stop the thread, if it was started; a hanging one is abandoned."""
        if self._loop is not None and self._join is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._over.set)
            self._join(timeout_s)

    def _scheduled(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the thread, which starts with the first simulation: most workers have none."""
        with self._lock:
            if self._closed:
                coroutine.close()
                raise StoreUnavailable(
                    "The simulation can no longer report: its worker is shutting down.",
                    todo="Nothing; another worker continues after the last saved step.",
                )
            if self._join is None:
                self._join = self._threads.serve("interlock-simulations", self._serve, self._begins)
            assert self._loop is not None
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _begins(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    # In the thread

    async def _serve(self) -> None:
        await self._over.wait()
        with self._lock:
            self._closed = True
        await asyncio.sleep(0)  # lets coroutines scheduled earlier begin, to be cancelled with the loop
        await self._let_go()

    async def _send(self, token: str, message: AnySimulationMessage, patience_s: float) -> SimulationOrders:
        until, backoff = self._monotonic() + patience_s, Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            try:
                async with asyncio.timeout(max(until - self._monotonic(), FIRST_PAUSE_S)):
                    return await self._once(token, message)
            except (StoreUnavailable, TimeoutError) as error:
                await self._let_go()
                pause_s = backoff.next_s()
                if self._monotonic() + pause_s >= until:
                    raise StoreUnavailable(
                        f"The simulation could not report within {patience_s:g} s: {error}",
                        todo="It may have been accepted; the worker continues while its lease is valid.",
                    ) from error
            await asyncio.sleep(pause_s)

    async def _once(self, token: str, message: AnySimulationMessage) -> SimulationOrders:
        async with self._connecting:
            if self._port is None:
                port = self._connect()
                await port.connect()
                self._port = port
        port = self._port
        if not isinstance(port, SimulationPort):
            raise JobError("This orchestrator does not support simulations.", todo="Use one that does.")
        return await port.simulate(token, self._runner_id, message)

    async def _let_go(self) -> None:
        port, self._port = self._port, None
        if port is not None:
            with contextlib.suppress(Exception):  # it is not used any more, whatever the error
                await port.disconnect()

    async def _send_beats(self, token: str, latest: Latest, receive: ReceiveOrders) -> None:
        every_s = BEAT_S
        while True:
            with contextlib.suppress(StoreUnavailable):
                orders = await self._send(token, latest(), BEAT_S)
                receive(orders)
                every_s = orders.beat_every_s
            await asyncio.sleep(every_s)


class _NoChannel:
    """For a context without a worker."""

    def send(self, _: str, __: AnySimulationMessage, ___: float) -> Future[SimulationOrders]:
        raise JobError(
            "Simulations are not available here.",
            todo="Start it with `interlock simulation start`, or run it with `interlock simulation run`.",
        )

    def living(self, *_: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


NO_CHANNEL: SimulationChannel = _NoChannel()
