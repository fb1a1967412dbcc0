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
from interlock.worker.host import MACHINE, Threads
from interlock.worker.port import OrchestratorPort, SimulationPort
from interlock.worker.side_loop import SideLoop

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
        """Send a message for at most this long.

        Raise `StoreUnavailable` if it could not be delivered.
        """
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
        """Send a message; retry all but heartbeats for the time of the lease."""
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
        self._runner_id = runner_id
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._closed = False
        """Whether the loop accepts no more work."""
        self._side = SideLoop(
            "interlock-simulations",
            connect,
            finish=self._finish,
            backoff=Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S),
            threads=threads,
        )

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
        self._side.stop(timeout_s)

    def _scheduled(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the thread.

        It starts with the first simulation, since most workers have none.
        """
        with self._lock:
            if self._closed:
                coroutine.close()
                raise StoreUnavailable(
                    "The simulation can no longer report: its worker is shutting down.",
                    todo="Nothing; another worker continues after the last saved step.",
                )
            if not self._side.started:
                self._side.start()
            return self._side.submit(coroutine)

    # In the thread

    async def _finish(self) -> None:
        with self._lock:
            self._closed = True
        await asyncio.sleep(0)  # lets coroutines scheduled earlier begin, to be cancelled with the loop

    async def _send(self, token: str, message: AnySimulationMessage, patience_s: float) -> SimulationOrders:
        until, backoff = self._monotonic() + patience_s, Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            try:
                async with asyncio.timeout(max(until - self._monotonic(), FIRST_PAUSE_S)):
                    return await self._try_send(token, message)
            except (StoreUnavailable, TimeoutError) as error:
                await self._side.abandon()
                pause_s = backoff.next_s()
                if self._monotonic() + pause_s >= until:
                    raise StoreUnavailable(
                        f"The simulation could not report within {patience_s:g} s: {error}",
                        todo="It may have been accepted; the worker continues while its lease is valid.",
                    ) from error
            await asyncio.sleep(pause_s)

    async def _try_send(self, token: str, message: AnySimulationMessage) -> SimulationOrders:
        port = await self._side.connected()
        if not isinstance(port, SimulationPort):
            raise JobError("This orchestrator does not support simulations.", todo="Use one that does.")
        return await port.simulate(token, self._runner_id, message)

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
