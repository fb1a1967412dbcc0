"""The tables, broken in every way: who breaks one is caught, and nothing stays broken."""

from __future__ import annotations

import random

import pytest
from tests.effort import pick

from interlock.errors import MalformedTable
from interlock.lifecycles import ATTEMPT, COUPLINGS, JOB, LEASE, RUN
from interlock.machine import blueprint_of
from interlock_verification.mutation import (
    MODELLED,
    MUTATED,
    Caught,
    all_mutants,
    harmless,
    in_place,
    result_of,
    try_mutants,
)

MUTANTS = {mutant.name: mutant for mutant in all_mutants()}
SAMPLE = pick(6, 40)
SEED = 8


def test_every_row_that_does_something_is_dropped_once_for_each_state_it_applies_in() -> None:
    for machine in MUTATED.values():
        pairs = sum(len(row.sources) for row in machine.table.rows if not row.act.silent)
        dropped = [m for m in MUTANTS.values() if m.machine == machine.name and m.rows and m.what == "drop"]
        assert len(dropped) == pairs


def test_every_guard_and_every_condition_is_taken_out() -> None:
    guards = sum(len(row.when) for machine in MUTATED.values() for row in machine.table.rows)
    assert sum(mutant.what.endswith((" is true", " is false")) for mutant in MUTANTS.values()) == 2 * guards
    assert sum(mutant.what.startswith("without ") for mutant in MUTANTS.values()) >= 20


def test_every_mutant_has_a_unique_name() -> None:
    assert len(MUTANTS) == len(all_mutants())


def test_a_mutant_is_gone_when_it_was_tried() -> None:
    before = [blueprint_of(machine) for machine in MODELLED], COUPLINGS.all
    with in_place(MUTANTS["job / error: RUNNING → FAILED / to CANCELED"]):
        assert blueprint_of(JOB) != before[0][1]
    assert ([blueprint_of(machine) for machine in (RUN, JOB, ATTEMPT, LEASE)], COUPLINGS.all) == before


def test_a_mutant_is_gone_also_when_something_fails() -> None:
    before = blueprint_of(LEASE)
    guard = "lease / ack: GRANTED → ACTIVE / in_time is true"
    with pytest.raises(ZeroDivisionError), in_place(MUTANTS[guard]):
        _ = 1 / 0
    assert blueprint_of(LEASE) == before


def test_a_mutant_that_its_own_table_refuses_never_gets_into_place() -> None:
    refused = MUTANTS["lease / ack: GRANTED → ACTIVE / drop"]
    assert result_of(refused).caught is Caught.TABLE
    with pytest.raises(MalformedTable), in_place(refused):
        raise AssertionError("it must not get here")


def test_of_any_sample_of_the_mutants_all_are_caught_or_known_to_be_harmless() -> None:
    chosen = random.Random(SEED).sample(sorted(MUTANTS.values(), key=lambda m: m.name), SAMPLE)
    results = try_mutants(chosen)
    survivors = [result.mutant for result in results if result.caught is Caught.NOTHING]
    assert [name for name in survivors if name not in harmless()] == []


def test_every_mutant_listed_as_harmless_exists_and_has_a_reason() -> None:
    for name, why in harmless().items():
        assert name in MUTANTS
        assert len(why) > 20


def test_at_least_95_percent_are_caught() -> None:
    """All were tried when the list was written; `interlock verify mutate` tries all of them again."""
    assert len(harmless()) <= 0.05 * len(MUTANTS)
