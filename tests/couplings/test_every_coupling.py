"""Each coupling of the table reaches its receiver, and does so because the table says so.

Every coupling has a scenario, by its sentence, which looks at the receiver in the end (`world`). It is
played twice: by the table as it is, and by the table without this one coupling.
"""

from __future__ import annotations

import pytest
from tests.couplings import fleet, jobs, processes, runs, simulations, workers
from tests.couplings.world import SCENARIOS, NotDelivered, played

from interlock.lifecycles.couplings import COUPLINGS
from interlock_verification.mutation import without

SUBJECTS = (runs, jobs, simulations, workers, processes, fleet)
"""Where the scenarios are; importing them fills the table."""
BY_SENTENCE = {coupling.sentence: coupling for coupling in COUPLINGS.all}

EVERY_COUPLING = pytest.mark.parametrize("sentence", BY_SENTENCE)


def test_every_coupling_has_a_scenario_and_every_scenario_a_coupling() -> None:
    assert len(BY_SENTENCE) == len(COUPLINGS.all), "Two couplings have the same sentence."
    assert sorted(BY_SENTENCE.keys() - SCENARIOS.keys()) == [], "These couplings have no scenario."
    assert sorted(SCENARIOS.keys() - BY_SENTENCE.keys()) == [], "These scenarios are of no coupling."


@EVERY_COUPLING
def test_a_coupling_reaches_its_receiver(sentence: str) -> None:
    played(SCENARIOS[sentence])


@EVERY_COUPLING
def test_without_the_coupling_its_receiver_is_not_reached(sentence: str) -> None:
    with without(BY_SENTENCE[sentence]), pytest.raises(NotDelivered):
        played(SCENARIOS[sentence])


def test_a_coupling_that_was_taken_out_is_back_in_its_place() -> None:
    before = COUPLINGS.all
    with without(before[7]):
        assert COUPLINGS.all == (*before[:7], *before[8:])
    assert COUPLINGS.all is before
