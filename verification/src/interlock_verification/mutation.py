"""Mutation of the tables: break every row, guard and coupling in turn, and count the detected mutants.

A mutant is detected by the checks of its own table, or by a claim that breaks in a small environment.
Harmless mutants are listed in survivors.toml, each with the reason.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

import msgspec

from interlock.errors import MalformedCouplings, MalformedTable
from interlock.lifecycles import ATTEMPT, COUPLINGS, JOB, LEASE, MACHINES, RUN
from interlock.machine import Coupling, Couplings, Machine, Row, ignore
from interlock.machine.couplings import AnyMachine
from interlock.machine.table import Act, name_of
from interlock.testing.lifecycles import LifecycleModel
from interlock.testing.model_checker import check
from interlock_verification.environments import REDUCED, model_of
from interlock_verification.models.plan import ModelPlan
from interlock_verification.single_machines import ALONE
from interlock_verification.system_machines import SYSTEM_CLAIMS, SYSTEM_MACHINES

AnyRow: TypeAlias = Row[Any, Any]

MODELLED: tuple[AnyMachine, ...] = (RUN, JOB, ATTEMPT, LEASE)
"""The machines that the model checker explores together."""
MUTATED: Mapping[str, AnyMachine] = {**MACHINES, **SYSTEM_MACHINES}
"""All machines whose tables are mutated, by name."""
_CLAIMS = {**ALONE, **SYSTEM_CLAIMS}


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """One fault in the tables."""

    name: str
    """A stable name, so that survivors can be listed: job / cancel: RUNNING → CANCELED / drop."""
    machine: str
    what: str
    rows: tuple[AnyRow, ...] = ()
    couplings: tuple[Coupling[Any], ...] = ()


def all_mutants(machines: Sequence[AnyMachine] = tuple(MUTATED.values())) -> list[Mutant]:
    """Return each mutant once, in the order of the tables."""
    found = [mutant for machine in machines for mutant in _of_machine(machine)]
    names = {machine.name for machine in machines}
    return [*found, *(mutant for mutant in _of_couplings() if mutant.machine in names)]


@contextmanager
def in_place(mutant: Mutant) -> Iterator[None]:
    """Replace the tables by the mutant, unless its own checks detect it."""
    touched = [
        machine for machine in MUTATED.values() if machine in MODELLED or machine.name == mutant.machine
    ]
    before = {machine.name: dict(vars(machine)) for machine in touched}
    couplings = COUPLINGS.all
    changed: Couplings[Any] = Couplings(mutant.couplings or couplings)
    tables = {machine.name: _rebuilt(machine, mutant) for machine in touched}
    try:
        for machine in touched:
            vars(machine).update(vars(tables[machine.name]))
        COUPLINGS.exchange(changed.all)
        yield
    finally:
        for machine in touched:
            vars(machine).update(before[machine.name])
        COUPLINGS.exchange(couplings)


@contextmanager
def without(coupling: Coupling[Any]) -> Iterator[None]:
    """Remove one coupling, for the duration of the context."""
    title = f"{coupling.cause.name} / {coupling.sentence} / drop"
    with in_place(_coupled(coupling, title, COUPLINGS.all.index(coupling), None)):
        yield


def _rebuilt(machine: AnyMachine, mutant: Mutant) -> AnyMachine:
    """Return the rebuilt machine, with new steps.

    Consequences of a step are cached.
    """
    table = machine.table
    return Machine(
        table.name,
        table.doc,
        initial=table.initial,
        states=table.states,
        rows=mutant.rows if mutant.rows and machine.name == mutant.machine else table.rows,
        stop=table.stop,
        spine=table.spine,
        invariants=table.invariants,
    )


# Rows and guards


def _of_machine(machine: AnyMachine) -> Iterator[Mutant]:
    for place, row in enumerate(machine.table.rows):
        if row.act.silent:
            continue
        for source in row.sources:
            title = f"{machine.name} / {row.event.name}: {source}{_arrow(row)}"
            yield _mutant(machine, f"{title} / drop", _dropped(machine, place, source))
            if row.act is Act.MOVE:
                yield from _retargeted(machine, place, source, title)
        title = f"{machine.name} / {row.event.name}: {', '.join(row.sources)}{_arrow(row)}"
        for guard in row.when:
            for answer in (True, False):
                changed = replace(row, when=tuple(_fixed(g, answer) if g is guard else g for g in row.when))
                rows = _rows_with(machine, place, changed)
                yield _mutant(machine, f"{title} / {name_of(guard)} is {str(answer).lower()}", rows)


def _dropped(machine: AnyMachine, place: int, source: Any) -> tuple[AnyRow, ...]:
    """Return the rows without this one in a state.

    If it was the only one, the event is ignored.
    """
    row = machine.table.rows[place]
    left = tuple(name for name in row.sources if name != source)
    rows = _rows_with(machine, place, replace(row, sources=left) if left else None)
    alone = machine.table.rows_at(source, row.event) == (row,)
    return (*rows, ignore(row.event, source, why="it was dropped")) if alone else rows


def _retargeted(machine: AnyMachine, place: int, source: Any, title: str) -> Iterator[Mutant]:
    """Return the rows with this one leading to another state."""
    row, states = machine.table.rows[place], machine.states
    start = states.index(row.target)
    around = (*states[start + 1 :], *states[:start])
    other = next((name for name in around if name not in (source, row.target)), None)
    if other is None:
        return  # a machine with two states
    left = tuple(name for name in row.sources if name != source)
    moved = replace(row, sources=(source,), target=other)
    rows = list(machine.table.rows)
    rows[place : place + 1] = [moved, replace(row, sources=left)] if left else [moved]
    yield _mutant(machine, f"{title} / to {other}", tuple(rows))


def _rows_with(machine: AnyMachine, place: int, row: AnyRow | None) -> tuple[AnyRow, ...]:
    rows = machine.table.rows
    return (*rows[:place], *(() if row is None else (row,)), *rows[place + 1 :])


def _fixed(guard: Callable[..., bool], answer: bool) -> Callable[..., bool]:
    def broken(_data: object, _event: object) -> bool:
        return answer

    broken.__name__, broken.__doc__ = name_of(guard), guard.__doc__
    return broken


def _arrow(row: AnyRow) -> str:
    if row.act is Act.MOVE:
        return f" → {row.target}"
    return " (walk)" if row.act is Act.WALK else " (stay)"


def _mutant(machine: AnyMachine, name: str, rows: tuple[AnyRow, ...]) -> Mutant:
    return Mutant(name=name, machine=machine.name, what=name.rpartition(" / ")[2], rows=rows)


# Couplings


def _of_couplings() -> Iterator[Mutant]:
    for place, coupling in enumerate(COUPLINGS.all):
        if coupling.cause not in MODELLED or coupling.effect not in MODELLED:
            continue
        if coupling.to in _NOT_MODELLED:
            continue
        title = f"{coupling.cause.name} / {coupling.sentence}"
        yield _coupled(coupling, f"{title} / drop", place, None)
        for condition in coupling.when:
            left = tuple(one for one in coupling.when if one is not condition)
            changed = replace(coupling, when=left)
            yield _coupled(coupling, f"{title} / without {condition.__name__}", place, changed)


_NOT_MODELLED = (
    *("each of its children", "each of its siblings", "its parent"),
    *("each job that needs it", "each job that comes after it"),
)
"""Trees of jobs, needs and dependencies between jobs are not part of the model."""


def _coupled(coupling: Coupling[Any], name: str, place: int, changed: Coupling[Any] | None) -> Mutant:
    rest = COUPLINGS.all
    kept = (*rest[:place], *(() if changed is None else (changed,)), *rest[place + 1 :])
    what = name.rpartition(" / ")[2]
    return Mutant(name=name, machine=coupling.cause.name, what=what, couplings=kept)


@cache
def harmless() -> dict[str, str]:
    """Return the name of each harmless mutant, and the reason."""
    text = files("interlock_verification").joinpath("survivors.toml").read_text(encoding="utf-8")
    return {one["mutant"]: " ".join(one["why"].split()) for one in tomllib.loads(text).get("survivor", [])}


_MODELLED = {machine.name for machine in MODELLED}


class Caught(StrEnum):
    """The way in which a mutant was detected."""

    TABLE = "table"
    ALONE = "alone"
    CLAIM = "claim"
    CRASH = "crash"
    NOTHING = "nothing"


class MutantResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a mutant."""

    mutant: str
    machine: str
    caught: Caught
    by: str = ""
    """The fault, or the claim and the environment in which it broke."""


def try_mutants(
    mutants: Sequence[Mutant],
    *,
    plans: Sequence[ModelPlan] = REDUCED,
    progress: Callable[[int, int], None] | None = None,
) -> list[MutantResult]:
    """Return the result of each mutant."""
    results = []
    for number, mutant in enumerate(mutants):
        results.append(result_of(mutant, plans))
        if progress is not None:
            progress(number + 1, sum(result.caught is not Caught.NOTHING for result in results))
    return results


def result_of(mutant: Mutant, plans: Sequence[ModelPlan] = REDUCED) -> MutantResult:
    """Explore one small world after the other until the mutant is detected."""
    fields = {"mutant": mutant.name, "machine": mutant.machine}
    try:
        with in_place(mutant):
            if alone := _noticed_alone(mutant):
                return MutantResult(**fields, caught=Caught.ALONE, by=alone)
            for plan in plans if mutant.machine in _MODELLED else ():
                if noticed := _noticed(plan):
                    return MutantResult(**fields, caught=noticed[0], by=noticed[1])
    except (MalformedTable, MalformedCouplings) as error:
        return MutantResult(**fields, caught=Caught.TABLE, by=error.sentence.splitlines()[-1].strip())
    return MutantResult(**fields, caught=Caught.NOTHING)


def _noticed_alone(mutant: Mutant) -> str:
    """Return the broken claim of the machine alone; empty if there is none."""
    if mutant.machine not in _CLAIMS or not mutant.rows:
        return ""
    report = check(LifecycleModel(MUTATED[mutant.machine], _CLAIMS[mutant.machine]))
    return report.violations[0].claim if report.violations else ""


def _noticed(plan: ModelPlan) -> tuple[Caught, str] | None:
    try:
        report = check(model_of(plan), most=_most(plan))
    except Exception as error:  # noqa: BLE001 - any failure kills the mutant
        return Caught.CRASH, f"{plan.name}: {type(error).__name__}: {error}"
    if report.violations:
        return Caught.CLAIM, f"{plan.name}: {report.violations[0].claim}"
    if not report.complete:
        return Caught.CLAIM, f"{plan.name}: the number of states is limited"
    return None


def _most(plan: ModelPlan) -> int:
    """Return the maximum number of states.

    A mutant with many more has lost a limit.
    """
    return 10 * (plan.states or 10_000)
