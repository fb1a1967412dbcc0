"""`interlock worker start --burst`: a worker that goes when there is nothing left to do."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Protocol

from interlock.wire.artifacts import ArtifactView
from interlock.wire.runner import Answer, CancelAck, ClaimRequest, Complete, Grant, Message, Release
from interlock.wire.workers import WorkerBeat, WorkerOrders, WorkerSpec
from interlock.worker.port import Keeper, OrchestratorPort, Patient
from interlock.worker.standing import Supervised

_LAST_WORDS = (Complete, CancelAck, Release)


class WholePort(OrchestratorPort, Supervised, Keeper, Protocol):
    """A port with everything that a worker may need."""


class Burst:
    """A port that asks the worker to go as soon as there is nothing to do.

    That is when nothing is ready for this worker, it has nothing in hand, and nothing in its queues
    is under way: what another one holds, or what waits to be tried again, may still come to it.
    """

    def __init__(
        self,
        port: WholePort,
        go: Callable[[], None],
        under_way: Callable[[Sequence[str]], Awaitable[bool]],
    ) -> None:
        self._port = port
        self._go = go
        self._under_way = under_way
        self._in_hand: set[str] = set()

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Work for this runner, or the sign to go."""
        grants = await self._port.claim(request)
        self._in_hand |= {grant.token for grant in grants}
        if self._in_hand or await self._under_way(request.queues):
            return grants
        await self._port.recover()  # what has ended may make room for more: jobs of a run
        more = await self._port.claim(request)
        self._in_hand |= {grant.token for grant in more}
        if not more:
            self._go()
        return more

    @property
    def granted_after(self) -> float:
        """From when on leases of the last claim may be trusted."""
        port: object = self._port
        return port.granted_after if isinstance(port, Patient) else float("-inf")

    def hasten(self) -> None:
        """Wait for work no longer than it takes to ask for it."""
        port: object = self._port
        if isinstance(port, Patient):
            port.hasten()

    def relax(self) -> None:
        """There is time again to wait for work."""
        port: object = self._port
        if isinstance(port, Patient):
            port.relax()

    async def hear(self, messages: Sequence[Message]) -> list[Answer]:
        """Say these things; an attempt that was reported is not in hand any more."""
        answers = await self._port.hear(messages)
        self._in_hand -= {message.token for message in messages if isinstance(message, _LAST_WORDS)}
        return answers

    async def connect(self) -> None:
        """Open the store, or make sure that it still answers."""
        await self._port.connect()

    async def disconnect(self) -> None:
        """Let go of everything."""
        await self._port.disconnect()

    async def recover(self) -> int:
        """Look for expired leases and other deadlines of anybody."""
        return await self._port.recover()

    async def now(self) -> datetime:
        """The store's time, or close to it."""
        return await self._port.now()

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be woken when there may be work."""
        return self._port.subscribe(wake)

    # The worker is looked after, and leaves files behind, as any other

    async def register(self, spec: WorkerSpec) -> str:
        """A new life; answers its id."""
        return await self._port.register(spec)

    async def beat(self, worker_id: str, beat: WorkerBeat) -> WorkerOrders:
        """A sign of life, answered with orders."""
        return await self._port.beat(worker_id, beat)

    async def orders(self, worker_id: str, after: int, wait_s: float) -> WorkerOrders:
        """The orders, as soon as they are newer than those with this number, or after so long."""
        return await self._port.orders(worker_id, after, wait_s)

    async def leave(self, worker_id: str, reason: str) -> None:
        """It goes, with nothing left to do."""
        await self._port.leave(worker_id, reason)

    async def keep_artifact(
        self, token: str, runner_id: str, name: str, pieces: AsyncIterable[bytes]
    ) -> ArtifactView:
        """Keep a file under a live lease; the same again is kept once."""
        return await self._port.keep_artifact(token, runner_id, name, pieces)
