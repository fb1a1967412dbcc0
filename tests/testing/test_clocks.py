"""A clock stands still until a test moves it; on virtual time nobody waits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.clocks import move_server

from interlock.testing.clocks import JumpingClock, NothingComes, run_virtually
from interlock.testing.servers import RedisServer

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_jumping_clock_stands_still_between_jumps() -> None:
    clock = JumpingClock(START)
    assert [clock(), clock()] == [START, START]


@pytest.mark.parametrize(
    ("by", "seconds"),
    [("2h", 7_200), ("90s", 90), ("1.5d", 129_600), ("-5m", -300), (3, 3), (0.25, 0.25), ("20 ms", 0.02)],
)
def test_a_jumping_clock_jumps_by_a_duration_text_or_by_seconds(by: str | float, seconds: float) -> None:
    clock = JumpingClock(START)
    assert clock.jump(by) == clock() == START + timedelta(seconds=seconds)


def test_a_jumping_clock_jumps_by_a_timedelta() -> None:
    assert JumpingClock(START).jump(timedelta(days=1)) == START + timedelta(days=1)


@pytest.mark.parametrize("by", ["soon", "2 fortnights", "", "h"])
def test_a_jumping_clock_refuses_a_text_that_is_not_a_duration(by: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        JumpingClock(START).jump(by)


def test_a_jumping_clock_is_in_utc_and_refuses_a_start_time_without_a_zone() -> None:
    assert JumpingClock()().utcoffset() == timedelta(0)
    with pytest.raises(ValueError, match="no time zone"):
        JumpingClock(datetime(2026, 3, 1))  # noqa: DTZ001


def test_a_sleep_of_an_hour_on_virtual_time_needs_no_real_waiting() -> None:
    async def wait() -> float:
        await asyncio.sleep(3_600)
        return asyncio.get_running_loop().time()

    assert run_virtually(wait()) == pytest.approx(3_600)


def test_on_virtual_time_waiting_for_ever_is_an_error_and_not_a_hang() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NothingComes, match="Every task waits"):
        run_virtually(wait())


def test_the_next_script_sees_the_moved_clock_of_a_redis_server(redis: RedisServer) -> None:
    """Valkey keeps the time for a millisecond, so a record whose time had come was not claimed."""
    script = "return redis.call('TIME')[1]"
    for _ in range(200):
        before = int(str(redis.run("EVAL", script, "0")))
        move_server(redis, 1.0)
        assert int(str(redis.run("EVAL", script, "0"))) > before
