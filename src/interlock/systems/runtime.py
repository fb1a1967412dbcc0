"""`Runtime`: everything on one connection to a store: the engine, the systems on it, and their upkeep."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from interlock.engine.bus import Bus, CommitsAnswered
from interlock.engine.clock import StoreClock
from interlock.engine.committer import GroupCommit
from interlock.engine.debounce import Debouncer
from interlock.engine.outbox import DeliveryPolicy, TopicHandler, deliver, recover
from interlock.engine.retention import QueueWalks, Retention, sweep_ended
from interlock.engine.unit_of_work import Engine, IdSource, random_id
from interlock.lifecycles.worker import TAKING, WORKER
from interlock.store.contract import Store
from interlock.store.records import Guard, Key, Pruned
from interlock.systems.access.tokens import Tokens
from interlock.systems.blobs import Blobs
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.figures.figures import Figures
from interlock.systems.fleet.workloads import Workloads
from interlock.systems.kinds import DeclaredKind
from interlock.systems.orchestrator.admissions import LimitsNotified
from interlock.systems.orchestrator.attachments import Artifacts
from interlock.systems.orchestrator.batches import CANCELS, Batches
from interlock.systems.orchestrator.batches import PREFIX as BATCH_PREFIX
from interlock.systems.orchestrator.dead_letters import DeadLetterService
from interlock.systems.orchestrator.dependencies import DependenciesNotified
from interlock.systems.orchestrator.followers import Followers
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.jobs import Jobs
from interlock.systems.orchestrator.limits import Limits
from interlock.systems.orchestrator.mailboxes import CLOSE_WAITS
from interlock.systems.orchestrator.notifications import DEAD_LETTERS, TO_SIMULATION, JobsSwept, TreesNotified
from interlock.systems.orchestrator.orchestrator import Orchestrator, Seeds, random_seed
from interlock.systems.orchestrator.queues import Queues
from interlock.systems.orchestrator.trees import Trees
from interlock.systems.orchestrator.uniqueness import UniqueKeys
from interlock.systems.orchestrator.waiters import JobWaiters
from interlock.systems.orchestrator.waits import Waits
from interlock.systems.overview import Overview
from interlock.systems.quarantine import Quarantine
from interlock.systems.records import RecordService
from interlock.systems.runs.caches import RunCaches
from interlock.systems.runs.runs import RunService
from interlock.systems.runs.workflows import Planner
from interlock.systems.runs.workflows.flow import FlowPlanner
from interlock.systems.runs.workflows.git import Repositories, WorkflowPlanner
from interlock.systems.schedules.schedules import ScheduleService
from interlock.systems.settings import Settings
from interlock.systems.simulations.manager import SimulationManager
from interlock.systems.supervisor.aggregate import LET_GO
from interlock.systems.supervisor.leases import StopNotices
from interlock.systems.supervisor.workers import Workers
from interlock.wire.runner import ClaimRequest, Grant

SWEEP = 500
"""Maximum overdue records handled in one round."""
PRUNE_EVERY_S = 900.0
"""Interval of the search for old blobs."""
_REMOVED = ("records", "entries", "requests")
ADMITTING_S = 2.0
"""Seconds for which an ending process still admits jobs under limits."""
DELIVERY = 50
"""Number of messages delivered in one round."""


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The host of a runtime; simulations replace it."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    ids: IdSource = random_id
    seeds: Seeds = random_seed
    below: Callable[[int], int] = secrets.randbelow


THIS_HOST = Host()


class Runtime:
    """A store, the engine on it, and the systems on that."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        host: Host = THIS_HOST,
        *,
        repositories: Repositories | None = None,
        blobs: Blobs | None = None,
        caches: Blobs | None = None,
        kinds: Iterable[DeclaredKind[Any]] = (),
    ) -> None:
        self.store = store
        self.settings = settings
        self._blobs, self._keep_blobs = blobs, timedelta(days=settings.blobs.keep_days)
        self._monotonic, self._pruned_at = host.monotonic, float("-inf")
        self._walks = QueueWalks(host.monotonic)
        self.pruned: Pruned = Pruned()
        """The result of the last round of retention."""
        bus = Bus()
        self.committer: GroupCommit = GroupCommit(
            store, committed=lambda work, outcomes: bus.publish(CommitsAnswered(work, outcomes))
        )
        clock = StoreClock(store, monotonic=host.monotonic, wall=host.wall)
        remembered_s = settings.durations.request_ttl_s
        self.engine: Engine = Engine(
            store, self.committer, clock, ids=host.ids, remembered_s=remembered_s, bus=bus
        )
        self.limits: Limits = Limits(self.engine, settings=settings)
        self.queues: Queues = Queues(self.engine, also_refresh=self.limits.look)
        planners: dict[str, Planner] = {"workflow": WorkflowPlanner(repositories), "flow": FlowPlanner()}
        self.runs: RunService = RunService(
            self.engine,
            settings=settings,
            planners=planners,
            reporting=settings.runs.reporting,
            below=host.below,
            limits=self.limits,
        )
        self.orchestrator: Orchestrator = Orchestrator(
            self.engine,
            settings=settings,
            seeds=host.seeds,
            queues=self.queues,
            limits=self.limits,
            run_progress=self.runs.progress,
        )
        self.jobs: Jobs = Jobs(self.engine, settings=settings, ids=JobIds(host.below), limits=self.limits)
        self.dead_letters: DeadLetterService = DeadLetterService(self.engine, self.jobs, settings=settings)
        self.unique_keys: UniqueKeys = UniqueKeys(self.engine)
        self.waits: Waits = Waits(self.engine, settings=settings)
        self.schedules: ScheduleService = ScheduleService(
            self.engine, settings=settings.schedules, draw=self.jobs.draw
        )
        self.workers: Workers = Workers(
            self.engine, settings=settings.supervisor, ids=JobIds(host.below, prefix="w_")
        )
        self.stops: StopNotices = StopNotices(self.workers.notify)
        bus.subscribe(CommitsAnswered, lambda answered: self.stops.notice(answered.work, answered.outcomes))
        bus.subscribe(JobsSwept, lambda swept: self.stops.notice(swept.commits, swept.outcomes))
        self.workloads: Workloads = Workloads(self.engine, self.orchestrator.report, settings=settings.fleet)
        self.tokens: Tokens = Tokens(self.engine)
        self.figures: Figures = Figures(self.engine)
        # Messages between records are committed separately from the commits that runners wait for.
        self._couriers = GroupCommit(store)
        self.quarantine: Quarantine = Quarantine(self.engine, settings.quarantine)
        self.overview: Overview = Overview(
            self.engine,
            figures=self.figures,
            quarantine=self.quarantine,
            queues=self.queues,
            beat_every_s=settings.durations.worker_beat_every_s,
            monotonic=host.monotonic,
        )
        self.waiting: JobWaiters = JobWaiters(self.engine)
        self.artifacts: Artifacts = Artifacts(store, self.orchestrator.report, blobs)
        self.caches: RunCaches = RunCaches(self.engine, self.orchestrator.report, caches, settings.blobs)
        self.simulations: SimulationManager = SimulationManager(
            self.engine, settings=settings.simulations, cancel_job=self.jobs.cancel, below=host.below
        )
        self.records: RecordService = RecordService(self.engine, kinds, below=host.below)
        self.trees: Trees = Trees(self.engine, settings, self.jobs.draw)
        batch_ids = JobIds(host.below, prefix=BATCH_PREFIX)
        self.batches: Batches = Batches(
            self.engine, self.jobs, settings=settings, limits=self.limits, draw=batch_ids.draw
        )
        self.followers: Followers = Followers(self.engine, settings, self.batches)
        self._follower_debouncer = Debouncer("jobs are notified of ends", self.followers.keep)
        bus.subscribe(DependenciesNotified, lambda _: self._wake_followers())
        self._tree_debouncer = Debouncer("trees are kept", self.trees.keep)
        bus.subscribe(TreesNotified, lambda _: self._wake_trees())
        self._limit_debouncer = Debouncer("jobs are admitted", self.limits.keep)
        bus.subscribe(LimitsNotified, lambda _: self._wake_limits())

    async def claim(self, request: ClaimRequest) -> list[Grant]:
        """Claim jobs for a runner, unless it is paused or quarantined.

        A registered worker gets jobs only while its record allows it: that guards the claim. Jobs of a
        terminated worker are ready again as soon as its end is stored, and its own claim may be the first to
        find them; the store reads the guard no earlier than the ready jobs, so that such a claim sees the end
        as well.
        """
        if self.quarantine.held and self.quarantine.why_not(request.runner_id):
            return []
        guard = Guard(Key(WORKER.name, request.worker_id), TAKING) if request.worker_id else None
        return await self.orchestrator.claim(request, guard=guard)

    async def unless_held(self, request: ClaimRequest, grants: list[Grant]) -> list[Grant]:
        """Return the grants, unless the worker was paused or ended meanwhile.

        In that case they are released. Jobs of a terminated worker are ready again right after its end is
        stored. Its own pending claim could be the first to claim them.
        """
        if not grants or not request.worker_id or await self.workers.takes(request.worker_id):
            return grants
        await self.orchestrator.take_back(request.runner_id, grants)
        return []

    async def sweep(self) -> int:
        """Handle all passed deadlines; return their number."""
        swept = await self.orchestrator.sweep(limit=SWEEP) + await self.workers.sweep(limit=SWEEP)
        swept += await self.workloads.sweep(limit=SWEEP)
        swept += await self.quarantine.sweep(limit=SWEEP)
        swept += await self.records.sweep(limit=SWEEP)
        swept += await self.schedules.sweep(limit=SWEEP)
        swept += await self.waits.sweep(limit=SWEEP)
        return swept + await self.simulations.sweep(limit=SWEEP)

    async def deliver(self) -> int:
        """Deliver messages between records; return their number."""
        back = await recover(self.store, limit=SWEEP) + await self.trees.keep(limit=SWEEP)
        back += await self.followers.keep(limit=SWEEP) + await self.quarantine.keep()
        await self.queues.look()
        back += await self.limits.keep_occasionally(limit=SWEEP)
        return back + await deliver(
            self.store, self._couriers, self._handlers, DeliveryPolicy(), limit=DELIVERY
        )

    async def retain(self, retention: Retention) -> int:
        """Prune one bounded batch of each kind.

        Return the size of a full batch if there is more.
        """
        await self._retain_blobs()
        await self.unique_keys.free(limit=SWEEP)
        kinds = {**CATALOGUE, **self.records.catalogue}
        pruned = await sweep_ended(self.store, kinds, retention, limit=SWEEP, walks=self._walks)
        self.pruned = Pruned(
            **{what: sum(getattr(each, what) for each in pruned.values()) for what in _REMOVED}
        )
        removed = self.pruned.records + self.pruned.requests
        more = any(each.more for each in pruned.values())
        return max(removed, SWEEP) if more else min(removed, SWEEP - 1)

    async def _retain_blobs(self) -> None:
        """Remove old blobs periodically: finding them needs a full scan."""
        if self._blobs is not None and self._monotonic() >= self._pruned_at + PRUNE_EVERY_S:
            self._pruned_at = self._monotonic()
            await self._blobs.prune(self._keep_blobs)
            await self.caches.tidy()

    @property
    def _handlers(self) -> Mapping[str, TopicHandler]:
        """The handler of each topic."""
        return {
            LET_GO: self.workers.end_leases,
            TO_SIMULATION: self.simulations.lost,
            DEAD_LETTERS: self.dead_letters.alert,
            CLOSE_WAITS: self.waits.close,
            CANCELS: self.batches.stop,
        }

    def _wake_trees(self) -> None:
        if self.runs.prompt:
            self._tree_debouncer.trigger()

    def _wake_followers(self) -> None:
        if self.runs.prompt:
            self._follower_debouncer.trigger()

    def _wake_limits(self) -> None:
        if self.runs.prompt:
            self._limit_debouncer.trigger()

    async def close(self) -> None:
        """Finish pending work, then close the store."""
        self.limits.close()
        with suppress(TimeoutError):  # who has submitted and ends admits its jobs, or others do it later
            async with asyncio.timeout(ADMITTING_S):
                await self._follower_debouncer.idle()
                await self._limit_debouncer.idle()
        await self._follower_debouncer.close()
        await self._limit_debouncer.close()
        await self._tree_debouncer.close()
        await self.runs.close()
        await self.waiting.close()
        await self.stops.close()
        await self._couriers.close()
        await self.committer.close()
        await self.store.close()
