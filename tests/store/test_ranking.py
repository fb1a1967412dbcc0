"""Moments and ranks are whole microseconds: nothing is rounded away on the way there and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as some

from interlock.store.ranking import (
    MAX_PRIORITY,
    MIN_PRIORITY,
    microseconds,
    moment,
    rank_of,
    ready_at_of,
)

FIRST, LAST = datetime(1969, 12, 31), datetime(2199, 12, 31)  # noqa: DTZ001 - the zone is told apart
SWITCH = datetime.fromtimestamp(2**32, UTC)
MOMENTS = some.datetimes(FIRST, LAST, timezones=some.just(UTC))


@given(MOMENTS)
@example(datetime(1970, 1, 1, tzinfo=UTC))
@example(datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
@example(SWITCH - timedelta(microseconds=1))
@example(SWITCH)
@example(datetime(2026, 11, 16, 2, 46, 55, 44_027, tzinfo=UTC))
def test_converting_a_time_to_microseconds_and_back_returns_the_same_utc_time(at: datetime) -> None:
    assert moment(microseconds(at)) == at
    assert moment(microseconds(at)).tzinfo is UTC


@given(some.integers(0, 2**32 * 1_000_000 + 10))
def test_every_microsecond_survives_the_round_trip_through_a_datetime(us: int) -> None:
    assert microseconds(moment(us)) == us


@given(MOMENTS, some.integers(MIN_PRIORITY, MAX_PRIORITY))
def test_the_exact_ready_time_can_be_computed_from_a_rank_and_its_priority(
    at: datetime, priority: int
) -> None:
    assert ready_at_of(rank_of(at, priority), priority) == at
