"""Following the couplings to their end: whole chains of consequences, in a small world of records.

A run with a job (which has a child), two attempts with a lease and a task each, a worker with its
process, a simulation, a workload and a schedule. Every message goes through the real `decide`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import effort

from interlock.lifecycles import COUPLINGS, MACHINES, WORKLOAD, Circumstances
from interlock.lifecycles import workload as load
from interlock.machine import Coupling, Couplings, Event, Machine, Moved, Step, couple

LIMIT = 200
"""More messages than any chain may take in this world."""

COUNTS = {name: 2 if name in ("job", "attempt", "lease", "task") else 1 for name in MACHINES}
FACTS = Circumstances.__struct_fields__


@dataclass
class World:
    """Records that carry out every consequence of a step, one message after another."""

    benches: dict[str, Any]
    states: dict[tuple[str, int], Any]
    datas: dict[tuple[str, int], Any]
    now: Circumstances
    couplings: Couplings[Any] = COUPLINGS
    pick: int = 0
    created: list[str] = field(default_factory=list)
    messages: int = 0

    def follow(self, step: Step[Any], number: int = 0) -> None:
        """Carry out what follows from a step that a record has just taken."""
        waiting = deque([(step, number)])
        self.states[step.machine, number] = step.target
        while waiting:
            taken, who = waiting.popleft()
            for coupling in self.couplings.after(taken, self.now):
                for receiver in self._receivers(coupling, who):
                    waiting.extend((done, receiver) for done in self._deliver(coupling, receiver))

    def _receivers(self, coupling: Coupling[Circumstances], who: int) -> list[int]:
        if coupling.event is None:
            self.created.append(coupling.effect.name)
            return []
        if coupling.cause is coupling.effect:
            return [who] if coupling.to == "itself" else list(range(who + 1, COUNTS[coupling.effect.name]))
        paired = {"attempt", "lease", "task"}
        if {coupling.cause.name, coupling.effect.name} <= paired:
            return [who]
        if coupling.effect.name == "job":
            return list(range(COUNTS["job"])) if coupling.cause.name == "run" else [0]
        if coupling.cause.name == "job" and coupling.effect.name == "attempt" and who:
            return []  # the attempts are those of the first job
        return list(range(COUNTS[coupling.effect.name]))

    def _deliver(self, coupling: Coupling[Circumstances], receiver: int) -> tuple[Step[Any], ...]:
        self.messages += 1
        assert self.messages <= LIMIT, f"no end in sight, last: {coupling.sentence}"
        assert coupling.event is not None
        key = (coupling.effect.name, receiver)
        options = self.benches[key[0]].occurrences(coupling.event)
        occurrence: Event = options[self.pick % len(options)]
        answer = coupling.effect.decide(self.states[key], self.datas[key], occurrence)
        if not isinstance(answer, Moved):
            return ()
        self.states[key], self.datas[key] = answer.state, answer.data
        return answer.steps


BUSY = {
    "run": "RUNNING",
    "job": "RUNNING",
    "attempt": "RUNNING",
    "lease": "ACTIVE",
    "worker": "RUNNING",
    "process": "running",
    "task": "processing",
    "workload": "RUNNING",
    "simulation": "running",
    "schedule": "active",
}


@pytest.fixture
def world(bench: Callable[[str], Any]) -> Callable[..., World]:
    """A world in which everything is busy, except what a test says."""

    benches = {name: bench(name) for name in MACHINES}
    keys = [(name, number) for name in MACHINES for number in range(COUNTS[name])]

    def make(now: Circumstances, **states: str) -> World:
        wanted = {**BUSY, **states}
        return World(
            benches,
            {(name, number): MACHINES[name].state(wanted[name]) for name, number in keys},
            {(name, number): benches[name].datas[-1] for name, number in keys},
            now,
        )

    return make


def step(machine: str, source: str, event: str, target: str) -> Step[Any]:
    known = MACHINES[machine]
    (found,) = (s for s in known.steps_at(known.state(source)) if (s.event, s.target) == (event, target))
    return found


def all_steps() -> list[Step[Any]]:
    return [s for machine in MACHINES.values() for state in machine.states for s in machine.steps_at(state)]


@pytest.mark.parametrize("machine", list(MACHINES))
def test_every_chain_of_consequences_comes_to_an_end(machine: str, world: Callable[..., World]) -> None:
    """From every step of the machine, with everything else busy, in every combination of circumstances.

    The quick run leaves out those in which more than two are true, unless all are, or all but one.
    """
    steps = [taken for taken in all_steps() if taken.machine == machine]
    few = effort.pick((0, 1, 2, len(FACTS) - 1, len(FACTS)), tuple(range(len(FACTS) + 1)))
    combinations = [facts for facts in product((False, True), repeat=len(FACTS)) if sum(facts) in few]
    for first, facts in product(steps, combinations):
        world(Circumstances(**dict(zip(FACTS, facts, strict=True)))).follow(first)


def test_a_chain_without_an_end_would_be_noticed(world: Callable[..., World]) -> None:
    round_and_round = Couplings[Circumstances](
        (
            couple(WORKLOAD, load.READY, WORKLOAD, load.AbortReceived, to="itself", why="Test."),
            couple(WORKLOAD, load.IDLE, WORKLOAD, load.RpcReceived, to="itself", why="Test."),
        )
    )
    endless = world(Circumstances(), workload="IDLE")
    endless.couplings = round_and_round
    endless.datas["workload", 0] = load.WorkloadData(workload_id="mine")
    with pytest.raises(AssertionError, match="no end in sight"):
        endless.follow(step("workload", "IDLE", "RPC_RECEIVED", "READY"))


def test_no_world_however_muddled_sends_messages_for_ever(world: Callable[..., World]) -> None:
    """Records in states that do not fit each other, as after a crash or a bug, still come to rest."""
    steps = all_steps()
    states = {name: st.sampled_from(machine.states) for name, machine in MACHINES.items()}

    @settings(
        max_examples=effort.pick(100, 300),
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.sampled_from(steps),
        st.fixed_dictionaries({name: st.tuples(state, state) for name, state in states.items()}),
        st.fixed_dictionaries({fact: st.booleans() for fact in FACTS}),
        st.integers(0, 3),
    )
    def muddle(first: Step[Any], where: dict[str, Any], facts: dict[str, bool], pick: int) -> None:
        small = world(Circumstances(**facts))
        small.states.update({(name, n): where[name][n] for name, n in small.states})
        small.pick = pick
        small.follow(first)

    muddle()


def moved_by_couplings(machine: Machine[Any, Any]) -> Iterator[Step[Any]]:
    sent = {coupling.event for coupling in COUPLINGS if coupling.effect is machine}
    for state in machine.states:
        yield from (s for s in machine.steps_from(state) if machine.event(s.event) in sent)


@pytest.mark.parametrize("name", list(MACHINES))
def test_no_record_can_be_sent_round_in_circles(name: str) -> None:
    """Why chains end, whatever the world: what couplings send moves each record finitely often, …"""
    ahead: dict[str, set[str]] = {}
    for taken in moved_by_couplings(MACHINES[name]):
        ahead.setdefault(taken.source, set()).add(taken.target)
    for start, first in ahead.items():
        reached, frontier = set[str](), first
        while frontier:
            reached |= frontier
            frontier = {after for state in frontier for after in ahead.get(state, set())} - reached
        assert start not in reached, f"couplings alone can bring a {name} from {start} back to {start}"


def test_couplings_between_steps_that_stay_are_never_chained() -> None:
    """… and a chain of steps that move nothing is at most two long; down a tree, as deep as the tree."""
    staying = [c for c in COUPLINGS if c.holding and c.to != "each of its children"]
    assert staying
    for first, second in product(staying, staying):
        assert first.effect is not second.cause or first.event not in second.by


# Whole chains


def test_an_expired_lease_becomes_another_attempt_and_the_job_stays_running(
    world: Callable[..., World],
) -> None:
    """R20"""
    after = world(Circumstances(losses_left=True))
    after.follow(step("lease", "ACTIVE", "expire", "EXPIRED"))
    assert (after.states["attempt", 0], after.created) == ("STALE", ["attempt"])
    assert (after.states["job", 0], after.states["run", 0]) == ("RUNNING", "RUNNING")
    assert after.states["task", 0] == "abandoned"
    assert after.states["simulation", 0] == "interrupted"


def test_a_job_that_is_lost_too_often_fails_and_its_run_with_it(world: Callable[..., World]) -> None:
    """R20, S2-9, R22"""
    after = world(Circumstances(losses_left=False, tries_left=True))
    after.follow(step("lease", "ACTIVE", "expire", "EXPIRED"))
    assert after.created == []
    assert (after.states["job", 0], after.states["run", 0]) == ("FAILED", "FAILED")
    assert after.states["attempt", 1] == "CANCEL_REQUESTED"


@pytest.mark.parametrize(
    ("event", "target"),
    [("error_unrecoverable", "FAILED"), ("supervisor_timeout", "TERMINATED")],
)
def test_a_job_whose_workers_die_fails_when_its_loss_budget_is_used_up(
    event: str, target: str, world: Callable[..., World]
) -> None:
    """R20: a worker that crashes or falls silent is an infrastructure loss like an expired lease, and the
    supervisor notices first (60 s against 120 s); a job that kills its workers must use up its budget."""
    within = world(Circumstances(losses_left=True))
    within.follow(step("worker", "RUNNING", event, target))
    assert within.created == ["attempt", "attempt"]
    beyond = world(Circumstances(losses_left=False))
    beyond.follow(step("worker", "RUNNING", event, target))
    assert beyond.created == []
    assert beyond.states["job", 0] == "FAILED"


def test_a_worker_that_is_terminated_on_request_costs_its_jobs_nothing(world: Callable[..., World]) -> None:
    """R13: somebody chose to stop it, so neither a try nor a loss is used up."""
    after = world(Circumstances(losses_left=False, tries_left=False))
    after.follow(step("worker", "RUNNING", "terminate", "TERMINATED"))
    assert after.created == ["attempt", "attempt"]
    assert (after.states["job", 0], after.states["process", 0]) == ("RUNNING", "shutting_down")


def test_a_soft_deadline_gives_the_work_back_without_using_up_a_try(world: Callable[..., World]) -> None:
    """R13"""
    after = world(Circumstances(losses_left=False, tries_left=False), process="shutting_down")
    after.follow(step("process", "shutting_down", "soft_deadline", "shutting_down"))
    assert [after.states["task", n] for n in (0, 1)] == ["reporting", "reporting"]
    assert [after.states["lease", n] for n in (0, 1)] == ["REVOKED", "REVOKED"]
    assert [after.states["attempt", n] for n in (0, 1)] == ["STALE", "STALE"]
    assert (after.created, after.states["job", 0]) == (["attempt", "attempt"], "RUNNING")


def test_a_cancel_under_a_lease_that_was_only_granted_is_final_at_once(world: Callable[..., World]) -> None:
    """R24, S2-32"""
    now = Circumstances(stopping=True, anything_active=False)
    after = world(now, attempt="LEASED", lease="GRANTED", task="claiming")
    after.follow(step("attempt", "LEASED", "cancel", "CANCEL_REQUESTED"))
    assert (after.states["lease", 0], after.states["attempt", 0]) == ("REVOKED", "CANCELED")
    assert after.created == []


def test_a_run_with_nothing_active_is_canceled_with_all_its_jobs(world: Callable[..., World]) -> None:
    """R23, S2-32"""
    now = Circumstances(stopping=True, anything_active=False)
    after = world(now, attempt="CREATED", job="PENDING", run="QUEUED")
    after.follow(step("run", "QUEUED", "cancel", "CANCEL_REQUESTED"))
    assert after.states["run", 0] == "CANCELED"
    assert [after.states["job", n] for n in (0, 1)] == ["CANCELED", "CANCELED"]
    assert [after.states["attempt", n] for n in (0, 1)] == ["CANCELED", "CANCELED"]


def test_a_forced_cancel_fences_the_runner_off(world: Callable[..., World]) -> None:
    """S2-33"""
    after = world(Circumstances(stopping=True, anything_active=True), attempt="CANCEL_REQUESTED")
    after.follow(step("attempt", "CANCEL_REQUESTED", "force_cancel", "CANCELED"))
    assert (after.states["lease", 0], after.states["task", 0]) == ("REVOKED", "abandoned")


def test_a_broken_connection_costs_the_tasks_and_not_the_process(world: Callable[..., World]) -> None:
    """R14"""
    after = world(Circumstances())
    after.follow(step("process", "running", "error", "connecting"))
    assert [after.states["task", n] for n in (0, 1)] == ["abandoned", "abandoned"]
    assert after.states["process", 0] == "connecting"
    assert after.datas["process", 0].active_tasks == 0


def test_the_first_lease_brings_its_job_and_its_run_to_running(world: Callable[..., World]) -> None:
    """S2-7, S0-15"""
    after = world(Circumstances(), run="QUEUED", job="PENDING", attempt="QUEUED")
    after.follow(step("attempt", "QUEUED", "grant", "LEASED"))
    assert (after.states["job", 0], after.states["run", 0], after.created) == (
        "RUNNING",
        "RUNNING",
        ["lease"],
    )


def test_cancelling_a_job_cancels_its_descendants(world: Callable[..., World]) -> None:
    """R7"""
    after = world(Circumstances(stopping=True, required=False))
    after.follow(step("job", "RUNNING", "cancel", "CANCELED"))
    assert after.states["job", 1] == "CANCELED"
