"""kill -9 of whoever commits and of whoever keeps it: a short round, and the modes that must fail."""

from __future__ import annotations

import pytest
from tests.effort import further, pick

from interlock_verification.chaos import kill_committer, kill_server, promotion
from interlock_verification.chaos.verdict import Setup

KILLS = pick(4, 8)


@pytest.mark.parametrize("store", ["sqlite", "redis", *further("postgres")])
def test_nothing_acknowledged_is_lost_or_done_twice_when_the_committing_process_is_killed(store: str) -> None:
    verdict = kill_committer.run(Setup(store=store, rounds=KILLS, seed=1))
    assert verdict.broken_promises == []
    assert verdict.counts["kills"] == KILLS
    assert verdict.counts["acknowledged"] > KILLS


@pytest.mark.parametrize(
    "store", ["sqlite", *(pytest.param(store, marks=pytest.mark.long) for store in ("postgres", "redis"))]
)
def test_a_process_that_acknowledges_before_it_commits_is_found_out(store: str) -> None:
    verdict = kill_committer.run(Setup(store=store, rounds=4, seed=2, broken=True))
    assert verdict.counts["lost"] > 0
    assert verdict.broken_promises != []


@pytest.mark.parametrize("store", kill_server.STORES)
def test_clients_continue_after_a_kill_of_the_database_server_and_lose_no_acknowledged_commit(
    store: str,
) -> None:
    verdict = kill_server.run(Setup(store=store, rounds=2, seed=1))
    assert verdict.broken_promises == []
    assert verdict.counts["kills"] == 2
    assert verdict.counts["acknowledged"] > 2 * kill_server.CLIENTS


@pytest.mark.parametrize("store", [pytest.param("postgres", marks=pytest.mark.long), "redis"])
def test_a_database_server_that_acknowledges_unwritten_commits_is_detected(store: str) -> None:
    verdict = kill_server.run(Setup(store=store, rounds=2, seed=1, broken=True))
    assert verdict.counts["lost"] > 0
    assert verdict.broken_promises != []


def test_clients_find_the_stand_by_that_was_promoted_nothing_is_lost_and_the_epoch_has_grown() -> None:
    verdict = promotion.run(Setup(store="postgres", rounds=1, seed=1))
    assert verdict.broken_promises == []
    assert verdict.counts["promotions"] == 1
    assert verdict.counts["acknowledged"] > promotion.ACKNOWLEDGED


@pytest.mark.long
def test_commits_that_were_not_replicated_to_the_stand_by_are_detected_as_lost() -> None:
    verdict = promotion.run(Setup(store="postgres", rounds=1, seed=1, broken=True))
    assert verdict.counts["lost"] > 0
    assert not any("epoch" in sentence for sentence in verdict.broken_promises)
