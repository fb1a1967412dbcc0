"""The records of jobs and of trees of jobs.

The record of a job holds its attempts and their leases. The record of a tree has the jobs with a slot and
those that wait.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from functools import lru_cache

import msgspec

from interlock.engine.aggregate import WriteOnce
from interlock.errors import UnknownJob
from interlock.lifecycles import attempt, lease
from interlock.lifecycles.attempt import Attempt, AttemptState
from interlock.lifecycles.job import Job
from interlock.lifecycles.lease import Lease, LeaseState
from interlock.machine import Event, command, consequence, end, state
from interlock.store.records import Change, Key, Record
from interlock.systems.orchestrator.failures import Failure
from interlock.wire.jobs import After, RetryRule, Unique
from interlock.wire.runner import Progress
from interlock.wire.runs import PlannedApproval


class TreeState(StrEnum):
    """The states of a tree."""

    OPEN = "open"
    CLOSED = "closed"
    DROPPED = "dropped"


OPEN, CLOSED, DROPPED = TreeState.OPEN, TreeState.CLOSED, TreeState.DROPPED

close: Event = command("close", "Nothing of the tree is left.", by="orchestrator")
drop: Event = consequence("drop", "It is no longer wanted.", by="operator")

TREE = WriteOnce(
    "tree",
    "The jobs of a tree that may run at the same time.",
    opened=state(OPEN, "Some job of it has not ended.", turn="orchestrator"),
    settled=end(CLOSED, "Every job of it has ended."),
    dropped=end(DROPPED, "No longer wanted."),
    settle=close,
    why="Its root and all below it have ended.",
    drop=drop,
)


class Seat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The slots of an admitted job."""

    depth: int
    workers: int


class TreeBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of a tree's record."""

    inside: dict[str, Seat] = {}
    """Admitted unfinished jobs, in the order of admission."""
    waiting: dict[str, int] = {}
    """Parents that have released their slots until their children have ended, with their depth."""
    returning: dict[str, int] = {}
    """Parents whose children have ended, and which have no slot yet."""
    holding: dict[str, int] = {}
    """Parents that may have held-back children, with the depth of the children."""
    later: tuple[str, ...] = ()
    """Children that wait for the end of other jobs; they come into the line after that."""

    @property
    def empty(self) -> bool:
        """Whether no job is in it or waits."""
        return not (self.inside or self.waiting or self.returning or self.holding or self.later)


def tree_key(root_id: str) -> Key:
    """Return the key of a tree's record."""
    return Key(TREE.name, root_id)


def decode_tree(record: Record | None) -> TreeBody:
    """Return a decoded copy; an empty one for a new tree."""
    return msgspec.json.decode(record.body, type=TreeBody) if record is not None else TreeBody()


def tree_change(root_id: str, record: Record | None, body: TreeBody, *, commit_id: str, over: bool) -> Change:
    """Return the change of a tree; `over` closes it."""
    encoded = msgspec.json.encode(body)
    return TREE.change(
        root_id, encoded, settle=over, before=record, actor="orchestrator", commit_id=commit_id
    )


class TreePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The tree data of a job with a parent."""

    root_id: str
    if_fails: str = "ignore"
    """The effect of its failure on its parent and siblings."""
    not_before: datetime | None = None
    """Its ready time while it is held back."""


class LeaseBody(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The lease on an attempt, live or ended."""

    state: LeaseState = lease.GRANTED
    data: Lease
    digest: str
    """Digest of the secret; only the runner has the secret itself."""
    granted_at: datetime
    sequence: int = 0
    """The highest accepted sequence number of a heartbeat."""
    saved: int = 0
    """The sequence number of the heartbeat with the newest checkpoint."""
    progressed: int = 0
    """The sequence number of the heartbeat with the newest progress."""
    missing: tuple[int, ...] = ()
    """Lower numbers that did not arrive: such a heartbeat was overtaken, and is not a repeat."""
    logged: int = 0
    """Length of its log so far, in bytes."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Gaps in the log before that."""

    @property
    def timer_at(self) -> datetime | None:
        """The time at which it expires, as in the lease itself."""
        return self.data.expires_at if self.state in lease.LIVE else None


class AttemptBody(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One attempt at one shard."""

    shard: int = 1
    index: int = 1
    state: AttemptState = attempt.CREATED
    data: Attempt = Attempt()
    created_at: datetime | None = None
    """None: with its job."""
    prompt: bool = False
    """Whether it is ready since its job was created."""
    ready_at: datetime | None = None
    """Time from which it may be claimed, unless `prompt`; None while it is held back."""
    snoozed_until: datetime | None = None
    """The handler gave it back, to run again then."""
    waits: bool = False
    """Whether it waits for the children of its job; for a released one, whether that was the reason."""
    awaits: str = ""
    """The wait of its job that it waits for; for a released one, the reason."""
    timer_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    lease: LeaseBody | None = None
    failure: Failure | None = None
    progress: Progress | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result_apart: bool = False
    """Whether the result is large, and stored in a separate record."""
    reported: str = ""
    """A digest of the accepted report: the same report again is a repeat, another one a conflict."""
    artifacts: int = 0
    """Number of artifacts."""
    cost: float | None = None
    forced: bool = False
    confirmed_dead: bool | None = None
    """After a cancellation: whether all processes are known to have ended."""

    @property
    def name(self) -> str:
        """Its name in the journal, within its job."""
        return attempt_name(self.shard, self.index)

    def ready_in(self, created_at: datetime) -> datetime | None:
        """Return its ready time, in a job with this creation time."""
        return created_at if self.prompt else self.ready_at


@lru_cache(maxsize=1_024)
def attempt_name(shard: int, index: int) -> str:
    """Return the name of an attempt in the journal, within its job."""
    return f"{shard}.{index}"


class AttemptSummary(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """A summary of old attempts."""

    attempts: int = 0
    losses: int = 0
    failures: dict[str, int] = {}
    """Number of failures by shard and class: `1.infra`."""


class PlanPlace(msgspec.Struct, frozen=True, gc=False):
    """The place of a job in the plan of its run."""

    place: int
    name: str


ANY_PLACE = -1
"""The place of a job that represents others."""


class RunPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The run data of a job that decisions about it depend on."""

    run_id: str
    place: int = ANY_PLACE
    """Only old jobs have it here: those that differ by nothing else are decided once (`JobGiven.plan`)."""
    required: bool = True
    root: bool = False
    """Whether it needs no other job, so that the run may begin with it."""
    approval: PlannedApproval | None = None
    """A person has to approve before it is released to runners."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The provenance of a job of a run, from the orchestrator; never from a file or an input."""

    repository: str = ""
    ref: str = ""
    environment: str = ""
    """The environment that it deploys to, from its plan; the run may use it."""
    pull_request: int | None = None
    from_fork: bool = False
    """Whether it is restricted to shell steps in the queue of its trigger, without secrets, with separate
    caches.
    """
    claimed: bool = False
    """Whether repository and ref are unverified statements of a submitter, which give no access."""


class SimulationPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The simulation data of a job."""

    run_id: str
    execution: int
    """The number of the execution: a resume starts another one."""


class UniquePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The unique key that a job was submitted with."""

    id: str
    """Of the record of the key."""
    key: str = ""
    """As people read it."""
    rule: Unique = Unique()
    """Unique key as submitted; a retry submits the job with the same key."""


class LimitPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The state of a job with respect to its limits."""

    keys: tuple[str, ...]
    """The limits that it counts against. It waits in the line of the first one."""
    weight: int = 1
    """Number of slots of each limit that every worker of the job takes."""
    since: datetime | None = None
    """Since when it is admitted; None while it holds no slot."""
    waits: bool = False
    """A ticket for it is in the line of its first limit."""
    metered: bool = False
    """One of its limits has a rate: its admission is good for one start."""
    started_at: datetime | None = None
    """Time of the lease under its last metered admission."""

    @property
    def used_up(self) -> bool:
        """Whether its admission was good for one start, and that was made."""
        if not self.metered or self.started_at is None or self.since is None:
            return False
        return self.started_at >= self.since


class AfterPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The state of a job with respect to the jobs that it comes after."""

    rule: After
    """As submitted, with the ids of all jobs."""
    left: tuple[str, ...] = ()
    """Jobs that it still waits for."""
    delay_s: float = 0.0
    """Delay after the last end that it waits for."""
    not_before: datetime | None = None
    """Time before which it does not start in any case."""
    start_within_s: float | None = None
    """Time within which a worker must start it, counted from then."""


class Mail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The signals and waits of a job under one name; their data are in records of their own."""

    asked: int = 0
    """Number of the last wait."""
    signalled: int = 0
    """Number of the last signal; greater than `asked` while signals are kept."""
    wait: str = ""
    """The wait that has no answer yet."""
    since: datetime | None = None
    until: datetime | None = None
    """Time at which it times out."""
    question: str | None = None
    """Question of an approval."""

    @property
    def kept(self) -> int:
        """Number of signals that no handler has waited for yet."""
        return max(self.signalled - self.asked, 0)


class JobGiven(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The input of a job, which no decision depends on."""

    input: msgspec.Raw = msgspec.Raw(b"{}")
    description: str = ""
    trace: dict[str, str] = {}
    metadata: dict[str, str] = {}
    unique: UniquePart | None = None
    plan: PlanPlace | None = None
    """Its place in a run."""


class JobBody(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The data that decisions about a job depend on, besides the columns of its record."""

    task: str
    data: Job = Job()
    timer_at: datetime | None = None
    attempts: list[AttemptBody] = []
    not_after: datetime | None = None
    """Time after which it fails as expired, unless a worker has started it."""
    timeout_s: float | None = None
    job_timeout_s: float | None = None
    retries: int | None = None
    retry: dict[str, RetryRule] = {}
    losses_allowed: int | None = None
    checkpoints: dict[str, msgspec.Raw] = {}
    """The saved checkpoint of each shard."""
    failure: Failure | None = None
    folded: AttemptSummary | None = None
    cancel_reason: str = ""
    """The reason given with the first cancel request."""
    children: int = 0
    origin_job_id: str | None = None
    secrets: tuple[str, ...] = ()
    """Names of secrets; the values are in no record."""
    secrets_withheld: bool = False
    origin: Provenance | None = None
    """Its provenance; None for a job that was submitted directly."""
    run: RunPart | None = None
    """Its place in a run; then the record's parent is the run, otherwise the parent job."""
    simulation: SimulationPart | None = None
    """The simulation that it executes."""
    tree: TreePart | None = None
    """Its place in a tree; None for a job without a parent, which may be a root."""
    limits: LimitPart | None = None
    """The limits that it is under; None for a job without any."""
    after: AfterPart | None = None
    """The jobs that it comes after; None for a job that comes after none."""
    then: tuple[str, ...] = ()
    """Jobs that come after it and receive its end."""
    mail: dict[str, Mail] = {}
    """Its signals and waits, by address: `signal.paid`, `approval`, `approval.deploy`, `gate`."""
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """This and the next three fields replace the given ones, after a submission with its unique key; old jobs
    have them here as well."""
    description: str = ""
    trace: dict[str, str] = {}
    metadata: dict[str, str] = {}

    @property
    def losses(self) -> int:
        """Number of losses of its worker."""
        kept = sum(a.failure is not None and a.failure.failure_class == "lost" for a in self.attempts)
        return kept + (self.folded.losses if self.folded else 0)

    @property
    def tries(self) -> int:
        """Number of attempts, including folded ones."""
        return len(self.attempts) + (self.folded.attempts if self.folded else 0)

    @property
    def active(self) -> int:
        """Number of unfinished attempts."""
        return sum([one.state not in attempt.ENDED for one in self.attempts])


def awaited_until(body: JobBody, wait_id: str) -> datetime | None:
    """Return when a wait times out; None for one that has its answer."""
    return next((each.until for each in body.mail.values() if each.wait == wait_id), None)


KEPT_ATTEMPTS = 20
"""Number of ended attempts that a job keeps in full, to bound its record."""


def fold(body: JobBody) -> None:
    """Keep the newest ended attempts, and a summary of the others for budgets."""
    ended = [a for a in body.attempts if a.state in attempt.ENDED and a.state is not attempt.SUCCEEDED]
    if len(ended) <= KEPT_ATTEMPTS:
        return
    folded = body.folded = body.folded or AttemptSummary(failures={})
    for old in ended[: len(ended) - KEPT_ATTEMPTS]:
        body.attempts.remove(old)
        folded.attempts += 1
        if old.failure is not None:
            name = f"{old.shard}.{old.failure.failure_class}"
            folded.failures = {**folded.failures, name: folded.failures.get(name, 0) + 1}
            folded.losses += old.failure.failure_class == "lost"


class Place(msgspec.Struct, frozen=True, gc=False):
    """The columns of a record that a job never changes."""

    queue: str
    labels: tuple[str, ...] = ()
    priority: int = 0
    parent: str | None = None


class LeaseHolder(msgspec.Struct, frozen=True, gc=False):
    """The runner of a lease that is being granted."""

    runner_id: str
    digest: str


def unknown_job(job_id: str, listed_by: str = "`interlock job list`") -> UnknownJob:
    """Return the error of a job that there is not."""
    return UnknownJob(
        f"There is no job {job_id}.",
        todo=f"Look for it with {listed_by}; ended jobs are pruned after a while.",
        facts={"job_id": job_id},
    )


_ENCODER = msgspec.json.Encoder()
encode_body: Callable[[JobBody], bytes] = _ENCODER.encode
encode_given: Callable[[JobGiven], bytes] = _ENCODER.encode
decode_body: Callable[[bytes], JobBody] = msgspec.json.Decoder(JobBody).decode
_GIVEN_DECODER = msgspec.json.Decoder(JobGiven)


class _Replaced(msgspec.Struct):
    """Return the parts of a body that replaced those the job was given."""

    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    description: str = ""
    trace: dict[str, str] = {}
    metadata: dict[str, str] = {}


_REPLACED_DECODER = msgspec.json.Decoder(_Replaced)


def given_of(record: Record) -> JobGiven:
    """Return the given data of a job; old jobs have it in their bodies.

    A submission with the same unique key may have replaced it: then the body says by what.
    """
    given = _GIVEN_DECODER.decode(record.given or record.body)
    if record.given and b'"input":' in record.body:
        by = _REPLACED_DECODER.decode(record.body)
        if isinstance(by.input, msgspec.Raw):
            return JobGiven(by.input, by.description, by.trace, by.metadata, given.unique, given.plan)
    return given


def place_in_run(part: RunPart, given: bytes) -> int:
    """Return the place of a job in the plan of its run."""
    if part.place != ANY_PLACE or not given:
        return part.place
    plan = _GIVEN_DECODER.decode(given).plan
    return ANY_PLACE if plan is None else plan.place
