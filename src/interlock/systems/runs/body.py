"""What a run is made of, as its record keeps it.

The record stays small whatever the plan: of each job it keeps one character, and the counts that
decide about the run. The plan is beside it (`plans`), and the jobs are records of their own.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

import msgspec

from interlock.lifecycles import job
from interlock.lifecycles.job import JobState
from interlock.lifecycles.run import Run
from interlock.systems.runs.plans import Graph
from interlock.wire.runs import Approval, AwaitedApproval, ForkTerms, RunSpec

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
"""What each character is called; two of them are no states of a job, but where it stands in its run."""

HEARD: dict[str, str] = {
    JobState.RUNNING: RUNNING,
    JobState.COMPLETED: COMPLETED,
    JobState.FAILED: FAILED,
    JobState.CANCELED: CANCELED,
}
"""What a run notes of a job that says so."""


class Happened(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a change has happened, as far as a forge says so: events do not arrive in order."""

    at: datetime | None = None
    before: str = ""
    """The commit that the ref was at before."""


class RunBody(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Everything about a run that is not a column of its record."""

    spec: RunSpec
    """As it was asked for, but without the plan."""
    data: Run = Run()
    timer_at: datetime | None = None
    group: str = ""
    """Its concurrency group, in words; empty when it is in none."""
    pieces: int = 0
    """In how many records the plan is kept."""
    states: str = ""
    """One character for each job of the plan."""
    left: int = 0
    """How many jobs have not ended."""
    required_left: int = 0
    """How many required jobs have not succeeded."""
    unconfirmed: int = 0
    """How many jobs were stopped of which nobody knows whether all is gone."""
    fail_fast: bool = True
    timeout_s: float | None = None
    reason: str = ""
    stop_reason: str = ""
    """The code that its jobs are stopped with."""
    culprit: str = ""
    """The required job without which it could not succeed."""
    error: str = ""
    forced: bool = False
    """It ended although something of it had not."""
    terms: ForkTerms | None = None
    """What becomes of a change from a fork, as its trigger says; None: the defaults."""
    happened: Happened | None = None
    """None: when it was submitted."""
    claimed: bool = False
    """A submitter names the repository and the ref, so secrets and environments do not count on them."""
    awaits: AwaitedApproval | None = None
    """What an operator has to approve; it stays when nobody has."""
    approvals: tuple[Approval, ...] = ()
    origin_run_id: str | None = None
    superseded_by: str | None = None
    planned_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    reported_at: datetime | None = None

    def accept(self, graph: Graph) -> None:
        """Note how the jobs of a new plan stand: done by an earlier run, free to begin, or waiting."""
        carried = graph.carried
        self.states = "".join(
            CARRIED if place in carried else RELEASED if carried.issuperset(needs) else WAITING
            for place, needs in enumerate(graph.needs)
        )
        self.left = len(self.states) - len(carried)
        self.required_left = sum(
            required and place not in carried for place, required in enumerate(graph.required)
        )

    @property
    def fork_terms(self) -> ForkTerms | None:
        """What its jobs are held to; None unless the change comes from a fork."""
        return (self.terms or ForkTerms()) if self.spec.source.from_fork else None

    def tally(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        counts: Counter[str] = Counter()
        for letter, number in Counter(self.states).items():
            counts[NAMES[letter]] += number
        return dict(counts)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(RunBody)


def encode_run(body: RunBody) -> bytes:
    """The body as the record keeps it."""
    return _ENCODER.encode(body)


def decode_run(body: bytes) -> RunBody:
    """A working copy."""
    return _DECODER.decode(body)
