"""The record of a run: its body, and the columns by which a store finds it.

The record stays small with any plan: it keeps one character for each job, and the counts that decide
about the run. The plan is kept beside it (`plans`), and the jobs are records of their own.

The group is the record's queue, because runs of one group must find each other quickly. Workflow,
repository, ref and commit are labels, beside the labels that the submitter has given.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from datetime import datetime

import msgspec

from interlock.lifecycles import job
from interlock.lifecycles.job import JobState
from interlock.lifecycles.run import RUN, Run
from interlock.store.records import Query
from interlock.store.validation import MAX_LABEL
from interlock.systems.runs.plans import PlanGraph
from interlock.wire.filter_language import LOOKED_AT
from interlock.wire.runs import Approval, AwaitedApproval, ForkTerms, RunFilter, RunSpec

_TAGS = "refs/tags/"


def group_of(spec: RunSpec) -> str:
    """Return the concurrency group of a run.

    By default that is its workflow and ref; it is empty without a ref. A change from a fork supersedes only
    runs of its own pull request, even if it names another group.
    """
    source = spec.source
    change = f"{source.repository} {source.ref}".strip()
    if spec.concurrency_group is not None:
        fork = f" (fork: {change})" if source.from_fork and spec.concurrency_group else ""
        return spec.concurrency_group + fork
    fork = " (fork)" if source.from_fork else ""
    return f"{spec.workflow} {change}{fork}".strip() if source.ref else ""


def group_key(spec: RunSpec) -> str | None:
    """Return the key by which runs of one group are found.

    Tags and branches never share a group.
    """
    group = group_of(spec)
    if not group:
        return None
    kind = "tag" if spec.source.ref.startswith(_TAGS) else "branch"
    return f"{kind}.{_digest(group)}"


def labels_of(spec: RunSpec) -> tuple[str, ...]:
    """Return the labels by which the record of a run is found."""
    source = spec.source
    known = _sought(spec.workflow, source.repository, source.ref, source.sha, group_of(spec))
    return tuple(sorted({*known, *spec.labels}))


def query_of(wanted: RunFilter, *, newest_first: bool, cursor: str, limit: int) -> Query:
    """Return the filter as a query of the store."""
    known = _sought(wanted.workflow, wanted.repository, wanted.ref, wanted.sha, wanted.concurrency_group)
    return Query(
        kind=RUN.name,
        states=wanted.states,
        parent=wanted.origin_run_id or None,
        labels=tuple(sorted({*known, *wanted.labels})),
        since=wanted.since,
        until=wanted.until,
        newest_first=newest_first,
        cursor=cursor,
        limit=limit,
        within=LOOKED_AT,
    )


def label(noun: str, value: str) -> str:
    """Return a label `noun:value`, with a digest if the value is too long."""
    text = f"{noun}:{value}"
    return text if len(text) <= MAX_LABEL and text.isprintable() else f"{noun}#{_digest(value)}"


def _sought(workflow: str, repository: str, ref: str, sha: str, group: str) -> list[str]:
    fields = {"workflow": workflow, "repository": repository, "ref": ref, "sha": sha, "group": group}
    return [label(noun, value) for noun, value in fields.items() if value]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


WAITING, RELEASED, RUNNING, STOPPING = "w", "q", "r", "x"
COMPLETED, FAILED, CANCELED, CARRIED = "C", "F", "X", "s"

SUCCEEDED = COMPLETED + CARRIED
ENDED = SUCCEEDED + FAILED + CANCELED

NAMES = {
    WAITING: "WAITING",
    RELEASED: str(job.PENDING),
    RUNNING: str(job.RUNNING),
    STOPPING: "STOPPING",
    COMPLETED: str(job.COMPLETED),
    CARRIED: str(job.COMPLETED),
    FAILED: str(job.FAILED),
    CANCELED: str(job.CANCELED),
}
"""The name of each character; WAITING and STOPPING are positions in a run, not states of a job."""

HEARD: dict[str, str] = {
    JobState.RUNNING: RUNNING,
    JobState.COMPLETED: COMPLETED,
    JobState.FAILED: FAILED,
    JobState.CANCELED: CANCELED,
}
"""The character for each reported state of a job."""


class ChangeTime(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The time of a change, according to the forge: events may arrive out of order."""

    at: datetime | None = None
    before: str = ""
    """The previous commit of the ref."""


class RunBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The body of a run's record."""

    spec: RunSpec
    """The submitted spec, without the plan."""
    data: Run = Run()
    timer_at: datetime | None = None
    group: str = ""
    """The concurrency group; empty if there is none."""
    pieces: int = 0
    """Number of records that hold the plan."""
    states: str = ""
    """One character for each job of the plan."""
    left: int = 0
    """Number of jobs that have not ended."""
    required_left: int = 0
    """Number of required jobs that have not succeeded."""
    unconfirmed: int = 0
    """Number of stopped jobs whose processes may still be running."""
    fail_fast: bool = True
    timeout_s: float | None = None
    approvals_s: float = 0.0
    """Time that its jobs may wait for approvals, which does not count towards the timeout."""
    reason: str = ""
    stop_reason: str = ""
    """The stop reason of its jobs."""
    culprit: str = ""
    """The required job that failed the run."""
    error: str = ""
    forced: bool = False
    """Whether the run ended before all of its jobs had."""
    terms: ForkTerms | None = None
    """Restrictions for a change from a fork, from its trigger; None: the defaults."""
    happened: ChangeTime | None = None
    """None: at submission."""
    claimed: bool = False
    """Whether repository and ref come from a submitter, so secrets and environments do not trust them."""
    awaits: AwaitedApproval | None = None
    """The pending approval; it is kept if the run ends without it."""
    approvals: tuple[Approval, ...] = ()
    origin_run_id: str | None = None
    superseded_by: str | None = None
    planned_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    reported_at: datetime | None = None

    def accept(self, graph: PlanGraph) -> None:
        """Initialise the states of the jobs.

        Each is done by an earlier run, released, or waiting.
        """
        carried = graph.carried
        self.states = "".join(
            [
                CARRIED if place in carried else RELEASED if carried.issuperset(needs) else WAITING
                for place, needs in enumerate(graph.needs)
            ]
        )
        self.left = len(self.states) - len(carried)
        self.required_left = sum(
            [required and place not in carried for place, required in enumerate(graph.required)]
        )

    @property
    def fork_terms(self) -> ForkTerms | None:
        """The restrictions for its jobs; None unless the change comes from a fork."""
        return (self.terms or ForkTerms()) if self.spec.source.from_fork else None

    def tally(self) -> dict[str, int]:
        """Return the number of jobs in each state."""
        counts: Counter[str] = Counter()
        for letter, number in Counter(self.states).items():
            counts[NAMES[letter]] += number
        return dict(counts)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(RunBody)


def encode_run(body: RunBody) -> bytes:
    """Return the body, encoded for the record."""
    return _ENCODER.encode(body)


def decode_run(body: bytes) -> RunBody:
    """Return a decoded copy of the body."""
    return _DECODER.decode(body)
