"""A course that was remembered leads where the tables lead, or is not taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.errors import InterlockError
from interlock.machine import Moved
from interlock.store.records import Change, Record, record_after
from interlock.systems.orchestrator import courses, draft
from interlock.systems.orchestrator.body import AttemptBody, RunPart
from interlock.systems.orchestrator.courses import Leg, Told
from interlock.systems.orchestrator.dispatching import Claiming, offer_of
from interlock.systems.orchestrator.hearing import hear
from interlock.systems.orchestrator.lines import later
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS
from interlock.systems.orchestrator.stopping import cancelled, commit_of, swept
from interlock.systems.orchestrator.submitting import new_job
from interlock.systems.orchestrator.tokens import read_token
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import (
    Ack,
    CancelAck,
    ClaimRequest,
    Complete,
    Failed,
    Heartbeat,
    Release,
    Succeeded,
)

T = TypeVar("T")
BEGIN = datetime(2026, 11, 15, 12, tzinfo=UTC)
SUCCEEDED = Succeeded(result=msgspec.Raw(b"null"))
MESSAGES: dict[str, Callable[..., Any]] = {
    "ack": Ack,
    "beat": Heartbeat,
    "succeed": lambda **said: Complete(outcome=SUCCEEDED, **said),
    "fail": lambda **said: Complete(outcome=Failed(error="no", failure_class="infra"), **said),
    "give back": lambda **said: Release(reason="shutdown", **said),
    "stop": CancelAck,
}
DEEDS = st.lists(
    st.sampled_from(["claim", "claim and begin", "cancel", "sweep", "wait", "wait long", *MESSAGES]),
    min_size=3,
    max_size=14,
)


class Life:
    """One job, to which everything is done twice: by courses, and without any; both have to agree."""

    def __init__(self, shards: int, in_a_run: bool) -> None:
        run = RunPart(run_id="r_1", place=0, name="build") if in_a_run else None
        spec = JobSpec(task="t", worker_count=shards, retries=1)
        self.now = BEGIN
        made = self._both(
            lambda: new_job(spec, "j_1", self.now, DEFAULT_SETTINGS, run=run).change(mark="m", actor="a")
        )
        self.record: Record = record_after(made, None, self.now)
        self.tokens: list[str] = []
        self._sequence = 0

    def do(self, deed: str) -> None:
        match deed:
            case "wait" | "wait long":
                self.now += timedelta(seconds=1 if deed == "wait" else 200)
            case "claim" | "claim and begin":
                self._claim(begin=deed != "claim")
            case "cancel":
                self._stop()
            case "sweep":
                (commit,) = self._both(lambda: swept([self.record], self.now, "m", DEFAULT_SETTINGS, 1 << 20))
                self._become(commit.changes)
            case _:
                self._say(deed)

    def _claim(self, *, begin: bool) -> None:
        request = ClaimRequest(runner_id="r#1", queues=("default",), limit=1, acknowledge=begin)
        claiming = Claiming(request, b"s" * 32, 1, "m", DEFAULT_SETTINGS, 1 << 20)
        offer = self._both(lambda: offer_of(claiming, self.record, self.now))
        if offer is not None:
            assert offer.grant is not None
            self.tokens.append(offer.grant.token)
            self._become((offer.change,))

    def _stop(self) -> None:
        try:
            commit = self._both(
                lambda: commit_of(
                    cancelled(self.record, self.now, DEFAULT_SETTINGS, "cancel"), mark="m", actor="a"
                )
            )
        except InterlockError:
            return
        self._become(commit.changes)

    def _say(self, what: str) -> None:
        if not self.tokens:
            return
        self._sequence += 1
        token = self.tokens[self._sequence % len(self.tokens)]
        message = MESSAGES[what](token=token, runner_id="r#1", sequence=self._sequence)
        known = read_token(token)
        assert known is not None
        decision = self._both(lambda: hear(self.record, known, message, self.now, "m", DEFAULT_SETTINGS))
        if decision.commit is not None:
            self._become(decision.commit.changes)

    def _become(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            if change.id == self.record.id:
                self.record = record_after(change, self.record, self.now)

    def _both(self, decide: Callable[[], T]) -> T:
        remembered = decide()
        with without_courses():
            assert decide() == remembered
        return remembered


@contextmanager
def without_courses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draft, "course_for", lambda _: None)
        yield


@given(st.integers(1, 3), st.booleans(), DEEDS)
@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_a_course_leads_where_the_tables_lead(shards: int, in_a_run: bool, deeds: list[str]) -> None:
    life = Life(shards, in_a_run)
    for deed in deeds:
        life.do(deed)


ORDINARY = ("claim and begin", "succeed")
OTHERWISE = ("claim and begin", "fail")


def test_a_course_that_leads_elsewhere_this_time_is_not_taken() -> None:
    courses.forget()
    for deeds in (ORDINARY, OTHERWISE, ORDINARY):
        life = Life(1, in_a_run=False)
        for deed in deeds:
            life.do(deed)
    assert life.record.state == "COMPLETED"


def believing(leg: Leg, told: Told, one: AttemptBody, event: Any) -> bool:
    """All that `_taken` does, but for asking whether it may."""
    whom: Any = {"job": told.job, "attempt": one, "lease": one.lease}[leg.whom]
    decision = leg.cell(whom.data, event if leg.make is None else leg.make(told, one))
    assert isinstance(decision, Moved)
    whom.state, whom.data = leg.steps[-1].target, decision.data
    if leg.track.sets_timer:
        whom.timer_at = later(told.now, told.seconds(leg.track.arms)) if leg.track.arms else None
    for noted, _ in leg.parts:
        if noted is not None:
            told.note_attempt(one, noted)
    if leg.grants:
        told.grant_lease(one)
    return True


@pytest.mark.parametrize(
    ("shards", "then", "is_noticed"),
    [(1, ORDINARY, False), (1, OTHERWISE, True), (2, ORDINARY, True)],
    ids=["the same again", "a failure takes another row", "one shard of two does not end the job"],
)
def test_to_take_a_course_without_asking_would_be_noticed(
    shards: int, then: tuple[str, ...], is_noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    courses.forget()
    honest = Life(1, in_a_run=False)
    for deed in ORDINARY:
        honest.do(deed)
    monkeypatch.setattr(courses, "_taken", believing)
    assert _differs(Life(shards, in_a_run=False), then) is is_noticed


def _differs(life: Life, deeds: tuple[str, ...]) -> bool:
    try:
        for deed in deeds:
            life.do(deed)
    except AssertionError:
        return True
    return False


def test_what_everybody_does_is_done_by_courses(monkeypatch: pytest.MonkeyPatch) -> None:
    courses.forget()
    Life(1, in_a_run=False)
    taken: list[bool] = []
    take = courses.Course.taken

    def noted(*told: Any) -> bool:
        taken.append(take(*told))
        return taken[-1]

    monkeypatch.setattr(courses.Course, "taken", noted)
    for _ in range(2):
        life = Life(1, in_a_run=False)
        for deed in ORDINARY:
            life.do(deed)
    assert taken[-4:] == [True] * 4, "published, granted, acknowledged, completed"
