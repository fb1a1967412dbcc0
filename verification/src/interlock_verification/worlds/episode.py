"""One episode: a world and its faults from one seed, checked from beginning to end.

The injector applies the timed faults: to a process, to the network, to the store.
"""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Collection
from typing import ClassVar

import msgspec

from interlock.engine.audit import audit
from interlock.errors import InterlockError
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.lifecycles.simulation import SIMULATION
from interlock.lifecycles.worker import WORKER
from interlock.lifecycles.workload import WORKLOAD
from interlock.store.records import Key, Query
from interlock.systems.catalogue import CATALOGUE, JOURNALLED
from interlock.systems.orchestrator.body import OPEN, TREE
from interlock.systems.orchestrator.explanation import explain
from interlock.systems.orchestrator.wait_records import JOB_WAIT, KEPT, WAITING
from interlock.systems.quarantine import STANDING
from interlock.systems.simulations.body import PULSE
from interlock.worker.host import Shutdown
from interlock.worker.process import WorkerProcess
from interlock.worker.tasks import Registry
from interlock_verification.worlds.actors.clients import PeopleCast, PlayerCast, SubmitterCast
from interlock_verification.worlds.actors.handlers import Bench
from interlock_verification.worlds.actors.operators import OperatorCast
from interlock_verification.worlds.actors.orchestrators import OrchestratorCast
from interlock_verification.worlds.actors.workers import WorkerCast
from interlock_verification.worlds.claims.episodes import (
    AuditedRecord,
    SettledEpisode,
    ShutdownDeadline,
    VirtualTime,
    WorkerMemory,
)
from interlock_verification.worlds.claims.fleet import AgentAtEnd
from interlock_verification.worlds.claims.jobs import AcknowledgedJob, WaitingClients
from interlock_verification.worlds.claims.signals import OpenWait
from interlock_verification.worlds.claims.trees import OpenTree
from interlock_verification.worlds.claims.workers import LiveRecord
from interlock_verification.worlds.faults import Fates, Faults, TimedFault
from interlock_verification.worlds.judge import Judge
from interlock_verification.worlds.judge_limits import limit_changes
from interlock_verification.worlds.network import (
    ActorPlace,
    ActorProcess,
    BrokenClaim,
    Cast,
    ClaimWatcher,
    WorldStage,
)
from interlock_verification.worlds.scheduler import RunsInCircles
from interlock_verification.worlds.storage import SharedStore, driven
from interlock_verification.worlds.worlds import HOUR_S, World


class TimedFaultInjector:
    """Injects the drawn faults."""

    def __init__(self, stage: WorldStage, store: SharedStore) -> None:
        self.stage = stage
        self.store = store

    def strike(self, blow: TimedFault) -> None:
        """Inject a fault, unless its target is gone."""
        process = self.stage.places[blow.who].process
        if process is None or not process.alive or process.frozen or not self._lands(blow, process):
            return
        verbs = {
            "kill": f"{blow.who} is killed, and comes back in {blow.for_s:.0f} s",
            "deploy": f"{blow.who} is asked to shut down",
            "freeze": f"{blow.who} is frozen for {blow.for_s:.0f} s",
            "partition": f"{blow.who} and {blow.whom} cannot reach each other for {blow.for_s:.0f} s",
            "outage": f"the store is unavailable for {blow.for_s:.0f} s",
            "failover": f"the store fails over, {blow.amount:.1f} s of writes are lost",
            "lag": f"timers of {blow.who} are {blow.amount:.0f} s late for {blow.for_s:.0f} s",
        }
        self.stage.watcher.note(self.stage.schedule.now, f"{verbs[blow.what]}  [{blow.name}]")
        self.stage.watcher.record(f"{blow.name} {blow.what} {blow.who}".encode())
        self._ACTS[blow.what](self, blow, process)

    def _lands(self, blow: TimedFault, process: ActorProcess) -> bool:
        if blow.what == "deploy" and _is_leaving(process):
            return False
        return self.stage.fates.happens(blow.name, blow.what)

    def _kill(self, blow: TimedFault, _: ActorProcess) -> None:
        self.stage.places[blow.who].kill(blow.for_s)

    def _deploy(self, blow: TimedFault, process: ActorProcess) -> None:
        worker = process.role
        worker.shutdown.request()
        deadline_s = self.stage.world.durations.shutdown_deadline_s + 1.0
        self.stage.schedule.call_in(deadline_s / process.loop.rate, self._gone, blow, process)

    def _gone(self, blow: TimedFault, process: ActorProcess) -> None:
        exited = not process.alive or process.was_held_up_since(blow.at_s)
        self.stage.watcher.check(ShutdownDeadline(process.loop.name, blow.at_s, exited))

    def _freeze(self, blow: TimedFault, process: ActorProcess) -> None:
        self.stage.freeze(process, blow.for_s)

    def _part(self, blow: TimedFault, _: ActorProcess) -> None:
        self.stage.part(blow.who, blow.whom, blow.for_s)

    def _take_store_away(self, blow: TimedFault, _: ActorProcess) -> None:
        self.stage.away_until = max(self.stage.away_until, self.stage.schedule.now + blow.for_s)

    def _fail_over(self, blow: TimedFault, process: ActorProcess) -> None:
        lost = self.store.fail_over(blow.amount)
        self.stage.watcher.saw("a fail-over loses writes" if lost else "a fail-over loses nothing")
        self._take_store_away(blow, process)

    def _lag(self, blow: TimedFault, process: ActorProcess) -> None:
        process.lag(blow.amount)
        self.stage.schedule.call_in(blow.for_s, process.lag, 0.0)

    _ACTS: ClassVar[dict[str, Callable[[TimedFaultInjector, TimedFault, ActorProcess], None]]] = {
        "kill": _kill,
        "deploy": _deploy,
        "freeze": _freeze,
        "partition": _part,
        "outage": _take_store_away,
        "failover": _fail_over,
        "lag": _lag,
    }


def _is_leaving(process: ActorProcess) -> bool:
    """Return whether it is shutting down already, or cannot."""
    shutdown = getattr(process.role, "shutdown", None)
    return not isinstance(shutdown, Shutdown) or shutdown.requested


_LOOK_EVERY_S = 60.0
_LOOKED_AFTER = (
    JOB.name,
    RUN.name,
    SIMULATION.name,
    PULSE.name,
    WORKER.name,
    WORKLOAD.name,
    STANDING.name,
    TREE.name,
    JOB_WAIT.name,
    "message",
)
SUBMITTERS, PLAYERS, OPERATORS = "ci", "players", "operators"


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of an episode, from which it can be replayed."""

    world: str
    faults: str
    seed: int
    hours: float
    only: tuple[str, ...] | None = None
    """The faults that occur; None for all that the seed draws."""
    settles: bool = True
    """Whether it is run to its end; not if only the events before are of interest."""


class EpisodeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an episode."""

    chapter: Episode
    trace: str
    """A hash of all events."""
    faults: dict[str, int]
    happened: tuple[str, ...] = ()
    """The names of the faults; only of a failed episode."""
    seen: dict[str, int]
    submitted: int
    settled: int
    turns: int
    seconds: float
    """Processor seconds."""
    broken: BrokenClaim | None = None
    story: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every claim holds."""
        return self.broken is None


def play(
    world: World,
    faults: Faults,
    *,
    seed: int,
    hours: float | None = None,
    only: Collection[str] | None = None,
    settles: bool = True,
    tells: bool = False,
) -> EpisodeResult:
    """Run one episode."""
    chapter = Episode(
        world=world.name,
        faults=faults.name,
        seed=seed,
        hours=world.chapter_h if hours is None else hours,
        only=None if only is None else tuple(sorted(only)),
        settles=settles,
    )
    return WorldPlay(world, faults, chapter, tells=tells).run()


class WorldPlay:
    """A world with its actors."""

    def __init__(self, world: World, faults: Faults, chapter: Episode, *, tells: bool = False) -> None:
        self.chapter = chapter
        seed = chapter.seed
        self.world = world
        self.faults = faults
        self.until_s = chapter.hours * HOUR_S
        self.watcher = ClaimWatcher(tells=tells)
        self.fates = Fates(seed, faults, chapter.only)
        self.stage = WorldStage(world, seed, self.fates, self.watcher)
        self.watcher.halt = self._halt
        self.watcher.time = lambda: self.stage.schedule.now
        self.judge = Judge(self.watcher)
        self.judge.trees.quotas = world.quotas
        bench = Bench(self.watcher, self.judge, world.slots, world.simulations)
        self.store = SharedStore(CATALOGUE, self.stage.clock, self.judge)
        self.judge.limits.declare(world.limits)
        self.store.seed(limit_changes(world.limits, self.stage.clock()))
        self.people = PeopleCast(self.store, self.judge, self.until_s)
        self.submitters = SubmitterCast(self.store, self.judge.runs, self.until_s)
        self.servers = [f"o{number}" for number in range(1, world.orchestrators + 1)]
        served = [f"w{number}" for number in range(1, world.workers + 1)]
        embedded = [f"e{number}" for number in range(1, world.embedded + 1)]
        self.workers = [*served, *embedded]
        for name in self.servers:
            self._place(name, OrchestratorCast(self.store, self.judge))
        for name in served:
            self._place(name, WorkerCast(self.store, self.judge, self.watcher, bench.registry, self.servers))
        for name in embedded:
            self._place(name, WorkerCast(self.store, self.judge, self.watcher, bench.registry, ()))
        self._place(world.people, self.people)
        if world.runs:
            self._place(SUBMITTERS, self.submitters)
        if world.simulations:
            self._place(PLAYERS, PlayerCast(self.store, self.judge.simulations, self.until_s))
        if world.supervised:
            self._place(OPERATORS, OperatorCast(self.store, self.until_s - faults.quiet_at_end_s))
        if world.agents:
            self._place_fleet(bench.registry)

    def run(self) -> EpisodeResult:
        """Run from the first start to the last check."""
        begun = time.process_time()
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # failures are expected in a world
        with warnings.catch_warnings():
            # Coroutines of a killed process are never awaited.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            try:
                self._act()
                self._settle()
                self._look_back()
            except RunsInCircles as circle:
                self.watcher.check(VirtualTime(str(circle)))
            finally:
                self._end()
                logging.disable(before)
        broken = self.watcher.broken
        return EpisodeResult(
            chapter=self.chapter,
            trace=self.watcher.trace,
            faults=dict(self.fates.counts),
            happened=tuple(self.fates.happened) if broken is not None else (),
            seen=dict(sorted(self.watcher.seen.items())),
            submitted=len(self.people.acknowledged) + len(self.people.unknown) + self.judge.fleet.wanted,
            settled=len(self.judge.ended),
            turns=self.stage.schedule.turns,
            seconds=time.process_time() - begun,
            broken=broken,
            story=tuple(self.watcher.story(broken.about)) if broken is not None else (),
        )

    # Phases

    def _end(self) -> None:
        for place in self.stage.places.values():
            if place.process is not None:
                place.process.end()

    def _act(self) -> None:
        """Run the work with faults."""
        for place in self.stage.places.values():
            place.start()
        quiet = self.until_s - self.faults.quiet_at_end_s
        striker = TimedFaultInjector(self.stage, self.store)
        for blow in self.fates.blows(quiet, *self._struck()):
            self.stage.schedule.call_at(blow.at_s, striker.strike, blow)
        self.stage.schedule.call_in(self.world.retain_every_s, self._notice_pruned)
        self.stage.schedule.run(self.until_s)

    def _settle(self) -> None:
        """Stop the faults, and let all work end."""
        if self.watcher.broken is not None or not self.chapter.settles:
            return
        self.fates.over = True
        self.stage.heal()
        until = self.until_s + self.world.settles_within_s
        while not self.stage.schedule.halted and self.stage.schedule.now < until:
            self.stage.schedule.run(min(until, self.stage.schedule.now + _LOOK_EVERY_S))
            if self._is_settled():
                # A worker learns that a job has ended with a heartbeat, or when its lease expires;
                # and a client may retry it.
                self.stage.schedule.run(self.stage.schedule.now + self.world.durations.lease_ttl_s)
                if self._is_settled():
                    return

    def _is_settled(self) -> bool:
        return not self._unsettled() and not self._undelivered() and not self.people.waiting

    def _look_back(self) -> None:
        """Check the claims about the end."""
        if self.watcher.broken is not None or not self.chapter.settles:
            return
        unfinished = {
            name: f"{name} was not reported, or has not ended" for name in self._unsettled_but_for_jobs()
        }
        unfinished |= {job_id: f"{job_id}: {self._explained(job_id)}" for job_id in self.judge.unsettled()}
        settled = SettledEpisode(list(unfinished.values()), self._undelivered())
        self.watcher.check(settled, next(iter(unfinished), ""))
        self.watcher.check(WaitingClients(self.people.waiting))
        for job_id in self.people.acknowledged.values():
            stored = job_id in self.judge.ended or job_id in self.judge.forgotten
            self.watcher.check(AcknowledgedJob(job_id, stored), job_id)
        audited = driven(audit(self.store, JOURNALLED, _LOOKED_AFTER))
        for fault in audited.faults:
            name = f"{fault.kind} {fault.id} v{fault.version}"
            self.watcher.check(AuditedRecord(name, fault.sentence), fault.id)
        self._look_at_memory()
        self._look_at_records()
        self._look_at_the_fleet()

    def _look_at_memory(self) -> None:
        for name in self.workers:
            process = self.stage.places[name].process
            worker = process.role if process is not None else None
            if isinstance(worker, WorkerProcess):
                self.watcher.check(WorkerMemory(name, worker.leftovers()))

    def _look_at_records(self) -> None:
        """Check that dead workers were declared lost, and no finished tree is open."""
        places = self.stage.places.values()
        alive = {place.process.loop.name for place in places if place.process is not None}
        for worker_id, runner_id in self.judge.workers.living().items():
            self.watcher.check(LiveRecord(worker_id, runner_id, runner_id in alive))
        for record in driven(self.store.find(Query(kind=TREE.name, states=(OPEN,)))).records:
            if record.id not in self.judge.trees.shaken:
                self.watcher.check(OpenTree(record.id, closed=record.state != OPEN), record.id)
        for record in driven(self.store.find(Query(kind=JOB_WAIT.name, states=(WAITING, KEPT)))).records:
            if record.parent not in self.judge.forgotten:
                self.watcher.check(OpenWait(record.id, record.state), record.parent or "")

    def _look_at_the_fleet(self) -> None:
        """Check that every agent is free."""
        for name in self.world.fleet:
            process = self.stage.places[name].process
            idle = process is not None and process.role is not None and process.role.is_idle
            self.watcher.check(AgentAtEnd(name, idle))

    # Actors

    def _struck(self) -> tuple[list[str], list[str]]:
        """Return the targets of network faults, and those of deployments; drivers of a fleet are both."""
        if not self.world.agents:
            return self.servers, self.workers
        return [*self.servers, *self.workers], [*self.world.fleet, *self.workers]

    def _place_fleet(self, registry: Registry) -> None:
        """Place the agents, their drivers and their clients."""
        from interlock_verification.worlds.actors.controllers import fleet_of  # noqa: PLC0415 - libraries for fleets alone

        fleet = fleet_of(self.stage, self.store, self.judge, registry, self.faults, self.until_s)
        for name, cast in fleet:
            self._place(name, cast)

    def _place(self, name: str, cast: Cast) -> None:
        self.stage.places[name] = ActorPlace(self.stage, name, cast, self.faults.skew)

    # Observations

    def _halt(self) -> None:
        self.stage.schedule.halted = True

    def _unsettled(self) -> list[str]:
        return [*self.judge.unsettled(), *self._unsettled_but_for_jobs()]

    def _unsettled_but_for_jobs(self) -> list[str]:
        judge = self.judge
        return [*judge.runs.unsettled(), *judge.simulations.unsettled(), *judge.fleet.unsettled()]

    def _undelivered(self) -> dict[str, int]:
        records = driven(self.store.status()).records.get("message", {})
        return {state: number for state, number in records.items() if state in ("waiting", "sending")}

    def _notice_pruned(self) -> None:
        """Remove pruned jobs from the judge, so that a long episode stays small."""
        known = self.judge.known()
        found = driven(self.store.load([Key(JOB.name, job_id) for job_id in known]))
        for job_id, record in zip(known, found, strict=True):
            if record is None:
                self.watcher.check(AcknowledgedJob(job_id, stored=job_id in self.judge.ended), job_id)
                self.judge.gone(job_id)
        runs = self.judge.runs.known()
        kept = driven(self.store.load([Key(RUN.name, run_id) for run_id in runs]))
        for run_id, record in zip(runs, kept, strict=True):
            if record is None:
                self.judge.runs.gone(run_id)
        self.stage.schedule.call_in(self.world.retain_every_s, self._notice_pruned)

    def _explained(self, job_id: str) -> str:
        (record,) = driven(self.store.load([Key(JOB.name, job_id)]))
        if record is None:
            return "it is gone"
        try:
            explanation = explain(record, self.stage.clock())
        except InterlockError as error:
            return f"it cannot be explained: {error}"
        return f"{explanation.sentence} Next deadline: {explanation.next_deadline_at}."
