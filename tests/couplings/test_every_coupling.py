"""Each coupling of the table reaches its receiver, and does so because the table says so.

Every coupling has a scenario, by its sentence, which looks at the receiver in the end (`world`). It is
played twice: by the table as it is, and by the table without this one coupling.
"""

from __future__ import annotations

import pytest
from tests.couplings import fleet, jobs, processes, runs, simulations, workers
from tests.couplings.world import SCENARIOS, NotDelivered, played

from interlock.lifecycles.couplings import COUPLINGS
from interlock.verify.mutants import without

SUBJECTS = (runs, jobs, simulations, workers, processes, fleet)
"""Where the scenarios are; importing them fills the table."""
BY_SENTENCE = {coupling.sentence: coupling for coupling in COUPLINGS.all}

NOT_DELIVERED: dict[str, str] = {}
"""Couplings that nobody carries out, and why."""

BY_HAND: dict[str, str] = {}
"""Couplings that are carried out without the table, and where."""


def cases(unfit: dict[str, str], failure: type[BaseException]) -> list[object]:
    """Return the sentences to be tried, those that are known not to hold marked as such."""
    marks = {
        sentence: (pytest.mark.xfail(strict=True, raises=failure, reason=reason),)
        for sentence, reason in unfit.items()
    }
    return [pytest.param(each, id=each, marks=marks.get(each, ())) for each in BY_SENTENCE]


def test_every_coupling_has_a_scenario_and_every_scenario_a_coupling() -> None:
    assert len(BY_SENTENCE) == len(COUPLINGS.all), "Two couplings have the same sentence."
    assert sorted(BY_SENTENCE.keys() - SCENARIOS.keys()) == [], "These couplings have no scenario."
    assert sorted(SCENARIOS.keys() - BY_SENTENCE.keys()) == [], "These scenarios are of no coupling."


def test_only_couplings_of_the_table_are_excepted() -> None:
    assert sorted((NOT_DELIVERED | BY_HAND).keys() - BY_SENTENCE.keys()) == []


@pytest.mark.parametrize("sentence", cases(NOT_DELIVERED, NotDelivered))
def test_a_coupling_reaches_its_receiver(sentence: str) -> None:
    played(SCENARIOS[sentence])


@pytest.mark.parametrize("sentence", cases(BY_HAND, pytest.fail.Exception))
def test_without_the_coupling_its_receiver_is_not_reached(sentence: str) -> None:
    with without(BY_SENTENCE[sentence]), pytest.raises(NotDelivered):
        played(SCENARIOS[sentence])


def test_a_coupling_that_was_taken_out_is_back_in_its_place() -> None:
    before = COUPLINGS.all
    with without(before[7]):
        assert COUPLINGS.all == (*before[:7], *before[8:])
    assert COUPLINGS.all is before
