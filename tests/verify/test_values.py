"""A record without what no decision depends on: what is left out changes nothing that is decided."""

from __future__ import annotations

from itertools import product

from interlock.testing.model_checker import check
from interlock_verification.models.job_values import (
    Phase,
    Say,
    normal,
    read_hand,
    read_message,
    write_hand,
    write_message,
)
from interlock_verification.models.job_world import JobWorld
from interlock_verification.models.plan import JobPlan, ModelPlan

PLAN = ModelPlan(name="values", doc="", jobs=(JobPlan(shards=2, attempt_timeout=3),), workers=2, cancels=1)


def explored() -> JobWorld:
    world = JobWorld(PLAN)
    check(world, most=3_000)
    return world


def test_making_a_value_normal_twice_changes_nothing_more() -> None:
    deciding = explored().deciding
    values = [value for value in deciding.values if value is not None]
    assert len(values) > 100
    for value in values:
        assert normal(value.record()) == value


def test_names_can_be_given_back() -> None:
    deciding = explored().deciding
    for number in range(1, len(deciding.values)):
        assert deciding.rename(deciding.rename(number, (1, 0)), (1, 0)) == number


def test_time_and_names_do_not_mind_each_other() -> None:
    deciding = explored().deciding
    for number in range(1, 500):
        assert deciding.rename(deciding.age(number), (1, 0)) == deciding.age(deciding.rename(number, (1, 0)))


def test_ageing_a_value_reaches_a_fixed_point_within_eight_steps() -> None:
    """However long nothing happens, a value is soon one that time does not change."""
    deciding = explored().deciding
    for number in range(1, 300):
        later = number
        for _ in range(8):
            later = deciding.age(later)
        assert deciding.age(later) == later


def test_messages_and_hands_are_read_as_they_were_written() -> None:
    for message in product(Say, range(3), range(3), range(4), range(8), range(8)):
        assert read_message(write_message(*message)) == message
    for known in product(Phase, range(3), range(4), range(8), range(8), range(2)):
        assert read_hand(write_hand(*known)) == known
