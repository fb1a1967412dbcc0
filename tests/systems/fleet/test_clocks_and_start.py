"""What is known of the agents' clocks, and the instant that follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import SkewTooLarge
from interlock.systems.fleet.clocks import ClockExchange, Offset, choose_start, offset_of, spread_of
from interlock.systems.fleet.member import ReferenceClock

MS = 1_000_000
SECOND = 1_000 * MS

on_the_way = st.integers(min_value=0, max_value=300 * MS)


def exchange(
    sent_ns: int, offset_ns: int, there_ns: int, back_ns: int, thinking_ns: int = 0
) -> ClockExchange:
    """What two hosts with clocks so far apart see of one question."""
    received = sent_ns + there_ns + offset_ns
    answered = received + thinking_ns
    returned = sent_ns + there_ns + thinking_ns + back_ns
    return ClockExchange(sent_ns=sent_ns, received_ns=received, answered_ns=answered, returned_ns=returned)


@given(
    offset=st.integers(-(10**12), 10**12),
    ways=st.lists(st.tuples(on_the_way, on_the_way, on_the_way), min_size=1, max_size=12),
)
def test_the_truth_is_always_within_the_uncertainty(offset: int, ways: list[tuple[int, int, int]]) -> None:
    found = offset_of(
        [exchange(n * SECOND, offset, there, back, think) for n, (there, back, think) in enumerate(ways)]
    )
    assert abs(found.offset_ns - offset) <= found.uncertainty_ns
    assert found.steady


@given(st.integers(-(10**12), 10**12), st.lists(st.tuples(on_the_way, on_the_way), min_size=2, max_size=8))
def test_more_exchanges_never_make_it_less_certain_than_the_quickest_alone(
    offset: int, ways: list[tuple[int, int]]
) -> None:
    exchanges = [exchange(0, offset, there, back) for there, back in ways]
    quickest = min(exchanges, key=lambda each: each.on_the_way_ns)
    assert offset_of(exchanges).uncertainty_ns <= offset_of([quickest]).uncertainty_ns


def test_two_exchanges_with_opposite_delays_give_less_uncertainty_than_one() -> None:
    slow_there, slow_back = exchange(0, 5 * SECOND, 40 * MS, 0), exchange(0, 5 * SECOND, 0, 40 * MS)
    assert offset_of([slow_there]).uncertainty_ns == 20 * MS
    assert offset_of([slow_there, slow_back]) == Offset(offset_ns=5 * SECOND, uncertainty_ns=0, exchanges=2)


def test_a_clock_that_was_set_between_two_exchanges_is_noticed_and_not_trusted() -> None:
    before, after = exchange(0, 0, MS, MS), exchange(SECOND, 3 * SECOND, MS, MS)
    found = offset_of([before, after])
    assert not found.steady
    assert found.uncertainty_ns >= 1.5 * SECOND


@pytest.mark.parametrize("step_ns", [30 * SECOND, -30 * SECOND])
def test_a_wall_clock_that_is_set_does_not_move_the_time_of_a_controller(step_ns: int) -> None:
    wall_ns, monotonic_ns = 100 * SECOND, 7 * SECOND
    reference = ReferenceClock(lambda: wall_ns, lambda: monotonic_ns)
    wall_ns += step_ns
    monotonic_ns += SECOND
    assert reference.now_ns() == 101 * SECOND


def test_every_agent_receives_the_same_start_instant_converted_to_its_own_clock() -> None:
    offsets = {
        "fast": Offset(offset_ns=5 * SECOND, uncertainty_ns=MS),
        "slow": Offset(offset_ns=-3 * SECOND, uncertainty_ns=2 * MS),
        "right": Offset(offset_ns=0, uncertainty_ns=0),
    }
    start = choose_start(100 * SECOND, offsets, lead_s=2.0, skew_limit_s=0.01)
    assert start.at_ns == 102 * SECOND
    assert start.starts_ns == {"fast": 107 * SECOND, "slow": 99 * SECOND, "right": 102 * SECOND}
    assert start.bound_ns == 3 * MS


def test_the_skew_limit_applies_to_the_uncertainty_of_clock_offsets_and_not_to_their_size() -> None:
    known = {"a": Offset(offset_ns=10**15, uncertainty_ns=MS), "b": Offset(offset_ns=0, uncertainty_ns=MS)}
    choose_start(0, known, lead_s=1.0, skew_limit_s=0.002)
    with pytest.raises(SkewTooLarge) as refused:
        choose_start(0, known, lead_s=1.0, skew_limit_s=0.0019)
    assert "2 ms apart, and 1.9 ms is the limit" in refused.value.sentence
    assert set(refused.value.facts["agents"]) == {"a", "b"}  # type: ignore[call-overload]


def test_the_start_spread_is_corrected_for_the_clock_offsets_of_the_agents() -> None:
    offsets = {
        "fast": Offset(offset_ns=5 * SECOND, uncertainty_ns=MS),
        "slow": Offset(offset_ns=-3 * SECOND, uncertainty_ns=2 * MS),
    }
    start = choose_start(0, offsets, lead_s=1.0, skew_limit_s=1.0)
    began = {"fast": 6 * SECOND + 4 * MS, "slow": -2 * SECOND + MS}
    spread = spread_of(start, began, offsets)
    assert spread is not None
    assert (spread.spread_ns, spread.latest_ns, spread.uncertainty_ns) == (3 * MS, 4 * MS, 3 * MS)
    assert spread_of(start, {}, offsets) is None
