"""Each coupling of the table reaches its receiver, and is the reason why."""

from __future__ import annotations

import pytest
from tests.couplings import fleet, jobs, processes, runs, simulations, workers
from tests.couplings.world import SCENARIOS, NotDelivered, played

from interlock.lifecycles.couplings import COUPLINGS
from interlock.verify.mutants import without

ALL = {coupling.sentence: coupling for coupling in COUPLINGS.all}


@pytest.mark.parametrize("sentence", list(SCENARIOS), ids=list(SCENARIOS))
def test_it_is_delivered(sentence: str) -> None:
    played(SCENARIOS[sentence])


@pytest.mark.parametrize("sentence", list(SCENARIOS), ids=list(SCENARIOS))
def test_it_is_missed(sentence: str) -> None:
    with without(ALL[sentence]), pytest.raises(NotDelivered):
        played(SCENARIOS[sentence])


def test_every_coupling_has_a_scenario_and_every_scenario_a_coupling() -> None:
    assert sorted(SCENARIOS) == sorted(ALL)
    assert len(ALL) == len(COUPLINGS.all)
