"""Bodies, queries and answers of the API that have no struct in `interlock.wire`.

Those of simulations and workloads stand with their routes.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from interlock.machine import Tone
from interlock.store.records import Entry, StepLine
from interlock.wire.artifacts import ArtifactView
from interlock.wire.jobs import AttemptView, JobSpec, JobView, QueueView
from interlock.wire.runs import RunJobView, RunSpec, RunView

MAX_BULK = 1_000
MAX_PAGE = 1_000

RequestId = Annotated[
    str, Meta(min_length=1, max_length=64, description="The request is done once under it.")
]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE, description="How many at most.")]
Cursor = Annotated[str, Meta(max_length=200, description="What the page before has answered.")]
FilterText = Annotated[
    str, Meta(max_length=2_000, description="Which jobs: `state:failed queue:ci since:1h`.")
]
Reason = Annotated[str, Meta(max_length=1_000, description="Why, in words.")]


class _In(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what comes in: a name that means nothing is a mistake, not a default."""


class _Out(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of what goes out."""


# In


class OneJob(JobSpec, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One job to be done, perhaps under a request id."""

    request_id: RequestId | None = None

    def spec(self) -> JobSpec:
        """The job without the id of the request, which is not part of it."""
        return JobSpec(**{name: getattr(self, name) for name in JobSpec.__struct_fields__})


class ManyJobs(_In, frozen=True, kw_only=True):
    """Several jobs, submitted together."""

    jobs: Annotated[tuple[JobSpec, ...], Meta(min_length=1, max_length=MAX_BULK)]
    request_id: RequestId | None = None


class CancelRequest(_In, frozen=True, kw_only=True):
    """Stop a job."""

    reason: Reason = ""
    request_id: RequestId | None = None


class RetryRequest(_In, frozen=True, kw_only=True):
    """Do an ended job again."""

    request_id: RequestId | None = None


class ActionRequest(_In, frozen=True, kw_only=True):
    """Do something with every job that a filter means."""

    filter: FilterText
    action: Literal["cancel", "retry"]
    dry_run: Annotated[bool, Meta(description="Only say which jobs it would be.")] = False
    limit: Limit = 100
    reason: Reason = ""
    request_id: RequestId | None = None


class JobsQuery(_In, frozen=True, kw_only=True):
    """Which page of which jobs."""

    q: FilterText = ""
    limit: Limit = 50
    cursor: Cursor = ""


class HistoryQuery(_In, frozen=True, kw_only=True):
    """From which version on."""

    after: Annotated[int, Meta(ge=0, le=2**53)] = 0
    limit: Limit = 200


class PageQuery(_In, frozen=True, kw_only=True):
    """Which page."""

    limit: Limit = 200
    cursor: Cursor = ""


class AttemptsQuery(_In, frozen=True, kw_only=True):
    """Of which job."""

    job: Annotated[str, Meta(min_length=1, max_length=64)]


class JournalQuery(_In, frozen=True, kw_only=True):
    """Which stretch of the journal, and of whom."""

    after: Cursor = ""
    limit: Limit = 200
    kind: Annotated[str, Meta(max_length=64, description="Only of this kind of record.")] = ""
    id: Annotated[str, Meta(max_length=64, description="Only of this record; needs its kind.")] = ""
    state: Annotated[str, Meta(max_length=64, description="Only what led to this state.")] = ""
    actor: Annotated[str, Meta(max_length=200, description="Only what this actor has done.")] = ""
    trigger: Annotated[str, Meta(max_length=64, description="Only what this event has caused.")] = ""
    newest: Annotated[
        bool, Meta(description="The newest that the server remembers, newest first; without a cursor.")
    ] = False


class PictureQuery(_In, frozen=True, kw_only=True):
    """What to light in a picture."""

    state: Annotated[str, Meta(max_length=64)] = ""
    path: Annotated[str, Meta(max_length=1_000, description="The states passed so far: A,B,C")] = ""


# Out


class Submitted(_Out, frozen=True, kw_only=True):
    """The ids of new jobs, in their order; `id` when it is one."""

    ids: tuple[str, ...]
    id: str | None = None


class CountView(_Out, frozen=True, kw_only=True):
    """How many match; when `capped`, at least that many."""

    number: int
    capped: bool = False


class JobPage(_Out, frozen=True, kw_only=True):
    """Jobs, newest first. `cursor` is for the next page, and is empty at the end.

    A page can have fewer jobs than asked for, or none, and still a cursor: then so many jobs were looked at
    that the server stopped. Go on with the cursor.
    """

    jobs: tuple[JobView, ...]
    cursor: str
    count: CountView | None = None
    """On the first page only."""


class AttemptList(_Out, frozen=True, kw_only=True):
    """The attempts of one job, in their order."""

    job_id: str
    attempts: tuple[AttemptView, ...]


class QueueList(_Out, frozen=True, kw_only=True):
    """Queues, by name."""

    queues: tuple[QueueView, ...]


class StepView(_Out, frozen=True, kw_only=True, rename={"source": "from", "target": "to"}):
    """One step of one machine."""

    machine: str
    event: str
    source: str
    target: str
    owner: str
    entity: str = ""
    """Which one of those inside the record; missing for the record itself."""
    moves: bool = True


class EntryView(_Out, frozen=True, kw_only=True):
    """What the journal says about one change, or about one refusal."""

    cursor: str
    at: datetime
    kind: str
    id: str
    version: int
    steps: tuple[StepView, ...] = ()
    actor: str = ""
    reason: str = ""
    cause: str = ""
    request_id: str = ""
    refusal: str = ""


class HistoryPage(_Out, frozen=True, kw_only=True):
    """The journal of one record, oldest first. `after` is for the next page, and is missing at the end."""

    entries: tuple[EntryView, ...]
    after: int | None = None


class JournalPage(_Out, frozen=True, kw_only=True):
    """A stretch of the journal. `cursor` goes on after it; `gap` when what came before was pruned."""

    entries: tuple[EntryView, ...]
    cursor: str
    gap: bool = False


class LogLineView(_Out, frozen=True, kw_only=True):
    """One line that an attempt has written. The time is its runner's; the level `gap` is ours."""

    at: datetime
    level: str
    text: str
    shard: int
    attempt: int
    offset: int = 0
    """Where in the log of the attempt it is, in bytes."""


class LogPage(_Out, frozen=True, kw_only=True):
    """Lines in the order in which they arrived. `cursor` is for the next page, and is empty at the end."""

    lines: tuple[LogLineView, ...]
    cursor: str


class Done(_Out, frozen=True, kw_only=True):
    """A job with which it was done, or would be."""

    id: str
    state: str
    new_id: str | None = None
    """The job that does it again."""


class Undone(_Out, frozen=True, kw_only=True):
    """A job with which it could not be done, and why."""

    id: str
    code: str
    error: str


class ActionAnswer(_Out, frozen=True, kw_only=True):
    """What has become of an action. `more`: others match that were not looked at."""

    action: str
    dry_run: bool
    done: tuple[Done, ...] = ()
    refused: tuple[Undone, ...] = ()
    more: bool = False


class MachineView(_Out, frozen=True, kw_only=True):
    """A machine in short."""

    name: str
    doc: str
    initial: str
    states: tuple[str, ...]
    terminal: tuple[str, ...]
    fingerprint: str
    meanings: dict[str, Tone]
    """How each state looks to people."""
    recorded: bool = True
    """Whether the store keeps records of it; others live inside of a record of another kind."""


class MachineList(_Out, frozen=True, kw_only=True):
    """The machines that a journal may speak of."""

    machines: tuple[MachineView, ...]


class StandOfState(_Out, frozen=True, kw_only=True):
    """The records in one state."""

    state: str
    number: int
    capped: bool = False
    """There are at least so many."""
    oldest_id: str = ""
    oldest_at: datetime | None = None
    """When the oldest of them was created."""
    median_stay_s: float | None = None
    """How long the hundred oldest have been as they are, in the middle."""


class Standing(_Out, frozen=True, kw_only=True):
    """Where the live records of a machine stand."""

    machine: str
    states: tuple[StandOfState, ...]


class Alive(_Out, frozen=True, kw_only=True):
    """The process is up."""

    status: Literal["ok"]


class LoopView(_Out, frozen=True, kw_only=True):
    """How a loop is."""

    name: str
    rounds: int
    failures_in_a_row: int
    last_success_at: datetime | None = None


class Readiness(_Out, frozen=True, kw_only=True):
    """The server can do its work."""

    status: Literal["ready"]
    store_at: datetime
    """The store's clock."""
    loops: tuple[LoopView, ...]


def entry_view(entry: Entry) -> EntryView:
    """An entry as it is shown."""
    note = entry.note
    return EntryView(
        cursor=entry.cursor,
        at=entry.at,
        kind=entry.kind,
        id=entry.id,
        version=entry.version,
        steps=tuple(map(_step_view, note.steps)),
        actor=note.actor,
        reason=note.reason,
        cause=note.cause,
        request_id=note.request_id,
        refusal=note.refusal,
    )


def _step_view(step: StepLine) -> StepView:
    return StepView(
        machine=step.machine,
        event=step.event,
        source=step.source,
        target=step.target,
        owner=step.owner,
        entity=step.entity,
        moves=step.moves,
    )


RunFilterText = Annotated[
    str, Meta(max_length=2_000, description="Which runs: `outcome:failed workflow:ci since:1d`.")
]


class _RunIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what comes in."""


class OneRun(RunSpec, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One run that somebody asks for, perhaps under a request id."""

    request_id: RequestId | None = None

    def spec(self) -> RunSpec:
        """The run without the id of the request, which is not part of it."""
        return RunSpec(**{name: getattr(self, name) for name in RunSpec.__struct_fields__})


class RunsQuery(_RunIn, frozen=True, kw_only=True):
    """Which page of which runs."""

    q: RunFilterText = ""
    limit: Limit = 50
    cursor: Cursor = ""


class RunQuery(_RunIn, frozen=True, kw_only=True):
    """How much of a run."""

    jobs: Annotated[bool, Meta(description="false: without its jobs, however many they are.")] = True


class RunJobsQuery(_RunIn, frozen=True, kw_only=True):
    """Which of its jobs."""

    first: Annotated[int, Meta(ge=0, le=1_000_000, description="From which place of the plan on.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE, description="How many at most.")] = 200


class CancelRun(_RunIn, frozen=True, kw_only=True):
    """Stop a run."""

    reason: Reason = ""
    request_id: RequestId | None = None


class ApproveRun(_RunIn, frozen=True, kw_only=True):
    """Approve a run that waits for it."""

    comment: Reason = ""
    request_id: RequestId | None = None


class DeclineRun(_RunIn, frozen=True, kw_only=True):
    """Do not approve a run that waits for it."""

    reason: Reason = ""
    request_id: RequestId | None = None


class RerunRequest(_RunIn, frozen=True, kw_only=True):
    """Do a run again that has ended."""

    which: Annotated[
        Literal["all", "failed", "from"], Meta(description="`from`: from one job on; the others are kept.")
    ] = "all"
    job: Annotated[str, Meta(max_length=200, description="With `from`: the name of the job.")] = ""
    request_id: RequestId | None = None


class RerunQuery(_RunIn, frozen=True, kw_only=True):
    """Which rerun is previewed."""

    which: Annotated[
        Literal["all", "failed", "from"], Meta(description="`from`: from one job on; the others are kept.")
    ] = "all"
    job: Annotated[str, Meta(max_length=200, description="With `from`: the name of the job.")] = ""


class RunArtifactsQuery(_RunIn, frozen=True, kw_only=True):
    """The artifacts of which of its jobs."""

    first: Annotated[int, Meta(ge=0, le=1_000_000, description="From which place of the plan on.")] = 0
    limit: Annotated[int, Meta(ge=1, le=100, description="Of how many jobs at most.")] = 50


class RunActionRequest(_RunIn, frozen=True, kw_only=True):
    """Do something with every run that a filter means."""

    filter: RunFilterText
    action: Literal["cancel", "rerun"]
    which: Literal["all", "failed"] = "all"
    dry_run: Annotated[bool, Meta(description="Only say which runs it would be.")] = False
    limit: Limit = 100
    reason: Reason = ""
    request_id: RequestId | None = None


class RunPage(_Out, frozen=True, kw_only=True):
    """Runs without their jobs, newest first. `cursor` is for the next page, and is empty at the end."""

    runs: tuple[RunView, ...]
    cursor: str


class RunJobs(_Out, frozen=True, kw_only=True):
    """Jobs of a run in the order of its plan. `next` is where more begin, and is missing at the end."""

    run_id: str
    jobs: tuple[RunJobView, ...]
    next: int | None = None


class RunArtifact(_Out, frozen=True, kw_only=True):
    """A file, and the name of the job that has left it behind."""

    job: str
    artifact: ArtifactView


class RunArtifacts(_Out, frozen=True, kw_only=True):
    """Artifacts of some jobs of a run in the order of its plan. `next` is where more jobs begin."""

    run_id: str
    artifacts: tuple[RunArtifact, ...]
    next: int | None = None
