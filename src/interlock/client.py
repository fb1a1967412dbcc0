"""`Interlock`: the client for programs. Submit jobs, wait for them, inspect them, cancel them.

    async with Interlock("sqlite:///interlock.db") as il:
        job = await il.submit(resize, "cat.png", width=200)
        print(await job.result(timeout_s=60))

It uses the store directly; workers on any host that share the store do the work. Given the
address of a server instead, it does the same over HTTP:

    async with Interlock("http://127.0.0.1:8088", token="il_…") as il:
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

import msgspec

from interlock.client_batches import BatchesClient
from interlock.client_controls import ApprovalsClient, DeadLettersClient, LimitsClient, SchedulesClient
from interlock.client_resources import RecordsClient, RunsClient, SimulationsClient
from interlock.client_transactions import TransactionClient, TransactionSteps
from interlock.engine.loops import gather_all
from interlock.errors import (
    InterlockError,
    InvalidArguments,
    JobCanceled,
    JobFailed,
    ResultNotReady,
    TransitionRefused,
)
from interlock.lifecycles import job as job_lifecycle
from interlock.remote import is_server
from interlock.remote.downloads import saved
from interlock.remote.interfaces import JobsApi
from interlock.remote.search import find
from interlock.store.records import Query, Record
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.kinds import DeclaredKind
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.artifacts import ArtifactView
from interlock.wire.filters import read_filter
from interlock.wire.jobs import NODES, JobSpec, JobView, Submission, TreeView
from interlock.wire.waits import SignalView
from interlock.worker.codec import Work, decoder_of, encode, spec_of
from interlock.worker.composition import Composable, Ends
from interlock.worker.context import Context
from interlock.worker.middleware import Chain, layer_of
from interlock.worker.signatures import ContextByName, J, Result_co, Returns, TaskWithTheseArguments
from interlock.worker.tasks import DEFAULT, Task

if TYPE_CHECKING:
    from interlock.remote.services import RemoteOrchestrator

D = TypeVar("D")
P = ParamSpec("P")
T = TypeVar("T")
AT_ONCE = 20
"""Number of jobs of a composition that are canceled at the same time."""


class JobHandle(Generic[Result_co]):
    """A submitted job. `JobHandle[int]` is one with a result of that type."""

    __slots__ = ("_interlock", "how", "id")

    def __init__(self, interlock: Interlock, job_id: str, how: Submission = "created") -> None:
        self._interlock = interlock
        self.id: str = job_id
        self.how: Submission = how
        """`created`; or, where another job had its unique key: `existing`, `replaced` or `debounced`."""

    def __repr__(self) -> str:
        return f"<job {self.id}>"

    @overload
    async def result(self, *, timeout_s: float | None = None) -> Result_co: ...

    @overload
    async def result(self, *, timeout_s: float | None = None, as_type: type[T]) -> T: ...

    @overload
    async def result(self, *, timeout_s: float | None = None, as_type: Any) -> Any: ...

    async def result(self, *, timeout_s: float | None = None, as_type: Any = Any) -> Any:
        """Return the result of the handler; see `Interlock.result`."""
        return await self._interlock.result(self.id, timeout_s=timeout_s, as_type=as_type)

    async def view(self) -> JobView:
        """Return the current job."""
        return await self._interlock.job(self.id)

    async def cancel(self, *, reason: str = "") -> JobView:
        """Request its cancellation."""
        return await self._interlock.cancel(self.id, reason=reason)

    async def signal(self, name: str, data: object = None, *, request_id: str | None = None) -> SignalView:
        """Send it a signal; see `Interlock.signal`."""
        return await self._interlock.signal(self.id, name, data, request_id=request_id)


class CompositionHandle(Generic[Result_co]):
    """A submitted chain, group or chord. `CompositionHandle[int]` has a result of that type."""

    def __init__(self, interlock: Interlock, jobs: Sequence[JobHandle], ends: Ends) -> None:
        self._interlock = interlock
        self._ends = ends
        self.jobs: tuple[JobHandle[Any], ...] = tuple(jobs)
        """All of its jobs, each after those that it comes after."""

    def __repr__(self) -> str:
        return f"<composition of {len(self.jobs)} jobs>"

    @property
    def last(self) -> tuple[JobHandle, ...]:
        """The jobs that have the result: the last one, or those of the last group."""
        return tuple([self.jobs[place] for place in self._ends.places])

    async def result(self, *, timeout_s: float | None = None) -> Result_co:
        """Wait for the result and return it.

        The result of a group is the list of results, in its order. Raise `JobFailed` or `JobCanceled` if
        there is none, and `ResultNotReady` on a timeout.
        """
        found: list[Any] = await _every([job.result(timeout_s=timeout_s) for job in self.last])
        answer: Any = found if self._ends.listed else found[0]
        return answer  # type: ignore[no-any-return]

    async def wait(self, *, timeout_s: float | None = None) -> list[JobView]:
        """Wait until all of its jobs have ended and return them.

        Raise `ResultNotReady` on a timeout.
        """
        wait = self._interlock.wait
        return await _every([wait(job.id, timeout_s=timeout_s) for job in self.jobs])

    async def cancel(self, *, reason: str = "") -> None:
        """Request the cancellation of its unfinished jobs, the last ones first."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(job: JobHandle) -> None:
            async with turns:
                with suppress(TransitionRefused):
                    await job.cancel(reason=reason)

        await gather_all(one(job) for job in reversed(self.jobs))


async def _every(waiting: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the answers of all; raise the first failure at once."""
    tasks = [asyncio.ensure_future(each) for each in waiting]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


class SyncComposition(Generic[Result_co]):
    """A submitted chain, group or chord, for synchronous code; see `CompositionHandle`."""

    def __init__(
        self, inner: CompositionHandle[Result_co], run: Callable[[Coroutine[Any, Any, Any]], Any]
    ) -> None:
        self._inner, self._run = inner, run
        self.ids: tuple[str, ...] = tuple([job.id for job in inner.jobs])
        """The ids of its jobs, each after those that it comes after."""

    def __repr__(self) -> str:
        return repr(self._inner)

    def result(self, *, timeout_s: float | None = None) -> Result_co:
        """Wait for the result and return it; that of a group is a list."""
        found: Result_co = self._run(self._inner.result(timeout_s=timeout_s))
        return found

    def wait(self, *, timeout_s: float | None = None) -> list[JobView]:
        """Wait until all of its jobs have ended and return them."""
        found: list[JobView] = self._run(self._inner.wait(timeout_s=timeout_s))
        return found

    def cancel(self, *, reason: str = "") -> None:
        """Request the cancellation of all of its jobs that have not ended."""
        self._run(self._inner.cancel(reason=reason))


class Interlock:
    """A client of a store or of a server.

    `settings` and `actor` apply to a store; a server has its own settings and identifies the client by its
    `token`. `ca` is a file with the certificate authority of the server, if the system does not have it.
    `middleware` goes before submissions, in this order; by default it is all that `@middleware` has declared.
    """

    def __init__(
        self,
        url: str,
        *,
        settings: Settings = DEFAULT_SETTINGS,
        actor: str = "client",
        token: str | None = None,
        ca: str | None = None,
        middleware: Sequence[object] | None = None,
    ) -> None:
        self.url = url
        chosen = None if middleware is None else Chain([layer_of(one) for one in middleware])
        self.middleware: Callable[[], Chain] = lambda: DEFAULT.chain if chosen is None else chosen
        self._port = _port_to(url, settings, token, ca)
        self.actor = actor
        self.runs: RunsClient = RunsClient(lambda: self._port.services, self._port.recover, actor)
        """Runs: plans of jobs with dependencies."""
        self.simulations: SimulationsClient = SimulationsClient(
            lambda: self._port.services, self._port.recover, actor
        )
        """Simulations: stepped work that can be paused and resumed."""
        self.schedules: SchedulesClient = SchedulesClient(lambda: self._port.services, actor)
        """Schedules: jobs that are submitted at certain times."""
        self.dead_letters: DeadLettersClient = DeadLettersClient(lambda: self._port.services, actor)
        """Dead letters: failed jobs with no retries left."""
        self.batches: BatchesClient = BatchesClient(
            lambda: self._port.services, self._recover, actor, self._layers
        )
        """Batches: many jobs with one progress, one cancel, and a callback."""
        self.limits: LimitsClient = LimitsClient(lambda: self._port.services, actor)
        """Limits: how many jobs of a key run at the same time."""
        self.approvals: ApprovalsClient = ApprovalsClient(lambda: self._port.services, actor)
        """Approvals: questions of jobs that wait for a person."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect; create the database if it does not exist."""
        await self._port.connect()

    async def close(self) -> None:
        """Close all connections. Safe to call twice."""
        await self._port.disconnect()

    @property
    def services(self) -> Runtime:
        """Return the services of a store, for operations that this class does not offer."""
        if isinstance(self._port, EmbeddedOrchestrator):
            return self._port.services
        raise InvalidArguments(
            f"{self.url} is a server, so its store cannot be reached from here.",
            todo="Use the methods of this class, or open the store itself.",
            facts={"url": self.url},
        )

    @property
    def here(self) -> Runtime:
        """Return `services`. Deprecated: removed in 0.4, and not before six months have passed."""
        warnings.warn("Interlock.here is called Interlock.services.", DeprecationWarning, stacklevel=2)
        return self.services

    def records(self, kind: DeclaredKind[D] | str) -> RecordsClient[D]:
        """Return the records of a kind declared with `interlock.kind`.

        A store loads the table of the kind when it is first used. A server has to know the kind already
        (`interlock server --kinds`). With the name of a kind, data are plain JSON values.
        """
        port = self._port
        return RecordsClient(kind, lambda: port.services, port.learn, port.recover, self.actor)

    async def _recover(self) -> int:
        return await self._port.recover()

    def _layers(self) -> Chain:
        return self.middleware()

    @property
    def _jobs(self) -> JobsApi:
        return self._port.services.jobs

    @overload
    async def submit(
        self, work: Task[Concatenate[Context, P], Returns[J]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[J]: ...

    @overload
    async def submit(
        self, work: Task[Concatenate[Context, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle: ...

    @overload
    async def submit(
        self, work: Task[P, Returns[J]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[J]: ...

    @overload
    async def submit(self, work: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> JobHandle: ...

    @overload  # no type can have a parameter beside those of the handler: its arguments are not checked here
    async def submit(
        self, work: Task[..., Returns[J]], /, *args: Any, request_id: str | None, **kwargs: Any
    ) -> JobHandle[J]: ...

    @overload
    async def submit(
        self, work: Task[..., Any], /, *args: Any, request_id: str | None, **kwargs: Any
    ) -> JobHandle: ...

    @overload  # matches no call: mypy names its parameter where the arguments fit no overload above
    async def submit(self, work: TaskWithTheseArguments, /, *args: Any, **kwargs: Any) -> JobHandle: ...

    @overload
    async def submit(
        self, work: ContextByName | JobSpec | str, /, *args: Any, request_id: str | None = None, **kwargs: Any
    ) -> JobHandle: ...

    async def submit(  # type: ignore[misc] # a task with a context by name is Work
        self, work: Work, /, *args: Any, request_id: str | None = None, **kwargs: Any
    ) -> JobHandle:
        """Submit one job.

        All arguments but `request_id` are passed to the task. `request_id` is an idempotency key: the same id
        creates one job. With `task.options(request_id=...)` instead, type checkers check the arguments. For
        options see `task.options(...)`; a `JobSpec` is submitted as it is.
        """
        if isinstance(work, Task) and work.request_id is not None:
            request_id = work.request_id if request_id is None else request_id
            work = work.options(request_id=None)
        specs: Sequence[JobSpec] = [spec_of(work, args, kwargs)]
        if (chain := self.middleware()).layers:
            specs = await chain.submission(specs)
        (made,) = await self._port.services.jobs.submit_jobs(specs, actor=self.actor, request_id=request_id)
        return JobHandle(self, made.id, made.how)

    async def submit_many(
        self, specs: Sequence[JobSpec], *, request_id: str | None = None
    ) -> list[JobHandle]:
        """Submit many jobs in one call: `[task.spec(n) for n in range(1000)]`."""
        specs = await self.middleware().submission(specs)
        made = await self._jobs.submit_jobs(specs, actor=self.actor, request_id=request_id)
        return [JobHandle(self, one.id, one.how) for one in made]

    async def compose(self, work: Composable[T], *, request_id: str | None = None) -> CompositionHandle[T]:
        """Submit a chain, group or chord: all of its jobs are created, or none.

        `request_id` is an idempotency key: the same id creates one composition. See `interlock.chain`.
        """
        planned, ends = work.plan()
        jobs = await self.submit_many(planned, request_id=request_id)
        return CompositionHandle(self, jobs, ends)

    def within(self, transaction: Any) -> TransactionClient:
        """Return a client that submits and completes in your transaction.

        Jobs are submitted and completed on your connection. `transaction` is a connection of asyncpg, psycopg
        3 or sqlite3 to the database of this store, an async session or connection of SQLAlchemy 2, or
        Django's `connection` within `atomic`.
        """
        deciding = TransactionSteps(lambda: self.services, self.middleware, self.actor)
        return TransactionClient(deciding, transaction)

    async def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Wait until a job has ended and return it.

        Raise `ResultNotReady` on a timeout.
        """
        return await self._viewed(await self._ended(job_id, timeout_s))

    async def _ended(self, job_id: str, timeout_s: float | None) -> Record | JobView:
        """Return an ended job as the record of a store or a server's view."""
        if not isinstance(self._port, EmbeddedOrchestrator):
            await self._jobs.get(job_id)  # raises at once if there is no such job, or no server
        try:
            async with asyncio.timeout(timeout_s):
                return await self._port.services.waiting.ended(job_id)
        except TimeoutError:
            view = await self._jobs.get(job_id)
            raise ResultNotReady(
                f"The job {job_id} is still {view.state} after {timeout_s:g} s.",
                todo=f"Wait longer, or see why with `interlock job explain {job_id}`.",
                facts={"job_id": job_id, "state": view.state},
            ) from None

    async def _viewed(self, ended: Record | JobView) -> JobView:
        if isinstance(ended, JobView):
            return ended
        (view,) = await self.services.jobs.views([ended])
        return view

    @overload
    async def result(self, job_id: str, *, timeout_s: float | None = None, as_type: type[T]) -> T: ...

    @overload
    async def result(self, job_id: str, *, timeout_s: float | None = None, as_type: Any = Any) -> Any: ...

    async def result(self, job_id: str, *, timeout_s: float | None = None, as_type: Any = Any) -> Any:
        """Wait for the result of the handler and return it.

        It is a list if the job has several shards. Raise `JobFailed` or `JobCanceled` if there is none, and
        `ResultNotReady` on a timeout.
        """
        ended = await self._ended(job_id, timeout_s)
        if isinstance(ended, Record) and ended.result and ended.state == job_lifecycle.COMPLETED:
            return decoder_of(as_type)(ended.result)
        view = await self._viewed(ended)  # has failures, and results that are kept apart
        if view.state == job_lifecycle.COMPLETED and isinstance(view.result, msgspec.Raw):
            return decoder_of(as_type)(view.result)
        raise _no_result(view)

    async def cancel(self, job_id: str, *, reason: str = "", request_id: str | None = None) -> JobView:
        """Request the cancellation of a job and return the job."""
        return await self._jobs.cancel(job_id, reason=reason, actor=self.actor, request_id=request_id)

    async def signal(
        self, job_id: str, name: str, data: object = None, *, request_id: str | None = None
    ) -> SignalView:
        """Send a signal to a job: `wait_for(name)` returns the data.

        It is kept until the handler waits.
        """
        given = encode(data, "data")
        return await self._port.services.waits.signal(
            job_id, name, given, actor=self.actor, request_id=request_id
        )

    async def retry(self, job_id: str, *, request_id: str | None = None) -> JobHandle:
        """Resubmit a finished job as a new job.

        The new job is linked to the original.
        """
        new_id = await self._jobs.retry(job_id, actor=self.actor, request_id=request_id)
        return JobHandle(self, new_id)

    async def job(self, job_id: str) -> JobView:
        """Return a job."""
        return await self._jobs.get(job_id)

    async def tree(self, job_id: str, *, most: int = NODES) -> TreeView:
        """Return a job and its descendants, with costs; `cut` if there are more."""
        return await self._jobs.tree(job_id, most=most)

    async def artifacts(self, job_id: str) -> tuple[ArtifactView, ...]:
        """Return the artifacts of a job, oldest first."""
        await self._jobs.get(job_id)  # raises if there is no such job
        return await self._port.services.artifacts.list(job_id)

    async def fetch_artifact(self, job_id: str, name: str, to: str | Path, *, attempt: str = "") -> Path:
        """Download an artifact of a job to a folder or file; return its path."""
        async with self._port.services.artifacts.opened(job_id, name, attempt) as (view, pieces):
            return await saved(view, pieces, Path(to))

    async def jobs(
        self, wanted: str | Query | None = None, *, limit: int = 100, cursor: str = ""
    ) -> tuple[list[JobView], str]:
        """Return a page of jobs, newest first, and the cursor of the next page.

        `wanted` is a filter as on the command line, such as `"state:failed queue:ci since:1h"`, or a `Query`
        of the store.
        """
        if isinstance(wanted, Query):
            return await self._jobs.find(wanted)
        found = await find(self._jobs, read_filter(wanted or ""), limit=limit, cursor=cursor)
        return found.views, found.cursor


def _port_to(
    url: str, settings: Settings, token: str | None, ca: str | None
) -> EmbeddedOrchestrator | RemoteOrchestrator:
    if not is_server(url):
        return EmbeddedOrchestrator(url, settings=settings)
    from interlock.remote.services import RemoteOrchestrator  # noqa: PLC0415 - a store needs no HTTP

    return RemoteOrchestrator(url, token=token, settings=settings, ca=ca)


def _no_result(view: JobView) -> InterlockError:
    facts: dict[str, object] = {"job_id": view.id, "state": view.state}
    if view.state == job_lifecycle.CANCELED:
        why = ": ".join(filter(None, (view.stop_reason, view.cancel_reason)))
        return JobCanceled(
            f"The job {view.id} was stopped: {why}.",
            todo=f"Retry it with `interlock job retry {view.id}`.",
            facts={**facts, "stop_reason": view.stop_reason},
        )
    failure = view.failure
    error = failure.error if failure else "no reason is known"
    return JobFailed(
        f"The job {view.id} failed: {error}",
        todo=f"See what happened with `interlock job explain {view.id}`.",
        facts={**facts, "failure_class": failure.failure_class if failure else None, "error": error},
    )
