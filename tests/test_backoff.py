"""Pauses between tries double up to a limit, and begin anew after a success."""

from __future__ import annotations

from interlock.backoff import Backoff, jittered_s, nth_pause_s


def test_pauses_double_up_to_the_limit() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_pauses_begin_anew_after_a_success() -> None:
    backoff = Backoff(0.5, 3.0)
    backoff.next_s()
    backoff.next_s()
    backoff.reset()
    assert [backoff.next_s() for _ in range(2)] == [0.5, 1.0]


def test_the_pause_after_the_nth_failure_is_the_one_of_a_loop() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [nth_pause_s(number, 0.5, 3.0) for number in range(1, 8)] == [backoff.next_s() for _ in range(7)]


def test_before_any_failure_the_pause_is_the_first() -> None:
    assert nth_pause_s(0, 0.5, 3.0) == 0.5


def test_a_pause_grows_by_its_factor_and_never_overflows() -> None:
    assert [nth_pause_s(number, 1.0, 50.0, factor=3.0) for number in range(1, 6)] == [
        1.0,
        3.0,
        9.0,
        27.0,
        50.0,
    ]
    assert nth_pause_s(10**9, 1.0, 300.0, factor=100.0) == 300.0


def test_the_salt_decides_the_share_of_a_jittered_pause() -> None:
    pauses = [jittered_s(10.0, f"job {number}", least=0.8, span=0.4) for number in range(200)]
    assert pauses[7] == jittered_s(10.0, "job 7", least=0.8, span=0.4)
    assert len(set(pauses)) == 200
    assert 8.0 <= min(pauses) < 8.2
    assert 11.8 < max(pauses) < 12.0
