"""The model checker catches what it exists for: each rule is taken away, and the story is short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.rerouting import reroute

from interlock.lifecycles import ATTEMPT, COUPLINGS, LEASE, lease
from interlock.lifecycles.couplings import Recipient, a_loss_is_left, no_loss_is_left
from interlock.machine import STAY, Row, on
from interlock.machine.cascade import each
from interlock.store.memory import MemoryStore
from interlock.systems.orchestrator import runner_messages
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.tokens import Token
from interlock.testing.model_checker import Violation, check, retell
from interlock_verification import claims
from interlock_verification.claims import SETTLES
from interlock_verification.models.job_world import RECLAIMED, JobWorld
from interlock_verification.models.plan import JobPlan, ModelPlan
from interlock_verification.mutation import Mutant, in_place

TWO_WORKERS = ModelPlan(name="two workers", doc="", workers=2)
RACE = ModelPlan(name="race", doc="", workers=2, orchestrators=2, heartbeats=0, fails=False)


def first_violation(plan: ModelPlan) -> Violation:
    """The first thing that breaks, told in as few steps as can be; and it replays."""
    violation, *_ = check(JobWorld(plan), most=200_000).violations
    assert tuple(tuple(step) for step in retell(JobWorld(plan), violation.choices)) == violation.story
    return violation


@contextmanager
def leases(change: Callable[[Row[Any, Any]], Row[Any, Any] | None], *more: Row[Any, Any]) -> Iterator[None]:
    """The table of the lease with other rows."""
    rows = (*filter(None, map(change, LEASE.table.rows)), *more)
    with in_place(Mutant(name="by hand", machine="lease", what="", rows=rows)):
        yield


def without(*guards: Any) -> Callable[[Row[Any, Any]], Row[Any, Any]]:
    return lambda row: replace(row, when=tuple(guard for guard in row.when if guard not in guards))


def test_nothing_breaks_while_the_rules_are_there() -> None:
    assert check(JobWorld(TWO_WORKERS)).ok
    assert check(JobWorld(RACE)).ok


def test_a_report_that_is_not_fenced_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with UPDATE … WHERE job = ?: whoever reports closes whichever attempt is open."""

    def newest(draft: JobAggregate, _: Token) -> Any:
        return next((one for one in reversed(draft.body.attempts) if one.lease is not None), None)

    monkeypatch.setattr(runner_messages, "_attempt_of", newest)
    monkeypatch.setattr(Token, "opens", lambda *_: True)
    with leases(without(lease.from_its_runner)):
        violation = first_violation(TWO_WORKERS)
    assert violation.claim in (
        "only reports under the live lease are accepted",
        "a success comes only from an accepted completion",
    )
    assert len(violation.story) <= 10


def test_a_message_that_is_accepted_after_the_lease_has_expired_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fire = JobAggregate.fire_due
    # Sweeps still work: only who is heard does not look at the clock first.
    monkeypatch.setattr(
        JobAggregate,
        "fire_due",
        lambda draft: None if draft.record and draft.record.state == "RUNNING" else fire(draft),
    )
    with leases(without(lease.in_time)):
        violation = first_violation(TWO_WORKERS)
    assert violation.claim in (
        "only reports under the live lease are accepted",
        "a sweep leaves nothing overdue",
    )
    assert len(violation.story) <= 6


def test_a_store_that_does_not_compare_versions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "_why_not", lambda *_: None)
    violation = first_violation(RACE)
    assert violation.claim == claims.GIVEN_ONCE
    assert len(violation.story) == 4


def test_a_completion_that_is_accepted_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_messages, "_repeated", lambda *_: None)
    again: Row[Any, Any] = on(
        lease.Complete, lease.COMPLETED, STAY, owner="orchestrator", why="Broken.", leaves_terminal=True
    )

    def forgiving(row: Row[Any, Any]) -> Row[Any, Any]:
        silent = row.act.silent and row.event is lease.Complete
        left = tuple(state for state in row.sources if state is not lease.COMPLETED)
        return replace(row, sources=left) if silent else row

    with leases(forgiving, again):
        violation = first_violation(ModelPlan(name="twice", doc="", duplicates=1))
    assert violation.claim == "only reports under the live lease are accepted"
    assert len(violation.story) <= 9


def test_a_cancel_that_forgets_a_shard_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def the_first(record: JobAggregate, _: Any) -> Any:
        return [(one, one) for one in record.body.attempts[:1]]

    reroute(monkeypatch, JobAggregate.wiring, Recipient.ITS_ATTEMPTS, each(ATTEMPT, the_first))
    violation = first_violation(
        ModelPlan(name="shards", doc="", jobs=(JobPlan(shards=2),), workers=2, cancels=1)
    )
    assert violation.claim == "a job that has ended has nothing waiting or active"
    assert len(violation.story) <= 4


def test_losses_without_a_bound_are_noticed() -> None:
    kept = tuple(
        replace(c, when=tuple(cond for cond in c.when if cond is not a_loss_is_left))
        for c in COUPLINGS.all
        if no_loss_is_left not in c.when
    )
    with in_place(Mutant(name="by hand", machine="attempt", what="", couplings=kept)):
        violation = first_violation(ModelPlan(name="endless", doc="", jobs=(JobPlan(losses=1),)))
    assert violation.claim == "attempts and losses are bounded"
    assert len(violation.story) <= 20


def test_a_sweep_that_never_runs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobWorld, "_sweeps", lambda *_: None)
    violations = check(JobWorld(ModelPlan(name="no sweep", doc="", crashes=1))).violations
    assert {violation.claim for violation in violations} >= {SETTLES, RECLAIMED}
    assert min(len(violation.story) for violation in violations) <= 4


def test_a_store_that_forgets_requests_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    why_not = MemoryStore._why_not
    monkeypatch.setattr(
        MemoryStore, "_why_not", lambda store, commit, now: why_not(store, replace_request(commit), now)
    )
    violation = first_violation(ModelPlan(name="again", doc="", submits=True, duplicates=1))
    assert violation.claim == claims.DONE_ONCE
    assert len(violation.story) == 2


def replace_request(commit: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(commit, request=None)


@pytest.mark.long  # make test notices other broken rules of these worlds
def test_a_commit_after_the_end_of_the_lease_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is read when deciding and once more by the store; without the second, time passes between."""
    import msgspec

    why_not = MemoryStore._why_not
    monkeypatch.setattr(
        MemoryStore,
        "_why_not",
        lambda store, commit, now: why_not(store, msgspec.structs.replace(commit, not_after=None), now),
    )
    violation = first_violation(RACE)
    assert violation.claim == claims.IN_TIME
    assert len(violation.story) <= 9
