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
from interlock_verification.worlds.actors.clients import JobClientActor, RunClientActor, SimulationClientActor
from interlock_verification.worlds.actors.handlers import TaskHandlers
from interlock_verification.worlds.actors.operators import OperatorActor
from interlock_verification.worlds.actors.orchestrators import OrchestratorActor
from interlock_verification.worlds.actors.workers import WorkerActor
from interlock_verification.worlds.claims.episodes import (
    AuditedRecord,
    SettledEpisode,
    ShutdownDeadline,
    WorkerMemory,
    WorldTime,
)
from interlock_verification.worlds.claims.fleet import AgentAtEnd
from interlock_verification.worlds.claims.jobs import AcknowledgedJob, WaitingClients
from interlock_verification.worlds.claims.signals import WaitAtEnd
from interlock_verification.worlds.claims.trees import OpenTree
from interlock_verification.worlds.claims.workers import LiveRecord
from interlock_verification.worlds.faults import FaultPlan, Faults, TimedFault
from interlock_verification.worlds.judge import Judge
from interlock_verification.worlds.judge_limits import limit_changes
from interlock_verification.worlds.network import (
    Actor,
    ActorNode,
    ActorProcess,
    BrokenClaim,
    ClaimWatcher,
    WorldNetwork,
)
from interlock_verification.worlds.scheduler import Livelock
from interlock_verification.worlds.storage import SharedStore, driven
from interlock_verification.worlds.worlds import HOUR_S, World


class TimedFaultInjector:
    """Injects the drawn faults."""

    def __init__(self, network: WorldNetwork, store: SharedStore) -> None:
        self.network = network
        self.store = store

    def inject(self, fault: TimedFault) -> None:
        """Inject a fault, unless its target is gone."""
        process = self.network.nodes[fault.who].process
        if process is None or not process.alive or process.frozen or not self._lands(fault, process):
            return
        verbs = {
            "kill": f"{fault.who} is killed, and comes back in {fault.for_s:.0f} s",
            "deploy": f"{fault.who} is asked to shut down",
            "freeze": f"{fault.who} is frozen for {fault.for_s:.0f} s",
            "partition": f"{fault.who} and {fault.whom} cannot reach each other for {fault.for_s:.0f} s",
            "outage": f"the store is unavailable for {fault.for_s:.0f} s",
            "failover": f"the store fails over, {fault.amount:.1f} s of writes are lost",
            "lag": f"timers of {fault.who} are {fault.amount:.0f} s late for {fault.for_s:.0f} s",
        }
        self.network.watcher.note(self.network.schedule.now, f"{verbs[fault.what]}  [{fault.name}]")
        self.network.watcher.record(f"{fault.name} {fault.what} {fault.who}".encode())
        self._ACTS[fault.what](self, fault, process)

    def _lands(self, fault: TimedFault, process: ActorProcess) -> bool:
        if fault.what == "deploy" and _is_leaving(process):
            return False
        return self.network.fault_plan.happens(fault.name, fault.what)

    def _kill(self, fault: TimedFault, _: ActorProcess) -> None:
        self.network.nodes[fault.who].kill(fault.for_s)

    def _deploy(self, fault: TimedFault, process: ActorProcess) -> None:
        worker = process.role
        worker.shutdown.request()
        deadline_s = self.network.world.durations.shutdown_deadline_s + 1.0
        self.network.schedule.call_in(deadline_s / process.loop.rate, self._gone, fault, process)

    def _gone(self, fault: TimedFault, process: ActorProcess) -> None:
        exited = not process.alive or process.was_held_up_since(fault.at_s)
        self.network.watcher.check(ShutdownDeadline(process.loop.name, fault.at_s, exited))

    def _freeze(self, fault: TimedFault, process: ActorProcess) -> None:
        self.network.freeze(process, fault.for_s)

    def _part(self, fault: TimedFault, _: ActorProcess) -> None:
        self.network.part(fault.who, fault.whom, fault.for_s)

    def _take_store_away(self, fault: TimedFault, _: ActorProcess) -> None:
        self.network.away_until = max(self.network.away_until, self.network.schedule.now + fault.for_s)

    def _fail_over(self, fault: TimedFault, process: ActorProcess) -> None:
        lost = self.store.fail_over(fault.amount)
        self.network.watcher.saw("a fail-over loses writes" if lost else "a fail-over loses nothing")
        self._take_store_away(fault, process)

    def _lag(self, fault: TimedFault, process: ActorProcess) -> None:
        process.lag(fault.amount)
        self.network.schedule.call_in(fault.for_s, process.lag, 0.0)

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

    episode: Episode
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
    keeps_story: bool = False,
) -> EpisodeResult:
    """Run one episode."""
    episode = Episode(
        world=world.name,
        faults=faults.name,
        seed=seed,
        hours=world.episode_h if hours is None else hours,
        only=None if only is None else tuple(sorted(only)),
        settles=settles,
    )
    return WorldPlay(world, faults, episode, keeps_story=keeps_story).run()


class WorldPlay:
    """A world with its actors."""

    def __init__(self, world: World, faults: Faults, episode: Episode, *, keeps_story: bool = False) -> None:
        self.episode = episode
        seed = episode.seed
        self.world = world
        self.faults = faults
        self.until_s = episode.hours * HOUR_S
        self.watcher = ClaimWatcher(keeps_story=keeps_story)
        self.fault_plan = FaultPlan(seed, faults, episode.only)
        self.network = WorldNetwork(world, seed, self.fault_plan, self.watcher)
        self.watcher.halt = self._halt
        self.watcher.time = lambda: self.network.schedule.now
        self.judge = Judge(self.watcher)
        self.judge.trees.quotas = world.quotas
        handlers = TaskHandlers(self.watcher, self.judge, world.slots, world.simulations)
        self.store = SharedStore(CATALOGUE, self.network.clock, self.judge)
        self.judge.limits.declare(world.limits)
        self.store.seed(limit_changes(world.limits, self.network.clock()))
        self.people = JobClientActor(self.store, self.judge, self.until_s)
        self.submitters = RunClientActor(self.store, self.judge.runs, self.until_s)
        self.servers = [f"o{number}" for number in range(1, world.orchestrators + 1)]
        served = [f"w{number}" for number in range(1, world.workers + 1)]
        embedded = [f"e{number}" for number in range(1, world.embedded + 1)]
        self.workers = [*served, *embedded]
        for name in self.servers:
            self._add_node(name, OrchestratorActor(self.store, self.judge))
        for name in served:
            self._add_node(
                name, WorkerActor(self.store, self.judge, self.watcher, handlers.registry, self.servers)
            )
        for name in embedded:
            self._add_node(name, WorkerActor(self.store, self.judge, self.watcher, handlers.registry, ()))
        self._add_node(world.people, self.people)
        if world.runs:
            self._add_node(SUBMITTERS, self.submitters)
        if world.simulations:
            self._add_node(PLAYERS, SimulationClientActor(self.store, self.judge.simulations, self.until_s))
        if world.supervised:
            self._add_node(OPERATORS, OperatorActor(self.store, self.until_s - faults.quiet_at_end_s))
        if world.agents:
            self._add_fleet(handlers.registry)

    def run(self) -> EpisodeResult:
        """Run from the first start to the last check."""
        begun = time.process_time()
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # failures are expected in a world
        with warnings.catch_warnings():
            # Coroutines of a killed process are never awaited.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            try:
                self._work()
                self._settle()
                self._check_end()
            except Livelock as circle:
                self.watcher.check(WorldTime(str(circle)))
            finally:
                self._end()
                logging.disable(before)
        broken = self.watcher.broken
        return EpisodeResult(
            episode=self.episode,
            trace=self.watcher.trace,
            faults=dict(self.fault_plan.counts),
            happened=tuple(self.fault_plan.happened) if broken is not None else (),
            seen=dict(sorted(self.watcher.seen.items())),
            submitted=len(self.people.acknowledged) + len(self.people.unknown) + self.judge.fleet.wanted,
            settled=len(self.judge.ended),
            turns=self.network.schedule.turns,
            seconds=time.process_time() - begun,
            broken=broken,
            story=tuple(self.watcher.story(broken.about)) if broken is not None else (),
        )

    # Phases

    def _end(self) -> None:
        for node in self.network.nodes.values():
            if node.process is not None:
                node.process.end()

    def _work(self) -> None:
        """Run the work with faults."""
        for node in self.network.nodes.values():
            node.start()
        quiet = self.until_s - self.faults.quiet_at_end_s
        injector = TimedFaultInjector(self.network, self.store)
        for fault in self.fault_plan.timed_faults(quiet, *self._targets()):
            self.network.schedule.call_at(fault.at_s, injector.inject, fault)
        self.network.schedule.call_in(self.world.retain_every_s, self._notice_pruned)
        self.network.schedule.run(self.until_s)

    def _settle(self) -> None:
        """Stop the faults, and let all work end."""
        if self.watcher.broken is not None or not self.episode.settles:
            return
        self.fault_plan.over = True
        self.network.heal()
        until = self.until_s + self.world.settles_within_s
        while not self.network.schedule.halted and self.network.schedule.now < until:
            self.network.schedule.run(min(until, self.network.schedule.now + _LOOK_EVERY_S))
            if self._is_settled():
                # A worker learns that a job has ended with a heartbeat, or when its lease expires;
                # and a client may retry it.
                self.network.schedule.run(self.network.schedule.now + self.world.durations.lease_ttl_s)
                if self._is_settled():
                    return

    def _is_settled(self) -> bool:
        return not self._unsettled() and not self._undelivered() and not self.people.waiting

    def _check_end(self) -> None:
        """Check the claims about the end."""
        if self.watcher.broken is not None or not self.episode.settles:
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
        self._check_memory()
        self._check_records()
        self._check_fleet()

    def _check_memory(self) -> None:
        for name in self.workers:
            process = self.network.nodes[name].process
            worker = process.role if process is not None else None
            if isinstance(worker, WorkerProcess):
                self.watcher.check(WorkerMemory(name, worker.leftovers()))

    def _check_records(self) -> None:
        """Check that dead workers were declared lost.

        No finished tree may be open.
        """
        nodes = self.network.nodes.values()
        alive = {node.process.loop.name for node in nodes if node.process is not None}
        for worker_id, runner_id in self.judge.workers.living().items():
            self.watcher.check(LiveRecord(worker_id, runner_id, runner_id in alive))
        for record in driven(self.store.find(Query(kind=TREE.name, states=(OPEN,)))).records:
            if record.id not in self.judge.trees.with_lost_writes:
                self.watcher.check(OpenTree(record.id, closed=record.state != OPEN), record.id)
        for record in driven(self.store.find(Query(kind=JOB_WAIT.name, states=(WAITING, KEPT)))).records:
            if record.parent not in self.judge.forgotten:
                self.watcher.check(WaitAtEnd(record.id, record.state), record.parent or "")

    def _check_fleet(self) -> None:
        """Check that every agent is free."""
        for name in self.world.fleet:
            process = self.network.nodes[name].process
            idle = process is not None and process.role is not None and process.role.is_idle
            self.watcher.check(AgentAtEnd(name, idle))

    # Actors

    def _targets(self) -> tuple[list[str], list[str]]:
        """Return the targets of network faults, and those of deployments.

        Drivers of a fleet are both.
        """
        if not self.world.agents:
            return self.servers, self.workers
        return [*self.servers, *self.workers], [*self.world.fleet, *self.workers]

    def _add_fleet(self, registry: Registry) -> None:
        """Place the agents, their drivers and their clients."""
        from interlock_verification.worlds.actors.controllers import fleet_of  # noqa: PLC0415 - libraries for fleets alone

        fleet = fleet_of(self.network, self.store, self.judge, registry, self.faults, self.until_s)
        for name, actor in fleet:
            self._add_node(name, actor)

    def _add_node(self, name: str, actor: Actor) -> None:
        self.network.nodes[name] = ActorNode(self.network, name, actor, self.faults.skew)

    # Observations

    def _halt(self) -> None:
        self.network.schedule.halted = True

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
        self.network.schedule.call_in(self.world.retain_every_s, self._notice_pruned)

    def _explained(self, job_id: str) -> str:
        (record,) = driven(self.store.load([Key(JOB.name, job_id)]))
        if record is None:
            return "it is gone"
        try:
            explanation = explain(record, self.network.clock())
        except InterlockError as error:
            return f"it cannot be explained: {error}"
        return f"{explanation.sentence} Next deadline: {explanation.next_deadline_at}."
