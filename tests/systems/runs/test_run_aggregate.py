"""Deciding about a run, without a store: what words, timers and plans make of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.systems.runs.site import plan, planned

from interlock.lifecycles import run
from interlock.lifecycles.durations import DEFAULTS
from interlock.store.records import record_after
from interlock.systems.orchestrator.notifications import JobChanged
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import RunBody
from interlock.systems.runs.orders import orders_of
from interlock.systems.runs.plans import PlanGraph, pieces_of, plan_graph
from interlock.systems.runs.reconciler import run_commit_of
from interlock.systems.runs.views import view_of
from interlock.wire.runs import Plan, RunSpec

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DIAMOND = plan(planned("a"), planned("b", "a", required=False), planned("c", "a"), planned("d", "b", "c"))


def graph(of: Plan = DIAMOND) -> PlanGraph:
    return plan_graph(pieces_of(of, [f"j_{n}" for n in range(len(of.jobs))]))


def queued(of: Plan = DIAMOND) -> RunAggregate:
    draft = RunAggregate("r_1", run.CREATED, RunBody(spec=RunSpec(), pieces=1), NOW, DEFAULTS)
    assert draft.send(run.start_planning) is None
    assert draft.accept(graph(of)) is None
    return draft


def later(draft: RunAggregate, seconds: float = 0.0) -> RunAggregate:
    """The same run, as it was committed, so much later."""
    now = draft.now + timedelta(seconds=seconds)
    record = record_after(draft.change(commit_id="m", actor=""), draft.record, draft.now)
    return RunAggregate.of(record, now, DEFAULTS, graph=draft.graph)


def ended(place: int, target: str = "COMPLETED", *, unconfirmed: bool = False) -> JobChanged:
    event = {"COMPLETED": "success", "FAILED": "error", "CANCELED": "cancel"}[target]
    return JobChanged("r_1", place, event, "RUNNING", target, unconfirmed)


def test_a_plan_releases_the_jobs_without_needs_and_holds_the_others() -> None:
    draft = queued()
    assert (draft.release, draft.hold, draft.body.states) == ([0], [1, 2, 3], "qwww")
    assert [(order.what, order.places, order.new) for order in orders_of(draft)] == [
        ("hold", (1, 2, 3), True),
        ("release", (0,), True),
    ]


def test_a_second_plan_for_a_run_is_refused_and_changes_nothing() -> None:
    draft = later(queued())
    assert draft.accept(graph(plan(planned("z")))) is not None
    assert (draft.lines, draft.body.states, orders_of(draft)) == ((), "qwww", [])


def test_only_the_first_message_about_the_end_of_a_job_is_counted() -> None:
    draft = later(queued())
    draft.apply_jobs([ended(0), ended(0), ended(0, "FAILED")])
    assert (draft.body.left, draft.release) == (3, [1, 2])
    again = later(draft)
    again.apply_jobs([ended(0)])
    assert (again.body.states, again.body.left, again.release, again.lines) == ("Cqqw", 3, [], ())


def test_the_start_and_end_messages_of_a_job_may_arrive_in_any_order() -> None:
    begun = JobChanged("r_1", 0, "allocate_resources", "PENDING", "RUNNING")
    for words in ([begun, ended(0)], [ended(0), begun]):
        draft = later(queued())
        draft.apply_jobs(words)
        assert draft.state is run.RUNNING
        assert draft.change(commit_id="m", actor="").body.count(b'"states":"Cqqw"') == 1


@pytest.mark.parametrize("place", [4, 99])
def test_a_message_about_an_unknown_job_or_event_is_ignored(place: int) -> None:
    draft = later(queued())
    draft.apply_jobs([ended(place), JobChanged("r_1", 0, "dance", "RUNNING", "COMPLETED")])
    assert (draft.lines, draft.body.left) == ((), 4)


def test_a_timer_that_is_stale_does_nothing() -> None:
    draft = later(queued(), DEFAULTS.run_timeout_s - 1)
    draft.fire_due()
    assert (draft.lines, draft.root.timer_at) == ((), NOW + timedelta(seconds=DEFAULTS.run_timeout_s))
    late = later(queued(), DEFAULTS.run_timeout_s)
    late.fire_due()
    assert (late.state, late.body.reason, set(late.stop.values())) == (run.TIMEOUT, "timeout", {"timeout"})


def test_the_outcome_is_committed_with_the_call_to_report_it_and_only_once() -> None:
    draft = later(queued(plan(planned("a"))))
    draft.apply_jobs([ended(0)])
    topics = [change.queue for change in run_commit_of(draft, commit_id="m", actor="").commit.changes]
    assert topics == [None, "run.report"]
    after = later(draft)
    after.apply_jobs([ended(0, "FAILED")])
    assert len(run_commit_of(after, commit_id="m", actor="").commit.changes) == 1


def test_a_run_counts_its_canceled_jobs_whose_end_is_not_confirmed() -> None:
    draft = later(queued(plan(planned("a"))))
    assert draft.send(run.cancel) is None
    draft = later(draft)
    draft.apply_jobs([ended(0, "CANCELED", unconfirmed=True)])
    assert (draft.state, draft.body.unconfirmed, draft.body.forced) == (run.CANCELED, 1, False)


def test_a_cancel_that_was_forced_does_not_know_whether_all_is_gone() -> None:
    draft = later(queued(plan(planned("a"))))
    assert draft.send(run.cancel) is None
    draft = later(draft, DEFAULTS.cancel_deadline_s)
    draft.fire_due()
    assert (draft.state, draft.body.forced, draft.body.left) == (run.CANCELED, True, 1)
    record = record_after(draft.change(commit_id="m", actor=""), draft.record, draft.now)
    assert view_of(record).confirmed_dead is False
