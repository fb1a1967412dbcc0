"""What a client, a handler, a process or an agent relies on is taken out, and a world notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from interlock.agent.state import AgentState
from interlock.lifecycles import attempt
from interlock.lifecycles.job import JOB
from interlock.lifecycles.workload import WORKLOAD, Status
from interlock.store.memory import MemoryStore
from interlock.store.records import Change, Commit, Key, Outcome
from interlock.systems.fleet.results import MergedReports
from interlock.systems.fleet.workloads import WorkloadBody
from interlock.systems.orchestrator import grants, tree_slots
from interlock.systems.orchestrator.body import decode_body, encode_body, tree_change
from interlock.systems.orchestrator.failures import FailureClass
from interlock.systems.orchestrator.jobs import Jobs
from interlock.systems.orchestrator.orchestrator import Orchestrator
from interlock.systems.orchestrator.waiters import JobWaiters
from interlock.systems.simulations.aggregate import SimulationAggregate
from interlock.systems.simulations.manager import SimulationManager
from interlock.worker.executors import Lanes
from interlock.worker.host import Shutdown
from interlock.worker.leases import Renewer
from interlock.worker.process import WorkerProcess
from interlock.worker.simulations import SimulationContext
from interlock.worker.task_runner import TaskRunner
from interlock_verification.worlds.episode import play
from interlock_verification.worlds.faults import faults_named
from interlock_verification.worlds.worlds import world_named


def claim_broken(
    world: str,
    faults: str,
    *,
    hours: float = 0.3,
    first: int = 1,
    seeds: int = 3,
    settles_within_s: float = 7_200.0,
) -> str:
    """Return the claim that the first seed that notices something finds broken."""
    played = msgspec.structs.replace(world_named(world), settles_within_s=settles_within_s)
    for seed in range(first, first + seeds):
        broken = play(played, faults_named(faults), seed=seed, hours=hours).broken
        if broken is not None:
            return broken.name
    raise AssertionError(f"no claim was broken in {seeds} episodes of {world} with {faults}")


async def crash(*_: Any, **__: Any) -> Any:
    raise ValueError("This is broken.")


# Processes and requests


def test_a_worker_that_ends_with_an_error_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerProcess, "run", crash)
    assert claim_broken("laptop", "none") == "episode.no_process_crashes"


def test_a_server_that_crashes_on_a_claim_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Orchestrator, "claim", crash)
    assert claim_broken("team", "none") == "episode.no_request_crashes"


def test_a_submission_that_crashes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Jobs, "submit_jobs", crash)
    assert claim_broken("laptop", "none") == "episode.no_client_request_crashes"


def test_a_loop_of_a_worker_that_crashes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def capacity(_: TaskRunner) -> Any:
        raise ValueError("This is broken.")

    monkeypatch.setattr(TaskRunner, "capacity", capacity)
    assert claim_broken("laptop", "none") == "episode.no_worker_loop_crashes"


@pytest.mark.long
def test_a_worker_that_ignores_a_shutdown_request_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shutdown, "request", lambda _: None)
    assert claim_broken("laptop", "deaths", hours=1.0) == "episode.worker_exits"


def test_a_renewer_that_keeps_the_leases_of_ended_tasks_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Renewer, "remove", lambda *_: None)
    assert claim_broken("laptop", "none") == "episode.memory_is_bounded"


def test_a_worker_that_polls_without_a_pause_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def spin(_: WorkerProcess) -> None:
        while True:
            await asyncio.sleep(0)

    monkeypatch.setattr(WorkerProcess, "run", spin)
    assert claim_broken("laptop", "none") == "episode.time_goes_on"


# Clients and handlers


def test_an_acknowledgement_of_a_job_that_does_not_exist_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Jobs.submit_jobs

    async def wrong(self: Jobs, *given: Any, **more: Any) -> Any:
        answers = await submit(self, *given, **more)
        return [msgspec.structs.replace(one, id=f"{one.id}0") for one in answers]

    monkeypatch.setattr(Jobs, "submit_jobs", wrong)
    assert claim_broken("holidays", "none", hours=10.0) == "client.stored"


@pytest.mark.long
def test_a_client_that_is_answered_before_the_end_of_its_job_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(self: JobWaiters, job_id: str) -> Any:
        (record,) = await self._engine.store.load([Key(JOB.name, job_id)])
        return record

    monkeypatch.setattr(JobWaiters, "ended", at_once)
    assert claim_broken("team", "none", hours=1.0) == "client.learns_of_end"


@pytest.mark.long
def test_a_client_that_is_never_answered_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(JobWaiters, "ended", never)
    assert claim_broken("team", "none", hours=0.3, settles_within_s=900.0) == "client.wait_ends"


@pytest.mark.long
def test_an_explanation_without_a_sentence_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    explain = Jobs.explain

    async def silent(self: Jobs, job_id: str, **more: Any) -> Any:
        return msgspec.structs.replace(await explain(self, job_id, **more), sentence="")

    monkeypatch.setattr(Jobs, "explain", silent)
    assert claim_broken("team", "none", hours=1.0) == "client.explained"


@pytest.mark.long
def test_a_job_that_is_canceled_by_a_question_about_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    explain = Jobs.explain

    async def destructive(self: Jobs, job_id: str, **more: Any) -> Any:
        explanation = await explain(self, job_id, **more)
        await self.cancel(job_id)
        return explanation

    monkeypatch.setattr(Jobs, "explain", destructive)
    assert claim_broken("team", "none", hours=1.0) == "job.cancel_was_requested"


def test_a_worker_that_claims_more_than_its_slots_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Lanes.__init__

    def generous(self: Lanes, *given: Any) -> None:
        init(self, *given)
        self._concurrency *= 10
        self["async"].limit *= 10

    monkeypatch.setattr(Lanes, "__init__", generous)
    assert claim_broken("keys", "none") == "handler.slots"


# Leases and reports


def test_fences_that_do_not_grow_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grants, "fence_of", lambda *_: 7)
    assert claim_broken("team", "deaths") == "lease.fence_grows"


def test_a_refusal_that_is_not_journalled_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    commit_one = MemoryStore._commit_one

    def forgetful(self: MemoryStore, commit: Commit) -> Outcome:
        return commit_one(self, msgspec.structs.replace(commit, refusals=()))

    monkeypatch.setattr(MemoryStore, "_commit_one", forgetful)
    assert claim_broken("team", "deaths", hours=1.0, first=2) == "report.refusal_is_journalled"


# Trees, simulations and fleets


@pytest.mark.long
def test_trees_that_are_not_closed_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def left_open(*given: Any, **more: Any) -> Any:
        return tree_change(*given, **{**more, "over": False})

    monkeypatch.setattr(tree_slots, "tree_change", left_open)
    assert claim_broken("forest", "none") == "tree.closed"


def test_a_simulation_that_ends_one_step_early_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = SimulationContext.steps
    monkeypatch.setattr(SimulationContext, "steps", lambda sim, total: steps(sim, total - 1))
    assert claim_broken("lab", "none") == "simulation.same_result"


def test_a_pause_that_cancels_the_simulation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulationManager, "pause", SimulationManager.cancel)
    assert claim_broken("lab", "none") == "simulation.cancel_was_requested"


def test_a_saved_step_that_is_taken_back_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    note = SimulationAggregate._note

    def backwards(self: SimulationAggregate, message: Any) -> None:
        note(self, message)
        self.pulse.saved_step = min(self.pulse.saved_step, 4 - self.pulse.saved_step)

    monkeypatch.setattr(SimulationAggregate, "_note", backwards)
    assert claim_broken("lab", "none") == "simulation.goes_forward"


def test_a_result_that_adds_what_no_agent_has_counted_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Any = MergedReports.operations
    monkeypatch.setattr(MergedReports, "operations", property(lambda self: counted.fget(self) + 1))
    assert claim_broken("fleet", "none") == "fleet.total"


def test_a_free_agent_that_refuses_every_second_workload_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    request = AgentState.request

    def reluctant(self: AgentState, requested: Any) -> Any:
        if len(self._used) % 2:
            requested = msgspec.structs.replace(requested, kind="unheard of")
        return request(self, requested)

    monkeypatch.setattr(AgentState, "request", reluctant)
    assert claim_broken("fleet", "none", hours=0.5) == "fleet.free_agent_accepts"


# Records: what is stored is not what was decided


def store_otherwise(
    monkeypatch: pytest.MonkeyPatch, changed: Callable[[Change], Change | None], kind: str = JOB.name
) -> None:
    """Let the store write something else instead of each change of a kind."""
    commit_one = MemoryStore._commit_one

    def wrong(change: Change) -> Change:
        return (changed(change) if change.kind == kind else None) or change

    def lying(self: MemoryStore, commit: Commit) -> Outcome:
        return commit_one(self, msgspec.structs.replace(commit, changes=tuple(map(wrong, commit.changes))))

    monkeypatch.setattr(MemoryStore, "_commit_one", lying)


def test_a_deadline_that_is_not_stored_beside_the_body_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    store_otherwise(monkeypatch, lambda change: msgspec.structs.replace(change, deadline_at=None))
    assert claim_broken("laptop", "none") == "job.columns_agree"


def test_a_timer_that_is_not_started_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_timers(change: Change) -> Change:
        body = decode_body(change.body)
        for one in body.attempts:
            one.timer_at = None
        leases = [one.lease.timer_at for one in body.attempts if one.lease is not None]
        deadline_at = min(filter(None, (body.timer_at, *leases)), default=None)
        return msgspec.structs.replace(change, body=encode_body(body), deadline_at=deadline_at)

    store_otherwise(monkeypatch, without_timers)
    assert claim_broken("laptop", "none") == "job.timers_run"


def test_an_end_without_its_time_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def timeless(change: Change) -> Change:
        body = decode_body(change.body)
        body.data = msgspec.structs.replace(body.data, completed_at=None)
        return msgspec.structs.replace(change, body=encode_body(body))

    store_otherwise(monkeypatch, timeless)
    assert claim_broken("laptop", "none") == "job.tables_hold"


@pytest.mark.long
def test_a_job_that_has_failed_and_is_stored_as_expired_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def expired(change: Change) -> Change:
        body = decode_body(change.body)
        if body.failure is not None:
            body.failure = msgspec.structs.replace(body.failure, failure_class=FailureClass.EXPIRED)
        return msgspec.structs.replace(change, body=encode_body(body))

    store_otherwise(monkeypatch, expired)
    assert claim_broken("team", "none", hours=1.0) == "job.only_unstarted_expires"


def test_a_journal_that_names_another_actor_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def anonymous(change: Change) -> Change | None:
        note = change.note
        if note is None or any(step.target == attempt.SUCCEEDED for step in note.steps):
            return None  # it would be a success without a report
        return msgspec.structs.replace(change, note=msgspec.structs.replace(note, actor="an operator"))

    store_otherwise(monkeypatch, anonymous)
    assert claim_broken("laptop", "none") == "step.owners_act"


@pytest.mark.long
def test_an_aborted_workload_that_is_stored_as_completed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def completed(change: Change) -> Change | None:
        body = msgspec.json.decode(change.body, type=WorkloadBody)
        if body.data.final is not Status.ABORTED:
            return None
        body.data = msgspec.structs.replace(body.data, final=Status.COMPLETED)
        return msgspec.structs.replace(change, body=msgspec.json.encode(body))

    store_otherwise(monkeypatch, completed, WORKLOAD.name)
    assert claim_broken("fleet", "none", hours=0.5) == "fleet.completed_is_true"
