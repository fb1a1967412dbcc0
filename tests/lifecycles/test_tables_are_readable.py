"""A person can read each lifecycle in a minute: it says what it promises, who does what, and why."""

from __future__ import annotations

import inspect
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from interlock import lifecycles
from interlock.errors import UnknownMachine
from interlock.lifecycles import COUPLINGS, MACHINES, SCHEDULE, Owner, machine_named
from interlock.machine import Machine
from interlock.machine.table import Act

TEN = ["run", "job", "attempt", "lease", "worker", "process", "task", "workload", "simulation", "schedule"]


def module_of(name: str) -> ModuleType:
    return import_module(f"interlock.lifecycles.{name}")


def test_there_are_ten_machines_under_their_own_names() -> None:
    assert list(MACHINES) == TEN
    assert [machine.name for machine in MACHINES.values()] == TEN


@pytest.mark.parametrize("name", TEN)
def test_a_file_opens_with_the_invariants_of_its_machine(name: str) -> None:
    doc = inspect.getdoc(module_of(name)) or ""
    opening, _, invariants = doc.partition("Invariants:")
    assert opening.strip(), "the first sentence says what it is"
    assert invariants.count("* ") >= 3, "one each, as a list"
    source = Path(inspect.getfile(module_of(name))).read_text(encoding="utf-8")
    assert source.startswith('"""'), "the docstring is the first thing a reader sees"


@pytest.mark.parametrize("name", TEN)
def test_a_file_is_short_enough_to_be_read(name: str) -> None:
    lines = Path(inspect.getfile(module_of(name))).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 320


@pytest.mark.parametrize("name", TEN)
def test_every_row_has_a_reason_and_every_accepting_row_has_an_owner(name: str) -> None:
    owners = {str(owner) for owner in Owner}
    for row in MACHINES[name].table.rows:
        assert row.why.strip(), f"{row.event.name} in {row.sources}"
        if row.act in (Act.MOVE, Act.KEEP):
            assert row.owner in owners, f"{row.event.name} belongs to {row.owner!r}"


@pytest.mark.parametrize("name", TEN)
def test_every_state_and_event_has_a_sentence(name: str) -> None:
    machine = MACHINES[name]
    owners = {str(owner) for owner in Owner}
    for entry in machine.table.states:
        assert entry.doc.endswith("."), entry.name
        assert entry.turn is None or entry.turn in owners
    for event in machine.events:
        assert event.doc.endswith("."), event.name
        assert event.by in owners, f"{event.name} is brought by {event.by!r}"


@pytest.mark.parametrize("name", TEN)
def test_only_active_states_and_all_of_them_name_the_role_that_acts_next(name: str) -> None:
    for entry in MACHINES[name].table.states:
        at_rest = entry.name in MACHINES[name].terminal | MACHINES[name].resting
        assert at_rest == (entry.turn is None), entry.name


@pytest.mark.parametrize("name", TEN)
def test_every_guard_update_and_effect_can_be_explained(name: str) -> None:
    for row in MACHINES[name].table.rows:
        then: tuple[Any, ...] = () if row.then is None else (row.then,)
        for function in (*row.when, *then, *row.emits):
            assert (function.__doc__ or "").strip(), f"{function.__name__} has no words"


@pytest.mark.parametrize("name", TEN)
def test_the_happy_path_is_drawn_from_the_beginning_to_an_end(name: str) -> None:
    machine = MACHINES[name]
    spine = machine.table.spine
    assert spine[0] == machine.initial
    if machine.terminal:
        assert spine[-1] in machine.terminal
    for here, there in pairwise(spine):
        assert there in {step.target for step in machine.steps_from(here)}


@pytest.mark.parametrize("name", TEN)
def test_every_machine_declares_how_it_is_stopped(name: str) -> None:
    assert MACHINES[name].table.stop


@pytest.mark.parametrize("name", TEN)
def test_every_machine_has_invariants_beside_it(name: str) -> None:
    assert MACHINES[name].table.invariants


def test_a_machine_is_found_by_its_name_in_any_case() -> None:
    for name, machine in MACHINES.items():
        assert machine_named(name) is machine
        assert machine_named(name.upper()) is machine


@pytest.mark.parametrize("wrong", ["jbo", "", "runs", "Run "])
def test_a_wrong_name_lists_the_right_ones(wrong: str) -> None:
    with pytest.raises(UnknownMachine) as caught:
        machine_named(wrong)
    assert list(caught.value.allowed) == TEN
    assert all(name in caught.value.todo for name in TEN)


def test_the_machines_cannot_be_replaced_by_accident() -> None:
    with pytest.raises(TypeError):
        MACHINES["run"] = MACHINES["job"]  # type: ignore[index]


def test_the_couplings_join_all_machines_but_the_schedule_and_nothing_else() -> None:
    """A schedule creates jobs, and looks at them; neither sends the other events."""
    joined: set[Machine[Any, Any]] = set()
    for coupling in COUPLINGS:
        joined |= {coupling.cause, coupling.effect}
    assert joined == set(MACHINES.values()) - {SCHEDULE}, "every machine has a part in the whole"


def test_every_public_name_exists() -> None:
    assert [name for name in lifecycles.__all__ if not hasattr(lifecycles, name)] == []
