"""The claims of worlds are tables: each is listed, each can be broken, and a broken world has broken it."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import msgspec
import pytest
from tests.sources import tree_of

from interlock.lifecycles import run, simulation, worker
from interlock.lifecycles.run import Run
from interlock.lifecycles.simulation import SimulationData
from interlock.lifecycles.worker import Worker
from interlock.lifecycles.workload import Status, WorkloadData
from interlock.systems.orchestrator.wait_records import WAITING
from interlock.systems.runs.body import RunBody
from interlock.systems.simulations.body import PulseBody, SimulationBody
from interlock.systems.supervisor.aggregate import WorkerBody
from interlock.wire.runner import Stale, StaleCode
from interlock.wire.runs import RunSpec
from interlock.wire.simulations import SimulationSpec
from interlock.wire.workers import WorkerSpec
from interlock_verification import claims
from interlock_verification.claims import FactClaim
from interlock_verification.worlds import claims as world_claims
from interlock_verification.worlds.claims import (
    episodes,
    fleet,
    jobs,
    keys,
    limits,
    runs,
    signals,
    simulations,
    trees,
    workers,
)
from interlock_verification.worlds.claims.tables import CLAIMS_BY_FACT, WORLD_CLAIMS
from interlock_verification.worlds.network import ClaimWatcher

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=1)
SOURCES = Path(claims.__file__).parent


def run_with(**data: Any) -> RunBody:
    return RunBody(spec=RunSpec(), data=Run(**data))


def worker_with(**data: Any) -> WorkerBody:
    return WorkerBody(spec=WorkerSpec(), data=Worker(**data), runner_id="w1#1")


def simulation_with(**data: Any) -> SimulationBody:
    return SimulationBody(spec=SimulationSpec(), data=SimulationData(created_at=NOON, **data))


def saved(number: int, steps: int, at: int) -> PulseBody:
    """Return a pulse with the state of a chain after some steps, saved as that of another step."""
    raw = msgspec.Raw(msgspec.json.encode(simulations.state_after(number, steps)))
    return PulseBody(step=at, saved_step=at, checkpoint=raw)


PULSE, STEP_TWO = PulseBody(), PulseBody(step=2)
DONE = WorkloadData(workload_id="l1", final=Status.COMPLETED)
UNREPORTED = RunBody(spec=RunSpec(), data=Run(outcome=run.CANCELED), superseded_by="r2")
TALLY = fleet.AgentTally("l1", True, 5, 5)
FIRST = simulations.ChainState.first(1)

FACTS: dict[str, tuple[Any, Any]] = {
    "report.repeated": (
        jobs.RepeatedReport("Complete", Stale(code=StaleCode.LEASE_EXPIRED, error=""), False),
        jobs.RepeatedReport("Complete", Stale(code=StaleCode.LEASE_EXPIRED, error=""), True),
    ),
    "job.cancel_was_requested": (
        jobs.CanceledJob("j1", "cancel", True),
        jobs.CanceledJob("j1", "cancel", False),
    ),
    "client.stored": (jobs.AcknowledgedJob("j1", True), jobs.AcknowledgedJob("j1", False)),
    "client.same_answer": (
        jobs.RepeatedSubmission(1, "j1", "j1"),
        jobs.RepeatedSubmission(1, "j1", "j2"),
    ),
    "client.learns_of_end": (jobs.ReportedEnd("j1", "COMPLETED"), jobs.ReportedEnd("j1", "RUNNING")),
    "client.wait_ends": (jobs.WaitingClients([]), jobs.WaitingClients(["j1"])),
    "client.explained": (
        jobs.ExplainedJob("j1", "PENDING", "It waits."),
        jobs.ExplainedJob("j1", "PENDING", ""),
    ),
    "handler.slots": (jobs.BusyWorker("w1", 2, 2), jobs.BusyWorker("w1", 3, 2)),
    "handler.alone": (
        jobs.StartedHandler("w1", "1.2", []),
        jobs.StartedHandler("w1", "1.2", ["1.1 at w2"]),
    ),
    "run.step_invariants": (
        runs.RunTransition("r1", run.RUNNING, run_with(), run.SUCCESS, run_with(outcome=run.SUCCESS)),
        runs.RunTransition(
            "r1", run.FAILED, run_with(outcome=run.FAILED), run.SUCCESS, run_with(outcome=run.SUCCESS)
        ),
    ),
    "run.reported_is_final": (
        runs.RunTransition("r1", run.SUCCESS, run_with(), run.REPORTED, run_with()),
        runs.RunTransition("r1", run.REPORTED, run_with(), run.SUCCESS, run_with()),
    ),
    "run.success_is_earned": (
        runs.RunOutcome("r1", run_with(outcome=run.SUCCESS), {"j1": "COMPLETED"}, False),
        runs.RunOutcome("r1", run_with(outcome=run.SUCCESS), {"j1": "FAILED"}, False),
    ),
    "run.failure_has_a_cause": (
        runs.RunOutcome("r1", run_with(outcome=run.FAILED), {"j1": "FAILED"}, False),
        runs.RunOutcome("r1", run_with(outcome=run.FAILED), {"j1": "COMPLETED"}, False),
    ),
    "run.cancel_was_requested": (
        runs.RunOutcome("r1", UNREPORTED, {}, False),
        runs.RunOutcome("r1", run_with(outcome=run.CANCELED), {}, False),
    ),
    "run.invariants": (
        runs.RunWritten("r1", run.RUNNING, run_with()),
        runs.RunWritten("r1", run.RUNNING, run_with(outcome=run.SUCCESS)),
    ),
    "run.approved_first": (
        runs.CreatedRunJob("j1", "r1", 0, "j1", True, True),
        runs.CreatedRunJob("j1", "r1", 0, "j1", True, False),
    ),
    "run.job_is_created_once": (
        runs.CreatedRunJob("j1", "r1", 0, "j1", False, False),
        runs.CreatedRunJob("j2", "r1", 0, "j1", False, False),
    ),
    "run.needs_first": (
        runs.StartedRunJob("j2", {"j1": ("COMPLETED", True), "j0": ("FAILED", False)}),
        runs.StartedRunJob("j2", {"j1": ("FAILED", True)}),
    ),
    "tree.child_of_unended": (
        trees.CreatedChild("j2", "j1", "RUNNING"),
        trees.CreatedChild("j2", "j1", "COMPLETED"),
    ),
    "tree.parent_waits": (
        trees.CompletedParent("j1", {"j2": "FAILED"}),
        trees.CompletedParent("j1", {"j2": "RUNNING"}),
    ),
    "tree.quota": (trees.TreeDepth("j1", 1, 4, 4), trees.TreeDepth("j1", 1, 5, 4)),
    "tree.stopped_together": (
        trees.StoppedSubtree("j1", {}),
        trees.StoppedSubtree("j1", {"j2": "RUNNING"}),
    ),
    "tree.children_are_found": (
        trees.FoundChildren("j1", ["j2"], {"j2": True}),
        trees.FoundChildren("j1", ["j2", "j3"], {"j2": True}),
    ),
    "tree.closed": (trees.OpenTree("j1", True), trees.OpenTree("j1", False)),
    "key.unique": (keys.CreatedUniqueJob("j2", {}), keys.CreatedUniqueJob("j2", {"j1": "RUNNING"})),
    "limit.slots": (limits.LeasedSlots("vendor", 3, 3), limits.LeasedSlots("vendor", 4, 3)),
    "signal.same_again": (signals.RepeatedWait(1, 7, 7), signals.RepeatedWait(1, 7, None)),
    "signal.once_in_order": (signals.ReceivedSignals([1, 3]), signals.ReceivedSignals([3, 3])),
    "signal.answers_its_wait": (signals.AnsweredWait(1, 7, [7]), signals.AnsweredWait(1, 8, [7])),
    "signal.none_left": (signals.WaitAtEnd("m1", "RECEIVED"), signals.WaitAtEnd("m1", WAITING)),
    "simulation.invariants": (
        simulations.SimulationWritten("s1", simulation.PENDING, simulation_with()),
        simulations.SimulationWritten("s1", simulation.RUNNING, simulation_with()),
    ),
    "simulation.step_invariants": (
        simulations.SimulationTransition(
            "s1", simulation.RUNNING, simulation_with(), simulation.PAUSED, simulation_with(current_step=1)
        ),
        simulations.SimulationTransition(
            "s1", simulation.RUNNING, simulation_with(current_step=1), simulation.PAUSED, simulation_with()
        ),
    ),
    "simulation.end_is_final": (
        simulations.SimulationTransition(
            "s1", simulation.FAILED, simulation_with(), simulation.FAILED, simulation_with()
        ),
        simulations.SimulationTransition(
            "s1", simulation.FAILED, simulation_with(), simulation.RUNNING, simulation_with()
        ),
    ),
    "simulation.cancel_was_requested": (
        simulations.CancelledSimulation("s1", True),
        simulations.CancelledSimulation("s1", False),
    ),
    "simulation.same_result": (
        simulations.CompletedSimulation("s1", 1, 3, 3, simulations.state_after(1, 3)),
        simulations.CompletedSimulation("s1", 1, 3, 3, simulations.state_after(1, 2)),
    ),
    "simulation.goes_forward": (
        simulations.PulseTransition("s1", PULSE, STEP_TWO, {2}),
        simulations.PulseTransition("s1", STEP_TWO, PULSE, {0}),
    ),
    "simulation.reports_of_runner": (
        simulations.PulseTransition("s1", PULSE, STEP_TWO, {2}),
        simulations.PulseTransition("s1", PULSE, STEP_TWO, {1}),
    ),
    "simulation.saved_state": (
        simulations.PulseTransition("s1", PULSE, saved(1, 2, at=2), {2}),
        simulations.PulseTransition("s1", PULSE, saved(1, 2, at=3), {3}),
    ),
    "simulation.resumes_saved": (
        simulations.ResumedSimulation("s1", 1, 2, simulations.state_after(1, 2)),
        simulations.ResumedSimulation("s1", 1, 2, FIRST),
    ),
    "worker.invariants": (
        workers.WorkerWritten("w1", worker.RUNNING, worker_with()),
        workers.WorkerWritten("w1", worker.PAUSED, worker_with()),
    ),
    "worker.step_invariants": (
        workers.WorkerTransition("w1", worker.RUNNING, worker_with(), worker.PAUSED, worker_with()),
        workers.WorkerTransition(
            "w1",
            worker.COMPLETED,
            worker_with(outcome=worker.COMPLETED, completed_at=NOON),
            worker.FAILED,
            worker_with(outcome=worker.FAILED, completed_at=LATER),
        ),
    ),
    "worker.end_is_final": (
        workers.WorkerTransition("w1", worker.FAILED, worker_with(), worker.TERMINATED, worker_with()),
        workers.WorkerTransition("w1", worker.FAILED, worker_with(), worker.RUNNING, worker_with()),
    ),
    "worker.quarantine": (
        workers.GrantsToRunner("w1#1", 1, LATER, NOON),
        workers.GrantsToRunner("w1#1", 1, NOON, LATER),
    ),
    "worker.held": (
        workers.GrantToHeldWorker("w1", worker.PAUSED, LATER, NOON),
        workers.GrantToHeldWorker("w1", worker.PAUSED, NOON, LATER),
    ),
    "worker.leases_are_released": (
        workers.ReleasedLeases("w1#1", []),
        workers.ReleasedLeases("w1#1", ["1.1 of j1"]),
    ),
    "worker.dead_is_recorded": (
        workers.LiveRecord("w1", "w1#1", True),
        workers.LiveRecord("w1", "w1#1", False),
    ),
    "fleet.one_workload": (
        fleet.SpawnedWorkload("a1", "l1", None, True),
        fleet.SpawnedWorkload("a1", "l2", "l1", True),
    ),
    "fleet.ready_first": (
        fleet.SpawnedWorkload("a1", "l1", None, True),
        fleet.SpawnedWorkload("a1", "l1", None, False),
    ),
    "fleet.taken_once": (
        fleet.AcceptedWorkload("a1", "l1", False),
        fleet.AcceptedWorkload("a1", "l1", True),
    ),
    "fleet.not_before_start": (
        fleet.BegunWorkload("a1", 0.0, 0.0, False),
        fleet.BegunWorkload("a1", -0.001, 0.0, False),
    ),
    "fleet.on_time": (
        fleet.BegunWorkload("a1", 0.5, 0.5, False),
        fleet.BegunWorkload("a1", 0.6, 0.5, False),
    ),
    "fleet.together": (
        fleet.SimultaneousStart("j1", 0.03, 0.02, 0.01),
        fleet.SimultaneousStart("j1", 0.04, 0.02, 0.01),
    ),
    "fleet.stops_without_controller": (
        fleet.UnattendedWorkload("a1", "l1", "ok", 9.0, False),
        fleet.UnattendedWorkload("a1", "l1", "ok", 9.0, True),
    ),
    "fleet.stops_after_drive": (
        fleet.WorkloadAfterDrive("a1", "l1", "ok", True),
        fleet.WorkloadAfterDrive("a1", "l1", "ok", False),
    ),
    "fleet.drive_ends": (
        fleet.DriveAtDeadline("w1", "j1", 9.0, False),
        fleet.DriveAtDeadline("w1", "j1", 9.0, True),
    ),
    "fleet.reports_count_once": (
        fleet.CountedReport(TALLY, 5, True),
        fleet.CountedReport(TALLY, 4, True),
    ),
    "fleet.total": (fleet.ResultTotal(5, 5, 5), fleet.ResultTotal(5, 4, 5)),
    "fleet.free_agent_accepts": (
        fleet.AnswerOfFreeAgent("a1", "l1", Status.READY),
        fleet.AnswerOfFreeAgent("a1", "l1", Status.ERROR),
    ),
    "fleet.freed_in_time": (
        fleet.BusyAgent("a1", "l1", 9.0, 10.0),
        fleet.BusyAgent("a1", "l1", 11.0, 10.0),
    ),
    "fleet.free_at_end": (fleet.AgentAtEnd("a1", True), fleet.AgentAtEnd("a1", False)),
    "fleet.late_message": (
        fleet.LateAgentMessage("a1", "l1", False),
        fleet.LateAgentMessage("a1", "l1", True),
    ),
    "fleet.no_restart": (fleet.StartedDrive("w1", "j1", False), fleet.StartedDrive("w1", "j1", True)),
    "fleet.refusal_is_true": (
        fleet.RefusedDrive("too few agents", {}),
        fleet.RefusedDrive("too few agents", {"l1": "a1"}),
    ),
    "fleet.end_is_final": (
        fleet.WorkloadTransition("l1", "IDLE", DONE, "IDLE", DONE),
        fleet.WorkloadTransition("l1", "IDLE", DONE, "IDLE", WorkloadData(workload_id="l2")),
    ),
    "fleet.invariants": (
        fleet.WorkloadWritten("l1", "RUNNING", WorkloadData(alive=True), False),
        fleet.WorkloadWritten("l1", "READY", WorkloadData(alive=True), False),
    ),
    "fleet.completed_is_true": (
        fleet.WorkloadWritten("l1", "IDLE", DONE, True),
        fleet.WorkloadWritten("l1", "IDLE", DONE, False),
    ),
    "episode.no_process_crashes": (
        episodes.UnexpectedError(episodes.REQUEST, ""),
        episodes.UnexpectedError(episodes.PROCESS, ""),
    ),
    "episode.no_request_crashes": (
        episodes.UnexpectedError(episodes.PROCESS, ""),
        episodes.UnexpectedError(episodes.REQUEST, ""),
    ),
    "episode.no_client_request_crashes": (
        episodes.UnexpectedError(episodes.REQUEST, ""),
        episodes.UnexpectedError(episodes.CLIENT_REQUEST, ""),
    ),
    "episode.no_worker_loop_crashes": (
        episodes.UnexpectedError(episodes.REQUEST, ""),
        episodes.UnexpectedError(episodes.WORKER_LOOP, ""),
    ),
    "episode.worker_exits": (
        episodes.ShutdownDeadline("w1#1", 9.0, True),
        episodes.ShutdownDeadline("w1#1", 9.0, False),
    ),
    "episode.settles": (
        episodes.SettledEpisode([], {}),
        episodes.SettledEpisode([], {"waiting": 1}),
    ),
    "episode.journal_replays": (
        episodes.AuditedRecord("job j1 v2", ""),
        episodes.AuditedRecord("job j1 v2", "A step is missing."),
    ),
    "episode.memory_is_bounded": (
        episodes.WorkerMemory("w1", {}),
        episodes.WorkerMemory("w1", {"tasks": 1}),
    ),
    "episode.time_goes_on": (episodes.WorldTime(""), episodes.WorldTime("work is repeated")),
}
"""A fact of which each claim holds, and one that breaks it."""

SHARED: Sequence[FactClaim[Any]] = (
    *claims.VALUE_CLAIMS,
    *claims.STEP_CLAIMS,
    *claims.SUBMISSION_CLAIMS,
    *claims.GRANT_CLAIMS,
    *claims.HEARD_CLAIMS,
    *claims.REPORT_CLAIMS,
    *claims.END_CLAIMS,
)
"""Claims that other judges check as well: `test_claims.py` and `test_broken_rules.py` break them."""


def claims_in(module: str) -> Iterator[FactClaim[Any]]:
    """Yield the claims that a module declares, in tables and alone."""
    for value in vars(import_module(module)).values():
        found = value if isinstance(value, tuple) else (value,)
        yield from (one for one in found if isinstance(one, FactClaim))


def test_every_claim_that_a_module_declares_is_listed_for_the_worlds() -> None:
    modules = [f"{world_claims.__name__}.{one.name}" for one in iter_modules(world_claims.__path__)]
    assert len(modules) > 10
    declared = [claim for module in modules for claim in claims_in(module)]
    listed = {id(claim) for claim in WORLD_CLAIMS}
    assert [claim.name for claim in declared if id(claim) not in listed] == []


def test_names_of_claims_are_unique_and_every_claim_is_found_by_its_type_of_fact() -> None:
    names = Counter(claim.name for claim in WORLD_CLAIMS)
    assert [name for name, number in names.items() if number > 1] == []
    assert sum(map(len, CLAIMS_BY_FACT.values())) == len(WORLD_CLAIMS)


def test_the_facts_are_those_of_every_claim_that_only_worlds_check() -> None:
    shared = {claim.name for claim in SHARED}
    assert {*FACTS} == {claim.name for claim in WORLD_CLAIMS} - shared


@pytest.mark.parametrize("name", FACTS)
def test_each_claim_holds_of_a_sound_fact_and_is_broken_by_a_bad_one(name: str) -> None:
    (claim,) = (one for one in WORLD_CLAIMS if one.name == name)
    sound, bad = FACTS[name]
    assert type(sound) is type(bad) is claim.about
    assert claim.holds(sound)
    assert not claim.holds(bad)
    watcher = ClaimWatcher()
    watcher.check(bad)
    assert watcher.broken is not None
    assert watcher.broken.description == str(bad)


def test_the_first_broken_claim_halts_the_world_and_is_the_one_that_is_reported() -> None:
    halts = []
    watcher = ClaimWatcher()
    watcher.halt = lambda: halts.append("now")
    for name in ("key.unique", "limit.slots"):
        watcher.check(FACTS[name][1], about="j7")
    assert watcher.broken is not None
    assert (watcher.broken.name, watcher.broken.about, halts) == ("key.unique", "j7", ["now"])


def test_only_the_watcher_of_claims_reports_a_broken_claim() -> None:
    makers = {
        path.name
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "BrokenClaim"
    }
    assert makers == {"network.py"}


BROKEN_PROGRAMS = (
    *sorted(Path(__file__).parent.glob("test_broken_*.py")),
    *(Path(__file__).parent / f"test_{name}.py" for name in ("unique_keys", "limited_worlds")),
    Path(__file__).parent / "test_worlds_with_signals.py",
)
TABLES = "stores and the kernel refuse what a table forbids, and its invariants hold for every legal step"
BY_MODEL = "mutants of the tables break it in the model (`interlock verify mutate`)"
BY_FACTS = "the tests of the chaos judge break it"
NEVER_SEEN = {
    "job.one_live_lease": BY_MODEL,
    "job.attempts_match_leases": BY_MODEL,
    "job.completed_is_all_shards": BY_MODEL,
    "job.progresses": BY_MODEL,
    "step.ends_absorb": "no row leaves a terminal state, so step.journal_replays is broken first",
    "step.heartbeat_runs": BY_MODEL,
    "report.late_is_refused": "a world judges a report that was accepted by its sender: report.from_holder",
    "job.shard_succeeds_once": BY_FACTS,
    "job.completed_once": BY_FACTS,
    "handler.alone": "a worker without this rule (`find_late`) learns of its loss from other calls first",
    "run.step_invariants": TABLES,
    "run.reported_is_final": TABLES,
    "run.invariants": BY_MODEL,
    "run.cancel_was_requested": "the table of runs refuses to cancel a run that has no request",
    "run.job_is_created_once": "the plan has the ids of its jobs, so the store refuses a second creation",
    "signal.none_left": "waits time out, and handlers read what is kept, before an episode ends",
    "simulation.invariants": TABLES,
    "simulation.step_invariants": TABLES,
    "simulation.end_is_final": TABLES,
    "worker.invariants": TABLES,
    "worker.step_invariants": TABLES,
    "worker.end_is_final": TABLES,
    "fleet.one_workload": "the table of an agent has one workload",
    "fleet.ready_first": "the table of an agent starts a process only after READY",
    "fleet.freed_in_time": "an agent that stays busy goes on after the drive: fleet.stops_after_drive",
    "fleet.free_at_end": "an agent that stays busy goes on after the drive: fleet.stops_after_drive",
    "fleet.end_is_final": TABLES,
    "fleet.invariants": TABLES,
}
"""Claims that no broken program of these tests has broken, each with the reason."""


def claims_seen_to_fail() -> set[str]:
    """Return the names and sentences in the tests of broken programs; `claims.X` stands for its sentence."""
    found = set()
    for path in BROKEN_PROGRAMS:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found.add(str(getattr(claims, node.attr, "")) if node.value.id == "claims" else "")
    return found


def test_a_broken_program_has_broken_each_claim_or_there_is_a_reason_why_not() -> None:
    seen = claims_seen_to_fail()
    assert len(BROKEN_PROGRAMS) > 6
    unseen = {claim.name for claim in WORLD_CLAIMS if not {claim.name, claim.sentence} & seen}
    assert unseen == {*NEVER_SEEN}
