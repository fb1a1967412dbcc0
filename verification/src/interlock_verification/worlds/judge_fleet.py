"""The judge of fleets: it knows the drives, the workloads on the agents, and the faults between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from interlock.lifecycles.workload import Status, WorkloadData
from interlock.store.records import Record
from interlock.systems.fleet.workloads import WorkloadBody
from interlock.wire.workloads import WorkloadSpec
from interlock_verification.claims import ClientRequest
from interlock_verification.worlds.claims.fleet import (
    INSTANT_S,
    AcceptedWorkload,
    AgentTally,
    AnswerOfFreeAgent,
    BegunWorkload,
    BusyAgent,
    CountedReport,
    DriveAtDeadline,
    LateAgentMessage,
    RefusedDrive,
    ResultTotal,
    SimultaneousStart,
    SpawnedWorkload,
    StartedDrive,
    UnattendedWorkload,
    WorkloadAfterDrive,
    WorkloadTransition,
    WorkloadWritten,
    is_over,
)
from interlock_verification.worlds.network import ActorProcess, ClaimWatcher


class JudgedDrive:
    """One drive of one controller, from the first request to the result."""

    def __init__(
        self,
        controller: ActorProcess,
        job_id: str,
        workloads: Mapping[str, str],
        *,
        begun_s: float,
        within_s: float,
    ) -> None:
        self.controller = controller
        self.job_id = job_id
        self.workloads = workloads
        """The name of the workload on each agent, by node."""
        self.begun_s = begun_s
        self.within_s = within_s
        """Its time limit, by the controller's clock."""
        self.ended_s: float | None = None

    @property
    def over(self) -> bool:
        """Whether it has a result or a refusal, or has died with its controller."""
        return self.ended_s is not None


class WorkloadLife:
    """One workload on one agent, and its data after the end."""

    def __init__(
        self, process: ActorProcess, workload_id: str, end: str, *, up_s: float, prepare_s: float
    ) -> None:
        self.process = process
        self.workload_id = workload_id
        self.end = end
        """Its end, as drawn."""
        self.up_ns = round(up_s * 1e9)
        """Startup time of its process."""
        self.prepare_ns = round(prepare_s * 1e9)
        """Time before the start at which its agent starts the process."""
        self.survives_s = 0.0
        """Time that it survives a kill."""
        self.began_s: float | None = None
        self.prompt = False
        """Whether it began exactly on time, without a disturbance."""
        self.operations = 0
        """Operations reported to its agent."""
        self.over = False
        self.well = False
        self.orphaned = False
        """Whether its controller died while it ran."""


class ConnectionFaults:
    """The latest fault between two nodes, as noticed by their messages."""

    def __init__(self) -> None:
        self._last: dict[frozenset[str], float] = {}

    def note(self, one: str, other: str, at_s: float) -> None:
        """Record a lost or late message."""
        self._last[frozenset((one, other))] = at_s

    def since(self, one: str, other: str, at_s: float) -> bool:
        """Return whether there was a fault since then."""
        return self._last.get(frozenset((one, other)), float("-inf")) >= at_s


def job_of(workload_id: str) -> str:
    """Return the job that drives it; otherwise the name itself."""
    return workload_id.rsplit("_", 2)[0] if workload_id.count("_") > 2 else workload_id


FOUND_OUT_S = 10.0
"""Time within which a silent connection is detected as lost."""
UNREAD_S = 5.0
"""Time for which an unread error keeps an agent busy."""
SLACK_S = 2.0
"""Allowance for the latency of messages and clock drift."""
UNDISTURBED_S = 30.0
"""An agent without faults for this long before the end of a drive was reachable."""


class AcceptedStart(msgspec.Struct, frozen=True):
    """The start time that an agent accepted."""

    at_s: float
    """Time of acceptance, by the true time."""
    at_ns: int
    """Time of acceptance, by the agent's monotonic clock."""
    instant_ns: int
    """The start, by the same clock."""


class WantedWorkload(msgspec.Struct, frozen=True):
    """The workload in the input of a job that drives a fleet."""

    workload: WorkloadSpec


class FleetJudge:
    """Observes agents and controllers, and reports facts about fleets."""

    def __init__(self, watcher: ClaimWatcher, forgotten: Collection[str]) -> None:
        self._watcher = watcher
        self._forgotten = forgotten
        """Jobs with data lost in a fail-over."""
        self.call_in: Callable[..., object] = lambda *_: None
        """Schedules a later check."""
        self.kill_s = 15.0
        """Maximum time of a workload to stop before it is killed, with some allowance."""
        self.skew = 0.0
        self.connection_faults = ConnectionFaults()
        self._drives: dict[str, JudgedDrive] = {}
        """Drives, by the name of the workload on each agent."""
        self._lives: dict[str, WorkloadLife] = {}
        self._at: dict[str, WorkloadLife] = {}
        """The live workload of each agent process."""
        self._taken: dict[tuple[str, str], AcceptedStart | None] = {}
        """Workloads that each agent process reported READY, with the accepted start."""
        self._fresh: set[tuple[str, str]] = set()
        """Workloads requested from a free agent, which has to answer READY."""
        self._requested_at: dict[str, float] = {}
        self._set_at: defaultdict[str, list[float]] = defaultdict(list)
        self._records: dict[str, tuple[str, WorkloadData]] = {}
        self._made: dict[str, str] = {}
        self._driven: set[str] = set()

    @property
    def wanted(self) -> int:
        """Number of requested workloads."""
        return len(self._made)

    def unsettled(self) -> list[str]:
        """Return drives, workloads and records that have not ended.

        The workloads are live ones, and the records are not final.
        """
        driven = {
            drive.job_id for drive in self._drives.values() if drive.controller.alive and not drive.over
        }
        open_ = [name for name, (state, data) in self._records.items() if not is_over(state, data)]
        return [*sorted(driven), *(life.workload_id for life in self._at.values()), *open_]

    # Jobs and their drives

    def made(self, job_id: str, input_: bytes) -> None:
        """Check that each request created one job, unless a fail-over lost it."""
        name = msgspec.json.decode(input_, type=WantedWorkload).workload.name
        before = self._made.setdefault(name, job_id)
        made = ClientRequest([job_id] if before in self._forgotten else [before, job_id])
        self._watcher.check(made, job_of(job_id), lambda: f"{name} has become {before} and {job_id}")

    def drive_begins(self, drive: JudgedDrive) -> None:
        """Record the start of a drive, and schedule its time limit."""
        before = drive.job_id in self._driven and drive.job_id not in self._forgotten
        self._check(StartedDrive(drive.controller.loop.name, drive.job_id, before), drive.job_id)
        self._driven.add(drive.job_id)
        for workload_id in drive.workloads.values():
            self._drives[workload_id] = drive
        drive.controller.at_end.append(lambda: self._controller_died(drive))
        self.call_in(drive.within_s / drive.controller.loop.rate + SLACK_S, self._still_driving, drive)

    def drive_ends(self, drive: JudgedDrive) -> None:
        """Record the end of a drive; reachable agents have stopped by now."""
        drive.ended_s = self._watcher.time()
        self._note(f"the drive of {drive.job_id} ends", drive.job_id)
        self.call_in(1.0, self._check_agents_have_stopped, drive)

    def refused(self, drive: JudgedDrive, sentence: str) -> None:
        """Check that a refused drive started no workload."""
        lives = [life for name in drive.workloads.values() if (life := self._lives.get(name)) is not None]
        begun = {life.workload_id: life.process.loop.name for life in lives if life.began_s is not None}
        self._check(RefusedDrive(sentence, begun), drive.job_id)

    def result(
        self, drive: JudgedDrive, counts: Sequence[AgentTally], operations: int, measured: int
    ) -> None:
        """Check the numbers of a result."""
        for one in counts:
            life = self._lives.get(one.workload_id)
            reported = life.operations if life is not None else 0
            self._check(CountedReport(one, reported, known=life is not None), drive.job_id)
        of_agents = sum(one.operations for one in counts if not one.left_out)
        self._check(ResultTotal(operations, measured, of_agents), drive.job_id)

    def began_together(self, drive: JudgedDrive, bound_s: float) -> None:
        """Check how far apart undisturbed agents began."""
        lives = [self._lives[name] for name in drive.workloads.values() if name in self._lives]
        began = [life.began_s for life in lives if life.began_s is not None and life.prompt]
        if len(began) < 2:
            return
        self._watcher.saw("agents begin together")
        drift_s = 2 * self.skew * (max(began) - drive.begun_s)
        start = SimultaneousStart(drive.job_id, max(began) - min(began), bound_s, drift_s)
        self._check(start, drive.job_id)

    def _still_driving(self, drive: JudgedDrive) -> None:
        held_up = drive.controller.was_held_up_since(drive.begun_s)
        running = drive.controller.alive and not drive.over and not held_up
        late = DriveAtDeadline(drive.controller.loop.name, drive.job_id, drive.begun_s, running)
        self._check(late, drive.job_id)

    def _check_agents_have_stopped(self, drive: JudgedDrive) -> None:
        assert drive.ended_s is not None
        since_s = drive.ended_s - UNDISTURBED_S
        if drive.controller.was_held_up_since(since_s):
            return
        for agent, workload_id in drive.workloads.items():
            life = self._lives.get(workload_id)
            if life is None or life.survives_s or life.process.was_held_up_since(since_s):
                continue
            if self.connection_faults.since(drive.controller.name, agent, since_s):
                continue
            after = WorkloadAfterDrive(life.process.loop.name, workload_id, life.end, life.over)
            self._check(after, drive.job_id)
            if life.over and not life.well and life.process.alive:
                self._watcher.saw("every reachable agent has stopped when a drive ends")

    def _controller_died(self, drive: JudgedDrive) -> None:
        if drive.over:
            return
        drive.ended_s = self._watcher.time()
        for workload_id in drive.workloads.values():
            life = self._lives.get(workload_id)
            if life is not None and not life.over and life.began_s is not None:
                life.orphaned = True

    # Messages of agents

    def start_requested(self, agent: ActorProcess, workload_id: str, *, free: bool) -> None:
        """Record a request for a workload.

        A free agent has to accept it, unless it is a repeat.
        """
        self._requested_at[workload_id] = self._watcher.time()
        key = (agent.loop.name, workload_id)
        if free and key not in self._taken:
            self._fresh.add(key)
        elif free:
            self._watcher.saw("an earlier workload is requested again")

    def status_sent(self, agent: ActorProcess, workload_id: str, status: int) -> None:
        """Check a status of an agent."""
        self._note(f"{agent.loop.name} says {Status(status).name} of {workload_id}", workload_id)
        key = (agent.loop.name, workload_id)
        if status == Status.READY:
            self._check(AcceptedWorkload(agent.loop.name, workload_id, key in self._taken), workload_id)
            self._taken[key] = None
        if key in self._fresh:
            self._check(AnswerOfFreeAgent(agent.loop.name, workload_id, status), workload_id)
        self._fresh.discard(key)

    def start_accepted(self, agent: ActorProcess, workload_id: str, at_ns: int, ahead_ns: int) -> None:
        """Record an accepted start, by the monotonic clock."""
        key = (agent.loop.name, workload_id)
        if key in self._taken:
            self._taken[key] = AcceptedStart(self._watcher.time(), at_ns, at_ns + ahead_ns)

    def busy(self, agent: ActorProcess, workload_id: str) -> None:
        """Check a refusal of a busy agent."""
        drive, now = self._drives.get(workload_id), self._watcher.time()
        if drive is None or drive.ended_s is None:
            self._watcher.saw("two controllers request one agent, and one is refused")
            return
        life = self._lives.get(workload_id)
        since_s = max(drive.ended_s, self._requested_at.get(workload_id, 0.0))
        within_s = FOUND_OUT_S + self.kill_s + UNREAD_S + SLACK_S + (life.survives_s if life else 0.0)
        if not agent.was_held_up_since(since_s):
            self._check(BusyAgent(agent.loop.name, workload_id, now - since_s, within_s), workload_id)

    def late_message(self, agent: ActorProcess, workload_id: str, *, changed: bool) -> None:
        """Check that a message about an old workload has no effect."""
        self._watcher.saw("a late message for an old workload")
        self._check(LateAgentMessage(agent.loop.name, workload_id, changed), workload_id)

    def alone(self, agent: ActorProcess, workload_id: str) -> None:
        """Schedule the check that a workload without a receiver ends."""
        life = self._lives.get(workload_id)
        survives_s = life.survives_s if life is not None else 0.0
        within_s = FOUND_OUT_S + self.kill_s + SLACK_S + survives_s
        self.call_in(within_s, self._still_lives, agent, workload_id, self._watcher.time())

    def clock_was_set(self, agent: str) -> None:
        """Record that the clock of an agent's machine was set."""
        self._set_at[agent].append(self._watcher.time())

    def _still_lives(self, agent: ActorProcess, workload_id: str, since_s: float) -> None:
        life = self._lives.get(workload_id)
        if life is None or life.process is not agent or agent.was_held_up_since(since_s):
            return
        running = not life.over
        left = UnattendedWorkload(agent.loop.name, workload_id, life.end, since_s, running)
        self._check(left, workload_id)

    # Workload processes

    def spawned(self, life: WorkloadLife) -> None:
        """Record the start of a workload's process."""
        name = life.process.loop.name
        other = self._at[name].workload_id if name in self._at else None
        ready = (name, life.workload_id) in self._taken
        self._check(SpawnedWorkload(name, life.workload_id, other, ready), life.workload_id)
        self._at[name] = self._lives[life.workload_id] = life
        life.process.at_end.append(lambda: self.ended(life, well=False))

    def began(self, life: WorkloadLife, at_ns: int) -> None:
        """Check the begin of the operations, by the monotonic clock."""
        name = life.process.loop.name
        self._note(f"{name} begins {life.workload_id}", life.workload_id)
        life.began_s = self._watcher.time()
        order = self._taken.get((name, life.workload_id))
        if order is None:
            self._check(BegunWorkload(name, None, 0.0, held_up=False), life.workload_id)
            return
        late_s = (at_ns - order.instant_ns) / 1e9
        held_up = life.process.was_held_up_since(order.at_s)
        excused_s = max(0, order.at_ns + life.up_ns - order.instant_ns, life.up_ns - life.prepare_ns) / 1e9
        self._check(BegunWorkload(name, late_s, excused_s, held_up), life.workload_id)
        life.prompt = late_s < INSTANT_S and not held_up and not self._clock_was_set_between(life, order)

    def _clock_was_set_between(self, life: WorkloadLife, order: AcceptedStart) -> bool:
        """Return whether its clock was set between measurement and start message."""
        was_set = self._set_at[life.process.name]
        if any(at_s > order.at_s for at_s in was_set):
            self._watcher.saw("a clock is set between the announcement and the start")
        begun_s = self._drives[life.workload_id].begun_s
        return any(begun_s <= at_s <= order.at_s for at_s in was_set)

    def killed(self, life: WorkloadLife) -> None:
        """Record that an agent killed a workload."""
        if life.began_s is not None:
            self._watcher.saw("a workload that does not stop is killed")

    def ended(self, life: WorkloadLife, *, well: bool) -> None:
        """Record the end of a workload."""
        if life.over:
            return
        life.over, life.well = True, well
        del self._at[life.process.loop.name]
        self._note(f"{life.workload_id} is over{'' if well else ', not well'}", life.workload_id)
        if life.orphaned and life.process.alive:
            self._watcher.saw("a controller dies while its agents run, and they stop")

    # Writes

    def written(self, record: Record) -> None:
        """Check a changed workload record."""
        body = msgspec.json.decode(record.body, type=WorkloadBody)
        before = self._records.get(record.id)
        self._records[record.id] = record.state, body.data
        if before is not None:
            self._check(WorkloadTransition(record.id, *before, record.state, body.data), record.id)
        life = self._lives.get(record.id)
        completed = life is not None and life.well
        self._check(WorkloadWritten(record.id, record.state, body.data, completed), record.id)

    def lost(self, name: str, back_to: Record | None) -> None:
        """Handle a workload with writes lost in a fail-over."""
        self._records.pop(name, None)
        if back_to is not None:
            body = msgspec.json.decode(back_to.body, type=WorkloadBody)
            self._records[name] = back_to.state, body.data

    def _note(self, description: str, about: str) -> None:
        now = self._watcher.time()
        self._watcher.record(f"{now:.6f} {description}".encode())
        self._watcher.note(now, description, job_of(about))

    def _check(self, fact: object, about: str) -> None:
        self._watcher.check(fact, job_of(about))
