"""Protocols that a store and a server both implement; callers work with either."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypeAlias

from interlock.remote.batches import BatchesApi
from interlock.remote.dead_letters import DeadLettersApi
from interlock.remote.limits import LimitsApi
from interlock.remote.overview import OverviewApi
from interlock.remote.schedules import SchedulesApi
from interlock.remote.waits import WaitsApi
from interlock.store.records import Count, Entry, Feed, Key, Query
from interlock.systems.orchestrator.attachments import Chunk
from interlock.systems.settings import Settings
from interlock.wire.access import Issued, Role, TokenView
from interlock.wire.artifacts import ArtifactView
from interlock.wire.jobs import (
    NODES,
    Explanation,
    JobSpec,
    JobView,
    QueueHold,
    QueueView,
    SubmittedJob,
    TreeView,
)
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
"""Jobs of a run to execute again."""


class JobsApi(Protocol):
    """Operations on jobs."""

    async def now(self) -> datetime:
        """Return the time of the store, or close to it."""
        ...

    async def submit(self, spec: JobSpec, *, actor: str = "", request_id: str | None = None) -> str:
        """Submit a job and return its id; a repeated request returns the earlier one."""
        ...

    async def submit_many(
        self, specs: Sequence[JobSpec], *, actor: str = "", request_id: str | None = None
    ) -> list[str]:
        """Submit jobs and return their ids, in order."""
        ...

    async def submit_jobs(
        self, specs: Sequence[JobSpec], *, actor: str = "", request_id: str | None = None
    ) -> list[SubmittedJob]:
        """Submit jobs, and report for each whether it was created or which job has its unique key."""
        ...

    async def cancel(
        self, job_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> JobView:
        """Request the cancellation of a job and return its present view."""
        ...

    async def retry(self, job_id: str, *, actor: str = "", request_id: str | None = None) -> str:
        """Retry an ended job as a new job that names its origin."""
        ...

    async def get(self, job_id: str) -> JobView:
        """Return a job."""
        ...

    async def get_many(self, job_ids: Sequence[str]) -> list[JobView | None]:
        """Return several jobs; None for unknown ids."""
        ...

    async def find(self, query: Query) -> tuple[list[JobView], str]:
        """Return a page of jobs, and the cursor of the next one."""
        ...

    async def count(self, query: Query, *, cap: int = 10_000) -> Count:
        """Return the number of matches, up to a cap."""
        ...

    async def tree(self, job_id: str, *, most: int = NODES) -> TreeView:
        """Return a job and its descendants, at most `most` jobs."""
        ...

    async def history(self, job_id: str) -> list[Entry]:
        """Return the journal of a job, oldest first."""
        ...

    def logs(self, job_id: str) -> AsyncIterator[Chunk]:
        """Yield the log of its attempts, in order of arrival."""
        ...

    async def explain(self, job_id: str) -> Explanation:
        """Return why a job waits, the owner of the next step and the next deadline; or how it ended."""
        ...


class ArtifactsApi(Protocol):
    """Artifacts of attempts."""

    async def list(self, job_id: str) -> tuple[ArtifactView, ...]:
        """Return the artifacts of a job, oldest first."""
        ...

    def opened(
        self, job_id: str, name: str, attempt: str = ""
    ) -> AbstractAsyncContextManager[tuple[ArtifactView, AsyncIterator[bytes]]]:
        """Open an artifact: its view, and its content piece by piece."""
        ...


class QueuesApi(Protocol):
    """Operations on queues."""

    async def paused(self) -> list[QueueHold]:
        """Return the paused queues, by name."""
        ...

    async def list(self) -> list[QueueView]:
        """Return the queues that have jobs which have not ended, or are paused."""
        ...

    async def pause(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Pause a queue: none of its jobs is granted until it is resumed; running jobs continue."""
        ...

    async def resume(
        self, name: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> QueueHold:
        """Resume a queue."""
        ...


class WorkersApi(Protocol):
    """Operations on workers."""

    async def get(self, worker_id: str) -> WorkerView:
        """Return a worker."""
        ...

    async def find(self, query: Query) -> tuple[list[WorkerView], str]:
        """Return a page of workers, newest first, and the cursor of the next one."""
        ...

    async def history(self, worker_id: str) -> list[Entry]:
        """Return the journal of a worker, oldest first."""
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
        """Pause a worker: it takes no new work, and finishes its tasks or gives them back."""
        ...

    async def resume(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Resume a worker."""
        ...

    async def terminate(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Terminate a worker."""
        ...

    async def drain(
        self, worker_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> WorkerView:
        """Drain a worker: it finishes its tasks and exits."""
        ...


class WorkloadsApi(Protocol):
    """Queries of workloads."""

    async def get(self, workload_id: str) -> WorkloadView:
        """Return a workload."""
        ...

    async def find(self, query: Query) -> tuple[list[WorkloadView], str]:
        """Return a page of workloads, newest first, and the cursor of the next one."""
        ...

    async def history(self, workload_id: str) -> list[Entry]:
        """Return the journal of a workload, oldest first."""
        ...


class QuarantineApi(Protocol):
    """Quarantine of runners that keep losing work."""

    async def list(self) -> list[StandingView]:
        """Return the runners that are watched or quarantined."""
        ...

    async def lift(self, runner: str, *, actor: str = "", reason: str = "") -> StandingView:
        """Release a runner from quarantine and forget its losses."""
        ...


class TokensApi(Protocol):
    """Operations on tokens, for admins."""

    async def create(
        self,
        name: str,
        role: Role,
        *,
        queues: Sequence[str] = ...,
        lasts: timedelta | None = ...,
        actor: str = ...,
    ) -> Issued:
        """Create a token and return it with its secret, which is shown only this once."""
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
        """Rotate a token; the old secret works for the overlap."""
        ...

    async def revoke(self, name: str, *, actor: str = ..., reason: str = ...) -> TokenView:
        """Revoke a token."""
        ...


class RunsApi(Protocol):
    """Operations on runs."""

    async def submit(self, spec: RunSpec, *, request_id: str | None = None, actor: str = "") -> RunView:
        """Submit a run; a repeated request returns the earlier one."""
        ...

    async def cancel(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Request the cancellation of a run and return its present view."""
        ...

    async def approve(
        self, run_id: str, *, comment: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Approve a run that waits for approval."""
        ...

    async def decline(
        self, run_id: str, *, reason: str = "", request_id: str | None = None, actor: str = ""
    ) -> RunView:
        """Decline a run that waits for approval, which cancels it."""
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
        """Rerun an ended run as a new run that names its origin."""
        ...

    async def preview(self, run_id: str, which: Which = "all", *, job: str = "") -> RerunPreview:
        """Return which jobs a rerun would execute."""
        ...

    async def compare(self, run_id: str, *, other: str = "") -> RunComparison:
        """Return the changes since another run, by default the last green one of its kind."""
        ...

    async def view(self, run_id: str) -> RunView:
        """Return a run with its jobs."""
        ...

    async def outline(self, run_id: str) -> RunView:
        """Return a run without its jobs."""
        ...

    async def find(
        self, wanted: RunFilter = ..., *, newest_first: bool = ..., cursor: str = ..., limit: int = ...
    ) -> tuple[list[RunView], str]:
        """Return a page of runs without their jobs, and the cursor of the next one."""
        ...

    async def jobs(self, run_id: str, *, first: int = 0, limit: int = 500) -> list[RunJobView]:
        """Return jobs of a run in the order of its plan, from an index on."""
        ...

    async def history(self, run_id: str) -> list[Entry]:
        """Return the journal of a run, oldest first."""
        ...

    async def explain(self, run_id: str) -> RunExplanation:
        """Return why a run waits, or how it ended."""
        ...

    async def reports(self, run_id: str) -> list[ReportView]:
        """Return the reports of a run, and the progress of each."""
        ...

    async def report_again(self, run_id: str) -> list[ReportView]:
        """Send again the reports that were given up."""
        ...

    async def flaky(
        self, *, repository: str = "", workflow: str = "", cursor: str = "", limit: int = 100
    ) -> FlakyJobs:
        """Return a page of jobs that recently passed and failed on one commit."""
        ...


class SimulationsApi(Protocol):
    """Operations on simulations."""

    async def create_run(
        self, spec: SimulationSpec, *, actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """Submit a simulation; a repeated request returns the earlier one."""
        ...

    async def get(self, run_id: str) -> SimulationView:
        """Return a simulation."""
        ...

    async def metrics(self, run_id: str) -> SimulationMetrics:
        """Return the metrics of a simulation over its steps."""
        ...

    async def list_runs(
        self, wanted: SimulationFilter = ..., *, cursor: str = ..., limit: int = ...
    ) -> tuple[list[SimulationView], str]:
        """Return a page of simulations, newest first, and the cursor of the next one."""
        ...

    async def pause(
        self, run_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """Request a pause after the present step."""
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
        """Resume a simulation on a worker of its queue, or of another one."""
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
        """Move a simulation that is driven by hand to another status."""
        ...

    async def heartbeat(self, run_id: str, worker_id: str, step: int) -> SimulationView:
        """Record a heartbeat of a simulation that is driven by hand."""
        ...

    async def check_stale_runs(self, timeout_s: float | None = None) -> list[str]:
        """Return the ids of running simulations without a heartbeat for `timeout_s`."""
        ...

    async def cancel(
        self, run_id: str, *, reason: str = "", actor: str = "", request_id: str | None = None
    ) -> SimulationView:
        """Cancel a simulation."""
        ...

    async def history(self, run_id: str) -> list[Entry]:
        """Return the journal of a simulation, oldest first."""
        ...


class JournalApi(Protocol):
    """Queries of the journal."""

    async def latest(self) -> str:
        """Return the present end of the journal as a cursor."""
        ...

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        """Return the journal after a cursor."""
        ...

    async def history(self, key: Key, *, after_version: int = 0, limit: int = 1_000) -> Feed:
        """Return the journal of one record, oldest first."""
        ...

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` when something may have been committed; return a function that stops this."""
        ...


class RecordsApi(Protocol):
    """Operations on records of declared kinds."""

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
        """Return a record."""
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
        """Return the journal of a record, oldest first."""
        ...

    async def explain(self, kind: str, record_id: str) -> RecordExplanation:
        """Return why a record waits, the owner of the next step and the time of its timer."""
        ...


class Services(Protocol):
    """The connected services."""

    @property
    def jobs(self) -> JobsApi:
        """The jobs."""

    @property
    def artifacts(self) -> ArtifactsApi:
        """Artifacts of attempts."""

    @property
    def workers(self) -> WorkersApi:
        """The workers."""

    @property
    def queues(self) -> QueuesApi:
        """The queues."""

    @property
    def overview(self) -> OverviewApi:
        """The overview of present problems."""

    @property
    def dead_letters(self) -> DeadLettersApi:
        """The dead letters."""

    @property
    def schedules(self) -> SchedulesApi:
        """The schedules."""

    @property
    def batches(self) -> BatchesApi:
        """The batches of jobs."""

    @property
    def limits(self) -> LimitsApi:
        """The limits."""

    @property
    def waits(self) -> WaitsApi:
        """The signals and approvals."""

    @property
    def quarantine(self) -> QuarantineApi:
        """The quarantine of runners."""

    @property
    def tokens(self) -> TokensApi:
        """The tokens."""

    @property
    def records(self) -> RecordsApi:
        """Records of declared kinds."""

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
    """A connection to a store or a server, as the command line needs it."""

    @property
    def settings(self) -> Settings:
        """The settings, as far as they are known here."""
        ...

    @property
    def here(self) -> Services:
        """The connected services."""
        ...

    async def now(self) -> datetime:
        """Return the time of the store, or close to it."""
        ...

    async def recover(self) -> int:
        """Fire due timers of all records, where no other process may do so."""
        ...

    def new_chunks(self, job_id: str) -> Callable[[], AsyncIterator[Chunk]]:
        """Return a function whose calls yield the chunks of the log that arrived since the previous call."""
        ...
