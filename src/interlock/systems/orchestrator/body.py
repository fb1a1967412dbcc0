"""The records of jobs and of trees of jobs, as the store keeps them.

The record of a job holds its attempts and their leases. The record of a tree says which of its jobs have a
slot and which wait.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from functools import lru_cache

import msgspec

from interlock.engine.aggregate import WriteOnce
from interlock.lifecycles import attempt, lease
from interlock.lifecycles.attempt import Attempt, AttemptState
from interlock.lifecycles.job import Job
from interlock.lifecycles.lease import Lease, LeaseState
from interlock.machine import command, consequence, end, state
from interlock.store.records import Change, Key, Record
from interlock.systems.orchestrator.failures import Failure
from interlock.wire.jobs import RetryRule
from interlock.wire.runner import Progress


class TreeState(StrEnum):
    """Where a tree stands."""

    OPEN = "open"
    CLOSED = "closed"
    DROPPED = "dropped"


OPEN, CLOSED, DROPPED = TreeState.OPEN, TreeState.CLOSED, TreeState.DROPPED

close = command("close", "Nothing of the tree is left.", by="orchestrator")
drop = consequence("drop", "Nobody wants it any more.", by="operator")

TREE = WriteOnce(
    "tree",
    "Which jobs of a tree may be at work at the same time.",
    opened=state(OPEN, "Some job of it has not ended.", turn="orchestrator"),
    settled=end(CLOSED, "Every job of it has ended."),
    dropped=end(DROPPED, "Not wanted any more."),
    settle=close,
    why="Its root and all below it have ended.",
    drop=drop,
)


class Seat(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a job that was let in takes."""

    depth: int
    workers: int


class TreeBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything about a tree that is not in its jobs."""

    inside: dict[str, Seat] = {}
    """Jobs that were let in and have not ended, in the order in which they came."""
    waiting: dict[str, int] = {}
    """Parents that have given their place back until their children have ended, with their depth."""
    returning: dict[str, int] = {}
    """Those of them whose children have ended, and which have no place yet."""
    holding: dict[str, int] = {}
    """Parents of which some child may be held back, with the depth of their children."""

    @property
    def empty(self) -> bool:
        """Nobody is in it and nobody wants to be."""
        return not (self.inside or self.waiting or self.returning or self.holding)


def tree_key(root_id: str) -> Key:
    """Where the record of a tree is."""
    return Key(TREE.name, root_id)


def decode_tree(record: Record | None) -> TreeBody:
    """A working copy; an empty one for a tree that begins."""
    return msgspec.json.decode(record.body, type=TreeBody) if record is not None else TreeBody()


def tree_change(root_id: str, record: Record | None, body: TreeBody, *, mark: str, over: bool) -> Change:
    """Return the tree as it shall become; `over` closes it."""
    encoded = msgspec.json.encode(body)
    return TREE.change(root_id, encoded, settle=over, before=record, actor="orchestrator", mark=mark)


class TreePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a job that has a parent knows of its tree."""

    root_id: str
    if_fails: str = "ignore"
    """What its failure does to its parent and to its siblings."""
    not_before: datetime | None = None
    """When it is held back: from when on it was to be ready."""


class LeaseBody(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The lease on an attempt: live, or how it ended."""

    state: LeaseState = lease.GRANTED
    data: Lease
    digest: str
    """Of the secret; the secret itself is with the runner only."""
    granted_at: datetime
    sequence: int = 0
    """The largest number of a heartbeat that was heard."""
    saved: int = 0
    """The number of the heartbeat that brought the newest checkpoint."""
    missing: tuple[int, ...] = ()
    """Smaller numbers that were not heard: such a heartbeat was overtaken, and is no repeat."""
    logged: int = 0
    """How far its log has come, in bytes."""
    gaps: tuple[tuple[int, int], ...] = ()
    """Where something is missing before that."""

    @property
    def timer_at(self) -> datetime | None:
        """When it expires; the table's deadline is what the lease itself says."""
        return self.data.expires_at if self.state in lease.LIVE else None


class AttemptBody(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """One try at one shard."""

    shard: int = 1
    index: int = 1
    state: AttemptState = attempt.CREATED
    data: Attempt = Attempt()
    created_at: datetime | None = None
    """None: with its job."""
    prompt: bool = False
    """It may be given to a runner since its job was created."""
    ready_at: datetime | None = None
    """From when on it may be given to a runner, unless `prompt`; None while something holds it back."""
    waits: bool = False
    """What holds it back are the children of its job; of one that was given back: that was why."""
    timer_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    lease: LeaseBody | None = None
    failure: Failure | None = None
    progress: Progress | None = None
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    result_apart: bool = False
    """The result is large, and is kept in a record of its own."""
    reported: str = ""
    """A digest of the report that was accepted: the same report again is a repeat, another a conflict."""
    artifacts: int = 0
    """How many files it has left behind."""
    cost: float | None = None
    forced: bool = False
    confirmed_dead: bool | None = None
    """After a cancel of what was active: whether all of it is known to be gone."""

    @property
    def name(self) -> str:
        """What the journal calls it, within its job."""
        return _name(self.shard, self.index)

    def ready_in(self, created_at: datetime) -> datetime | None:
        """Return from when on it may be given to a runner, in a job that was created then."""
        return created_at if self.prompt else self.ready_at


@lru_cache(maxsize=1_024)
def _name(shard: int, index: int) -> str:
    return f"{shard}.{index}"


class Folded(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """What is still known of attempts that ended long ago."""

    attempts: int = 0
    losses: int = 0
    failures: dict[str, int] = {}
    """How many of each class there were at each shard: `1.infra`."""


class RunPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a job that belongs to a run knows of it."""

    run_id: str
    place: int
    """Where it is in the plan."""
    name: str
    required: bool = True
    root: bool = False
    """It needs no other job, so it may be the one with which the run begins."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where a job of a run comes from, as the orchestrator knows it; nothing that a file or an input says."""

    repository: str = ""
    ref: str = ""
    environment: str = ""
    """What it deploys to, as its plan says; the run was allowed to use it."""
    pull_request: int | None = None
    from_fork: bool = False
    """It runs shell steps in the queue of its trigger, is given no secrets, and has caches of its own."""
    claimed: bool = False
    """A submitter has named repository and ref, and nobody has checked that: they open nothing."""


class SimulationPart(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a job that executes a simulation knows of it."""

    run_id: str
    execution: int
    """Which of its executions this is: one that somebody has resumed elsewhere is another."""


class JobGiven(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a job was created with that no decision about it depends on."""

    input: msgspec.Raw = msgspec.Raw(b"{}")
    description: str = ""
    trace: dict[str, str] = {}


class JobBody(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """What decisions about a job depend on, beside the columns of its record."""

    task: str
    data: Job = Job()
    timer_at: datetime | None = None
    attempts: list[AttemptBody] = []
    timeout_s: float | None = None
    job_timeout_s: float | None = None
    retries: int | None = None
    retry: dict[str, RetryRule] = {}
    losses_allowed: int | None = None
    checkpoints: dict[str, msgspec.Raw] = {}
    """By shard: what an attempt has saved for the next one."""
    failure: Failure | None = None
    folded: Folded | None = None
    cancel_reason: str = ""
    """Why it was canceled, in the words that came with the first cancel."""
    children: int = 0
    origin_job_id: str | None = None
    secrets: tuple[str, ...] = ()
    """Names; the values are in no record."""
    secrets_withheld: bool = False
    origin: Provenance | None = None
    """Where it comes from; None for a job that was submitted directly."""
    run: RunPart | None = None
    """Its place in a run; then the record's parent is the run, and else it is the parent job."""
    simulation: SimulationPart | None = None
    """The simulation that it executes."""
    tree: TreePart | None = None
    """Its place in a tree; None for a job without a parent, which may be the root of one."""
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """This and the next two: of jobs from before they were kept apart, as in `JobGiven`."""
    description: str = ""
    trace: dict[str, str] = {}

    @property
    def losses(self) -> int:
        """How often it has lost its worker."""
        kept = sum(a.failure is not None and a.failure.failure_class == "lost" for a in self.attempts)
        return kept + (self.folded.losses if self.folded else 0)

    @property
    def tries(self) -> int:
        """How many attempts there were, those included that are folded by now."""
        return len(self.attempts) + (self.folded.attempts if self.folded else 0)

    @property
    def active(self) -> int:
        """How many attempts have not ended."""
        return sum([one.state not in attempt.ENDED for one in self.attempts])


KEPT_ATTEMPTS = 20
"""How many attempts that have ended a job keeps in full: a record must not grow for ever."""


def fold(body: JobBody) -> None:
    """Of too many ended attempts keep the newest, and of the others what budgets need to know."""
    ended = [a for a in body.attempts if a.state in attempt.ENDED and a.state is not attempt.SUCCEEDED]
    if len(ended) <= KEPT_ATTEMPTS:
        return
    folded = body.folded = body.folded or Folded(failures={})
    for old in ended[: len(ended) - KEPT_ATTEMPTS]:
        body.attempts.remove(old)
        folded.attempts += 1
        if old.failure is not None:
            name = f"{old.shard}.{old.failure.failure_class}"
            folded.failures = {**folded.failures, name: folded.failures.get(name, 0) + 1}
            folded.losses += old.failure.failure_class == "lost"


class Place(msgspec.Struct, frozen=True, gc=False):
    """The columns of a record that a job keeps for its whole life."""

    queue: str
    labels: tuple[str, ...] = ()
    priority: int = 0
    parent: str | None = None


class Granting(msgspec.Struct, frozen=True, gc=False):
    """To whom a lease is being granted."""

    runner_id: str
    digest: str


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(JobBody)
_GIVEN_DECODER = msgspec.json.Decoder(JobGiven)


def encode_body(body: JobBody) -> bytes:
    """The body as the record keeps it."""
    return _ENCODER.encode(body)


def decode_body(body: bytes) -> JobBody:
    """A working copy."""
    return _DECODER.decode(body)


def encode_given(given: JobGiven) -> bytes:
    """Return what a job was given as the record keeps it."""
    return _ENCODER.encode(given)


def given_of(record: Record) -> JobGiven:
    """Return what a job was given; jobs of an earlier version have it in their bodies."""
    return _GIVEN_DECODER.decode(record.given or record.body)
