"""What a store and a server both offer to programs. Whoever relies on these works with either."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeAlias

from interlock.remote.schedules import SchedulesApi
from interlock.store.records import Count, Entry, Feed, Key, Query
from interlock.systems.orchestrator.attachments import Chunk
from interlock.systems.settings import Settings
from interlock.wire.access import Issued, Role, TokenView
from interlock.wire.artifacts import ArtifactView
from interlock.wire.jobs import NODES, Explanation, JobSpec, JobView, QueueHold, QueueView, TreeView
from interlock.wire.records import KindView, RecordExplanation, StoredRecord
from interlock.wire.runs import (
    FlakyJobs,
    ReportView,
    RerunPreview,
    RunComparison,
    RunExplanation,
    RunFilter,
    RunJobView,
    RunSpec,
    RunView,
)
from interlock.wire.simulations import SimulationFilter, SimulationMetrics, SimulationSpec, SimulationView
from interlock.wire.workers import StandingView, WorkerView
from interlock.wire.workloads import WorkloadView

Which: TypeAlias = Literal["all", "failed", "from"]
"""What of a run is done again."""


class JobsApi(Protocol):
    """Everything that is done with jobs."""

    async def now(self) -> datetime:
        """The store's time, or close to it."""
        ...

    async def submit(self, spec: JobSpec, *, actor: str = "", request_id: str | None = None) -> str:
        """The id of a new job, or of the one that an earlier request with this id has made."""
        ...

    async def submit_many(
        self, specs: Sequence[JobSpec], *, actor: str = "", request_id: str | None = None
    ) -> list[str]:
        """The ids of new jobs, in their order."""
        ...

    async def cancel(
        self, job_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> JobView:
        """Ask a job to stop; the view says how far that is."""
        ...

    async def retry(self, job_id: str, *, actor: str = "", request_id: str | None = None) -> str:
        """Do a job that has ended again, as a new one that names its origin."""
        ...

    async def get(self, job_id: str) -> JobView:
        """The job as it stands."""
        ...

    async def get_many(self, job_ids: Sequence[str]) -> list[JobView | None]:
        """Several at once; None where there is none."""
        ...

    async def find(self, query: Query) -> tuple[list[JobView], str]:
        """A page of jobs, and the cursor of the next one."""
        ...

    async def count(self, query: Query, *, cap: int = 10_000) -> Count:
        """How many match, up to a cap."""
        ...

    async def tree(self, job_id: str, *, most: int = NODES) -> TreeView:
        """A job and everything below it, as far as `most` jobs show it."""
        ...

    async def history(self, job_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        ...

    def logs(self, job_id: str) -> AsyncIterator[Chunk]:
        """What its attempts have written, in the order in which it arrived."""
        ...

    async def explain(self, job_id: str) -> Explanation:
        """What it waits for, whose turn it is and when the next deadline is; or how it ended."""
        ...


class ArtifactsApi(Protocol):
    """Files that attempts have left behind."""

    async def list(self, job_id: str) -> tuple[ArtifactView, ...]:
        """Everything that the attempts of a job have left behind, oldest first."""
        ...

    def opened(
        self, job_id: str, name: str, attempt: str = ""
    ) -> AbstractAsyncContextManager[tuple[ArtifactView, AsyncIterator[bytes]]]:
        """One of them, and what it says, piece by piece."""
        ...


class QueuesApi(Protocol):
    """Everything that people do with queues."""

    async def paused(self) -> list[QueueHold]:
        """Return the paused queues, by name."""
        ...

    async def list(self) -> list[QueueView]:
        """Return the queues that have jobs which have not ended, or are paused."""
        ...

    async def pause(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Give out no job of a queue until it is resumed; jobs that run go on."""
        ...

    async def resume(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Give out the jobs of a queue again."""
        ...


class WorkersApi(Protocol):
    """Everything that people do with workers."""

    async def get(self, worker_id: str) -> WorkerView:
        """The worker as it stands."""
        ...

    async def find(self, query: Query) -> tuple[list[WorkerView], str]:
        """A page of workers, newest first, and the cursor of the next one."""
        ...

    async def history(self, worker_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        ...

    async def pause(
        self,
        worker_id: str,
        *,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
        give_back: bool = False,
    ) -> WorkerView:
        """Take nothing new; finish what it has, or give that back."""
        ...

    async def resume(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Take work again."""
        ...

    async def terminate(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Stop it for certain."""
        ...

    async def drain(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Finish what it has, and go."""
        ...


class WorkloadsApi(Protocol):
    """Everything that people look at of workloads."""

    async def get(self, workload_id: str) -> WorkloadView:
        """The workload as it stands."""
        ...

    async def find(self, query: Query) -> tuple[list[WorkloadView], str]:
        """A page of workloads, newest first, and the cursor of the next one."""
        ...

    async def history(self, workload_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        ...


class QuarantineApi(Protocol):
    """Runners that keep losing work."""

    async def list(self) -> list[StandingView]:
        """Every runner that is watched or quarantined."""
        ...

    async def lift(self, runner: str, *, actor: str = "", reason: str = "") -> StandingView:
        """Give it work again, with a clean sheet."""
        ...


class TokensApi(Protocol):
    """Tokens, for admins."""

    async def create(
        self,
        name: str,
        role: Role,
        *,
        queues: Sequence[str] = ...,
        lasts: timedelta | None = ...,
        actor: str = ...,
    ) -> Issued:
        """Make a token and return it with its secret, this once."""
        ...

    async def list(self, *, ended: bool = False) -> list[TokenView]:
        """Return the working tokens, the oldest first; with `ended` all."""
        ...

    async def get(self, name: str) -> TokenView:
        """Return a token by its name or its id."""
        ...

    async def rotate(
        self, name: str, *, overlap: timedelta = ..., actor: str = ..., reason: str = ...
    ) -> Issued:
        """Give a token a new secret; the old one works for the overlap."""
        ...

    async def revoke(self, name: str, *, actor: str = ..., reason: str = ...) -> TokenView:
        """Take a token back."""
        ...


class RunsApi(Protocol):
    """Everything that is done with runs."""

    async def submit(self, spec: RunSpec, *, request_id: str | None = None, actor: str = "") -> RunView:
        """A new run, or the one that an earlier request with this id has made."""
        ...

    async def cancel(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Ask a run to stop; the view says how far that is."""
        ...

    async def approve(
        self, run_id: str, *, comment: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Let a run go on that waits for an approval."""
        ...

    async def decline(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Cancel a run that waits for an approval."""
        ...

    async def rerun(
        self,
        run_id: str,
        which: Which = "all",
        *,
        job: str = "",
        request_id: str | None = None,
        actor: str = "",
    ) -> RunView:
        """Do a run that has ended again, as a new one that names its origin."""
        ...

    async def preview(self, run_id: str, which: Which = "all", *, job: str = "") -> RerunPreview:
        """Return which jobs a rerun would execute."""
        ...

    async def compare(self, run_id: str, *, other: str = "") -> RunComparison:
        """Return what has changed since another run, by default the last green one of its kind."""
        ...

    async def view(self, run_id: str) -> RunView:
        """The run as it stands, with its jobs."""
        ...

    async def outline(self, run_id: str) -> RunView:
        """The run as it stands, without its jobs."""
        ...

    async def find(
        self, wanted: RunFilter = ..., *, newest_first: bool = ..., cursor: str = ..., limit: int = ...
    ) -> tuple[list[RunView], str]:
        """A page of runs without their jobs, and the cursor of the next one."""
        ...

    async def jobs(self, run_id: str, *, first: int = 0, limit: int = 500) -> list[RunJobView]:
        """Jobs of a run in the order of its plan, from some place on."""
        ...

    async def history(self, run_id: str) -> list[Entry]:
        """Everything that has happened to the run, oldest first."""
        ...

    async def explain(self, run_id: str) -> RunExplanation:
        """What it waits for, or how it ended."""
        ...

    async def reports(self, run_id: str) -> list[ReportView]:
        """Who is told about a run, and how far that is."""
        ...

    async def report_again(self, run_id: str) -> list[ReportView]:
        """Tell those once more who were given up on."""
        ...

    async def flaky(
        self, *, repository: str = "", workflow: str = "", cursor: str = "", limit: int = 100
    ) -> FlakyJobs:
        """Jobs that have passed and failed on one commit lately."""
        ...


class SimulationsApi(Protocol):
    """Everything that people do with simulations."""

    async def create_run(
        self, spec: SimulationSpec, *, actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """A new simulation, or the one that an earlier request with this id has made."""
        ...

    async def get(self, run_id: str) -> SimulationView:
        """The simulation as it stands."""
        ...

    async def metrics(self, run_id: str) -> SimulationMetrics:
        """Return its metrics over the steps."""
        ...

    async def list_runs(
        self, wanted: SimulationFilter = ..., *, cursor: str = ..., limit: int = ...
    ) -> tuple[list[SimulationView], str]:
        """A page of simulations, newest first, and the cursor of the next one."""
        ...

    async def pause(
        self, run_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """Ask it to stop after the present step."""
        ...

    async def resume(
        self,
        run_id: str,
        *,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
        queue: str = "",
    ) -> SimulationView:
        """Give it to a worker of its queue, or of another one."""
        ...

    async def transition(
        self,
        run_id: str,
        new_status: str,
        *,
        expected_version: int | None = None,
        worker_id: str | None = None,
        step: int | None = None,
        error: str = "",
        actor: str = "",
        reason: str = "",
        request_id: str | None = None,
    ) -> SimulationView:
        """Move it by hand, by the table."""
        ...

    async def heartbeat(self, run_id: str, worker_id: str, step: int) -> SimulationView:
        """Note a sign of life of one that is driven by hand."""
        ...

    async def check_stale_runs(self, timeout_s: float | None = None) -> list[str]:
        """Return the ids of those that run and were not heard of for so long."""
        ...

    async def cancel(
        self, run_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """Stop it for good."""
        ...

    async def history(self, run_id: str) -> list[Entry]:
        """Everything that has happened to it, oldest first."""
        ...


class JournalApi(Protocol):
    """The journal, for whoever follows it."""

    async def latest(self) -> str:
        """A cursor after which only what is committed from now on is found."""
        ...

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """The journal after a cursor."""
        ...

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """The journal of one record, oldest first."""
        ...

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be woken when something may have been committed; returns how to stop that."""
        ...


class RecordsApi(Protocol):
    """Everything that is done with records of users' kinds."""

    async def kinds(self) -> list[KindView]:
        """Return the kinds, by name."""
        ...

    async def create(
        self, kind: str, data: object, *, record_id: str = "", actor: str = "", request_id: str | None = None
    ) -> StoredRecord:
        """Create a record in the initial state."""
        ...

    async def send(
        self,
        kind: str,
        record_id: str,
        event: str,
        data: object = None,
        *,
        expected: int | None = None,
        reason: str = "",
        actor: str = "",
        request_id: str | None = None,
    ) -> StoredRecord:
        """Send an event to a record."""
        ...

    async def get(self, kind: str, record_id: str) -> StoredRecord:
        """Return the record as it stands."""
        ...

    async def find(
        self,
        kind: str,
        *,
        states: Sequence[str] = (),
        where: Mapping[str, object] | None = None,
        queue: str = "",
        parent: str = "",
        limit: int = 100,
        cursor: str = "",
    ) -> tuple[list[StoredRecord], str]:
        """Return a page of records, newest first, and the cursor of the next one."""
        ...

    async def history(self, kind: str, record_id: str) -> list[Entry]:
        """Return everything that has happened to a record, oldest first."""
        ...

    async def explain(self, kind: str, record_id: str) -> RecordExplanation:
        """Return what a record waits for, whose turn it is and when its timer fires."""
        ...


class Services(Protocol):
    """What is connected."""

    @property
    def jobs(self) -> JobsApi:
        """The jobs."""
        ...

    @property
    def artifacts(self) -> ArtifactsApi:
        """What attempts have left behind."""
        ...

    @property
    def workers(self) -> WorkersApi:
        """The workers."""
        ...

    @property
    def queues(self) -> QueuesApi:
        """The queues."""
        ...

    @property
    def schedules(self) -> SchedulesApi:
        """The schedules."""
        ...

    @property
    def quarantine(self) -> QuarantineApi:
        """Runners that keep losing work."""
        ...

    @property
    def tokens(self) -> TokensApi:
        """The tokens."""
        ...

    @property
    def records(self) -> RecordsApi:
        """Records of users' kinds."""
        ...

    @property
    def workloads(self) -> WorkloadsApi:
        """The workloads of fleets."""
        ...

    @property
    def runs(self) -> RunsApi:
        """The runs."""
        ...

    @property
    def simulations(self) -> SimulationsApi:
        """The simulations."""
        ...

    @property
    def store(self) -> JournalApi:
        """The journal."""
        ...


class Reach(Protocol):
    """A way to a place, as the command line needs it."""

    @property
    def settings(self) -> Settings:
        """What it is run with, as far as it is known here."""
        ...

    @property
    def here(self) -> Services:
        """What is connected now."""
        ...

    async def now(self) -> datetime:
        """The store's time, or close to it."""
        ...

    async def recover(self) -> int:
        """Look after deadlines of anybody, where nobody else may do it."""
        ...

    def new_chunks(self, job_id: str) -> Callable[[], AsyncIterator[Chunk]]:
        """What attempts write: each call gives what has come since the one before."""
        ...
