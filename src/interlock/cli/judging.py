"""What `interlock machine check` finds.

A declaration with faults never becomes a machine: it raises while its module is imported. Here
that error is not a mishap but the answer, and every fault of it is listed with its code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import msgspec

from interlock.errors import MalformedCouplings, MalformedTable
from interlock.machine import Couplings, Fault, Machine, find_faults

AnyMachine: TypeAlias = Machine[Any, Any]

COUPLINGS = "couplings"
BAD_COUPLING = "bad-coupling"


class Verdict(msgspec.Struct, frozen=True):
    """What was looked at, and everything that is wrong with it."""

    machine: str
    ok: bool
    faults: tuple[Fault, ...] = ()


def judge(names: Sequence[str]) -> list[Verdict]:
    """A verdict on each of the machines; without names on the built-in ones and their couplings."""
    try:
        from interlock import lifecycles  # this declares them, so a fault shows here
    except (MalformedTable, MalformedCouplings) as error:
        return [_as_told(error, "lifecycles")]
    if names:
        return [_on_name(name) for name in names]
    built_in = [_on_machine(machine) for machine in lifecycles.MACHINES.values()]
    return [*built_in, _on_couplings(lifecycles.COUPLINGS)]


def as_dict(verdict: Verdict) -> dict[str, object]:
    """A verdict for a program."""
    told: dict[str, object] = msgspec.to_builtins(verdict)
    return told


def _on_name(name: str) -> Verdict:
    from interlock.cli.loading import load_machine  # it needs sound lifecycles

    try:
        return _on_machine(load_machine(name))
    except (MalformedTable, MalformedCouplings) as error:
        return _as_told(error, name)


def _on_machine(machine: AnyMachine) -> Verdict:
    return _verdict(machine.name, find_faults(machine.table))


def _on_couplings(couplings: Couplings[Any]) -> Verdict:
    try:
        Couplings(couplings.all)
    except MalformedCouplings as error:
        return _as_told(error, COUPLINGS)
    return _verdict(COUPLINGS, ())


def _as_told(error: MalformedTable | MalformedCouplings, name: str) -> Verdict:
    """The faults that a declaration raised; tables give pairs of code and sentence."""
    told = error.facts.get("faults")
    faults = told if isinstance(told, list) else [error.sentence]
    pairs = ([BAD_COUPLING, fault] if isinstance(fault, str) else fault for fault in faults)
    return _verdict(str(error.facts.get("machine", name)), (Fault(*pair) for pair in pairs))


def _verdict(name: str, faults: Iterable[Fault]) -> Verdict:
    found = tuple(faults)
    return Verdict(name, not found, found)
