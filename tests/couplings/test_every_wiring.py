"""The wirings of the program together: each coupling is delivered by one, each event has a sender.

A wiring with a fault cannot be made, so each is looked at with one of its routes taken out.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import interlock
from interlock.agent.state import AgentState
from interlock.lifecycles import RUN
from interlock.lifecycles.couplings import COUPLINGS, Deliverer
from interlock.machine import Machine
from interlock.machine.cascade import Cascade, Wiring, deadlines_of
from interlock.machine.events import Event, Kind
from interlock.systems.catalogue import JOURNALLED
from interlock.systems.fleet.driver import _Load
from interlock.systems.fleet.workloads import WorkloadAggregate
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.simulations.aggregate import SimulationAggregate
from interlock.systems.supervisor.aggregate import WorkerAggregate
from interlock.worker.machines import Machines

SOURCE = Path(interlock.__file__).parent
CASCADES: tuple[type[Cascade], ...] = (
    JobAggregate,
    RunAggregate,
    WorkerAggregate,
    SimulationAggregate,
    WorkloadAggregate,
    Machines,
    AgentState,
    _Load,
)
WIRINGS: Mapping[str, Wiring] = {each.__name__: each.wiring for each in CASCADES}
ROUTES = [(name, key) for name, wiring in WIRINGS.items() for key in wiring.routes]
SENT_FROM_ANYWHERE = (Kind.COMMAND, Kind.MESSAGE, Kind.SIGNAL)
"""Kinds of events whose senders are code; those of other kinds are checked when a wiring is made."""


@pytest.mark.parametrize("cascade", CASCADES)
def test_events_are_decided_and_couplings_followed_in_one_place(cascade: type[Cascade]) -> None:
    for name in ("send_to", "take", "settle", "follow_step", "_follow"):
        assert getattr(cascade, name) is getattr(Cascade, name), "a second home of the interpreter"


def test_each_deliverer_is_one_wiring() -> None:
    deliverers = [wiring.deliverer for wiring in WIRINGS.values() if wiring.deliverer]
    assert sorted(deliverers) == sorted(Deliverer)


def test_each_coupling_is_delivered_by_the_wiring_of_its_cause_or_by_its_deliverer() -> None:
    for coupling in COUPLINGS:
        own = [each for each in WIRINGS.values() if coupling.cause in each.machines]
        routes = [route for each in own if (route := each._route(coupling)) is not None]
        assert routes, coupling.sentence
        if all(route.deliverer for route in routes):
            (other,) = (
                each
                for each in WIRINGS.values()
                if each.deliverer == COUPLINGS.delivered_by.get((coupling.cause, coupling.to))
            )
            route = other._route(coupling)
            assert route is not None, coupling.sentence
            assert not route.deliverer, coupling.sentence


def faults_without(name: str, key: Any) -> list[str]:
    """Return the faults that a wiring would have without one of its routes."""
    poorer = copy.copy(WIRINGS[name])
    poorer.routes = {each: route for each, route in poorer.routes.items() if each != key}
    return [*poorer._faults(None)]


@pytest.mark.parametrize(("name", "key"), ROUTES)
def test_a_wiring_that_lacks_one_of_its_routes_cannot_be_made(name: str, key: Any) -> None:
    assert faults_without(name, key)


TIMERS = [
    (name, deadline.setting)
    for name, wiring in WIRINGS.items()
    for machine in wiring.machines
    for deadline in deadlines_of(machine)
]


@pytest.mark.parametrize(("name", "setting"), dict.fromkeys(TIMERS))
def test_a_wiring_with_a_timer_of_an_unknown_duration_cannot_be_made(name: str, setting: str) -> None:
    others = {each for _, each in TIMERS} - {setting}
    faults = [*WIRINGS[name]._faults(others)]
    assert len(faults) >= 1
    assert all(f"has a timer of {setting}" in fault for fault in faults)
    assert not [*WIRINGS[name]._faults({*others, setting})]


@cache
def referenced(source: Path) -> dict[str, set[str]]:
    """Return in which modules each name occurs; compiled code is cached, and quicker to read than source."""
    found: dict[str, set[str]] = {}
    for path in source.rglob("*.py"):
        module = path.relative_to(source).as_posix()
        code = SourceFileLoader(path.stem, str(path)).get_code(path.stem)
        assert code is not None
        for name in names_in(code):
            found.setdefault(name, set()).add(module)
    return found


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the globals and attributes that code names, also inside its functions and classes."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names_in(inner)


def without_sender(machine: Machine[Any, Any], read: Mapping[str, set[str]]) -> Iterator[str]:
    """Return the commands, messages and signals that no coupling sends and no other module names."""
    sent = {coupling.event for coupling in COUPLINGS if coupling.effect is machine}
    for event in machine.events:
        if event.kind in SENT_FROM_ANYWHERE and event not in sent and not named(event, read, machine.name):
            yield event.name


def named(event: type[Event], read: Mapping[str, set[str]], machine: str) -> set[str]:
    """Return the modules that name an event, apart from that of its table."""
    return (read.get(event.name, set()) | read.get(event.__name__, set())) - {f"lifecycles/{machine}.py"}


def test_each_command_message_and_signal_has_a_sender() -> None:
    read = referenced(SOURCE)
    lacking = {name: [*without_sender(machine, read)] for name, machine in JOURNALLED.items()}
    assert {name: events for name, events in lacking.items() if events} == {}


def test_a_command_without_a_sender_would_be_noticed() -> None:
    read = {**referenced(SOURCE), "start_planning": {"lifecycles/run.py"}}
    assert [*without_sender(RUN, read)] == ["start_planning"]
