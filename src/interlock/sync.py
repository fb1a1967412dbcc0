"""The client for programs without asyncio: the same as `interlock.client`, without `await`.

Most of its methods are generated (`sync_resources`); those that are typed by overloads are written here.

with Interlock("sqlite:///interlock.db") as il:
    job_id = il.submit(resize, "cat.png", width=200)
    print(il.result(job_id, timeout_s=60))
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from interlock import client
from interlock.client import SyncComposition
from interlock.client_transactions import SyncTransactionClient, TransactionSteps
from interlock.errors import StoreUnavailable
from interlock.sync_resources import (
    DeadLetters,
    Records,
    Runs,
    Schedules,
    Simulations,
    SyncApprovals,
    SyncBatches,
    SyncJobs,
    SyncLimits,
)
from interlock.systems.kinds import DeclaredKind
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.jobs import JobSpec, SubmittedJob
from interlock.worker.codec import Work
from interlock.worker.composition import Composable
from interlock.worker.context import Context
from interlock.worker.middleware import waiting_on
from interlock.worker.signatures import ContextByName, J, Result_co, Returns, TaskWithTheseArguments
from interlock.worker.tasks import Task

P = ParamSpec("P")
T = TypeVar("T")


class JobId(str, Generic[Result_co]):
    """The id of a job, with the type of its result for type checkers. At run time it is plain `str`."""

    __slots__ = ()


class Interlock(SyncJobs):
    """Jobs in a store or behind a server, for synchronous code, named by their ids. Safe among threads."""

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
        super().__init__(lambda: self._client, self._run)
        self._client = client.Interlock(
            url, settings=settings, actor=actor, token=token, ca=ca, middleware=middleware
        )
        self.runs: Runs = Runs(lambda: self._client.runs, self._run)
        self.simulations: Simulations = Simulations(lambda: self._client.simulations, self._run)
        self.schedules: Schedules = Schedules(lambda: self._client.schedules, self._run)
        self.dead_letters: DeadLetters = DeadLetters(lambda: self._client.dead_letters, self._run)
        self.limits: SyncLimits = SyncLimits(lambda: self._client.limits, self._run)
        self.approvals: SyncApprovals = SyncApprovals(lambda: self._client.approvals, self._run)
        self.batches: SyncBatches = SyncBatches(lambda: self._client.batches, self._run)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect; create the database if it does not exist."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="interlock", daemon=True)
            self._thread.start()
        try:
            self._run(self._client.open())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Close all connections. Safe to call twice."""
        if self._loop is not None:
            self._run(self._client.close())
            self._stop()

    def records(self, kind: DeclaredKind[Any] | str) -> Records:
        """Return the records of a kind: see `interlock.client.Interlock.records`."""
        records = self._client.records(kind)
        return Records(lambda: records, self._run)

    @overload
    def submit(
        self, work: Task[Concatenate[Context, P], Returns[J]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobId[J]: ...

    @overload
    def submit(
        self, work: Task[Concatenate[Context, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobId: ...

    @overload
    def submit(self, work: Task[P, Returns[J]], /, *args: P.args, **kwargs: P.kwargs) -> JobId[J]: ...

    @overload
    def submit(self, work: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> JobId: ...

    @overload  # no type can have a parameter beside those of the handler: its arguments are not checked here
    def submit(
        self, work: Task[..., Returns[J]], /, *args: Any, request_id: str | None, **kwargs: Any
    ) -> JobId[J]: ...

    @overload
    def submit(self, work: Task[..., Any], /, *args: Any, request_id: str | None, **kwargs: Any) -> JobId: ...

    @overload  # matches no call: mypy names its parameter where the arguments fit no overload above
    def submit(self, work: TaskWithTheseArguments, /, *args: Any, **kwargs: Any) -> JobId: ...

    @overload
    def submit(
        self, work: ContextByName | JobSpec | str, /, *args: Any, request_id: str | None = None, **kwargs: Any
    ) -> JobId: ...

    def submit(  # type: ignore[misc] # a task with a context by name is Work
        self, work: Work, /, *args: Any, request_id: str | None = None, **kwargs: Any
    ) -> str:
        """Submit a job and return its id; see `interlock.client.Interlock.submit`."""
        submitted: Any = self._client.submit  # the overloads are the same
        job_id: str = self._run(submitted(work, *args, request_id=request_id, **kwargs)).id
        return job_id

    def submit_many(self, specs: Sequence[JobSpec], *, request_id: str | None = None) -> list[str]:
        """Submit many jobs and return their ids."""
        return [made.id for made in self._run(self._client.submit_many(specs, request_id=request_id))]

    def compose(self, work: Composable[T], *, request_id: str | None = None) -> SyncComposition[T]:
        """Submit a composition: see `interlock.client.Interlock.compose`."""
        return SyncComposition(self._run(self._client.compose(work, request_id=request_id)), self._run)

    def within(self, transaction: Any) -> SyncTransactionClient:
        """Return a client that submits and completes in your transaction.

        Jobs are submitted and completed on your connection. `transaction` is a connection of psycopg 3 or
        sqlite3 to the database of this store, a session or connection of SQLAlchemy 2, or Django's
        `connection` within `atomic`.
        """
        inner = self._client
        deciding = TransactionSteps(lambda: inner.services, inner.middleware, inner.actor)
        return SyncTransactionClient(deciding, transaction)

    def submit_jobs(self, specs: Sequence[JobSpec], *, request_id: str | None = None) -> list[SubmittedJob]:
        """Submit jobs; return ids, and whether each was created (see `Unique`)."""
        made = self._run(self._client.submit_many(specs, request_id=request_id))
        return [SubmittedJob(one.id, one.how) for one in made]

    @overload
    def result(self, job_id: JobId[J], *, timeout_s: float | None = None) -> J: ...

    @overload
    def result(self, job_id: str, *, timeout_s: float | None = None, as_type: type[T]) -> T: ...

    @overload
    def result(self, job_id: str, *, timeout_s: float | None = None, as_type: Any = Any) -> Any: ...

    def result(self, job_id: str, *, timeout_s: float | None = None, as_type: Any = Any) -> Any:
        """Wait for the result of the handler and return it."""
        return self._run(self._client.result(job_id, timeout_s=timeout_s, as_type=as_type))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise StoreUnavailable(
                "This Interlock is not open.", todo="Use it in a `with` block, or open it."
            )
        # In the context of the caller: a submission middleware reads its context variables.
        made: T = waiting_on(self._loop)(coroutine, contextvars.copy_context())
        return made

    def _stop(self) -> None:
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
