"""The orchestrator port over HTTP, for workers that may not, or cannot, connect to the store themselves.

A claim has a request id, so that one whose answer was lost can be sent again and gets the same answer.
Messages are idempotent. A long poll waits at the server, which answers as soon as there is a job; deadlines
of other workers are handled by the server.

A worker that shuts down does not wait for the end of a poll: it sends the claim again under its id, without
waiting. So it learns whether a job was granted at the last moment, and no job is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, cast

import httpx2
import msgspec

from interlock.api import artifacts, jobs, limits, runner, schedules, simulations, waits, workers, workloads
from interlock.api.operation import Operation, Out
from interlock.api.problems import Problem
from interlock.errors import InvalidSettings, ServerRefused, StoreUnavailable
from interlock.wire.artifacts import CACHE, LEASE, RUNNER, ArtifactView, CacheView, checked_name
from interlock.wire.jobs import ChildPage, JobSpec, NewChildren, PredecessorPage
from interlock.wire.json_values import decode_as
from interlock.wire.limits import LimitSpec
from interlock.wire.runner import (
    Answer,
    ClaimRequest,
    Complete,
    Failed,
    Grant,
    Granted,
    Greeting,
    Message,
    NotHeard,
    Release,
)
from interlock.wire.schedules import ScheduleSpec
from interlock.wire.simulations import AnySimulationMessage, SaidOfSimulation, SimulationOrders
from interlock.wire.tls import trusting
from interlock.wire.waits import WaitAnswer, WaitRequest
from interlock.wire.workers import (
    WorkerBeat,
    WorkerDeath,
    WorkerOrders,
    WorkerSpec,
    WorkerView,
)
from interlock.wire.workloads import WorkloadFact, WorkloadFacts


def refusal_of(response: httpx2.Response) -> ServerRefused:
    """Return the error of an unsuccessful response."""
    try:
        problem = decode_as(response.content, Problem)
    except msgspec.DecodeError:
        sentence = f"The server answered {response.status_code}with an unreadable body."
        return ServerRefused(sentence, facts={"code": "error", "status": response.status_code})
    return ServerRefused(
        problem.error,
        todo=problem.todo,
        facts={**problem.facts, "code": problem.code, "status": response.status_code},
    )


READ_S = 60.0
"""Maximum silence during a download."""
_OK, _NOT_FOUND = 200, 404


class CannotDownload(Exception):
    """The server returned an unexpected response."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


@asynccontextmanager
async def downloaded_cache(
    client: httpx2.AsyncClient, headers: Mapping[str, str], key: str, prefixes: Sequence[str]
) -> AsyncIterator[tuple[CacheView, AsyncIterator[bytes]] | None]:
    """Yield a cache and its content, in pieces; None if there is none."""
    query = {"key": key, **({"prefixes": ",".join(prefixes)} if prefixes else {})}
    patience = httpx2.Timeout(READ_S)
    path = artifacts.FETCH_CACHE.address()
    async with client.stream("GET", path, params=query, headers=headers, timeout=patience) as response:
        if response.status_code == _OK:
            yield msgspec.json.decode(response.headers[CACHE], type=CacheView), response.aiter_bytes()
            return
        await response.aread()
        if response.status_code != _NOT_FOUND or b"unknown_cache" not in response.content:
            raise CannotDownload(response)
        yield None


PROTOCOL = 1
NOT_SNOOZED = Failed(
    error="The handler has snoozed, and this version of the server does not support that.",
    details="Upgrade the server before the workers.",
    failure_class="tooling",
)
TRIES = 3
WAIT_S = 20.0
UPLOADED_S = 60.0
"""Additional time for the response to an upload, which is written to disk first."""
_BUSY = frozenset({408, 429, 500, 502, 503, 504})
_TOO_LARGE = 413
_AROUND = len(b'{"messages":[]}')

_JSON = {"Content-Type": "application/json"}


class HttpOrchestrator:
    """An orchestrator behind a server."""

    def __init__(
        self,
        server: str,
        *,
        names: Callable[[], str],
        token: str | None = None,
        wait_s: float = WAIT_S,
        timeout_s: float = 35.0,
        ca: str | None = None,
        tell_under_way: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server: str = server.rstrip("/")
        self._names = names
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._wait_s = wait_s
        self._timeout_s = timeout_s
        self._ca = ca
        self._tell_under_way = tell_under_way
        self.under_way: bool = True
        """Whether jobs were under way at the last empty claim, according to the server."""
        self._monotonic = monotonic
        self._client: httpx2.AsyncClient | None = None
        self._greeting: Greeting | None = None
        self._store_time: tuple[datetime, float] | None = None
        self._time_after: tuple[datetime, float] | None = None
        self.granted_after: float = float("-inf")
        self._polled = False
        self._hurried = asyncio.Event()
        self._wake: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<orchestrator at {self.server}>"

    async def connect(self) -> None:
        """Check the server, the token and the version of the protocol."""
        if self._client is None:
            self._client = self._new_client()
        sent_at = self._monotonic()
        greeting = await self._request(runner.GREET_RUNNER)
        if greeting.protocol != PROTOCOL:
            raise ServerRefused(
                f"The server at {self.server} speaks version {greeting.protocol} of the runner protocol, "
                f"and this worker version {PROTOCOL}.",
                todo="Run the same version of Interlock on both sides.",
            )
        self._greeting = greeting
        self._note_time(greeting.now, sent_at)

    async def declare_schedule(self, name: str, spec: ScheduleSpec, source: str) -> None:
        """Create or update a schedule; the token also needs the role operator."""
        body = {"name": name, "schedule": spec, "source": source, "replace": True}
        await self._request(schedules.CREATE_SCHEDULE, msgspec.json.encode(body))

    async def declare_limit(self, name: str, spec: LimitSpec, source: str) -> None:
        """Declare a limit; the token needs the role operator as well."""
        body = {"limit": name, "spec": spec, "source": source}
        await self._request(limits.SET_LIMIT, msgspec.json.encode(body))

    async def disconnect(self) -> None:
        """Close the connections. Safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    # Claims

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Claim jobs for this runner by a long poll.

        The first claim does not wait.
        """
        named = msgspec.structs.replace(request, claim_id=self._names(), tell_under_way=self._tell_under_way)
        wait_s = self._wait_s if self._polled else 0.0
        self._polled = True
        grants: list[Grant] | None = None
        while grants is None:
            wait_s = 0.0 if self._hurried.is_set() else wait_s
            grants = await self._unless_hurried(msgspec.structs.replace(named, wait_s=wait_s))
        if not grants and not self._hurried.is_set():
            self._wake()  # the server has waited: no pause is needed before the next claim
        return grants

    def stop_waiting(self) -> None:
        """Answer waiting claims now, and do not wait from now on."""
        self._hurried.set()

    def resume_waiting(self) -> None:
        """Wait for jobs again."""
        self._hurried.clear()

    async def _unless_hurried(self, request: ClaimRequest) -> list[Grant] | None:
        """Return the grants; None if the claim has to be repeated without waiting."""
        if not request.wait_s:
            return await self._claim(request)
        claiming = asyncio.ensure_future(self._claim(request))
        hurried = asyncio.ensure_future(self._hurried.wait())
        try:
            await asyncio.wait((claiming, hurried), return_when=asyncio.FIRST_COMPLETED)
            return claiming.result() if claiming.done() else None
        finally:
            claiming.cancel()
            hurried.cancel()
            await asyncio.wait((claiming, hurried))

    async def _claim(self, request: ClaimRequest) -> list[Grant]:
        """Send one claim, and repeat it under its id after a lost answer."""
        for remaining in reversed(range(TRIES)):
            sent_at = self._monotonic()
            try:
                body = msgspec.json.encode(request)
                granted = await self._request(runner.LEASE_ATTEMPTS, body, more_s=request.wait_s)
            except StoreUnavailable:
                if not remaining:
                    raise
            else:
                self._note_time(granted.now, None if request.wait_s else sent_at)
                self.granted_after = self._earliest(granted)
                self.under_way = granted.under_way is not False
                return list(granted.grants)
        return []

    def _earliest(self, granted: Granted) -> float:
        """Return the earliest local time at which the jobs can have been granted.

        There are two bounds: the age of the grant by the server's clock in its answer, and its time after an
        earlier request that was answered at once. The earlier one counts, so neither a delayed answer nor a
        clock that was set makes the worker trust a lease for too long.
        """
        if not granted.grants or self._store_time is None or self._time_after is None:
            return float("-inf")
        granted_at = min(grant.granted_at for grant in granted.grants)
        (now, received_at), (before, sent_at) = self._store_time, self._time_after
        return min(
            received_at - (now - granted_at).total_seconds(), sent_at + (granted_at - before).total_seconds()
        )

    # Messages

    async def report(self, messages: Sequence[Message]) -> list[Answer]:
        """Send messages, in batches of the size that the server accepts."""
        answers: list[Answer] = []
        messages = [self._translated(message) for message in messages]
        for batch in self._batches([msgspec.json.encode(message) for message in messages]):
            answers += await self._send_batch(batch)
        return answers

    def _translated(self, message: Message) -> Message:
        """Return the message in a form that the server supports.

        A server of an earlier version would run a snoozed job at once.
        """
        if not isinstance(message, Release) or self._greeting is None or self._greeting.snoozes:
            return message
        if message.snooze_s is msgspec.UNSET and message.snooze_until is msgspec.UNSET:
            return message
        return Complete(
            token=message.token,
            runner_id=message.runner_id,
            sequence=message.sequence,
            outcome=NOT_SNOOZED,
            cost=message.cost,
            log=message.log,
            log_offset=message.log_offset,
        )

    def _batches(self, messages: Sequence[bytes]) -> Iterator[list[bytes]]:
        """Yield as few batches as the limits of the server allow."""
        most = self._greeting.max_messages if self._greeting else 100
        room = (self._greeting.max_body_bytes if self._greeting else 1_048_576) - _AROUND
        batch: list[bytes] = []
        size = 0
        for message in messages:
            if batch and (len(batch) == most or size + len(message) + 1 > room):
                yield batch
                batch, size = [], 0
            batch.append(message)
            size += len(message) + 1
        if batch:
            yield batch

    async def _send_batch(self, batch: Sequence[bytes]) -> Sequence[Answer]:
        body = b'{"messages":[%s]}' % b",".join(batch)
        sent_at = self._monotonic()
        try:
            answers = await self._request(runner.SAY_MESSAGES, body)
        except ServerRefused as refused:
            if refused.facts["status"] != _TOO_LARGE or len(batch) > 1:
                raise
            return [NotHeard(code="too_large", error=refused.sentence, todo=refused.todo)]
        self._note_time(answers.now, sent_at)
        return answers.answers

    async def keep_artifact(
        self, token: str, runner_id: str, name: str, pieces: AsyncIterable[bytes]
    ) -> ArtifactView:
        """Upload a file under a lease."""
        headers, named = _held(token, runner_id), checked_name(name)
        operation = artifacts.UPLOAD_ARTIFACT
        return await self._request(operation, pieces, headers=headers, more_s=UPLOADED_S, artifact=named)

    async def simulate(self, token: str, runner_id: str, word: AnySimulationMessage) -> SimulationOrders:
        """Send a message about the simulation that is executed under a lease."""
        body = msgspec.json.encode(SaidOfSimulation(token=token, runner_id=runner_id, word=word))
        return await self._request(simulations.SAY_SIMULATION, body)

    async def keep_cache(
        self, token: str, runner_id: str, key: str, pieces: AsyncIterable[bytes]
    ) -> CacheView:
        """Upload a cache for later jobs."""
        headers, query = _held(token, runner_id), {"key": key}
        return await self._request(
            artifacts.SAVE_CACHE, pieces, query=query, headers=headers, more_s=UPLOADED_S
        )

    @asynccontextmanager
    async def open_cache(
        self, token: str, runner_id: str, key: str, prefixes: Sequence[str]
    ) -> AsyncIterator[tuple[CacheView, AsyncIterator[bytes]] | None]:
        """Download a cache of an earlier job."""
        if self._client is None:
            raise self._unavailable("it is not connected")
        try:
            async with downloaded_cache(self._client, _held(token, runner_id), key, prefixes) as found:
                yield found
        except httpx2.RequestError as error:
            raise self._unavailable(f"{type(error).__name__} {error}".strip()) from error
        except CannotDownload as refused:
            if refused.response.status_code in _BUSY:
                raise self._unavailable(f"it answered {refused.response.status_code}") from None
            raise refusal_of(refused.response) from None

    async def submit_children(
        self, token: str, runner_id: str, name: str, specs: Sequence[JobSpec]
    ) -> tuple[str, ...]:
        """Submit children under a lease."""
        body = NewChildren(token=token, runner_id=runner_id, name=name, jobs=tuple(specs))
        return (await self._request(jobs.SUBMIT_CHILDREN, msgspec.json.encode(body))).ids

    async def children(self, token: str, runner_id: str, cursor: str) -> ChildPage:
        """Return a page of the children of a job, under a lease on it."""
        headers, query = _held(token, runner_id), {"cursor": cursor}
        return await self._request(jobs.LIST_CHILDREN, query=query, headers=headers)

    async def predecessors(self, token: str, runner_id: str, cursor: str) -> PredecessorPage:
        """Return a page of the jobs that a job comes after, under a lease on it."""
        headers, query = _held(token, runner_id), {"cursor": cursor}
        return await self._request(jobs.LIST_PREDECESSORS, query=query, headers=headers)

    async def await_signal(self, request: WaitRequest) -> WaitAnswer:
        """Return the answer to a wait, under a lease."""
        return await self._request(waits.AWAIT_SIGNAL, msgspec.json.encode(request))

    async def report_workloads(self, token: str, runner_id: str, facts: Sequence[WorkloadFact]) -> None:
        """Report events of agents."""
        body = msgspec.json.encode(WorkloadFacts(token=token, runner_id=runner_id, facts=tuple(facts)))
        await self._request(workloads.TELL_WORKLOADS, body)

    # Supervisor

    async def register(self, spec: WorkerSpec) -> str:
        """Register the worker with the supervisor."""
        body = msgspec.json.encode(spec)
        return (await self._request(workers.REGISTER_WORKER, body)).id

    async def beat(self, worker_id: str, beat: WorkerBeat) -> WorkerOrders:
        """Send a heartbeat; return the orders."""
        return await self._request(workers.BEAT_WORKER, msgspec.json.encode(beat), worker_id=worker_id)

    async def orders(self, worker_id: str, after: int, wait_s: float) -> WorkerOrders:
        """Return the orders, as soon as there are newer ones."""
        query = {"after": str(after), "wait_s": f"{min(wait_s, WAIT_S):g}"}
        operation = workers.GET_WORKER_ORDERS
        return await self._request(operation, query=query, more_s=wait_s, worker_id=worker_id)

    async def leave(self, worker_id: str, reason: str) -> None:
        """Report that the worker leaves."""
        body = msgspec.json.encode({"reason": reason})
        await self._request(workers.LEAVE_WORKER, body, worker_id=worker_id)

    async def namesakes(self, worker_id: str) -> tuple[WorkerView, ...]:
        """Return the other live workers of its name."""
        return (await self._request(workers.LIST_NAMESAKES, worker_id=worker_id)).workers

    async def died(self, name: str, incarnation: str, reason: str) -> None:
        """Report that a process has died."""
        death = WorkerDeath(name=name, incarnation=incarnation, reason=reason)
        await self._request(workers.REPORT_DEATH, msgspec.json.encode(death))

    async def recover(self) -> int:
        """Do nothing: the server handles deadlines."""
        return 0

    async def now(self) -> datetime:
        """Return the store's time, extrapolated from the server's last answer."""
        if self._store_time is None:
            raise StoreUnavailable(
                f"The server at {self.server} has not reported its time yet.", todo="Connect first."
            )
        at, when = self._store_time
        return at + timedelta(seconds=self._monotonic() - when)

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to wake-ups for the next claim: a claim waits at the server."""
        self._wake = wake

        def leave() -> None:
            self._wake = lambda: None

        return leave

    # Requests

    def _note_time(self, now: datetime, sent_at: float | None) -> None:
        """Record the server's time, bounded by `sent_at` after a quick answer."""
        self._store_time = (now, self._monotonic())
        if sent_at is not None:
            self._time_after = (now, sent_at)

    def _new_client(self) -> httpx2.AsyncClient:
        try:
            return httpx2.AsyncClient(
                base_url=self.server,
                headers=self._headers,
                timeout=self._timeout_s,
                # Loading certificates is the slowest part.
                verify=trusting(self._ca) if self.server.startswith("https:") else False,
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise InvalidSettings(
                f"{self.server!r} is not the address of a server: {error}.",
                todo="Give one such as http://127.0.0.1:8088.",
                facts={"server": self.server},
            ) from None

    async def _request(
        self,
        operation: Operation[Any, Out],
        body: bytes | AsyncIterable[bytes] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] = _JSON,
        more_s: float = 0.0,
        **path: str,
    ) -> Out:
        if self._client is None:
            raise StoreUnavailable(
                f"Not connected to {self.server}.", todo="Connect first; nothing was sent."
            )
        try:
            response = await self._client.request(
                operation.method,
                operation.address(**path),
                params=query,
                content=body,
                headers=headers if body or headers is not _JSON else {},
                timeout=self._timeout_s + more_s,
            )
        except httpx2.RequestError as error:
            raise self._unavailable(f"{type(error).__name__} {error}".strip()) from error
        if response.status_code in _BUSY:
            raise self._unavailable(f"it answered {response.status_code}")
        if response.status_code not in (200, 201):
            raise refusal_of(response)
        try:
            return decode_as(response.content, cast("type[Out]", operation.output))
        except msgspec.DecodeError as error:
            raise self._unavailable(f"its answer cannot be read: {error}") from error

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"The server at {self.server} did not respond as expected: {why}.",
            todo="It may have been accepted; every message of a runner is safe to repeat.",
            facts={"server": self.server},
        )


def _held(token: str, runner_id: str) -> dict[str, str]:
    return {LEASE: token, RUNNER: runner_id, "Content-Type": "application/octet-stream"}
