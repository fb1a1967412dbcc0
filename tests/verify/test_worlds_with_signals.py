"""Worlds with signals: a wake-up that is missed is noticed, and a signal that is consumed by reading it."""

from __future__ import annotations

import msgspec
import pytest

from interlock.store.records import Record
from interlock.systems.orchestrator import runner_messages, wait_records, waits
from interlock.systems.orchestrator.body import decode_body
from interlock.systems.orchestrator.mailboxes import NO_MAIL, id_of
from interlock_verification.worlds.episode import play
from interlock_verification.worlds.faults import faults_named
from interlock_verification.worlds.worlds import world_named


def test_signals_come_before_waits_and_wake_jobs_and_waits_time_out() -> None:
    played = play(world_named("post"), faults_named("everything"), seed=5, hours=0.5)
    assert played.broken is None
    assert {"a signal comes before the wait", "a signal wakes a job", "a wait times out"} <= {*played.seen}


def test_a_job_that_waits_for_an_answer_that_has_come_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes between the wait and its release, and the release does not look."""
    monkeypatch.setattr(wait_records, "answered", _forgets_to_wake)
    post = msgspec.structs.replace(world_named("post"), settles_within_s=600.0)
    played = play(post, faults_named("none"), seed=5, hours=0.05)
    assert played.broken is not None
    assert played.broken.name == "episode.settles"


def _forgets_to_wake(
    draft: object, address: str, *, signalled: int | None = None, wakes: bool = True
) -> None:
    from interlock.systems.orchestrator.mailboxes import answered

    answered(draft, address, signalled=signalled, wakes=False)  # type: ignore[arg-type]


@pytest.mark.long
def test_a_release_that_does_not_look_whether_the_answer_has_come_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner_messages, "_awaited", lambda _, wait_id: wait_id or "")
    broken = [
        play(world_named("post"), faults_named("network"), seed=seed, hours=0.5).broken for seed in range(4)
    ]
    assert any(broken)


@pytest.mark.long  # make test notices other broken rules of these worlds
def test_a_signal_that_is_consumed_by_reading_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each wait takes the next signal, whatever the handler got before it was given back."""

    def next_one(job_id: str, address: str, record: Record | None, number: int) -> str:
        mail = NO_MAIL if record is None else decode_body(record.body).mail.get(address, NO_MAIL)
        return mail.wait or id_of(job_id, address, max(number, min(mail.asked, number + 1)))

    for module in (wait_records, waits):
        monkeypatch.setattr(module, "wait_asked", next_one)
    played = play(world_named("post"), faults_named("none"), seed=5, hours=0.5)
    assert played.broken is not None
    assert played.broken.name in (
        "signal.same_again",
        "signal.answers_its_wait",
        "signal.once_in_order",
    )
