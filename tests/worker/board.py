"""A small orchestrator on a board: a real implementation of the port, with everything in view.

It grants what is pinned to it, fences every message by its token, and records what it hears. A test
can cancel a job, take a lease away, let time pass, or make the board unreachable. Its clock stands still
unless a test moves it, so that no lease expires because a machine is slow. It may be used from any number
of threads, each with a port of its own, as a store is.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from tests.waiting import PATIENCE_S

from interlock.errors import StoreUnavailable
from interlock.wire.runner import (
    Ack,
    Answer,
    CancelAck,
    ClaimRequest,
    Complete,
    Failed,
    Grant,
    Heard,
    Heartbeat,
    LogLine,
    Message,
    NotHeard,
    Progress,
    Release,
    Stale,
    StaleCode,
    Succeeded,
)


@dataclass
class Job:
    """What is pinned to the board."""

    id: str
    task: str
    input: bytes
    state: str = "queued"
    attempts: int = 0
    losses: int = 0
    outcome: Succeeded | Failed | None = None
    checkpoint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    progress: Progress | None = None
    log: list[LogLine] = field(default_factory=list)
    trace: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    secrets_withheld: bool = False
    untrusted: bool = False
    cancel_requested: bool = False
    released: list[str] = field(default_factory=list)

    @property
    def result(self) -> Any:
        assert isinstance(self.outcome, Succeeded), self.outcome
        return msgspec.json.decode(self.outcome.result)

    @property
    def failure(self) -> Failed:
        assert isinstance(self.outcome, Failed), self.outcome
        return self.outcome

    @property
    def lines(self) -> list[str]:
        return [line.text for line in self.log]


@dataclass
class Lease:
    """Who may speak about a job, and until when."""

    job: Job
    runner_id: str
    expires_at: float
    state: str
    code: StaleCode = StaleCode.LEASE_EXPIRED
    heard: set[tuple[type, int]] = field(default_factory=set)
    """Messages that were heard, by type and number; one may arrive after one with a higher number."""
    progressed: int = 0


class Clock:
    """Monotonic time in seconds that passes only when a test says so; from any thread."""

    def __init__(self) -> None:
        self._now = 1_000.0

    def __call__(self) -> float:
        return self._now

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self._now += seconds


class Board:
    """Jobs, leases, and everything that was said."""

    def __init__(
        self,
        *,
        ttl_s: float = 120.0,
        heartbeat_every_s: float = 20.0,
        ack_window_s: float = 30.0,
    ) -> None:
        self.ttl_s, self.heartbeat_every_s, self.ack_window_s = ttl_s, heartbeat_every_s, ack_window_s
        self.timeout_s = 3_600.0
        self.jobs: dict[str, Job] = {}
        self.leases: dict[str, Lease] = {}
        self.messages: list[Message] = []
        self.batches: list[int] = []
        self.claims: list[ClaimRequest] = []
        self.recoveries = 0
        self.connections = 0
        self.opened = 0
        self.reachable = True
        self.fatal: Exception | None = None
        self.refusing: Callable[[Message], NotHeard | None] = lambda _: None
        self.before: Callable[[str], None] = lambda _: None
        """Called in the thread of whoever is about to be answered, with the name of the method."""
        self.held: dict[str, threading.Event] = {}
        """By method: who calls it waits for the event, without holding up its event loop."""
        self.clock = Clock()
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._wakes: list[Callable[[], None]] = []
        self._watchers: list[Callable[[], None]] = []

    # For tests

    def pin(self, task: str, arguments: Any = None, **facts: Any) -> Job:
        """Submit a job."""
        with self._lock:
            raw = msgspec.json.encode({} if arguments is None else arguments)
            job = Job(f"j_{next(self._numbers):012x}", task, raw, **facts)
            self.jobs[job.id] = job
        self.changed()
        for wake in list(self._wakes):
            wake()
        return job

    def cancel(self, job: Job) -> None:
        with self._lock:
            job.cancel_requested = True

    def take_away(self, job: Job, code: StaleCode = StaleCode.LEASE_REVOKED) -> None:
        """End the live lease of a job, so that whoever holds it is stale from now on."""
        with self._lock:
            for lease in self.leases.values():
                if lease.job is job and lease.state in ("granted", "active"):
                    lease.state, lease.code = "dead", code

    def pass_time(self, seconds: float) -> None:
        """Move the clock; what this ends ends when the board is asked about it next."""
        with self._lock:
            self.clock.move(seconds)

    def lease_of(self, job: Job) -> Lease:
        """Return the newest lease of a job."""
        with self._lock:
            return [lease for lease in self.leases.values() if lease.job is job][-1]

    def said(self, kind: type[Any]) -> list[Any]:
        with self._lock:
            return [message for message in self.messages if isinstance(message, kind)]

    async def until(self, true: Callable[[], Any], what: str = "it") -> None:
        """Wait until something on the board is true."""
        loop, stirred = asyncio.get_running_loop(), asyncio.Event()

        def stir() -> None:
            loop.call_soon_threadsafe(stirred.set)

        self._watchers.append(stir)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not true():
                    await stirred.wait()
                    stirred.clear()
        except TimeoutError:
            recent = "\n".join(map(str, self.messages[-5:]))
            raise AssertionError(f"waited in vain for {what}; heard last:\n{recent}") from None
        finally:
            self._watchers.remove(stir)

    async def until_renewed(self, job: Job) -> None:
        """Wait until the lease of a job has been renewed by the present time of the board."""
        lease, until = self.lease_of(job), self.clock() + self.ttl_s
        await self.until(lambda: lease.expires_at >= until, "the lease to be renewed")

    async def until_state(self, job: Job, *states: str) -> None:
        await self.until(lambda: job.state in states, f"{job.task} to be {states}, it is {job.state}")

    def changed(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    def port(self) -> BoardPort:
        return BoardPort(self)

    # What ports do

    def claim(self, request: ClaimRequest) -> list[Grant]:
        with self._lock:
            self.claims.append(request)
            ready = [job for job in self.jobs.values() if job.state == "queued"][: request.limit]
            grants = [self._grant(job, request) for job in ready]
        self.changed()
        return grants

    def report(self, messages: Sequence[Message]) -> list[Answer]:
        with self._lock:
            self.messages += messages
            self.batches.append(len(messages))
            answers = [self.refusing(message) or self._answer(message) for message in messages]
        self.changed()
        return answers

    def recover(self) -> int:
        with self._lock:
            self.recoveries += 1
            live = [lease for lease in self.leases.values() if lease.state in ("granted", "active")]
            late = [lease for lease in live if self.clock() >= lease.expires_at]
            for lease in late:
                self._expire(lease)
        self.changed()
        return len(late)

    def _grant(self, job: Job, request: ClaimRequest) -> Grant:
        job.state, job.attempts = "leased", job.attempts + 1
        token = f"{job.id}.1.{job.attempts}.{'secret' * 4}{next(self._numbers)}"
        window_s = self.ttl_s if request.acknowledge else self.ack_window_s
        expires_at = self.clock() + window_s
        state = "active" if request.acknowledge else "granted"
        self.leases[token] = Lease(job, request.runner_id, expires_at, state)
        now = datetime.now(UTC)
        return Grant(
            token=token,
            job_id=job.id,
            task=job.task,
            input=msgspec.Raw(job.input),
            attempt=job.attempts,
            fence=job.attempts,
            checkpoint=job.checkpoint,
            acknowledged=request.acknowledge,
            granted_at=now,
            expires_at=now + timedelta(seconds=window_s),
            ttl_s=self.ttl_s,
            heartbeat_every_s=self.heartbeat_every_s,
            timeout_s=self.timeout_s,
            metadata=job.metadata,
            trace=job.trace,
            secrets=job.secrets,
            secrets_withheld=job.secrets_withheld,
            untrusted=job.untrusted,
        )

    def _answer(self, message: Message) -> Answer:
        lease = self.leases.get(message.token)
        if lease is None or lease.runner_id != message.runner_id:
            return Stale(code=StaleCode.UNKNOWN_LEASE, error="There is no such lease.")
        if lease.state in ("granted", "active") and self.clock() >= lease.expires_at:
            self._expire(lease)
        if lease.state == "dead":
            return Stale(code=lease.code, error="The lease has ended.")
        if lease.state == "done":
            return Stale(code=StaleCode.LEASE_REVOKED, error="The attempt has ended.")
        if lease.state == "granted" and not isinstance(message, Ack | Release):
            return NotHeard(code="transition_not_allowed", error="Acknowledge it first.")
        if (known := (type(message), message.sequence)) in lease.heard:
            return self._heard(lease)
        lease.heard.add(known)
        lease.job.log += message.log
        self._take(lease, message)
        return self._heard(lease)

    def _take(self, lease: Lease, message: Message) -> None:
        job = lease.job
        match message:
            case Ack():
                lease.state, lease.expires_at = "active", self.clock() + self.ttl_s
            case Heartbeat():
                lease.expires_at, job.state = self.clock() + self.ttl_s, "running"
                if message.progress is not None and message.sequence >= lease.progressed:
                    job.progress, lease.progressed = message.progress, message.sequence
                job.checkpoint = message.checkpoint or job.checkpoint
            case Complete():
                lease.state, job.outcome = "done", message.outcome
                job.state = "succeeded" if isinstance(message.outcome, Succeeded) else "failed"
            case CancelAck():
                lease.state, job.state = "done", "canceled"
            case Release():
                lease.state, job.state = "done", "queued"
                job.checkpoint = message.checkpoint or job.checkpoint
                job.released.append(message.reason)

    def _heard(self, lease: Lease) -> Heard:
        return Heard(state=lease.job.state, ttl_s=self.ttl_s, cancel_requested=lease.job.cancel_requested)

    def _expire(self, lease: Lease) -> None:
        lease.state = "dead"
        lease.job.state, lease.job.losses = "queued", lease.job.losses + 1


class BoardPort:
    """One connection to the board."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._open = False

    async def connect(self) -> None:
        await self._reach("connect")
        if self._board.fatal is not None:
            raise self._board.fatal
        if not self._open:
            self._open = True
            self._board.connections += 1
            self._board.opened += 1
        self._board.changed()

    async def disconnect(self) -> None:
        if self._open:
            self._open = False
            self._board.connections -= 1
        self._board.changed()

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        await self._reach("claim")
        return self._board.claim(request)

    async def report(self, messages: Sequence[Message]) -> list[Answer]:
        kinds = {type(message) for message in messages}
        await self._reach("renew" if kinds == {Heartbeat} else "report")
        return self._board.report(messages)

    async def recover(self) -> int:
        await self._reach("recover")
        return self._board.recover()

    async def now(self) -> datetime:
        return datetime.now(UTC)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._board._wakes.append(wake)
        return lambda: self._board._wakes.remove(wake)

    async def _reach(self, method: str) -> None:
        self._board.before(method)
        held = self._board.held.get(method)
        if held is not None:
            await asyncio.get_running_loop().run_in_executor(None, held.wait, PATIENCE_S)
        if not self._board.reachable:
            self._board.changed()
            raise StoreUnavailable("The board cannot be reached.")
