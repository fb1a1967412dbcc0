"""Servers and workers as processes on a real database, under every fault.

Shows: if processes are killed, frozen, cut off, shut down or given a wrong clock, every submitted job is
completed, once; reports under an ended lease are refused, and the refusal is journalled; and the jobs of dead
workers are soon claimed by others.

Broken mode: the three of `broken_rules`, one after the other; each has to be detected.

One round is one `kill -9`. Between the kills come the other faults, in turn. Recovery times are always
reported, and judged only in the long mode: beside other tests the machine may stall for longer than a lease,
which is not our fault.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from interlock.errors import StoreUnavailable
from interlock.lifecycles import attempt, job
from interlock.lifecycles.job import JOB
from interlock.store.contract import Store
from interlock.store.records import Query
from interlock.store.urls import store_for
from interlock.systems.catalogue import CATALOGUE
from interlock_verification.chaos.databases import ALL_STORES, SQLITE, server_for
from interlock_verification.chaos.system.broken_rules import BROKEN_RULES, NAIVE
from interlock_verification.chaos.system.clients import LateRunner, Submitter
from interlock_verification.chaos.system.fault_injector import STALLS, FaultLog, SystemFaultInjector
from interlock_verification.chaos.system.fleet import DURATIONS, Database, Fleet, fleet_on
from interlock_verification.chaos.system.history import read_history
from interlock_verification.chaos.system.judge import SERVER_BOUND_S, broken_promises, recoveries
from interlock_verification.chaos.verdict import ChaosVerdict, Setup, judging

NAME = "system"
STORES = ALL_STORES
SHORT, LONG = 10, 1_000

KILLS_BETWEEN = 20
"""Kills between two other faults, if there are enough."""
MOST_OPEN = 100
"""Maximum number of unfinished jobs."""
BEGIN_S = 300.0
SETTLE_S, SETTLE_BROKEN_S = 300.0, 3 * DURATIONS.lease_ttl_s
"""Time to finish all jobs after the last fault."""
ONE_FORGOTTEN_AND_ONE_LATE = 2
BREATH_S = 0.5
CALM_S = SERVER_BOUND_S + 0.5
BEAT_S, STALL_S = 0.1, 0.5
"""A pause of the harness, and its maximum delay."""


def run(setup: Setup) -> ChaosVerdict:
    """Kill a member in every round."""
    with judging(NAME, setup) as verdict:
        if setup.broken:
            noticed = {
                broken_rule: asyncio.run(_trial(setup, verdict, broken_rule)) for broken_rule in BROKEN_RULES
            }
            for broken_rule, sentences in noticed.items():
                verdict.remarks.append(f"{broken_rule}: {sentences[0] if sentences else 'not noticed'}")
            if all(noticed.values()):
                verdict.broken_promises += itertools.chain(*noticed.values())
        else:
            verdict.broken_promises += asyncio.run(_trial(setup, verdict))
    return verdict


def run_without(broken_rule: str, setup: Setup) -> ChaosVerdict:
    """Run without one rule, to show that this is detected."""
    with judging(NAME, setup) as verdict:
        verdict.broken_promises += asyncio.run(_trial(setup, verdict, broken_rule))
    return verdict


async def _trial(setup: Setup, verdict: ChaosVerdict, broken_rule: str = "") -> list[str]:
    """Run one fleet; return the guarantees that its journal shows broken."""
    async with _database(setup.store) as (folder, url, database), _opened(url) as store:
        async with fleet_on(url, database, setup.store, folder, broken_rule) as fleet:
            submitters = _submitters(fleet, setup.seed, naive=broken_rule == NAIVE)
            late_runner = LateRunner(fleet.address("right", wired=False), store)
            injector = SystemFaultInjector(fleet, store, setup.seed)
            async with _at_work(store, submitters, late_runner, injector.fault_log, fleet):
                found = await _all_begin(fleet, submitters, late_runner)
                await _inject_faults(injector, setup.rounds, timed=setup.timed)
                await fleet.mend()
            found += await _settled(store, SETTLE_BROKEN_S if broken_rule else SETTLE_S)
            people = {server.name: (server.name, fleet.people_of(server.name)) for server in fleet.servers}
        history = await read_history(store)
    acknowledged = {intent: made for each in submitters for intent, made in each.acknowledged.items()}
    workers, servers = recoveries(history, injector.fault_log, people)
    verdict.add(**{what: number for what in injector.kinds if (number := injector.fault_log.counts[what])})
    verdict.add(
        submitted=len(acknowledged),
        answers_eaten=sum(wires.counts["replies eaten"] for wires in fleet.wires.values()),
        asked_again=sum(each.asked_again for each in submitters),
        settled=sum(kept.state in job.ENDED for kept in history.jobs),
        completed=history.completed.total(),
        attempts_lost=sum(one.state == attempt.STALE for one in history.tries.values()),
        late_reports=len(late_runner.reports),
        refused=sum(not report.believed for report in late_runner.reports),
        refusals_in_the_journal=history.audit.refusals,
        results_from_skewed_hosts=history.skewed,
    )
    verdict.remarks += [workers.remark(), servers.remark(), injector.fault_log.lag.remark()]
    found += injector.fault_log.fallen
    found += broken_promises(history, acknowledged, late_runner.reports)
    if setup.timed:
        found += [*workers.sentences(), *servers.sentences()]
    return found


async def _all_begin(fleet: Fleet, submitters: list[Submitter], late_runner: LateRunner) -> list[str]:
    """Wait until all members have started; return those that have not."""
    until = time.monotonic() + BEGIN_S
    missing: list[str] = ["everybody"]
    while missing and time.monotonic() < until:
        await asyncio.sleep(0.1)
        missing = [worker.name for worker in fleet.workers if not worker.life.runner_id]
        missing += [submitter.name for submitter in submitters if not submitter.acknowledged]
        missing += ["a late runner"] if late_runner.taken < ONE_FORGOTTEN_AND_ONE_LATE else []
    return [f"there was no sign of {', '.join(missing)} in {BEGIN_S:g} s"] if missing else []


async def _inject_faults(injector: SystemFaultInjector, kills: int, *, timed: bool) -> None:
    """Kill members, with each other fault in turn between the kills.

    If recovery is timed, leave a quiet period halfway between two faults: otherwise the next fault would be
    an excuse.
    """
    between = min(KILLS_BETWEEN, max(1, kills // (2 * len(injector.other_faults))))
    others = itertools.cycle(injector.other_faults)
    for number in range(1, kills + 1):
        await injector.pause(BREATH_S)
        await injector.kill()
        if timed and number % between == between // 2:
            await asyncio.sleep(CALM_S)
        if number % between == 0 and number <= kills - min(KILLS_BETWEEN, kills // 2):
            await injector.pause(BREATH_S)
            await injector.inject(next(others))
    await injector.is_over()


@asynccontextmanager
async def _at_work(
    store: Store, submitters: list[Submitter], late_runner: LateRunner, fault_log: FaultLog, fleet: Fleet
) -> AsyncIterator[None]:
    """Submit jobs for the duration of the context.

    At the end all are acknowledged.
    """
    open_jobs = OpenJobs(store)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        counting = group.create_task(open_jobs.keep_counting())
        metronome = group.create_task(_metronome(store, fault_log, fleet))
        for submitter in submitters:
            group.create_task(submitter.keep_on(open_jobs.may_come, stop))
        group.create_task(late_runner.keep_on(stop))
        try:
            yield
        finally:
            stop.set()
            counting.cancel()
            metronome.cancel()


class OpenJobs:
    """Counts unfinished jobs periodically."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._number = 0

    def may_come(self) -> bool:
        """Return whether more jobs may be submitted."""
        return self._number < MOST_OPEN

    async def keep_counting(self) -> None:
        """Count until cancelled."""
        while True:
            with contextlib.suppress(StoreUnavailable):  # the last number is good enough
                self._number = await self.count()
            await asyncio.sleep(0.2)

    async def count(self) -> int:
        """Return the number of unfinished jobs."""
        going = tuple(state for state in CATALOGUE[JOB.name].states if state not in job.ENDED)
        return (await self._store.count(Query(kind=JOB.name, states=going), cap=2 * MOST_OPEN)).number


async def _metronome(store: Store, fault_log: FaultLog, fleet: Fleet) -> None:
    """Record stalls of the machine, and read the scheduling delays."""
    beaten_at = datetime.now(UTC)  # the databases are on this host, so its clock is theirs
    while True:
        began, before = time.monotonic(), beaten_at
        await asyncio.sleep(BEAT_S)
        beaten_at = datetime.now(UTC)
        fault_log.lag.read(beaten_at, [(one.name, one.life.pid) for one in fleet.members.values()])
        if any(wires.half_open for wires in fleet.wires.values()):
            fault_log.disturb(before, beaten_at)
        late_s = time.monotonic() - began - BEAT_S
        if late_s > STALL_S:
            try:
                now = await store.now()
            except StoreUnavailable:
                continue
            fault_log.disturb(now - timedelta(seconds=late_s + BEAT_S), now)
            fault_log.counts[STALLS] += 1


async def _settled(store: Store, within_s: float) -> list[str]:
    """Wait until all jobs have ended; return a sentence if they have not."""
    open_jobs = OpenJobs(store)
    until = time.monotonic() + within_s
    number = 1
    while number and time.monotonic() < until:
        with contextlib.suppress(StoreUnavailable):  # it is retried
            number = await open_jobs.count()
        await asyncio.sleep(0.1)
    return [f"{number} jobs have not ended {within_s:g} s after the last fault"] if number else []


def _submitters(fleet: Fleet, seed: int, *, naive: bool) -> list[Submitter]:
    """Return a submitter for each server's proxy, and one on the database."""
    remote = [
        Submitter(server.name, fleet.address(server.name), seed, naive=naive, wires=fleet.wires[server.name])
        for server in fleet.servers
    ]
    return [*remote, Submitter("direct", fleet.url, seed, naive=naive)]


@asynccontextmanager
async def _database(store: str) -> AsyncIterator[tuple[Path, str, Database]]:
    """Yield a project folder, an empty database, and its server or None."""
    with tempfile.TemporaryDirectory(prefix="interlock-chaos-") as folder:
        if store == SQLITE:
            yield Path(folder), f"sqlite:///{folder}/chaos.db", None
        else:
            with server_for(store) as server:
                yield Path(folder), server.url, server


@asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = store_for(url, CATALOGUE)
    try:
        await store.open()
        yield store
    finally:
        await store.close()
