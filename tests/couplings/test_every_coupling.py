"""Each coupling of the table reaches its receiver, for each of its causes, because the table says so.

A cause is a state that the coupling names, with one of the events that it names. Every cause of every
coupling has a scenario, which looks at the receiver in the end (`world`). It is played twice: by the table as
it is, and by the table in which the coupling does not follow from this one cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.couplings import fleet, jobs, processes, runs, simulations, workers
from tests.couplings.world import SCENARIOS, NotDelivered, played

from interlock.lifecycles.couplings import COUPLINGS
from interlock.machine import Coupling
from interlock_verification.mutation import Mutant, in_place, without

SUBJECTS = (runs, jobs, simulations, workers, processes, fleet)
"""Where the scenarios are; importing them fills the table."""

UNDER_A_STOP = (
    "attempt enters SUCCEEDED or FAILED or CANCELED or TIMED_OUT or STALE, if it was asked to stop and "
    "nothing of it is active any more: send cancel to its job"
)
NEVER: Mapping[tuple[str, str], str] = {
    (UNDER_A_STOP, state): "a job that is asked to stop asks its attempts in the same commit, and what was "
    "asked to stop ends as CANCELED"
    for state in ("SUCCEEDED", "FAILED", "TIMED_OUT", "STALE")
}
"""Causes whose condition cannot hold then, and why: the table names the states in which an attempt ends."""


def causes_of(coupling: Coupling[Any]) -> dict[str, Coupling[Any]]:
    """Return the coupling for each of its causes alone, by the name of the cause if there are several."""
    steps = [step for state in coupling.cause.states for step in coupling.cause.steps_at(state)]
    found = {}
    for state in coupling.into:
        for by in coupling.by or (None,):
            alone = replace(coupling, into=(state,), by=() if by is None else (by,))
            if any(map(alone.may_follow, steps)):
                words = [str(state)] if len(coupling.into) > 1 else []
                words += [by.name] if by is not None and len(coupling.by) > 1 else []
                found[" by ".join(words)] = alone
    return found if len(found) > 1 else {"": coupling}


EVERY_CAUSE = {
    (coupling.sentence, name): (coupling, alone)
    for coupling in COUPLINGS.all
    for name, alone in causes_of(coupling).items()
}
EACH = pytest.mark.parametrize("cause", [cause for cause in EVERY_CAUSE if cause not in NEVER], ids=" ".join)


@contextmanager
def without_cause(cause: tuple[str, str]) -> Iterator[None]:
    """Let a coupling follow from its other causes alone, for the duration of the context."""
    coupling, alone = EVERY_CAUSE[cause]
    others = [each for each in causes_of(coupling).values() if each != alone]
    place, before = COUPLINGS.all.index(coupling), COUPLINGS.all
    changed = (*before[:place], *others, *before[place + 1 :])
    with in_place(Mutant(name=" ".join(cause), machine=coupling.cause.name, what="", couplings=changed)):
        yield


def test_every_cause_of_every_coupling_has_a_scenario_and_every_scenario_a_cause() -> None:
    assert len({c.sentence for c in COUPLINGS.all}) == len(COUPLINGS.all), "Two have the same sentence."
    played_ones = EVERY_CAUSE.keys() - NEVER.keys()
    assert sorted(played_ones - SCENARIOS.keys()) == [], "These causes have no scenario."
    assert sorted(SCENARIOS.keys() - played_ones) == [], "These scenarios are of no cause."
    assert sorted(NEVER.keys() - EVERY_CAUSE.keys()) == [], "These are no causes any more."


@EACH
def test_a_coupling_reaches_its_receiver(cause: tuple[str, str]) -> None:
    played(SCENARIOS[cause])


@EACH
def test_without_this_cause_of_the_coupling_its_receiver_is_not_reached(cause: tuple[str, str]) -> None:
    with without_cause(cause), pytest.raises(NotDelivered):
        played(SCENARIOS[cause])


def test_a_coupling_that_was_taken_out_is_back_in_its_place() -> None:
    before = COUPLINGS.all
    with without(before[7]):
        assert COUPLINGS.all == (*before[:7], *before[8:])
    assert COUPLINGS.all is before
