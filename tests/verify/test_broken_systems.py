"""What keeps trees, simulations and workers correct is taken out, one by one, and a world notices."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from interlock.lifecycles.worker import WorkerState
from interlock.systems import runtime
from interlock.systems.orchestrator import trees
from interlock.systems.orchestrator.tree_slots import TreeSlots
from interlock.systems.orchestrator.trees import Trees
from interlock.systems.quarantine import Quarantine
from interlock.systems.simulations import reconciler
from interlock.systems.simulations.aggregate import SimulationAggregate
from interlock.systems.simulations.reconciler import MessageSender, SimulationReconciler
from interlock.systems.supervisor import workers
from interlock.systems.supervisor.workers import Workers
from interlock.wire.workers import WorkerOrders
from interlock.worker import child_jobs
from interlock.worker.components import OrderHandler
from interlock_verification.worlds.episode import play
from interlock_verification.worlds.faults import faults_named
from interlock_verification.worlds.worlds import world_named


def claim_broken(
    world: str, faults: str, *, hours: float = 1.0, first: int = 1, seeds: int = 6, but: str = ""
) -> str:
    """What the first seed that notices something has noticed; `first` is one that is known to do so soon.

    Seeds that notice `but` are passed over: a world that does not settle keeps_story little about the cause.
    """
    for seed in range(first, first + seeds):
        played = play(world_named(world), faults_named(faults), seed=seed, hours=hours)
        if played.broken is not None and played.broken.name != but:
            return played.broken.name
    raise AssertionError(f"nobody has noticed anything in {seeds} episodes of {world} with {faults}")


async def nothing(*_: Any, **__: Any) -> Any:
    """What nobody does."""
    return 0


# Trees


def test_a_tree_that_admits_jobs_beyond_its_quota_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TreeSlots, "room", lambda *_: 99)
    monkeypatch.setattr(TreeSlots, "has_waiters", lambda *_: False)
    assert claim_broken("forest", "none") == "tree.quota"


def test_a_handler_that_does_not_wait_for_its_children_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_jobs, "_all_ended", lambda children: children)
    assert claim_broken("forest", "none") == "tree.children_are_found"


@pytest.mark.long
def test_children_that_are_not_stopped_with_their_parent_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trees, "stop_children", nothing)
    assert claim_broken("forest", "none", hours=2.0) == "tree.stopped_together"


def test_a_parent_that_takes_its_children_for_ended_too_soon_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_jobs.Child, "ended", True)
    assert claim_broken("forest", "none") == "tree.parent_waits"


def test_children_that_are_not_found_again_by_their_name_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    names, submit = itertools.count(), Trees.submit

    async def anew(self: Trees, token: str, runner_id: str, name: str, specs: Any) -> Any:
        return await submit(self, token, runner_id, f"{name} {next(names)}", specs)

    monkeypatch.setattr(Trees, "submit", anew)
    assert claim_broken("forest", "none") == "request.done_once"


def test_children_of_parents_that_have_ended_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "depth_below", lambda *_: 1)
    assert claim_broken("forest", "none", first=2) == "tree.child_of_unended"


@pytest.mark.long
def test_trees_that_never_give_free_slots_to_waiting_jobs_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Trees, "fill_slots", nothing)
    assert claim_broken("forest", "none", hours=0.3) == "episode.settles"


# Simulations


@pytest.mark.long
def test_a_simulation_that_accepts_reports_of_any_runner_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    hear = reconciler.decide_message

    def unfenced(draft: SimulationAggregate, speaker: MessageSender, *rest: Any) -> Any:
        pulse = draft.pulse
        if pulse.execution and pulse.attempt:
            speaker = MessageSender(draft.id, pulse.execution, pulse.attempt, pulse.worker_id)
        return hear(draft, speaker, *rest)

    monkeypatch.setattr(reconciler, "decide_message", unfenced)
    assert (
        claim_broken("lab", "deaths", hours=2.0, first=4, but="episode.settles")
        == "simulation.reports_of_runner"
    )


@pytest.mark.long
def test_a_simulation_that_resumes_after_a_step_that_was_not_saved_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders_of = reconciler.orders_of

    def hasty(draft: SimulationAggregate, *rest: Any) -> Any:
        return msgspec.structs.replace(orders_of(draft, *rest), step=draft.pulse.step)

    monkeypatch.setattr(reconciler, "orders_of", hasty)
    assert claim_broken("lab", "deaths", hours=2.0, first=2) == "simulation.resumes_saved"


def test_a_checkpoint_that_is_kept_under_another_step_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    note = SimulationAggregate._note

    def off_by_one(self: SimulationAggregate, word: Any) -> None:
        note(self, word)
        if self.pulse.saved_step == word.step:
            self.pulse.saved_step += 1

    monkeypatch.setattr(SimulationAggregate, "_note", off_by_one)
    assert claim_broken("lab", "none") in ("simulation.saved_state", "simulation.reports_of_runner")


@pytest.mark.long
def test_a_reconciler_that_ignores_lost_simulations_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SimulationReconciler, "lost", nothing)
    monkeypatch.setattr(SimulationReconciler, "sweep", nothing)
    assert claim_broken("lab", "deaths") == "episode.settles"


# Workers


def test_a_pause_by_the_supervisor_that_is_not_enforced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def always(*_: Any) -> bool:
        return True

    monkeypatch.setattr(Workers, "takes", always)
    monkeypatch.setattr(runtime, "TAKING", tuple(WorkerState))
    apply = OrderHandler.apply

    def takes_on(self: OrderHandler, orders: WorkerOrders) -> None:
        apply(self, msgspec.structs.replace(orders, take=True))

    monkeypatch.setattr(OrderHandler, "apply", takes_on)
    assert claim_broken("shift", "none") == "worker.held"


@pytest.mark.long
def test_leases_of_a_terminated_worker_that_stay_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "release_leases", nothing)
    assert claim_broken("shift", "deaths", hours=2.0, first=13) == "worker.leases_are_released"


@pytest.mark.long
def test_dead_workers_that_stay_in_the_books_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workers, "sweep", nothing)
    assert claim_broken("shift", "deaths", first=2) == "worker.dead_is_recorded"


@pytest.mark.long  # broken pauses are noticed in make test
def test_a_quarantine_that_is_not_enforced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quarantine, "why_not", lambda *_: "")
    assert claim_broken("forest", "network", first=2) == "worker.quarantine"
