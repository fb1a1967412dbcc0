"""Claims about the fleet of a world: of every message to an agent, of every process, of every result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.lifecycles.workload import WORKLOAD, Status, WorkloadData, WorkloadState
from interlock_verification.claims import FactClaim

INSTANT_S = 1e-5
"""Two times closer than this are the same."""


class AgentTally(msgspec.Struct, frozen=True):
    """The share of one agent in a result."""

    workload_id: str
    completed: bool
    operations: int
    measured: int
    """Number of operations in its histogram."""
    left_out: bool = False
    """Whether the result excludes it."""


class StartedDrive(NamedTuple):
    """A controller that starts to drive a job."""

    controller: str
    job_id: str
    driven_before: bool

    def __str__(self) -> str:
        return f"{self.controller} drives {self.job_id} {'again' if self.driven_before else 'first'}"


class RefusedDrive(NamedTuple):
    """A drive whose error says that no workload was started."""

    reason: str
    begun: Mapping[str, str]
    """The agents that have begun, by workload."""

    def __str__(self) -> str:
        return f"begun workloads with their agents: {dict(self.begun)}: {self.reason}"


class DriveAtDeadline(NamedTuple):
    """A drive at its deadline."""

    controller: str
    job_id: str
    begun_s: float
    running: bool
    """Whether it has neither a result nor an excuse."""

    def __str__(self) -> str:
        return f"{self.controller} drives {self.job_id} since {self.begun_s:.0f} s"


class WorkloadAfterDrive(NamedTuple):
    """The workload of a reachable agent after its drive."""

    agent: str
    workload_id: str
    end: str
    over: bool

    def __str__(self) -> str:
        return f"{self.agent} still has {self.workload_id}, {self.end}"


class CountedReport(NamedTuple):
    """One agent in a result, and the operations that it reported."""

    counted: AgentTally
    reported: int
    known: bool
    """Whether the agent has had the workload."""

    def __str__(self) -> str:
        return f"{self.counted}, and it has done {self.reported}"


class ResultTotal(NamedTuple):
    """The total of a result, and that of the agents that it includes."""

    operations: int
    measured: int
    of_agents: int

    def __str__(self) -> str:
        return f"{self.operations} operations of {self.of_agents}, of which {self.measured} are measured"


class SimultaneousStart(NamedTuple):
    """The begins of undisturbed agents of one drive."""

    job_id: str
    apart_s: float
    bound_s: float
    """The skew bound of the result."""
    drift_s: float
    """The drift of the clocks since they were measured."""

    def __str__(self) -> str:
        return f"{self.job_id}: {self.apart_s:.6f} s apart, and the bound is {self.bound_s:.6f} s"


class BegunWorkload(NamedTuple):
    """The begin of a workload, compared with its announced start by the clock of its agent."""

    agent: str
    late_s: float | None
    """Its delay, negative if it is early; None without an announced start."""
    excused_s: float
    """The delay that the startup of its process explains."""
    held_up: bool

    def __str__(self) -> str:
        if self.late_s is None:
            return f"{self.agent} begins, without an announced start"
        return f"{self.agent} begins {abs(self.late_s):.6f} s {'late' if self.late_s > 0 else 'early'}"


class AcceptedWorkload(NamedTuple):
    """A workload that an agent reports READY."""

    agent: str
    workload_id: str
    taken_before: bool

    def __str__(self) -> str:
        return f"{self.agent} takes {self.workload_id}{' again' if self.taken_before else ''}"


class AnswerOfFreeAgent(NamedTuple):
    """The answer of a free agent to a request for a workload."""

    agent: str
    workload_id: str
    status: int

    def __str__(self) -> str:
        return f"{self.agent} was free, and answers {Status(self.status).name} to {self.workload_id}"


class BusyAgent(NamedTuple):
    """An agent that refuses a workload after the end of the drive that it was busy with."""

    agent: str
    workload_id: str
    over_s: float
    """The time since the end of that drive."""
    allowed_s: float

    def __str__(self) -> str:
        return f"{self.agent} is busy with {self.workload_id}, which is over for {self.over_s:.0f} s"


class AgentAtEnd(NamedTuple):
    """An agent at the end of an episode."""

    agent: str
    idle: bool

    def __str__(self) -> str:
        return f"{self.agent} is {'free' if self.idle else 'busy'} in the end"


class LateAgentMessage(NamedTuple):
    """A message for an earlier workload of an agent."""

    agent: str
    workload_id: str
    changed: bool

    def __str__(self) -> str:
        return f"{self.agent} and {self.workload_id}"


class UnattendedWorkload(NamedTuple):
    """A workload whose agent lost its controller some time ago."""

    agent: str
    workload_id: str
    end: str
    since_s: float
    running: bool

    def __str__(self) -> str:
        workload = f"{self.agent} has {self.workload_id}, {self.end}"
        return f"{workload}, without a controller since {self.since_s:.0f} s"


class SpawnedWorkload(NamedTuple):
    """A started workload process."""

    agent: str
    workload_id: str
    other: str | None
    """The workload that the agent already has, if any."""
    ready: bool
    """Whether the agent reported READY for it."""

    def __str__(self) -> str:
        return f"{self.agent} starts {self.workload_id}, and has {self.other}"


class WorkloadTransition(NamedTuple):
    """Two successive values of a stored workload."""

    workload_id: str
    before: str
    data_before: WorkloadData
    after: str
    data_after: WorkloadData

    def __str__(self) -> str:
        return f"{self.workload_id}: {self.before} → {self.after}"


class WorkloadWritten(NamedTuple):
    """A written workload."""

    workload_id: str
    state: str
    data: WorkloadData
    completed: bool
    """Whether its process completed it."""

    def __str__(self) -> str:
        return f"{self.workload_id} is {self.state}: {self.data}"


def is_over(state: str, data: WorkloadData) -> bool:
    """Return whether a stored workload has its final status."""
    return data.final is not None and state == WORKLOAD.initial


def counts_once(report: CountedReport) -> bool:
    """Return whether a result counts the operations that were reported."""
    counted = report.counted
    if counted.measured != counted.operations or (counted.completed and not report.known):
        return False
    if counted.completed:
        return counted.operations == report.reported
    return counted.operations <= report.reported


def begins_on_time(begun: BegunWorkload) -> bool:
    """Return whether an undisturbed agent does not begin late."""
    return begun.late_s is None or begun.held_up or begun.late_s <= begun.excused_s + INSTANT_S


def change_is_final(step: WorkloadTransition) -> bool:
    """Return whether a workload with a final status was not changed."""
    unchanged = (step.before, step.data_before) == (step.after, step.data_after)
    return unchanged or not is_over(step.before, step.data_before)


FLEET_CLAIMS: Sequence[FactClaim[Any]] = (
    FactClaim(
        "fleet.one_workload",
        "an agent has at most one workload",
        SpawnedWorkload,
        lambda spawned: spawned.other is None,
    ),
    FactClaim(
        "fleet.ready_first",
        "an agent runs only workloads that it has reported READY",
        SpawnedWorkload,
        lambda spawned: spawned.ready,
    ),
    FactClaim(
        "fleet.taken_once",
        "an agent takes a workload of one name once",
        AcceptedWorkload,
        lambda accepted: not accepted.taken_before,
    ),
    FactClaim(
        "fleet.not_before_start",
        "no agent begins before the announced start, by its own clock",
        BegunWorkload,
        lambda begun: begun.late_s is not None and begun.late_s >= -INSTANT_S,
    ),
    FactClaim(
        "fleet.on_time", "an undisturbed agent begins at the announced start", BegunWorkload, begins_on_time
    ),
    FactClaim(
        "fleet.together",
        "agents that start on time start within the known skew bound",
        SimultaneousStart,
        lambda start: start.apart_s <= start.bound_s + start.drift_s + INSTANT_S,
    ),
    FactClaim(
        "fleet.stops_without_controller",
        "an agent that lost its controller stops in time",
        UnattendedWorkload,
        lambda unattended: not unattended.running,
    ),
    FactClaim(
        "fleet.stops_after_drive",
        "no reachable agent continues after the end of a drive",
        WorkloadAfterDrive,
        lambda workload: workload.over,
    ),
    FactClaim(
        "fleet.drive_ends",
        "a drive ends with a result or a refusal within its deadline",
        DriveAtDeadline,
        lambda drive: not drive.running,
    ),
    FactClaim(
        "fleet.reports_count_once",
        "a result counts the operations of each agent once, and no others",
        CountedReport,
        counts_once,
    ),
    FactClaim(
        "fleet.total",
        "the total of a result is that of the agents that it includes",
        ResultTotal,
        lambda total: total.operations == total.measured == total.of_agents,
    ),
    FactClaim(
        "fleet.free_agent_accepts",
        "a free agent accepts the next workload",
        AnswerOfFreeAgent,
        lambda answer: answer.status == Status.READY,
    ),
    FactClaim(
        "fleet.freed_in_time",
        "an agent is free again in time after a drive",
        BusyAgent,
        lambda busy: busy.over_s <= busy.allowed_s,
    ),
    FactClaim(
        "fleet.free_at_end",
        "an agent is free when every drive has ended",
        AgentAtEnd,
        lambda agent: agent.idle,
    ),
    FactClaim(
        "fleet.late_message",
        "a late message for an old workload changes nothing",
        LateAgentMessage,
        lambda message: not message.changed,
    ),
    FactClaim(
        "fleet.no_restart",
        "load is never restarted by itself",
        StartedDrive,
        lambda drive: not drive.driven_before,
    ),
    FactClaim(
        "fleet.refusal_is_true",
        "where a drive says that nothing was started, nothing has begun",
        RefusedDrive,
        lambda refused: not refused.begun,
    ),
    FactClaim("fleet.end_is_final", "an ended workload never changes", WorkloadTransition, change_is_final),
    FactClaim(
        "fleet.invariants",
        "the invariants of the workload table hold",
        WorkloadWritten,
        lambda written: not WORKLOAD.broken(WorkloadState(written.state), written.data),
    ),
    FactClaim(
        "fleet.completed_is_true",
        "the store records a workload as completed only if it has completed",
        WorkloadWritten,
        lambda written: written.completed or written.data.final is not Status.COMPLETED,
    ),
)
