"""The interface of a worker to an orchestrator.

Embedded it is the orchestrator itself, on the worker's connection to the store; over HTTP it is a client. The
worker does not know which: the same journeys pass over both.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, runtime_checkable

from interlock.wire.artifacts import ArtifactView, CacheView
from interlock.wire.jobs import ChildPage, JobSpec, PredecessorPage
from interlock.wire.runner import Answer, ClaimRequest, Grant, Message
from interlock.wire.simulations import AnySimulationMessage, SimulationOrders
from interlock.wire.waits import WaitAnswer, WaitRequest
from interlock.wire.workers import WorkerView
from interlock.wire.workloads import WorkloadFact


class OrchestratorPort(Protocol):
    """Grants jobs and receives reports.

    Every method raises `StoreUnavailable` if the other side cannot be reached in time. All of them are
    idempotent: a claim whose answer was lost is found again or expires, and a repeated message gets the same
    answer.
    """

    async def connect(self) -> None:
        """Check that the other side answers; safe to call again after a failure."""
        ...

    async def disconnect(self) -> None:
        """Close all connections. Safe to call twice."""
        ...

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Claim at most `limit` jobs for this runner.

        Without any jobs, the list is empty.
        """
        ...

    async def report(self, messages: Sequence[Message]) -> list[Answer]:
        """Send messages; return the answers in their order."""
        ...

    async def recover(self) -> int:
        """Handle expired leases and deadlines of all; return their number."""
        ...

    async def now(self) -> datetime:
        """Return the store's time, approximately."""
        ...

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when there may be jobs; return a function to stop it.

        It is called from any thread and perhaps too often.
        """
        ...


@runtime_checkable
class LongPollPort(Protocol):
    """A port whose claims wait for jobs at the other side (long poll)."""

    @property
    def granted_after(self) -> float:
        """A monotonic time before which no job of the last claim was granted.

        A lease is trusted from its request; a claim that has waited needs a later time.
        """
        ...

    def stop_waiting(self) -> None:
        """Answer waiting claims now, and stop waiting.

        It is called when the worker may not claim.
        """
        ...

    def resume_waiting(self) -> None:
        """Wait for jobs again."""
        ...


@runtime_checkable
class ArtifactPort(Protocol):
    """A port that stores artifacts."""

    async def keep_artifact(
        self, token: str, runner_id: str, name: str, pieces: AsyncIterable[bytes]
    ) -> ArtifactView:
        """Store a file under a live lease; idempotent."""
        ...


@runtime_checkable
class SimulationPort(Protocol):
    """A port that stores simulations."""

    async def simulate(self, token: str, runner_id: str, word: AnySimulationMessage) -> SimulationOrders:
        """Send a message about a simulation under its lease. Idempotent."""
        ...


@runtime_checkable
class FleetPort(Protocol):
    """A port that stores events of fleet agents."""

    async def report_workloads(self, token: str, runner_id: str, facts: Sequence[WorkloadFact]) -> None:
        """Store events of agents. Idempotent.

        The job that drives them has to have the live lease.
        """
        ...


@runtime_checkable
class DeadWorkerPort(Protocol):
    """A port that receives reports about dead worker processes."""

    async def namesakes(self, worker_id: str) -> tuple[WorkerView, ...]:
        """Return the other live workers of its name."""
        ...

    async def died(self, name: str, incarnation: str, reason: str) -> None:
        """Report that this process has died: its leases end at once."""
        ...


@runtime_checkable
class CachePort(Protocol):
    """A port that stores caches for later jobs."""

    async def keep_cache(
        self, token: str, runner_id: str, key: str, pieces: AsyncIterable[bytes]
    ) -> CacheView:
        """Save a cache under a key; an existing one is kept and returned."""
        ...

    def open_cache(
        self, token: str, runner_id: str, key: str, prefixes: Sequence[str]
    ) -> AbstractAsyncContextManager[tuple[CacheView, AsyncIterator[bytes]] | None]:
        """Yield the cache of the key, or the newest with a matching prefix.

        It yields None if there is none.
        """
        ...


@runtime_checkable
class PredecessorPort(Protocol):
    """A port through which handlers read the jobs that theirs comes after."""

    async def predecessors(self, token: str, runner_id: str, cursor: str) -> PredecessorPage:
        """Return a page, in order, of the leased job's predecessors."""
        ...


@runtime_checkable
class ChildJobPort(Protocol):
    """A port through which handlers submit children of their jobs."""

    async def submit_children(
        self, token: str, runner_id: str, name: str, specs: Sequence[JobSpec]
    ) -> tuple[str, ...]:
        """Submit children under a live lease; idempotent per name."""
        ...

    async def children(self, token: str, runner_id: str, cursor: str) -> ChildPage:
        """Return a page of the children of the leased job, oldest first."""
        ...


@runtime_checkable
class SignalPort(Protocol):
    """A port through which handlers wait for signals and approvals."""

    async def await_signal(self, request: WaitRequest) -> WaitAnswer:
        """Return the answer to a wait, under a live lease. Idempotent.

        Without an answer the job waits for it.
        """
        ...
