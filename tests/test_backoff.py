"""Pauses between tries double up to a limit, and begin anew after a success."""

from __future__ import annotations

from interlock.backoff import Backoff


def test_pauses_double_up_to_the_limit() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_pauses_begin_anew_after_a_success() -> None:
    backoff = Backoff(0.5, 3.0)
    backoff.next_s()
    backoff.next_s()
    backoff.reset()
    assert [backoff.next_s() for _ in range(2)] == [0.5, 1.0]
