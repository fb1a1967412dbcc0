"""The client for programs without asyncio: a thin wrapper around `Interlock`.

with Interlock("sqlite:///interlock.db") as il:
    job_id = il.submit(resize, "cat.png", width=200)
    print(il.result(job_id, timeout_s=60))
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from interlock import client
from interlock.client_batches import SyncBatches
from interlock.client_compositions import SyncComposition
from interlock.client_controls import DeadLettersClient, LimitsClient, SchedulesClient, SyncApprovals
from interlock.client_options import (
    BackfillOptions,
    ChangeOptions,
    CreateScheduleOptions,
    FindSimulationsOptions,
    LimitOptions,
    ManyLettersOptions,
    RetryLetterOptions,
    TransitionOptions,
)
from interlock.client_resources import Evaluation, RecordsClient, RunsClient, SimulationsClient, Views
from interlock.client_resources import Work as Stepped
from interlock.client_transactions import Deciding, SyncTransactionClient
from interlock.errors import InterlockError, StoreUnavailable
from interlock.machine import Event
from interlock.remote.interfaces import Which
from interlock.store.records import Entry, Query
from interlock.systems.kinds import DeclaredKind
from interlock.systems.settings import DEFAULT_SETTINGS, Settings
from interlock.wire.artifacts import ArtifactView
from interlock.wire.jobs import NODES, DeadLetterView, JobSpec, JobView, SubmittedJob, TreeView
from interlock.wire.limits import LimitView
from interlock.wire.records import RecordExplanation, StoredRecord
from interlock.wire.runs import RunView, Source
from interlock.wire.schedules import Backfilled, FireView, ScheduleSpec, ScheduleView
from interlock.wire.simulations import SimulationSpec, SimulationView
from interlock.wire.waits import SignalView
from interlock.worker.codec import Work
from interlock.worker.composition import Composable
from interlock.worker.context import Context
from interlock.worker.middleware import waiting_on
from interlock.worker.signatures import ContextByName, J, Result_co, Returns
from interlock.worker.tasks import Task

P = ParamSpec("P")
T = TypeVar("T")


class JobId(str, Generic[Result_co]):
    """The id of a job, with the type of its result for type checkers. At run time it is plain `str`."""

    __slots__ = ()


class Runs:
    """`Interlock.runs` for synchronous code; see `interlock.client_runs.RunsDoor`."""

    def __init__(self, inner: RunsClient, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._inner = inner
        self._run = run

    def submit(
        self,
        work: Evaluation,
        /,
        *,
        source: Source | None = None,
        workflow: str = "",
        request_id: str | None = None,
        **inputs: Any,
    ) -> str:
        """Submit a run and return its id."""
        submission = self._inner.submit(
            work, source=source, workflow=workflow, request_id=request_id, **inputs
        )
        run_id: str = self._run(submission).id
        return run_id

    def wait(self, run_id: str, *, timeout_s: float | None = None) -> RunView:
        """Wait until the outcome of a run is decided and return the run."""
        view: RunView = self._run(self._inner.wait(run_id, timeout_s=timeout_s))
        return view

    def view(self, run_id: str) -> RunView:
        """Return the run with its jobs."""
        view: RunView = self._run(self._inner.view(run_id))
        return view

    def find(self, text: str = "", *, limit: int = 100, cursor: str = "") -> tuple[list[RunView], str]:
        """Return a page of runs that match a filter, newest first, and the cursor of the next page."""
        found: tuple[list[RunView], str] = self._run(self._inner.find(text, limit=limit, cursor=cursor))
        return found

    def cancel(self, run_id: str, *, reason: str = "", request_id: str | None = None) -> RunView:
        """Request the cancellation of a run."""
        view: RunView = self._run(self._inner.cancel(run_id, reason=reason, request_id=request_id))
        return view

    def approve(self, run_id: str, *, comment: str = "", request_id: str | None = None) -> RunView:
        """Approve a waiting run, for its commit."""
        view: RunView = self._run(self._inner.approve(run_id, comment=comment, request_id=request_id))
        return view

    def decline(self, run_id: str, *, reason: str = "", request_id: str | None = None) -> RunView:
        """Reject and cancel a run that waits for an approval."""
        view: RunView = self._run(self._inner.decline(run_id, reason=reason, request_id=request_id))
        return view

    def rerun(
        self, run_id: str, which: Which = "all", *, job: str = "", request_id: str | None = None
    ) -> str:
        """Rerun a finished run and return the id of the new one."""
        submission = self._inner.rerun(run_id, which, job=job, request_id=request_id)
        new_id: str = self._run(submission).id
        return new_id


class Simulations:
    """`Interlock.simulations` for synchronous code; see `interlock.client_simulations.SimulationsDoor`."""

    def __init__(self, inner: SimulationsClient, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._inner = inner
        self._run = run

    def start(self, work: Stepped, /, **arguments: Any) -> str:
        """Start a simulation and return its id; see `SimulationsClient.start`."""
        run_id: str = self._run(self._inner.start(work, **arguments)).run_id
        return run_id

    def get(self, run_id: str) -> SimulationView:
        """Return the simulation."""
        view: SimulationView = self._run(self._inner.get(run_id))
        return view

    def find(self, **wanted: Unpack[FindSimulationsOptions]) -> tuple[list[SimulationView], str]:
        """Return a page of simulations, newest first, and the cursor of the next page."""
        found: tuple[list[SimulationView], str] = self._run(self._inner.find(**wanted))
        return found

    def wait(self, run_id: str, *, timeout_s: float | None = None) -> SimulationView:
        """Wait until the simulation is paused, interrupted or ended, and return it."""
        view: SimulationView = self._run(self._inner.wait(run_id, timeout_s=timeout_s))
        return view

    def pause(self, run_id: str, *, reason: str = "") -> SimulationView:
        """Request a pause after the current step."""
        view: SimulationView = self._run(self._inner.pause(run_id, reason=reason))
        return view

    def resume(self, run_id: str, *, reason: str = "", queue: str = "") -> SimulationView:
        """Resume it."""
        view: SimulationView = self._run(self._inner.resume(run_id, reason=reason, queue=queue))
        return view

    def cancel(self, run_id: str, *, reason: str = "") -> SimulationView:
        """Cancel it permanently."""
        view: SimulationView = self._run(self._inner.cancel(run_id, reason=reason))
        return view

    def create_run(self, spec: SimulationSpec, *, request_id: str | None = None) -> SimulationView:
        """Create a simulation; without a task, your program executes it."""
        view: SimulationView = self._run(self._inner.create_run(spec, request_id=request_id))
        return view

    def transition(self, run_id: str, new_status: str, **how: Unpack[TransitionOptions]) -> SimulationView:
        """Report a transition of a simulation; see `SimulationsClient.transition`."""
        view: SimulationView = self._run(self._inner.transition(run_id, new_status, **how))
        return view

    def heartbeat(self, run_id: str, worker_id: str, step: int) -> SimulationView:
        """Report that its worker is alive and has completed this step."""
        view: SimulationView = self._run(self._inner.heartbeat(run_id, worker_id, step))
        return view

    def check_stale_runs(self, timeout_s: float | None = None) -> list[str]:
        """Return the ids of running simulations without a heartbeat for that long."""
        silent: list[str] = self._run(self._inner.check_stale_runs(timeout_s))
        return silent

    def history(self, run_id: str) -> list[Entry]:
        """Return its history, oldest first."""
        entries: list[Entry] = self._run(self._inner.history(run_id))
        return entries


class Records:
    """`Interlock.records` for synchronous code; see `interlock.client_records.RecordsDoor`."""

    def __init__(self, inner: RecordsClient[Any], run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._inner = inner
        self._run = run

    def create(self, data: Any, *, record_id: str = "", request_id: str | None = None) -> StoredRecord:
        """Create a record in the initial state."""
        creation = self._inner.create(data, record_id=record_id, request_id=request_id)
        record: StoredRecord = self._run(creation)
        return record

    def send(self, record_id: str, event: str | Event, /, **how: Any) -> StoredRecord:
        """Send an event, with its payload by name; see `RecordsClient.send`."""
        record: StoredRecord = self._run(self._inner.send(record_id, event, **how))
        return record

    def get(self, record_id: str) -> StoredRecord:
        """Return the record."""
        record: StoredRecord = self._run(self._inner.get(record_id))
        return record

    def history(self, record_id: str) -> list[Entry]:
        """Return the history of a record, oldest first."""
        entries: list[Entry] = self._run(self._inner.history(record_id))
        return entries

    def explain(self, record_id: str) -> RecordExplanation:
        """Return why a record waits, the owner of the next step and the time of its timer."""
        explanation: RecordExplanation = self._run(self._inner.explain(record_id))
        return explanation

    def wait(self, record_id: str, *states: str, timeout_s: float | None = None) -> StoredRecord:
        """Return the record once it is in one of these states, or has ended."""
        record: StoredRecord = self._run(self._inner.wait(record_id, *states, timeout_s=timeout_s))
        return record

    def list(self, **wanted: Any) -> tuple[Views, str]:
        """Return a page of records, newest first, and the cursor of the next one."""
        found: tuple[Views, str] = self._run(self._inner.list(**wanted))
        return found


class Schedules:
    """`Interlock.schedules` for synchronous code; see `interlock.client_controls.SchedulesClient`."""

    def __init__(self, inner: SchedulesClient, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._inner = inner
        self._run = run

    def create(
        self,
        name: str,
        work: Work | ScheduleSpec,
        when: str = "",
        /,
        **how: Unpack[CreateScheduleOptions],
    ) -> ScheduleView:
        """Create a schedule that submits this work; see `SchedulesClient.create`."""
        view: ScheduleView = self._run(self._inner.create(name, work, when, **how))
        return view

    def get(self, name: str) -> ScheduleView:
        """Return a schedule with its last jobs."""
        view: ScheduleView = self._run(self._inner.get(name))
        return view

    def list(self, *states: str, limit: int = 100, cursor: str = "") -> tuple[Sequence[ScheduleView], str]:
        """Return a page of schedules, newest first, and the cursor of the next one."""
        found: tuple[Sequence[ScheduleView], str]
        found = self._run(self._inner.list(*states, limit=limit, cursor=cursor))
        return found

    def pause(self, name: str, **how: Unpack[ChangeOptions]) -> ScheduleView:
        """Pause a schedule: it submits nothing until it is resumed."""
        view: ScheduleView = self._run(self._inner.pause(name, **how))
        return view

    def resume(self, name: str, **how: Unpack[ChangeOptions]) -> ScheduleView:
        """Resume a schedule, from the next fire on."""
        view: ScheduleView = self._run(self._inner.resume(name, **how))
        return view

    def run(self, name: str, **how: Unpack[ChangeOptions]) -> FireView:
        """Submit a job of the schedule now."""
        view: FireView = self._run(self._inner.run(name, **how))
        return view

    def backfill(
        self, name: str, since: str | datetime, until: str | datetime, **how: Unpack[BackfillOptions]
    ) -> Backfilled:
        """Submit the jobs of past fire times that have none."""
        done: Backfilled = self._run(self._inner.backfill(name, since, until, **how))
        return done

    def next(self, name: str, count: int = 10) -> tuple[datetime, ...]:
        """Return the next fire times."""
        times: tuple[datetime, ...] = self._run(self._inner.next(name, count))
        return times

    def history(self, name: str) -> Sequence[Entry]:
        """Return the journal of a schedule, oldest first."""
        entries: Sequence[Entry] = self._run(self._inner.history(name))
        return entries

    def delete(self, name: str, **how: Unpack[ChangeOptions]) -> ScheduleView:
        """End a schedule; jobs that it has submitted continue."""
        view: ScheduleView = self._run(self._inner.delete(name, **how))
        return view


class DeadLetters:
    """`Interlock.dead_letters` for synchronous code; see `interlock.client_controls`."""

    def __init__(self, inner: DeadLettersClient, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._inner = inner
        self._run = run

    def list(
        self, wanted: str = "", *, limit: int = 100, cursor: str = ""
    ) -> tuple[Sequence[DeadLetterView], str]:
        """Return a page of failed jobs that nothing was done about, and the cursor of the next page."""
        found: tuple[Sequence[DeadLetterView], str] = self._run(
            self._inner.list(wanted, limit=limit, cursor=cursor)
        )
        return found

    def get(self, job_id: str) -> DeadLetterView:
        """Return a dead letter, and what was done about it."""
        view: DeadLetterView = self._run(self._inner.get(job_id))
        return view

    def retry(self, job_id: str, **how: Unpack[RetryLetterOptions]) -> str:
        """Do a dead letter again, as a new job, and return its id; `input` replaces its arguments."""
        new_id: str = self._run(self._inner.retry(job_id, **how))
        return new_id

    def discard(self, job_id: str, **how: Unpack[ChangeOptions]) -> DeadLetterView:
        """Leave a dead letter as it is, for good."""
        view: DeadLetterView = self._run(self._inner.discard(job_id, **how))
        return view

    def retry_all(self, wanted: str, **how: Unpack[ManyLettersOptions]) -> dict[str, str | InterlockError]:
        """Retry every dead letter that a filter means; return the new id of each, or why there is none."""
        done: dict[str, str | InterlockError] = self._run(self._inner.retry_all(wanted, **how))
        return done

    def discard_all(self, wanted: str, **how: Unpack[ManyLettersOptions]) -> dict[str, str | InterlockError]:
        """Discard every dead letter that a filter means; return the state of each, or why it was not."""
        done: dict[str, str | InterlockError] = self._run(self._inner.discard_all(wanted, **how))
        return done


class SyncLimits:
    """`Interlock.limits` for synchronous code; see `interlock.client_controls.LimitsClient`."""

    def __init__(self, inner: LimitsClient, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._inner = inner
        self._run = run

    def set(self, name: str, **how: Unpack[LimitOptions]) -> LimitView:
        """Declare a limit, or change it; see `LimitsClient.set`."""
        view: LimitView = self._run(self._inner.set(name, **how))
        return view

    def delete(self, name: str, **how: Unpack[ChangeOptions]) -> LimitView:
        """Delete a limit; jobs that wait for it are admitted. Return it as it was."""
        view: LimitView = self._run(self._inner.delete(name, **how))
        return view

    def get(self, name: str) -> LimitView:
        """Return a limit with the jobs that hold its slots, and how many wait."""
        view: LimitView = self._run(self._inner.get(name))
        return view

    def list(self) -> Sequence[LimitView]:
        """Return all limits, by name, with the keys that are in use."""
        found: Sequence[LimitView] = self._run(self._inner.list())
        return found


class Interlock:
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
        self._inner = client.Interlock(
            url, settings=settings, actor=actor, token=token, ca=ca, middleware=middleware
        )
        self.runs: Runs = Runs(self._inner.runs, self._run)
        self.simulations: Simulations = Simulations(self._inner.simulations, self._run)
        self.schedules: Schedules = Schedules(self._inner.schedules, self._run)
        self.dead_letters: DeadLetters = DeadLetters(self._inner.dead_letters, self._run)
        self.limits: SyncLimits = SyncLimits(self._inner.limits, self._run)
        self.approvals: SyncApprovals = SyncApprovals(self._inner.approvals, self._run)
        self.batches: SyncBatches = SyncBatches(self._inner.batches, self._run)
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
            self._run(self._inner.open())
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """Close all connections. Safe to call twice."""
        if self._loop is not None:
            self._run(self._inner.close())
            self._stop()

    def records(self, kind: DeclaredKind[Any] | str) -> Records:
        """Return the records of a kind that you have declared; see `interlock.client.Interlock.records`."""
        return Records(self._inner.records(kind), self._run)

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

    @overload
    def submit(
        self, work: ContextByName | JobSpec | str, /, *args: Any, request_id: str | None = None, **kwargs: Any
    ) -> JobId: ...

    def submit(  # type: ignore[misc] # a task with a context by name is Work
        self, work: Work, /, *args: Any, request_id: str | None = None, **kwargs: Any
    ) -> str:
        """Submit a job and return its id; see `interlock.client.Interlock.submit`."""
        submitted: Any = self._inner.submit  # the overloads are the same
        job_id: str = self._run(submitted(work, *args, request_id=request_id, **kwargs)).id
        return job_id

    def submit_many(self, specs: Sequence[JobSpec], *, request_id: str | None = None) -> list[str]:
        """Submit many jobs and return their ids."""
        return [made.id for made in self._run(self._inner.submit_many(specs, request_id=request_id))]

    def compose(self, work: Composable[T], *, request_id: str | None = None) -> SyncComposition[T]:
        """Submit a chain, group or chord as a whole; see `interlock.client.Interlock.compose`."""
        return SyncComposition(self._run(self._inner.compose(work, request_id=request_id)), self._run)

    def within(self, transaction: Any) -> SyncTransactionClient:
        """Return a client that submits and completes jobs in a transaction of yours, on your connection.

        `transaction` is a connection of psycopg 3 or sqlite3 to the database of this store, a session or
        connection of SQLAlchemy 2, or Django's `connection` within `atomic`.
        """
        inner = self._inner
        deciding = Deciding(lambda: inner.here, inner.middleware, inner.actor)
        return SyncTransactionClient(deciding, transaction)

    def submit_jobs(self, specs: Sequence[JobSpec], *, request_id: str | None = None) -> list[SubmittedJob]:
        """Submit many jobs; return for each its id, and whether it was created (see `Unique`)."""
        made = self._run(self._inner.submit_many(specs, request_id=request_id))
        return [SubmittedJob(one.id, one.how) for one in made]

    def wait(self, job_id: str, *, timeout_s: float | None = None) -> JobView:
        """Wait until a job has ended and return it."""
        return self._run(self._inner.wait(job_id, timeout_s=timeout_s))

    @overload
    def result(self, job_id: JobId[J], *, timeout_s: float | None = None) -> J: ...

    @overload
    def result(self, job_id: str, *, timeout_s: float | None = None, as_type: type[T]) -> T: ...

    @overload
    def result(self, job_id: str, *, timeout_s: float | None = None, as_type: Any = Any) -> Any: ...

    def result(self, job_id: str, *, timeout_s: float | None = None, as_type: Any = Any) -> Any:
        """Wait for the result of the handler and return it."""
        return self._run(self._inner.result(job_id, timeout_s=timeout_s, as_type=as_type))

    def cancel(self, job_id: str, *, reason: str = "", request_id: str | None = None) -> JobView:
        """Request the cancellation of a job."""
        return self._run(self._inner.cancel(job_id, reason=reason, request_id=request_id))

    def signal(
        self, job_id: str, name: str, data: object = None, *, request_id: str | None = None
    ) -> SignalView:
        """Send a signal to a job; it is kept until the handler waits for it."""
        return self._run(self._inner.signal(job_id, name, data, request_id=request_id))

    def retry(self, job_id: str, *, request_id: str | None = None) -> str:
        """Resubmit a finished job and return the id of the new one."""
        return self._run(self._inner.retry(job_id, request_id=request_id)).id

    def job(self, job_id: str) -> JobView:
        """Return a job."""
        return self._run(self._inner.job(job_id))

    def tree(self, job_id: str, *, most: int = NODES) -> TreeView:
        """Return a job and its descendants."""
        return self._run(self._inner.tree(job_id, most=most))

    def artifacts(self, job_id: str) -> tuple[ArtifactView, ...]:
        """Return the artifacts of a job, oldest first."""
        return self._run(self._inner.artifacts(job_id))

    def fetch_artifact(self, job_id: str, name: str, to: str | Path, *, attempt: str = "") -> Path:
        """Download an artifact of a job into a folder; return its path."""
        return self._run(self._inner.fetch_artifact(job_id, name, to, attempt=attempt))

    def jobs(
        self, wanted: str | Query | None = None, *, limit: int = 100, cursor: str = ""
    ) -> tuple[list[JobView], str]:
        """Return a page of jobs, newest first, and the cursor of the next page; see `Interlock.jobs`."""
        return self._run(self._inner.jobs(wanted, limit=limit, cursor=cursor))

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
