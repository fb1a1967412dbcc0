"""How many workers there shall be, and how long one that keeps dying is waited for."""

from __future__ import annotations

import pytest

from interlock.errors import InvalidSettings
from interlock.worker.pool import PoolSettings, RestartBackoff, Size

SETTINGS = PoolSettings(name="web", least=2, most=5, slots=10, shrink_after_s=30.0)


def test_there_are_as_many_as_the_work_needs_within_bounds() -> None:
    size = Size(SETTINGS)
    assert [size.look(unfinished, 0.0) for unfinished in (0, 20, 21, 50, 10_000)] == [2, 2, 3, 5, 5]


def test_a_pool_shrinks_only_after_the_load_was_lower_for_a_while() -> None:
    size = Size(SETTINGS)
    size.look(50, 0.0)
    assert size.look(0, 1.0) == 5
    assert size.look(0, 30.9) == 5
    assert size.look(0, 31.0) == 2


def test_a_burst_in_between_begins_the_while_anew() -> None:
    size = Size(SETTINGS)
    size.look(50, 0.0)
    size.look(0, 1.0)
    size.look(50, 20.0)
    assert size.look(0, 40.0) == 5
    assert size.look(0, 69.9) == 5
    assert size.look(0, 70.0) == 2


def test_a_pool_keeps_its_size_while_the_number_of_unfinished_jobs_is_unknown() -> None:
    size = Size(SETTINGS)
    size.look(50, 0.0)
    assert size.look(None, 1_000.0) == 5


def test_a_worker_that_keeps_dying_early_is_restarted_with_exponential_backoff_up_to_a_limit() -> None:
    backoff = RestartBackoff(SETTINGS)
    assert [backoff.died(1.0) for _ in range(9)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_the_restart_backoff_is_reset_after_a_worker_has_run_for_a_minute() -> None:
    backoff = RestartBackoff(SETTINGS)
    for _ in range(5):
        backoff.died(1.0)
    assert backoff.died(60.0) == 0.5


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"least": 0}, "there are 0 workers"),
        ({"least": 3, "most": 2}, "there are 2 at most"),
        ({"most": 1_001}, "there are 1001 at most"),
        ({"name": "a#b"}, "without '#'"),
        ({"slots": 0}, "slots is 0"),
    ],
)
def test_a_pool_that_cannot_be_is_refused(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidSettings, match=words):
        PoolSettings(**{"name": "web", "least": 1, "most": 1, **wrong})  # type: ignore[arg-type]
