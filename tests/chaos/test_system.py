"""Servers and workers as processes under every fault: a short round, and the modes that must fail."""

from __future__ import annotations

import pytest

from interlock.testing import skewed_clock
from interlock_verification.chaos.system import broken_rules, harness
from interlock_verification.chaos.verdict import Setup

DONE = ("freezes", "deploys", "black_holes", "left_half_open")


@pytest.mark.parametrize(
    "store", ["sqlite", *(pytest.param(store, marks=pytest.mark.long) for store in ("postgres", "redis"))]
)
def test_every_job_completes_once_despite_faults_of_servers_workers_and_the_database(store: str) -> None:
    verdict = harness.run(Setup(store=store, rounds=harness.SHORT, seed=1))
    counts = verdict.counts
    assert verdict.broken_promises == []
    assert counts["kills"] == harness.SHORT
    assert all(counts[what] == 1 for what in DONE)
    assert counts["database_locks" if store == "sqlite" else "database_restarts"] == 1
    assert counts["submitted"] == counts["settled"] == counts["completed"] > harness.SHORT
    assert counts["late_reports"] == counts["refused"] > 0
    assert counts["refusals_in_the_journal"] >= counts["refused"]
    assert counts["attempts_lost"] > 0
    assert counts["results_from_skewed_hosts"] > 0


@pytest.mark.parametrize(
    ("broken_rule", "store", "words"),
    [
        pytest.param(
            broken_rules.UNFENCED, "redis", "its success is that of late-runner#", marks=pytest.mark.long
        ),
        (broken_rules.UNSWEPT, "sqlite", "is RUNNING"),
        pytest.param(broken_rules.NAIVE, "postgres", "was made 2 times", marks=pytest.mark.long),
    ],
)
def test_a_fleet_without_one_of_the_rules_is_found_out(broken_rule: str, store: str, words: str) -> None:
    verdict = harness.run_without(broken_rule, Setup(store=store, rounds=2, seed=1))
    assert any(words in sentence for sentence in verdict.broken_promises), verdict.broken_promises


def test_a_missing_faketime_library_raises_an_error_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(skewed_clock, "_candidates", lambda: iter(()))
    skewed_clock.library.cache_clear()
    with pytest.raises(skewed_clock.MissingFaketime, match="apt-get install faketime"):
        skewed_clock.environment(60)
