"""Every consequence that the tables name for runs has somebody who sees to it."""

from __future__ import annotations

import pytest

from interlock.lifecycles.couplings import COUPLINGS, Facts
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.machine import Coupling
from interlock.systems.runs.draft import OUTWARD, RunDraft

MINE = [coupling for coupling in COUPLINGS if coupling.cause is RUN]
THEIRS = [c for c in COUPLINGS if c.cause is JOB and (c.effect is RUN or c.to == "each job that needs it")]


@pytest.mark.parametrize("coupling", MINE, ids=[coupling.sentence for coupling in MINE])
def test_a_consequence_is_delivered_here_or_known_to_go_elsewhere(coupling: Coupling[Facts]) -> None:
    assert (coupling.to in RunDraft.DELIVERIES) is not (coupling.to in OUTWARD), coupling.sentence


def test_nothing_is_delivered_that_no_coupling_speaks_of() -> None:
    assert {*RunDraft.DELIVERIES, *OUTWARD} == {coupling.to for coupling in MINE}


def test_whatever_a_job_causes_in_its_run_is_heard() -> None:
    assert {coupling.to for coupling in THEIRS} == set(RunDraft.HEARD)
