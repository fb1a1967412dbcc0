"""Every invariant, on random walks through every machine; and that every one of them can fail.

A walk meets events that are illegal, late, meant for somebody else or repeated, at moments that jump.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, get_type_hints

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.effort import pick

from interlock.errors import UnknownEvent
from interlock.lifecycles import (
    ATTEMPT,
    JOB,
    LEASE,
    MACHINES,
    PROCESS,
    RUN,
    SCHEDULE,
    SIMULATION,
    TASK,
    WORKER,
    WORKLOAD,
    attempt,
    job,
    lease,
    process,
    run,
    schedule,
    simulation,
    task,
    worker,
    workload,
)
from interlock.machine import Always, Event, Machine, Moved
from interlock.machine.table import Act

AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Chance:
    """Random bytes that choose, one by one, until there are none left; and the store's clock, which
    stands still or jumps and never goes back."""

    left: Iterator[int]
    now: datetime = AT

    def choose(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return options[next(self.left) % len(options)]

    def moment(self) -> datetime:
        self.now += timedelta(seconds=self.choose((0, 0, 0, 1, 1, 1, 45, 600)))
        return self.now


PAYLOAD: dict[Any, tuple[Any, ...]] = {
    str: ("one", "one", "two"),
    str | None: (None, "no such file"),
    int: (0, 1, 2, 3),
    float: (120.0, 30.0, 0.5),
    float | None: (None, 0.25),
    bool: (False, True),
    object: (None, 42),
    datetime | None: (None, AT, AT + timedelta(seconds=2), AT + timedelta(seconds=60)),
    tuple[datetime, ...]: ((), (AT,)),
    tuple[str, ...]: ((), ("one",)),
}
"""Values for the fields of events, by their type."""


CARRIED = {
    event: [(name, get_type_hints(event)[name]) for name in getattr(event, "__dataclass_fields__", ())]
    for machine in MACHINES.values()
    for event in machine.events
}
"""What each event carries, and of which type."""


def occurrence(chance: Chance, event: type[Event]) -> Event:
    """An event of this type with a random payload, now."""
    drawn: dict[str, Any] = {}
    for name, kind in CARRIED[event]:
        if name == "at":
            drawn[name] = chance.moment()
        elif name != "partial" or chance.choose((False, True)):  # there may be nothing to show
            drawn[name] = chance.choose(PAYLOAD[kind])
    return event(**drawn)


@cache
def distances(name: str, goal: str) -> dict[str, int]:
    """How many transitions each state is away from the goal, for those from which it can be reached."""
    machine = MACHINES[name]
    found = {goal: 0}
    for _ in machine.states:
        for state in machine.states:
            ahead = [found[s.target] + 1 for s in machine.steps_from(state) if s.target in found]
            if ahead and state not in found:
                found[state] = min(ahead)
    return found


def next_event(chance: Chance, machine: Machine[Any, Any], state: Any, goal: Any) -> Event | None:
    """Often a step toward the goal, so that walks get far; or what keeps the state; or anything at all.
    None when chance has nothing left to choose by."""
    away = distances(machine.name, goal)
    steps = machine.steps_at(state)
    toward = [s.event for s in steps if s.moves and away.get(s.target, 99) < away.get(state, 99)]
    keeping = [s.event for s in steps if not s.moves]
    try:
        names = chance.choose((toward, toward, keeping, machine.accepts(state), ()))
        return occurrence(chance, chance.choose([machine.event(name) for name in names] or machine.events))
    except StopIteration:
        return None


BEGINNINGS: dict[str, tuple[Any, ...]] = {
    "run": (run.Run(),),
    "job": (job.Job(created_at=AT), job.Job(created_at=AT, depth=5, worker_count=10)),
    "attempt": (attempt.Attempt(),),
    "lease": (lease.Lease(runner_id="one", expires_at=AT + timedelta(seconds=30)),),
    "worker": (worker.Worker(), worker.Worker(capacity=3, active=2, pending=1)),
    "process": (process.Process(), process.Process(slots=3)),
    "task": (task.TaskData(),),
    "workload": (workload.WorkloadData(),),
    "simulation": (simulation.SimulationData(created_at=AT),),
    "schedule": (schedule.Schedule(next_at=AT, due_at=AT), schedule.Schedule(due_at=AT, waiting=(AT,))),
}


@pytest.mark.parametrize("name", list(MACHINES))
def test_no_walk_breaks_an_invariant(name: str) -> None:
    """Walks toward each state in turn; that each was seen shows that the invariants were tried there."""
    machine = MACHINES[name]
    visited: set[Any] = {machine.initial}
    refused: set[str] = set()

    @settings(
        max_examples=pick(12, 100), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(choices=st.binary(min_size=60, max_size=120))
    def walk(choices: bytes, goal: Any) -> None:
        chance = Chance(iter(choices))
        state, record = machine.initial, chance.choose(BEGINNINGS[name])
        while (event := next_event(chance, machine, state, goal)) is not None:
            before = msgspec.structs.replace(record)
            answer = machine.decide(state, record, event)
            assert record == before, "the data of before was changed in place"
            if not isinstance(answer, Moved):
                refused.add(answer.kind)
                continue
            assert machine.broken_across(state, record, answer.state, answer.data) == ()
            if state in machine.terminal and any(step.moves for step in answer.steps):
                assert declared_exit(machine, state, event), f"{event} left {state}"
            state, record = answer.state, answer.data
            visited.add(state)
            assert machine.broken(state, record) == ()

    for goal in machine.states:
        walk(goal=goal)
    assert visited == set(machine.states), "the walks have not seen every state"
    assert {"ignored", "not_allowed"} & refused, "the walks have not met a refusal"


def declared_exit(machine: Machine[Any, Any], state: Any, event: Event) -> bool:
    rows = machine.table.rows_at(state, type(event))
    return any(row.act is Act.MOVE and row.leaves_terminal for row in rows)


def test_only_a_worker_and_a_schedule_can_be_moved_out_of_an_end() -> None:
    """R1, and a schedule that begins anew under its name, are the exceptions to terminal states absorbing."""
    exits = {
        (machine.name, str(step.source), step.event, str(step.target))
        for machine in MACHINES.values()
        for state in machine.terminal
        for step in machine.steps_at(state)
    }
    assert exits == {
        ("worker", "COMPLETED", "terminate", "TERMINATED"),
        ("worker", "FAILED", "terminate", "TERMINATED"),
        ("schedule", "ended", "edit", "active"),
    }


@pytest.mark.parametrize("name", list(MACHINES))
def test_an_event_of_another_machine_is_an_error_that_lists_the_known_ones(name: str) -> None:
    machine, other = MACHINES[name], MACHINES["run" if name != "run" else "lease"]
    stranger = next(event for event in other.events if not hasattr(event, "__dataclass_fields__"))
    with pytest.raises(UnknownEvent) as caught:
        machine.decide(machine.initial, BEGINNINGS[name][0], stranger())
    assert set(caught.value.allowed) == {event.name for event in machine.events}


@pytest.mark.parametrize("name", list(MACHINES))
def test_a_machine_begins_with_every_invariant_intact(name: str) -> None:
    for record in BEGINNINGS[name]:
        assert MACHINES[name].broken(MACHINES[name].initial, record) == ()


RUN_OK, JOB_OK = run.Run(), job.Job(created_at=AT)
LEASE_OK = lease.Lease(runner_id="one", expires_at=AT)
ENDED_WORKER = worker.Worker(started_at=AT, outcome=worker.COMPLETED, completed_at=AT)
SIM_OK = simulation.SimulationData(created_at=AT, worker_id="one", started_at=AT)
SIM_OVER = simulation.SimulationData(created_at=AT, completed_at=AT)

# For each claim, something that it must not let pass: a state and data, or those before and after.
VIOLATIONS: dict[tuple[Machine[Any, Any], str], list[tuple[Any, ...]]] = {
    (RUN, "the outcome is known exactly when the run is settled"): [
        (run.SUCCESS, RUN_OK),
        (run.RUNNING, run.Run(outcome=run.FAILED)),
    ],
    (RUN, "an unreported outcome is the state"): [(run.FAILED, run.Run(outcome=run.SUCCESS))],
    (RUN, "it is CANCELED only after a request"): [
        (run.CANCELED, run.Run(outcome=run.CANCELED)),
        (run.REPORTED, run.Run(outcome=run.CANCELED)),
    ],
    (RUN, "the outcome is decided once"): [
        (run.FAILED, run.Run(outcome=run.FAILED), run.REPORTED, run.Run(outcome=run.SUCCESS)),
        (run.FAILED, run.Run(outcome=run.FAILED), run.REPORTED, RUN_OK),
    ],
    (JOB, "it is at most 5 deep in its tree"): [
        (job.SUBMITTED, job.Job(created_at=AT, depth=6)),
        (job.SUBMITTED, job.Job(created_at=AT, depth=-1)),
    ],
    (JOB, "it has 1 to 10 shards"): [
        (job.SUBMITTED, job.Job(created_at=AT, worker_count=0)),
        (job.SUBMITTED, job.Job(created_at=AT, worker_count=11)),
    ],
    (JOB, "completed_at is known exactly when it has ended"): [
        (job.FAILED, JOB_OK),
        (job.PENDING, job.Job(created_at=AT, completed_at=AT)),
    ],
    (JOB, "a running or completed job was started"): [
        (job.RUNNING, JOB_OK),
        (job.COMPLETED, job.Job(created_at=AT, completed_at=AT)),
    ],
    (JOB, "a CANCELED job has a stop reason"): [(job.CANCELED, job.Job(created_at=AT, completed_at=AT))],
    (JOB, "started_at is set once, by the first RUNNING"): [
        (
            job.RUNNING,
            job.Job(created_at=AT, started_at=AT),
            job.RUNNING,
            job.Job(created_at=AT, started_at=AT + timedelta(1)),
        ),
    ],
    (JOB, "completed_at is set once"): [
        (job.FAILED, job.Job(created_at=AT, completed_at=AT), job.FAILED, JOB_OK),
    ],
    (ATTEMPT, "a success comes only from an accepted completion"): [
        (attempt.SUCCEEDED, attempt.Attempt()),
        (attempt.SUCCEEDED, attempt.Attempt(accepted=False)),
    ],
    (ATTEMPT, "it is cancelled only after a request"): [
        (attempt.CANCELED, attempt.Attempt()),
        (attempt.CANCEL_REQUESTED, attempt.Attempt()),
    ],
    (ATTEMPT, "after a cancel request it can only end as CANCELED"): [
        (attempt.CANCEL_REQUESTED, asked, target, asked)
        for asked in (attempt.Attempt(cancel_requested=True),)
        for target in (attempt.SUCCEEDED, attempt.FAILED, attempt.STALE, attempt.TIMED_OUT, attempt.QUEUED)
    ],
    (LEASE, "a cancel is acknowledged only after it was requested"): [(lease.CANCELED, LEASE_OK)],
    (WORKER, "a paused worker was running before"): [(worker.PAUSED, worker.Worker())],
    (WORKER, "the outcome and its time are known exactly when it has ended"): [
        (worker.COMPLETED, worker.Worker()),
        (worker.RUNNING, ENDED_WORKER),
        (worker.FAILED, worker.Worker(outcome=worker.FAILED)),
        (worker.FAILED, worker.Worker(completed_at=AT)),
        (worker.IDLE, worker.Worker(completed_at=AT)),
        (worker.IDLE, worker.Worker(outcome=worker.FAILED)),
    ],
    (WORKER, "a transient error is retried at most three times"): [
        (worker.RUNNING, worker.Worker(transient_errors=4)),
    ],
    (WORKER, "terminating keeps the earlier outcome"): [
        (worker.COMPLETED, ENDED_WORKER, worker.TERMINATED, changed)
        for changed in (
            msgspec.structs.replace(ENDED_WORKER, outcome=worker.TERMINATED),
            msgspec.structs.replace(ENDED_WORKER, completed_at=AT + timedelta(1)),
        )
    ],
    (PROCESS, "a running or recovering process has a connection"): [
        (process.RUNNING, process.Process()),
        (process.RECOVERING, process.Process()),
    ],
    (PROCESS, "a stopped process has released its connection and its tasks"): [
        (process.STOPPED, process.Process(shutdown_requested=True, connected=True)),
        (process.STOPPED, process.Process(shutdown_requested=True, active_tasks=1)),
    ],
    (PROCESS, "there is at most one active task per slot"): [
        (process.CONNECTING, process.Process(active_tasks=2)),
        (process.CONNECTING, process.Process(active_tasks=-1)),
    ],
    (PROCESS, "a process shuts down only after a request"): [
        (process.SHUTTING_DOWN, process.Process()),
        (process.STOPPED, process.Process()),
    ],
    (PROCESS, "no task is started while shutting down"): [
        (process.SHUTTING_DOWN, process.Process(), process.SHUTTING_DOWN, process.Process(active_tasks=1)),
    ],
    (TASK, "a processing task holds a lease with a known start and end"): [
        (task.PROCESSING, task.TaskData()),
        (task.PROCESSING, task.TaskData(lease_acquired_at=AT)),
        (task.PROCESSING, task.TaskData(lease_timeout=AT)),
        (task.PROCESSING, task.TaskData(lease_acquired_at=AT, lease_timeout=AT)),
    ],
    (TASK, "a reporting task has an output or an error"): [(task.REPORTING, task.TaskData())],
    (TASK, "a completed task has no error"): [
        (task.COMPLETED, task.TaskData(error="boom")),
        (task.COMPLETED, task.TaskData(interrupted=True)),
    ],
    (TASK, "an ended task never changes"): [
        (task.FAILED, task.TaskData(), task.PENDING, task.TaskData()),
        (task.FAILED, task.TaskData(), task.FAILED, task.TaskData(error="boom")),
    ],
    (WORKLOAD, "an idle, ready or failed agent has nothing of a workload alive"): [
        (state, workload.WorkloadData(workload_id="one", alive=True))
        for state in (workload.IDLE, workload.READY, workload.FAILED)
    ],
    (WORKLOAD, "a workload has a final status exactly when it is over"): [
        (workload.FAILED, workload.WorkloadData(workload_id="one")),
        (workload.RUNNING, workload.WorkloadData(workload_id="one", final=workload.Status.ERROR)),
    ],
    (SIMULATION, "a running simulation has a worker and was started"): [
        (simulation.RUNNING, simulation.SimulationData(created_at=AT, worker_id="one")),
        (simulation.RUNNING, simulation.SimulationData(created_at=AT, started_at=AT)),
    ],
    (SIMULATION, "completed_at is known exactly when it has ended"): [
        (simulation.COMPLETED, SIM_OK),
        (simulation.INTERRUPTED, SIM_OVER),
    ],
    (SIMULATION, "a pause is only requested while it runs"): [
        (simulation.PAUSED, simulation.SimulationData(created_at=AT, pause_requested=True)),
    ],
    (SIMULATION, "a failed one has an error"): [(simulation.FAILED, SIM_OVER)],
    (SIMULATION, "steps are never taken back"): [
        (
            simulation.RUNNING,
            msgspec.structs.replace(SIM_OK, current_step=2),
            simulation.RUNNING,
            msgspec.structs.replace(SIM_OK, current_step=1),
        ),
    ],
    (SIMULATION, "started_at is set once"): [
        (
            simulation.PAUSED,
            SIM_OK,
            simulation.RUNNING,
            msgspec.structs.replace(SIM_OK, started_at=AT + timedelta(1)),
        ),
    ],
    (SCHEDULE, "it has a deadline exactly while it is active"): [
        (schedule.ACTIVE, schedule.Schedule()),
        (schedule.PAUSED, schedule.Schedule(due_at=AT)),
    ],
    (SCHEDULE, "it knows a next fire only while it is active"): [
        (schedule.ENDED, schedule.Schedule(next_at=AT)),
    ],
    (SCHEDULE, "no fire waits when it has ended"): [(schedule.ENDED, schedule.Schedule(waiting=(AT,)))],
    (SCHEDULE, "the number of submitted jobs never decreases"): [
        (schedule.ACTIVE, schedule.Schedule(submitted=2), schedule.ACTIVE, schedule.Schedule(submitted=1)),
        (schedule.ACTIVE, schedule.Schedule(skipped=2), schedule.ACTIVE, schedule.Schedule()),
    ],
    (SCHEDULE, "the last fire is never taken back"): [
        (schedule.ACTIVE, schedule.Schedule(last_at=AT), schedule.ACTIVE, schedule.Schedule()),
    ],
}

CASES = [
    pytest.param(machine, claim, what, id=f"{machine.name}: {claim} [{number}]")
    for (machine, claim), whats in VIOLATIONS.items()
    for number, what in enumerate(whats, start=1)
]


@pytest.mark.parametrize(("machine", "claim", "what"), CASES)
def test_each_invariant_can_fail(machine: Machine[Any, Any], claim: str, what: tuple[Any, ...]) -> None:
    broken = machine.broken(*what) if len(what) == 2 else machine.broken_across(*what)
    assert claim in broken


def test_no_invariant_is_left_out() -> None:
    claims = [(m.name, claim.claim) for m in MACHINES.values() for claim in m.table.invariants]
    assert sorted(claims) == sorted((machine.name, claim) for machine, claim in VIOLATIONS)
    assert len(set(claims)) == len(claims), "two claims of one machine say the same"


def test_a_violation_has_the_shape_of_its_claim() -> None:
    for (machine, claim), whats in VIOLATIONS.items():
        (found,) = [entry for entry in machine.table.invariants if entry.claim == claim]
        assert {len(what) for what in whats} == {2 if isinstance(found, Always) else 4}
