"""Claims about the fleet of a world: of every message to an agent, of every process, of every result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from interlock.lifecycles.workload import WORKLOAD, Status, Workload, WorkloadState
from interlock.store.records import Record
from interlock.systems.fleet.workloads import WorkloadBody
from interlock.wire.workloads import WorkloadSpec
from interlock_verification.claims import SUBMISSION_CLAIMS, Submission
from interlock_verification.worlds.network import Process, Watcher


class Tour:
    """One drive of one controller, from the first question to the result."""

    def __init__(
        self,
        controller: Process,
        job_id: str,
        workloads: Mapping[str, str],
        *,
        begun_s: float,
        within_s: float,
    ) -> None:
        self.controller = controller
        self.job_id = job_id
        self.workloads = workloads
        """What the workload is called on each agent, by the agent's place."""
        self.begun_s = begun_s
        self.within_s = within_s
        """How long it may take, by the controller's clock."""
        self.ended_s: float | None = None

    @property
    def over(self) -> bool:
        """Whether it has come to a result or a refusal, or has died with its controller."""
        return self.ended_s is not None


class Life:
    """One workload on one agent while something of it lives, and what is known of it afterwards."""

    def __init__(
        self, process: Process, workload_id: str, end: str, *, up_s: float, prepare_s: float
    ) -> None:
        self.process = process
        self.workload_id = workload_id
        self.end = end
        """How it ends, by the dice."""
        self.up_ns = round(up_s * 1e9)
        """How long its process takes until it can begin."""
        self.prepare_ns = round(prepare_s * 1e9)
        """So long before the start its agent starts the process."""
        self.survives_s = 0.0
        """So long it can live although it is killed."""
        self.began_s: float | None = None
        self.prompt = False
        """It has begun at the very instant, and nothing has kept it from that."""
        self.operations = 0
        """What it has told its agent of."""
        self.over = False
        self.well = False
        self.orphaned = False
        """Its controller has died while it ran."""


class Troubles:
    """When something went wrong last between two places, as far as it was noticed by their messages."""

    def __init__(self) -> None:
        self._last: dict[frozenset[str], float] = {}

    def note(self, one: str, other: str, at_s: float) -> None:
        """Something did not arrive, or not in time."""
        self._last[frozenset((one, other))] = at_s

    def since(self, one: str, other: str, at_s: float) -> bool:
        """Whether there was any since then."""
        return self._last.get(frozenset((one, other)), float("-inf")) >= at_s


def job_of(workload_id: str) -> str:
    """The job that drives it, of whose story it is a part; any other name is that of its own story."""
    return workload_id.rsplit("_", 2)[0] if workload_id.count("_") > 2 else workload_id


ALONE = "an agent has at most one workload"
READY_FIRST = "an agent runs only what it has said READY for"
ONCE = "an agent takes a workload of one name once"
NOT_BEFORE = "nobody begins before the instant that it was told, by its own clock"
TOGETHER = "who begins at the start begins within the bound that the controller knows"
STOPS = "who has lost its controller stops by itself in time"
LEFT = "when a drive has ended nobody goes on who could be reached"
ENDS = "a drive ends with a result or a refusal within its deadline"
COUNTED = "a result counts the operations of each agent once, and no others"
FREED = "an agent that is free takes the next workload, and is not busy with what is over"
OLD_WORDS = "a late word for an old workload changes nothing"
AGAIN = "load does not start again by itself"
TRUTH = "where a drive says that nothing was started, nothing has begun"
HAPPENED = "what the store says of a workload has happened"
STAYS_OVER = "a workload that is over stays as it ended"

FOUND_OUT_S = 10.0
"""Within so long a side that hears nothing knows that the other is gone."""
UNREAD_S = 5.0
"""So long an error that nobody reads keeps an agent."""
SLACK_S = 2.0
"""For the way of messages, and clocks that run at another pace."""
UNDISTURBED_S = 30.0
"""Who has had no trouble for so long before the end of a drive could be reached."""
INSTANT_S = 1e-5


class Told(msgspec.Struct, frozen=True):
    """What an agent has made of being told its start."""

    at_s: float
    """When, by the true time."""
    at_ns: int
    """When, by the clock of the agent that nobody can set."""
    instant_ns: int
    """The start, by the same."""


class Wanted(msgspec.Struct, frozen=True):
    """Of the input of a job that drives a fleet, what it is to drive."""

    workload: WorkloadSpec


class Counted(msgspec.Struct, frozen=True):
    """What a result says of one agent."""

    workload_id: str
    completed: bool
    operations: int
    measured: int
    """How many of them are in its histogram."""
    left_out: bool = False
    """Whether the result does not speak for it."""


class FleetJudge:
    """Reads along at agents and controllers, and asks every claim about fleets."""

    def __init__(self, watcher: Watcher, forgotten: Collection[str]) -> None:
        self._watcher = watcher
        self._forgotten = forgotten
        """The jobs of which a fail-over has lost something."""
        self.call_in: Callable[..., object] = lambda *_: None
        """Has something looked at later."""
        self.kill_s = 15.0
        """How long whoever is being stopped may take before it is killed, and a little more."""
        self.skew = 0.0
        self.troubles = Troubles()
        self._tours: dict[str, Tour] = {}
        """By the name of the workload on each of its agents."""
        self._lives: dict[str, Life] = {}
        self._at: dict[str, Life] = {}
        """What lives at an agent, by the name of its process."""
        self._taken: dict[tuple[str, str], Told | None] = {}
        """What each process of an agent has said READY for, and its start as soon as it was told that."""
        self._fresh: set[tuple[str, str]] = set()
        """What was asked of an agent that was free, and has to be answered with READY."""
        self._asked_at: dict[str, float] = {}
        self._set_at: defaultdict[str, list[float]] = defaultdict(list)
        self._records: dict[str, tuple[str, Workload]] = {}
        self._made: dict[str, str] = {}
        self._driven: set[str] = set()

    @property
    def wanted(self) -> int:
        """How many workloads people have asked for."""
        return len(self._made)

    def unsettled(self) -> list[str]:
        """What has not come to its end: drives, workloads that live, and records that do not say so."""
        driven = {tour.job_id for tour in self._tours.values() if tour.controller.alive and not tour.over}
        open_ = [name for name, (state, data) in self._records.items() if not _is_over(state, data)]
        return [*sorted(driven), *(life.workload_id for life in self._at.values()), *open_]

    # Jobs and their drives

    def made(self, job_id: str, input_: bytes) -> None:
        """A job that drives a fleet was made; of each wish there is one, unless a fail-over lost it."""
        name = msgspec.json.decode(input_, type=Wanted).workload.name
        before = self._made.setdefault(name, job_id)
        made = Submission([job_id] if before in self._forgotten else [before, job_id])
        words = f"{name} has become {before} and {job_id}"
        self._watcher.ask(SUBMISSION_CLAIMS, made, lambda: words, job_of(job_id))

    def drive_begins(self, tour: Tour) -> None:
        """A controller begins to drive, and has so long for all of it."""
        if tour.job_id in self._driven and tour.job_id not in self._forgotten:
            self._broke(AGAIN, f"{tour.controller.loop.name} drives {tour.job_id} again", tour.job_id)
        self._driven.add(tour.job_id)
        for workload_id in tour.workloads.values():
            self._tours[workload_id] = tour
        tour.controller.at_end.append(lambda: self._controller_died(tour))
        self.call_in(tour.within_s / tour.controller.loop.rate + SLACK_S, self._still_driving, tour)

    def drive_ends(self, tour: Tour) -> None:
        """It has come to a result, or to a refusal; whoever could be reached has stopped by now."""
        tour.ended_s = self._watcher.time()
        self._note(f"the drive of {tour.job_id} ends", tour.job_id)
        self.call_in(1.0, self._look_who_goes_on, tour)

    def refused(self, tour: Tour, sentence: str) -> None:
        """A drive has come to a refusal, which says that nothing was started."""
        for workload_id in tour.workloads.values():
            life = self._lives.get(workload_id)
            if life is not None and life.began_s is not None:
                self._broke(
                    TRUTH, f"{life.process.loop.name} has begun {workload_id}: {sentence}", tour.job_id
                )

    def result(self, tour: Tour, counts: Sequence[Counted], operations: int, measured: int) -> None:
        """What a drive has come to, in numbers."""
        for one in counts:
            life = self._lives.get(one.workload_id)
            done = life.operations if life is not None else 0
            wrong = one.operations != done if one.completed else one.operations > done
            if wrong or one.measured != one.operations or (one.completed and life is None):
                self._broke(COUNTED, f"{one}, and it has done {done}", tour.job_id)
        whole = sum(one.operations for one in counts if not one.left_out)
        if (operations, measured) != (whole, whole):
            self._broke(COUNTED, f"{operations} operations of which {measured} are measured", tour.job_id)

    def began_together(self, tour: Tour, bound_s: float) -> None:
        """How far apart those began whom nothing kept from it."""
        lives = [self._lives[name] for name in tour.workloads.values() if name in self._lives]
        began = [life.began_s for life in lives if life.began_s is not None and life.prompt]
        if len(began) < 2:
            return
        self._watcher.saw("agents begin together")
        drift_s = 2 * self.skew * (max(began) - tour.begun_s)
        if max(began) - min(began) > bound_s + drift_s + INSTANT_S:
            words = f"{tour.job_id}: {max(began) - min(began):.6f} s apart, and the bound is {bound_s:.6f} s"
            self._broke(TOGETHER, words, tour.job_id)

    def _still_driving(self, tour: Tour) -> None:
        held_up = tour.controller.was_held_up_since(tour.begun_s)
        if tour.controller.alive and not tour.over and not held_up:
            words = f"{tour.controller.loop.name} drives {tour.job_id} since {tour.begun_s:.0f} s"
            self._broke(ENDS, words, tour.job_id)

    def _look_who_goes_on(self, tour: Tour) -> None:
        assert tour.ended_s is not None
        since_s = tour.ended_s - UNDISTURBED_S
        if tour.controller.was_held_up_since(since_s):
            return
        for agent, workload_id in tour.workloads.items():
            life = self._lives.get(workload_id)
            if life is None or life.survives_s or life.process.was_held_up_since(since_s):
                continue
            if self.troubles.since(tour.controller.name, agent, since_s):
                continue
            if not life.over:
                words = f"{life.process.loop.name} still has {workload_id}, {life.end}"
                self._broke(LEFT, words, tour.job_id)
            elif not life.well and life.process.alive:
                self._watcher.saw("whoever could be reached has stopped when a drive ends")

    def _controller_died(self, tour: Tour) -> None:
        if tour.over:
            return
        tour.ended_s = self._watcher.time()
        for workload_id in tour.workloads.values():
            life = self._lives.get(workload_id)
            if life is not None and not life.over and life.began_s is not None:
                life.orphaned = True

    # What an agent hears and says

    def asked(self, agent: Process, workload_id: str, *, free: bool) -> None:
        """An agent is asked for a workload; one that is free has to take it, unless it was there before."""
        self._asked_at[workload_id] = self._watcher.time()
        key = (agent.loop.name, workload_id)
        if free and key not in self._taken:
            self._fresh.add(key)
        elif free:
            self._watcher.saw("a workload that was there before is asked for again")

    def said(self, agent: Process, workload_id: str, status: int) -> None:
        """An agent says how it stands with a workload."""
        self._note(f"{agent.loop.name} says {Status(status).name} of {workload_id}", workload_id)
        key = (agent.loop.name, workload_id)
        if status == Status.READY:
            if key in self._taken:
                self._broke(ONCE, f"{agent.loop.name} takes {workload_id} again", workload_id)
            self._taken[key] = None
        elif key in self._fresh:
            words = f"{agent.loop.name} was free, and answers {Status(status).name} to {workload_id}"
            self._broke(FREED, words, workload_id)
        self._fresh.discard(key)

    def told(self, agent: Process, workload_id: str, at_ns: int, ahead_ns: int) -> None:
        """An agent has accepted a start which is so far ahead, by the clock that nobody can set."""
        key = (agent.loop.name, workload_id)
        if key in self._taken:
            self._taken[key] = Told(self._watcher.time(), at_ns, at_ns + ahead_ns)

    def busy(self, agent: Process, workload_id: str) -> None:
        """An agent says that it is busy with a workload."""
        tour, now = self._tours.get(workload_id), self._watcher.time()
        if tour is None or tour.ended_s is None:
            self._watcher.saw("an agent is wanted by two, and one is refused")
            return
        life = self._lives.get(workload_id)
        since_s = max(tour.ended_s, self._asked_at.get(workload_id, 0.0))
        within_s = FOUND_OUT_S + self.kill_s + UNREAD_S + SLACK_S + (life.survives_s if life else 0.0)
        if now > since_s + within_s and not agent.was_held_up_since(since_s):
            words = f"{agent.loop.name} is busy with {workload_id}, which is over since {since_s:.0f} s"
            self._broke(FREED, words, workload_id)

    def old_word(self, agent: Process, workload_id: str, *, changed: bool) -> None:
        """An agent was told something about a workload that it does not have now."""
        self._watcher.saw("a late word for an old workload")
        if changed:
            self._broke(OLD_WORDS, f"{agent.loop.name} and {workload_id}", workload_id)

    def alone(self, agent: Process, workload_id: str) -> None:
        """Nobody listens any more to what an agent says of a workload."""
        life = self._lives.get(workload_id)
        survives_s = life.survives_s if life is not None else 0.0
        within_s = FOUND_OUT_S + self.kill_s + SLACK_S + survives_s
        self.call_in(within_s, self._still_lives, agent, workload_id, self._watcher.time())

    def clock_was_set(self, agent: str) -> None:
        """Somebody has set the clock of an agent's machine."""
        self._set_at[agent].append(self._watcher.time())

    def _still_lives(self, agent: Process, workload_id: str, since_s: float) -> None:
        life = self._lives.get(workload_id)
        if life is None or life.over or life.process is not agent or agent.was_held_up_since(since_s):
            return
        words = f"{agent.loop.name} has {workload_id}, {life.end}, and nobody listens since {since_s:.0f} s"
        self._broke(STOPS, words, workload_id)

    # The processes of workloads

    def spawned(self, life: Life) -> None:
        """An agent has started the process of a workload."""
        name = life.process.loop.name
        if name in self._at:
            self._broke(ALONE, f"{name}: {self._at[name].workload_id}, {life.workload_id}", life.workload_id)
        if (name, life.workload_id) not in self._taken:
            self._broke(READY_FIRST, f"{name} starts {life.workload_id}", life.workload_id)
        self._at[name] = self._lives[life.workload_id] = life
        life.process.at_end.append(lambda: self.ended(life, well=False))

    def began(self, life: Life, at_ns: int) -> None:
        """A workload begins its operations, at this time by the clock that nobody can set."""
        name = life.process.loop.name
        self._note(f"{name} begins {life.workload_id}", life.workload_id)
        life.began_s = self._watcher.time()
        told = self._taken.get((name, life.workload_id))
        if told is None:
            self._broke(NOT_BEFORE, f"{name} begins, and nobody has told it to", life.workload_id)
            return
        late_s = (at_ns - told.instant_ns) / 1e9
        if late_s < -INSTANT_S:
            self._broke(NOT_BEFORE, f"{name} begins {-late_s:.6f} s early", life.workload_id)
        held_up = life.process.was_held_up_since(told.at_s)
        excused_s = max(0, told.at_ns + life.up_ns - told.instant_ns, life.up_ns - life.prepare_ns) / 1e9
        if late_s > excused_s + INSTANT_S and not held_up:
            self._broke(TOGETHER, f"{name} begins {late_s:.6f} s late", life.workload_id)
        life.prompt = late_s < INSTANT_S and not held_up and not self._meddled(life, told)

    def _meddled(self, life: Life, told: Told) -> bool:
        """Whether its clock was set while it was measured and told; later it may be."""
        was_set = self._set_at[life.process.name]
        if any(at_s > told.at_s for at_s in was_set):
            self._watcher.saw("a clock is set between being told the start and the start")
        begun_s = self._tours[life.workload_id].begun_s
        return any(begun_s <= at_s <= told.at_s for at_s in was_set)

    def killed(self, life: Life) -> None:
        """An agent kills what does not stop."""
        if life.began_s is not None:
            self._watcher.saw("a workload that does not stop is killed")

    def ended(self, life: Life, *, well: bool) -> None:
        """Nothing of a workload is left."""
        if life.over:
            return
        life.over, life.well = True, well
        del self._at[life.process.loop.name]
        self._note(f"{life.workload_id} is over{'' if well else ', not well'}", life.workload_id)
        if life.orphaned and life.process.alive:
            self._watcher.saw("a controller dies while its agents run, and they stop")

    # What is written

    def written(self, record: Record) -> None:
        """The record of a workload has changed."""
        body = msgspec.json.decode(record.body, type=WorkloadBody)
        before = self._records.get(record.id)
        self._records[record.id] = record.state, body.data
        if before is not None and _is_over(*before) and before != (record.state, body.data):
            self._broke(STAYS_OVER, f"{record.id}: {before[0]} → {record.state}", record.id)
        if WORKLOAD.broken(WorkloadState(record.state), body.data):
            self._broke(HAPPENED, f"{record.id} is {record.state}: {body.data}", record.id)
        life = self._lives.get(record.id)
        if body.data.final is Status.COMPLETED and (life is None or not life.well):
            self._broke(HAPPENED, f"{record.id} has completed, and that is not so", record.id)

    def lost(self, name: str, back_to: Record | None) -> None:
        """A fail-over has lost what was written of a workload."""
        self._records.pop(name, None)
        if back_to is not None:
            body = msgspec.json.decode(back_to.body, type=WorkloadBody)
            self._records[name] = back_to.state, body.data

    def _note(self, words: str, about: str) -> None:
        now = self._watcher.time()
        self._watcher.heard(f"{now:.6f} {words}".encode())
        self._watcher.tell(now, words, job_of(about))

    def _broke(self, claim: str, words: str, about: str) -> None:
        self._watcher.broke(claim, words, job_of(about))


def _is_over(state: str, data: Workload) -> bool:
    return data.final is not None and state == WORKLOAD.initial
