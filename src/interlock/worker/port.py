"""What a worker needs of an orchestrator, wherever that is.

Embedded it is the orchestrator itself, on the worker's own connection to the store; over HTTP it is
a client. The worker cannot tell which: the same journeys pass over both.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, runtime_checkable

from interlock.wire.artifacts import ArtifactView, CacheView
from interlock.wire.jobs import ChildPage, JobSpec
from interlock.wire.runner import Answer, ClaimRequest, Grant, Message
from interlock.wire.simulations import AnySimulationWord, SimulationOrders
from interlock.wire.workers import WorkerView
from interlock.wire.workloads import WorkloadFact


class OrchestratorPort(Protocol):
    """Where work comes from and where it is reported to.

    Every method raises `StoreUnavailable` when the other side cannot be reached in time. All of
    them may be repeated: a claim whose answer was lost is found again or expires, and a message that
    arrives twice is answered as the first time.
    """

    async def connect(self) -> None:
        """Make sure that the other side answers; safe to call again after a failure."""
        ...

    async def disconnect(self) -> None:
        """Let go of everything. Safe to call twice."""
        ...

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Work for this runner, at most `limit` of it; nothing when there is none."""
        ...

    async def hear(self, messages: Sequence[Message]) -> list[Answer]:
        """Say these things; the answers are in their order."""
        ...

    async def recover(self) -> int:
        """Look for expired leases and other deadlines of anybody; answers how many were dealt with."""
        ...

    async def now(self) -> datetime:
        """The store's time, or close to it."""
        ...

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be woken when there may be work; returns how to stop that. From any thread, perhaps too often."""
        ...


@runtime_checkable
class Patient(Protocol):
    """A port whose claims wait for work at the other side."""

    @property
    def granted_after(self) -> float:
        """A moment of the monotonic clock before which nothing of the last claim was granted.

        A lease is trusted from when it was asked for; whoever has waited for it needs a later moment.
        """
        ...

    def hasten(self) -> None:
        """Whoever waits for work is answered now, and nobody waits; called when the worker may take none."""
        ...

    def relax(self) -> None:
        """There is time again to wait for work."""
        ...


@runtime_checkable
class Keeper(Protocol):
    """A port behind which files of attempts are kept."""

    async def keep_artifact(
        self, token: str, runner_id: str, name: str, pieces: AsyncIterable[bytes]
    ) -> ArtifactView:
        """Keep a file under a live lease; the same again is kept once."""
        ...


@runtime_checkable
class Simulating(Protocol):
    """A port behind which the states of simulations are kept."""

    async def simulate(self, token: str, runner_id: str, word: AnySimulationWord) -> SimulationOrders:
        """Say something about the simulation that is executed under a lease; it may be said again."""
        ...


@runtime_checkable
class FleetBook(Protocol):
    """A port behind which it is kept what is heard of the agents of a fleet."""

    async def tell_workloads(self, token: str, runner_id: str, facts: Sequence[WorkloadFact]) -> None:
        """Keep it, under the live lease of the job that drives them; the same again changes nothing."""
        ...


@runtime_checkable
class DeathBook(Protocol):
    """A port that takes word of workers whose process has ended without a word of its own."""

    async def namesakes(self, worker_id: str) -> tuple[WorkerView, ...]:
        """The other living workers under its name."""
        ...

    async def died(self, name: str, incarnation: str, reason: str) -> None:
        """This process was seen to have ended: its leases end at once."""
        ...


@runtime_checkable
class CacheKeeper(Protocol):
    """A port behind which files are kept for later jobs."""

    async def keep_cache(
        self, token: str, runner_id: str, key: str, pieces: AsyncIterable[bytes]
    ) -> CacheView:
        """Save something under a key; what is there already stays, and is answered."""
        ...

    def open_cache(
        self, token: str, runner_id: str, key: str, prefixes: Sequence[str]
    ) -> AbstractAsyncContextManager[tuple[CacheView, AsyncIterator[bytes]] | None]:
        """What is saved under the key, or else the newest under one that begins like it; None for nothing."""
        ...


@runtime_checkable
class Parental(Protocol):
    """A port to which handlers submit children of their jobs."""

    async def submit_children(
        self, token: str, runner_id: str, name: str, specs: Sequence[JobSpec]
    ) -> tuple[str, ...]:
        """Submit them under a live lease; the same again under a name are made once."""
        ...

    async def children(self, token: str, runner_id: str, cursor: str) -> ChildPage:
        """Some children of the job that a lease is about, oldest first."""
        ...
