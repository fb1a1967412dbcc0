"""What the tests of the lifecycles share: a bench per machine, and a harness that compares.

A bench knows data and occurrences that satisfy and that violate every guard of its machine, so that
each pair of state and event can be put to the real `decide`. The harness takes a table that somebody
wrote by hand and names every difference; it is tried itself on changed copies of each table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import msgspec
import pytest
from tests.effort import pick

from interlock.errors import MalformedTable
from interlock.lifecycles import (
    MACHINES,
    attempt,
    job,
    lease,
    process,
    run,
    schedule,
    simulation,
    task,
    worker,
)
from interlock.lifecycles import workload as load
from interlock.machine import Event, Machine, Moved, Refused, Row, State
from interlock.machine.table import Act, Rank

AT = datetime(2026, 1, 1, tzinfo=UTC)
HALF_MINUTE, MINUTE = AT + timedelta(seconds=30), AT + timedelta(seconds=60)

Pair = tuple[str, str]
AnyMachine = Machine[Any, Any]


@dataclass(frozen=True)
class Bench:
    """A machine, and what is needed to put every pair of its table to `decide`."""

    machine: AnyMachine
    datas: tuple[Any, ...]
    written: Mapping[str, tuple[Event, ...]]

    def occurrences(self, event: type[Event]) -> tuple[Event, ...]:
        """At least one occurrence of the event; those with a payload worth varying are written out."""
        if event.name in self.written:
            return self.written[event.name]
        timed = "at" in getattr(event, "__dataclass_fields__", ())
        return (event(at=AT),) if timed else (event(),)  # type: ignore[call-arg]

    def decisions(self, state: Any, event: type[Event]) -> Iterator[Any]:
        """Every answer to the pair, over all data and occurrences."""
        for data, occurrence in product(self.datas, self.occurrences(event)):
            yield self.machine.decide(state, data, occurrence)


def _run_bench() -> Bench:
    return Bench(run.RUN, (run.Run(), run.Run(cancel_requested=True)), {})


def _job_bench() -> Bench:
    stops = {
        event.name: (event(at=AT), event(at=AT, still_active=2, reason="because"))
        for event in (job.Cancel, job.Timeout)
    }
    started = job.Job(created_at=AT, started_at=AT)
    return Bench(job.JOB, (job.Job(created_at=AT), started), stops)


def _attempt_bench() -> Bench:
    completed = (attempt.Completed(succeeded=True), attempt.Completed(succeeded=False))
    datas = (attempt.Attempt(), attempt.Attempt(cancel_requested=True))
    return Bench(attempt.ATTEMPT, datas, {"completed": completed})


def _lease_bench() -> Bench:
    granted = lease.Lease(runner_id="mine", expires_at=HALF_MINUTE)
    who_and_when = [("mine", AT), ("other", AT), ("mine", HALF_MINUTE), ("mine", MINUTE)]
    written: dict[str, tuple[Event, ...]] = {
        event.name: tuple(event(runner_id=who, at=when) for who, when in who_and_when)
        for event in (lease.Complete, lease.CancelAck, lease.Release)
    }
    for event in (lease.Ack, lease.Heartbeat):
        written[event.name] = tuple(event(runner_id=who, at=when, ttl_s=120) for who, when in who_and_when)
    written["expire"] = tuple(lease.Expire(at=when) for when in (AT, HALF_MINUTE, MINUTE))
    return Bench(lease.LEASE, (granted, msgspec.structs.replace(granted, cancel_requested=True)), written)


def _worker_bench() -> Bench:
    datas = (
        worker.Worker(),
        worker.Worker(active=1, started_at=AT),
        worker.Worker(pending=1, started_at=AT),
        worker.Worker(transient_errors=worker.MAX_TRANSIENT_ERRORS, last_error_at=AT, started_at=AT),
        worker.Worker(last_heartbeat_at=AT, started_at=AT),
    )
    return Bench(worker.WORKER, datas, {})


def _process_bench() -> Bench:
    idle = process.Process(connected=True, slots=2)
    busy = msgspec.structs.replace(idle, active_tasks=2)
    written: dict[str, tuple[Event, ...]] = {
        "poll_cycle_complete": tuple(process.PollCycleComplete(started=n) for n in (0, 1, 3)),
        "task_ended": (process.TaskEnded(succeeded=True), process.TaskEnded(failed=True)),
    }
    return Bench(process.PROCESS, (idle, busy), written)


def _task_bench() -> Bench:
    datas = (
        task.TaskData(),
        task.TaskData(error="boom"),
        task.TaskData(error="interrupted", interrupted=True),
    )
    written: dict[str, tuple[Event, ...]] = {
        "claim_succeeded": (task.ClaimSucceeded(at=AT, ttl_s=120),),
        "processing_succeeded": (task.ProcessingSucceeded(at=AT, output=42),),
        "processing_failed": (task.ProcessingFailed(at=AT, error="boom"),),
        "lease_renewed": (task.LeaseRenewed(at=AT, ttl_s=120),),
    }
    return Bench(task.TASK, datas, written)


def _workload_bench() -> Bench:
    mine = load.WorkloadData(workload_id="mine")
    datas = (mine, msgspec.structs.replace(mine, alive=True))
    written: dict[str, tuple[Event, ...]] = {
        event.name: (event(workload_id="mine"), event(workload_id="old"))
        for event in load.WORKLOAD.events
        if issubclass(event, load.OfWorkload) and event is not load.WorkloadError
    }
    written["RPC_RECEIVED"] += (load.RpcReceived(workload_id="mine", fault="no such file"),)
    written["START_TIME_REACHED"] += (load.StartTimeReached(workload_id="mine", told=False),)
    written["TIMEOUT_15S"] += (load.Timeout15s(workload_id="mine", survivors=1),)
    written["WORKLOAD_ERROR"] = tuple(
        load.WorkloadError(workload_id=which, error="boom") for which in ("mine", "old")
    )
    return Bench(load.WORKLOAD, datas, written)


def _simulation_bench() -> Bench:
    fresh = simulation.SimulationData(created_at=AT)
    running = msgspec.structs.replace(fresh, worker_id="mine", started_at=AT, last_heartbeat=AT)
    pausing = msgspec.structs.replace(running, pause_requested=True)
    written: dict[str, tuple[Event, ...]] = {
        event.name: tuple(event(at=AT, worker_id=who) for who in ("mine", "other"))
        for event in (simulation.Start, simulation.Resume)
    }
    for event in (simulation.Heartbeat, simulation.Pause, simulation.Complete):
        written[event.name] = tuple(event(at=AT, worker_id=who, step=3) for who in ("mine", "other"))
    written["fail"] = tuple(simulation.Fail(at=AT, worker_id=who, error="boom") for who in ("mine", "other"))
    written["heartbeat_lost"] = tuple(simulation.HeartbeatLost(at=when) for when in (AT, MINUTE))
    return Bench(simulation.SIMULATION, (fresh, running, pausing), written)


def _schedule_bench() -> Bench:
    active = schedule.Schedule(next_at=HALF_MINUTE, due_at=HALF_MINUTE)
    written: dict[str, tuple[Event, ...]] = {
        "due": tuple(schedule.Due(at=when, due_at=due) for when in (AT, MINUTE) for due in (None, MINUTE)),
        "backfill": (schedule.Backfill(at=AT, submitted=2, due_at=HALF_MINUTE),),
    }
    for event in (schedule.Resume, schedule.Edit):
        written[event.name] = (event(at=AT), event(at=AT, next_at=MINUTE, due_at=MINUTE))
    return Bench(schedule.SCHEDULE, (active, schedule.Schedule()), written)


BENCHES: dict[str, Callable[[], Bench]] = {
    "run": _run_bench,
    "job": _job_bench,
    "attempt": _attempt_bench,
    "lease": _lease_bench,
    "worker": _worker_bench,
    "process": _process_bench,
    "task": _task_bench,
    "workload": _workload_bench,
    "simulation": _simulation_bench,
    "schedule": _schedule_bench,
}


def find_differences(bench: Bench, **written: Any) -> tuple[str, ...]:
    """Every way in which the machine is not the one that was written down, as sentences."""
    return tuple(each_difference(bench, **written))


def each_difference(
    bench: Bench,
    *,
    initial: str,
    terminal: AbstractSet[str],
    transitions: Mapping[Pair, AbstractSet[str]],
    walks: Mapping[Pair, AbstractSet[tuple[str, ...]]] | None = None,
    stays: AbstractSet[Pair] = frozenset(),
) -> Iterator[str]:
    """The differences, one by one."""
    machine, walks = bench.machine, walks or {}

    def compare(what: str, expected: object, actual: object) -> Iterator[str]:
        if expected != actual:
            yield f"{what}: written down is {expected}, the {machine.name} says {actual}"

    yield from compare("the initial state", initial, str(machine.initial))
    yield from compare("the terminal states", set(terminal), {str(state) for state in machine.terminal})
    pairs = {(str(state), event.name) for state in machine.states for event in machine.events}
    yield from compare("unknown pairs", set(), {*transitions, *walks, *stays} - pairs)
    for state, event in product(machine.states, machine.events):
        pair = (str(state), event.name)
        targets = set(transitions.get(pair, set()))
        declared = {str(s.target) for s in machine.steps_from(state) if s.event == event.name}
        yield from compare(f"the rows of {pair}", targets, declared)
        moved = [answer for answer in bench.decisions(state, event) if isinstance(answer, Moved)]
        paths = {tuple(str(step.target) for step in answer.steps if step.moves) for answer in moved}
        expected = {(target,) for target in targets} | set(walks.get(pair, set()))
        yield from compare(f"what decide does with {pair}", expected, paths - {()})
        yield from compare(f"whether {pair} is accepted without a transition", pair in stays, () in paths)
        yield from compare(
            f"a state that changed without a transition at {pair}", set(), _strays(state, moved)
        )


def _strays(state: Any, answers: list[Moved[Any, Any]]) -> set[str]:
    """States that an answer ended in although its steps do not lead there, one after the other."""
    strays = set()
    for answer in answers:
        here = state
        for step in answer.steps:
            if step.source != here:
                strays.add(str(step.source))
            here = step.target
        if here != answer.state:
            strays.add(str(answer.state))
    return strays


def mutants_of(machine: AnyMachine) -> Iterator[tuple[str, AnyMachine | None]]:
    """Copies of the machine with one thing changed; None where the declaration itself refuses."""
    table = machine.table
    for what, states, rows in (*_fewer_rows(machine), *_other_rows(machine), *_other_ranks(machine)):
        try:
            mutant = Machine[Any, Any](
                table.name, table.doc, initial=table.initial, states=states, rows=rows, stop=table.stop
            )
        except MalformedTable:
            yield what, None
        else:
            yield what, mutant


Change = tuple[str, list[State[Any]], list[Row[Any, Any]]]


def _without(machine: AnyMachine, unwanted: Row[Any, Any], source: Any) -> list[Row[Any, Any]]:
    """The rows, of which one no longer speaks of this source."""
    rows = []
    for row in machine.table.rows:
        left = tuple(state for state in row.sources if state != source)
        if row is not unwanted:
            rows.append(row)
        elif left:
            rows.append(replace(row, sources=left))
    return rows


def _fewer_rows(machine: AnyMachine) -> Iterator[Change]:
    states = list(machine.table.states)
    for row in machine.table.rows:
        if row.act not in (Act.MOVE, Act.WALK, Act.KEEP):
            continue
        for source in row.sources:
            rows = _without(machine, row, source)
            yield f"remove {source} + {row.event.name} → {row.target}", states, rows
            for target in _neighbours(machine, row.target) if row.act is Act.MOVE else ():
                place = machine.table.rows.index(row)
                other = replace(row, sources=(source,), target=target, leaves_terminal=True)
                redirected = [*rows[:place], other, *rows[place:]]
                yield f"redirect {source} + {row.event.name} to {target}", states, redirected


def _neighbours(machine: AnyMachine, target: Any) -> tuple[Any, ...]:
    """Three other states: those around this one in the list, and the one across."""
    place, count = machine.states.index(target), len(machine.states)
    near = (machine.states[(place + away) % count] for away in (-1, 1, count // 2))
    return tuple(dict.fromkeys(state for state in near if state != target))


def _other_rows(machine: AnyMachine) -> Iterator[Change]:
    """A row where there is none, in place of whatever keeps silent there."""
    for number, (source, event) in enumerate(product(machine.states, machine.events)):
        if any(row.act in (Act.MOVE, Act.WALK) for row in machine.table.rows_at(source, event)):
            continue
        others = [state for state in machine.states if state != source]
        added: Row[Any, Any] = Row(
            Act.MOVE, event, (source,), "Changed.", others[number % len(others)], "test", leaves_terminal=True
        )
        rows = [added]
        for row in machine.table.rows:
            left = tuple(state for state in row.sources if row.event is not event or state != source)
            if left:
                rows.append(replace(row, sources=left))
        yield f"add {source} + {event.name} → {added.target}", list(machine.table.states), rows


def _other_ranks(machine: AnyMachine) -> Iterator[Change]:
    for entry in machine.table.states:
        rank = Rank.RESTING if entry.terminal else Rank.TERMINAL
        states = [replace(other, rank=rank) if other is entry else other for other in machine.table.states]
        yield f"make {entry.name} {rank.name}", states, list(machine.table.rows)


@pytest.fixture(params=list(BENCHES))
def each_bench(request: pytest.FixtureRequest) -> Bench:
    """The bench of each of the machines, in turn."""
    return BENCHES[str(request.param)]()


@pytest.fixture
def bench() -> Callable[[str], Bench]:
    """The bench of the machine that goes by a name."""
    return lambda name: BENCHES[name]()


@pytest.fixture
def differences() -> Callable[..., tuple[str, ...]]:
    """How the machine that goes by a name differs from what a test has written down."""
    return lambda name, **written: find_differences(BENCHES[name](), **written)


@pytest.fixture
def unnoticed() -> Callable[..., tuple[str, ...]]:
    """The changes of a machine's table that what a test has written down would not notice."""

    def look(name: str, **written: Any) -> tuple[str, ...]:
        original = BENCHES[name]()
        mutants = list(mutants_of(original.machine))
        living = [(what, mutant) for what, mutant in mutants if mutant is not None]
        assert len(living) > 10, f"only {len(living)} of {len(mutants)} changed tables can exist"
        return tuple(
            what
            for what, mutant in living[:: pick(4, 1)]
            if not any(each_difference(replace(original, machine=mutant), **written))
        )

    return look


@pytest.fixture
def state_pairs() -> Callable[[str], set[Pair]]:
    """From where to where a machine can go, whatever the event is called."""

    def relation(name: str) -> set[Pair]:
        machine = MACHINES[name]
        return {(str(s.source), str(s.target)) for state in machine.states for s in machine.steps_from(state)}

    return relation


@pytest.fixture
def differences_of() -> Callable[..., tuple[str, ...]]:
    """How the machine on a bench, perhaps a changed one, differs from what a test has written down."""
    return find_differences


@pytest.fixture
def follow() -> Callable[..., Moved[Any, Any]]:
    """Take a record through events that must all be accepted; the answer to the last one."""

    def through(machine: AnyMachine, state: Any, data: Any, *events: Event) -> Moved[Any, Any]:
        last: Moved[Any, Any] = Moved(state, data, ())
        for event in events:
            answer = machine.decide(last.state, last.data, event)
            assert isinstance(answer, Moved), answer.sentence
            last = answer
        return last

    return through


@pytest.fixture
def refusal() -> Callable[..., Refused[Any]]:
    """The refusal of an event that must not be accepted."""

    def of(machine: AnyMachine, state: Any, data: Any, event: Event) -> Refused[Any]:
        answer = machine.decide(state, data, event)
        assert isinstance(answer, Refused), f"{event} moved it to {answer.state}"
        return answer

    return of


@pytest.fixture
def each_event() -> Callable[[str], list[Event]]:
    """Every occurrence on the bench of the machine that goes by a name."""

    def occurrences(name: str) -> list[Event]:
        on_bench = BENCHES[name]()
        return [one for event in on_bench.machine.events for one in on_bench.occurrences(event)]

    return occurrences
