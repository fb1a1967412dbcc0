"""How many broken tables are noticed: by their own checks, or by a claim that breaks in a small world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from interlock.errors import MalformedCouplings, MalformedTable
from interlock.lifecycles import machine_named
from interlock.verify.environments import model_of
from interlock.verify.environments.alone import ALONE
from interlock.verify.environments.reduced import REDUCED
from interlock.verify.jobs.plan import Plan
from interlock.verify.lifecycles import LifecycleModel
from interlock.verify.model_checker import check
from interlock.verify.mutants import MODELLED, Mutant, in_place

_MODELLED = {machine.name for machine in MODELLED}


class Caught(StrEnum):
    """What has noticed a mutant."""

    TABLE = "table"
    ALONE = "alone"
    CLAIM = "claim"
    CRASH = "crash"
    NOTHING = "nothing"


class Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a mutant."""

    mutant: str
    machine: str
    caught: Caught
    by: str = ""
    """The fault, or the claim and the environment in which it broke."""


def try_mutants(
    mutants: Sequence[Mutant],
    *,
    plans: Sequence[Plan] = REDUCED,
    progress: Callable[[int, int], None] | None = None,
) -> list[Fate]:
    """The fate of each of them."""
    fates = []
    for number, mutant in enumerate(mutants):
        fates.append(fate_of(mutant, plans))
        if progress is not None:
            progress(number + 1, sum(fate.caught is not Caught.NOTHING for fate in fates))
    return fates


def fate_of(mutant: Mutant, plans: Sequence[Plan] = REDUCED) -> Fate:
    """Explore one small world after the other until something is noticed."""
    told = {"mutant": mutant.name, "machine": mutant.machine}
    try:
        with in_place(mutant):
            if alone := _noticed_alone(mutant):
                return Fate(**told, caught=Caught.ALONE, by=alone)
            for plan in plans if mutant.machine in _MODELLED else ():
                if noticed := _noticed(plan):
                    return Fate(**told, caught=noticed[0], by=noticed[1])
    except (MalformedTable, MalformedCouplings) as error:
        return Fate(**told, caught=Caught.TABLE, by=error.sentence.splitlines()[-1].strip())
    return Fate(**told, caught=Caught.NOTHING)


def _noticed_alone(mutant: Mutant) -> str:
    """What the promises of its table say to it, whoever asks."""
    if mutant.machine not in ALONE or not mutant.rows:
        return ""
    report = check(LifecycleModel(machine_named(mutant.machine), ALONE[mutant.machine]))
    return report.violations[0].claim if report.violations else ""


def _noticed(plan: Plan) -> tuple[Caught, str] | None:
    try:
        report = check(model_of(plan), most=_most(plan))
    except Exception as error:  # noqa: BLE001 - however a decider breaks on a broken table, it is noticed
        return Caught.CRASH, f"{plan.name}: {type(error).__name__}: {error}"
    if report.violations:
        return Caught.CLAIM, f"{plan.name}: {report.violations[0].claim}"
    if not report.complete:
        return Caught.CLAIM, f"{plan.name}: there are only so many states"
    return None


def _most(plan: Plan) -> int:
    """A mutant with many times the states of the sound tables has lost a bound."""
    return 10 * (plan.states or 10_000)
