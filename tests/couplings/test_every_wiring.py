"""The wirings of the program together: each coupling is delivered by one, each event has a sender.

A wiring with a fault cannot be made, so each is looked at with one of its routes taken out.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.sources import tree_of

import interlock
from interlock.agent.state import AgentState
from interlock.lifecycles import RUN, run
from interlock.lifecycles.couplings import COUPLINGS, Deliverer
from interlock.machine import Machine
from interlock.machine.cascade import Cascade, Wiring, deadlines_of
from interlock.machine.events import Event, Kind, type_of
from interlock.systems.catalogue import JOURNALLED
from interlock.systems.fleet.driver import _Load
from interlock.systems.fleet.workloads import WorkloadAggregate
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.simulations.aggregate import PULSES, SimulationAggregate
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


DECLARING = {
    "Coupling",
    "Deadline",
    "EventRules",
    "Machine",
    "RecordKind",
    "Wiring",
    "deadline",
    "ignore",
    "isinstance",
    "on",
    "refuse",
    "walk",
}
"""What mentions an event without sending it: declarations of tables and kinds, and questions."""
TYPES = ("annotation", "returns", "bases")
NOT_LOADED = ("cli", "demo", "django", "lifecycles", "testing", "__main__.py", "notebook.py")
"""What sends nothing: tables, and programs that use the systems."""
UNSENT = {
    "job.reject": "a job that cannot be accepted is refused before it is stored",
    "message.drop": "the way out of each state that a table must have; no command does it yet",
    "limit_ticket.drop": "the same",
    "cache.remove": "the same",
    "history.forget": "the same",
}
"""Events that nothing sends, and why; their rows stay because other versions have the tables, too."""


@cache
def senders() -> dict[type[Event], set[str]]:
    """Return the modules that use each event, apart from declarations."""
    found: dict[type[Event], set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        module = path.relative_to(SOURCE)
        if module.parts[0] not in NOT_LOADED:
            name = ".".join(("interlock", *module.with_suffix("").parts)).removesuffix(".__init__")
            for event in events_used(tree_of(path), vars(import_module(name))):
                found.setdefault(event, set()).add(module.as_posix())
    return found


def events_used(tree: ast.AST, names: Mapping[str, Any]) -> Iterator[type[Event]]:
    """Yield the events that code makes or passes on, looked up in the names of its module."""
    for node in used(tree):
        meant = resolved(node, names)
        if isinstance(meant, Event):
            yield type(meant)
        elif isinstance(meant, type) and issubclass(meant, Event):
            yield meant


def used(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that make or pass on a value: no declarations, types and comparisons."""
    inside: list[ast.AST]
    match node:
        case ast.Call(func=ast.Subscript(value=func) | func) if (
            ast.unparse(func).rpartition(".")[2] in DECLARING
        ):
            return
        case ast.Attribute(attr="name") | ast.pattern():
            return
        case ast.Compare(left=left, comparators=others):
            inside = [each for each in (left, *others) if not isinstance(each, ast.Name | ast.Attribute)]
        case _:
            yield node
            parts = (value for name, value in ast.iter_fields(node) if name not in TYPES)
            lists = (value if isinstance(value, list) else [value] for value in parts)
            inside = [each for some in lists for each in some if isinstance(each, ast.AST)]
    for each in inside:
        yield from used(each)


def resolved(node: ast.AST, names: Mapping[str, Any]) -> Any:
    """Return what a name means in a module, or a name of an imported module."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return names.get(name)
        case ast.Attribute(value=value, attr=name):
            owner = resolved(value, names)
            return getattr(owner, name, None) if isinstance(owner, ModuleType) else None
    return None


def without_sender(machine: Machine[Any, Any], sent: Collection[type[Event]]) -> Iterator[str]:
    """Return the events other than timers that no coupling and no module sends."""
    coupled = {
        coupling.event
        for couplings in (COUPLINGS, PULSES)
        for coupling in couplings
        if coupling.effect is machine
    }
    for event in machine.events:
        if event.kind is not Kind.TIMER and event not in coupled and event not in sent:
            yield f"{machine.name}.{event.name}"


@pytest.mark.together("parsed modules")
def test_each_event_that_is_no_timer_has_a_sender() -> None:
    sent = senders()
    machines = {
        *JOURNALLED.values(),
        *(machine for wiring in WIRINGS.values() for machine in wiring.machines),
    }
    lacking = [event for machine in machines for event in without_sender(machine, sent)]
    assert sorted(lacking) == sorted(UNSENT)


@pytest.mark.together("parsed modules")
def test_a_command_without_a_sender_would_be_noticed() -> None:
    sent = senders().keys() - {type_of(run.start_planning)}
    assert [*without_sender(RUN, sent)] == ["run.start_planning"]


@pytest.mark.parametrize(
    ("code", "sends"),
    [
        ("draft.send(run.start_planning)", True),
        ("event = start_planning if new else None", True),
        ("if (refused := self.send(run.start_planning)) is None: pass", True),
        ("draft.send(run.PlanReady(at=now))", False),
        ("Machine[S, None]('run', rows=(on(start_planning, A, B),))", False),
        ("if step.event == run.start_planning.name: pass", False),
        ("runs.start_planning()", False),
        ("def start_planning(self): self.start_planning()", False),
    ],
)
def test_an_event_is_sent_where_it_is_passed_on_and_not_where_it_is_declared_or_compared(
    code: str, sends: bool
) -> None:
    names = {"run": run, "start_planning": run.start_planning}
    assert (type_of(run.start_planning) in set(events_used(ast.parse(code), names))) is sends
