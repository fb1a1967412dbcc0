"""One table of claims for three judges: each claim can be broken, and each judge asks that very claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from interlock.engine.audit import Audit
from interlock.lifecycles import attempt, job
from interlock.lifecycles.attempt import Attempt
from interlock.lifecycles.job import Job, JobState
from interlock.store.memory import MemoryStore
from interlock.systems.orchestrator.body import AttemptBody, JobBody
from interlock.testing.model_checker import check
from interlock.wire.runner import Complete, Grant, Stale, StaleCode, Succeeded
from interlock_verification import claims
from interlock_verification.chaos.system.clients import TOO_LATE, Late
from interlock_verification.chaos.system.history import JobHistory, KeptJob, Try
from interlock_verification.chaos.system.judge import broken_promises
from interlock_verification.claims import (
    Accepted,
    ClientRequest,
    DecodedJob,
    EndedJob,
    FactClaim,
    NewLease,
    Reported,
)
from interlock_verification.models.job_values import Value
from interlock_verification.models.job_world import JobWorld
from interlock_verification.models.plan import JobPlan, ModelPlan
from interlock_verification.worlds.judge import Judge
from interlock_verification.worlds.network import ClaimWatcher

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TOKEN = f"j1.1.1.{'0' * 32}"


def look(*states: attempt.AttemptState, state: JobState = job.COMPLETED) -> DecodedJob:
    """A job of one shard, with attempts in these states."""
    tries = [
        AttemptBody(index=number, state=one, data=Attempt(accepted=one is attempt.SUCCEEDED or None))
        for number, one in enumerate(states, 1)
    ]
    ended_at = NOON if state in job.ENDED else None
    body = JobBody(task="t", data=Job(started_at=NOON, completed_at=ended_at), attempts=tries)
    value = Value(state=state, body=b"", result=b"", ready_at=None, deadline_at=None)
    return DecodedJob(state, body, value, JobPlan(), 0, 1)


DONE = look(attempt.SUCCEEDED)
FAILED = look(attempt.FAILED, state=job.FAILED)
FACTS: list[tuple[Sequence[FactClaim[Any]], str, Any, Any]] = [
    (claims.SUBMISSION_CLAIMS, claims.DONE_ONCE, ClientRequest(["j1"]), ClientRequest(["j1", "j2"])),
    (claims.FINAL_CLAIMS, claims.KEPT, ClientRequest(["j1"], "j1"), ClientRequest([], "j1")),
    (claims.FINAL_CLAIMS, claims.TOLD, ClientRequest([]), ClientRequest(["j1"])),
    (claims.GRANT_CLAIMS, claims.FENCE, NewLease(fence=2, before=1), NewLease(fence=2, before=2)),
    (claims.HEARD_CLAIMS, claims.HOLDER, Accepted("anna#1", "anna#1"), Accepted("anna#1", "bela#1")),
    (claims.REPORT_CLAIMS, claims.UNHEARD, Reported(False, True, False), Reported(True, True, False)),
    (claims.REPORT_CLAIMS, claims.RECORDED, Reported(True, False, True), Reported(True, False, False)),
    (claims.END_CLAIMS, claims.FINISHED_ONCE, EndedJob(DONE, {1: 1}, 1), EndedJob(DONE, {1: 2}, 1)),
    (claims.END_CLAIMS, claims.FINISHED_ONCE, EndedJob(FAILED, {}, 0), EndedJob(DONE, {}, 1)),
    (claims.END_CLAIMS, claims.COMPLETED_ONCE, EndedJob(DONE, {1: 1}, 1), EndedJob(DONE, {1: 1}, 2)),
    (claims.END_CLAIMS, claims.COMPLETED_ONCE, EndedJob(FAILED, {}, 0), EndedJob(FAILED, {}, 1)),
]


@pytest.mark.parametrize(("table", "claim", "sound", "bad"), FACTS)
def test_each_claim_holds_for_sound_facts_and_is_the_only_claim_that_bad_facts_break(
    table: Sequence[FactClaim[Any]], claim: str, sound: Any, bad: Any
) -> None:
    assert list(claims.broken(table, sound)) == []
    assert list(claims.broken(table, bad)) == [claim]


def test_the_list_of_facts_covers_every_claim_of_its_tables() -> None:
    tables = {id(table): table for table, *_ in FACTS}
    assert {claim.sentence for table in tables.values() for claim in table} == {one for _, one, *_ in FACTS}
    assert list(claims.broken(claims.VALUE_CLAIMS, DONE)) == []


def in_chaos(
    *,
    kept: DecodedJob = DONE,
    jobs: tuple[str, ...] = ("j1",),
    result: bytes = b"null",
    tries: tuple[Try, ...] = (),
    completed: int = 1,
    late: tuple[Late, ...] = (),
    acknowledged: Mapping[str, str] = MappingProxyType({"i1": "j1"}),
) -> set[str]:
    """Return the claims that chaos finds broken in what the journal tells of these jobs of one request."""
    history = JobHistory(audit=Audit(), jobs=[KeptJob(each, "i1", result, kept) for each in jobs])
    for each in jobs:
        history.completed[each] = completed
        history.by_job[each] += tries or (done_by("anna#1"),)
    return {sentence.partition(":")[0] for sentence in broken_promises(history, acknowledged, late)}


def done_by(speaker: str, name: str = "1.1") -> Try:
    return Try("j1", name, "anna#1", NOON, ended_at=NOON, state="SUCCEEDED", closed_by=speaker)


def in_world(tell: Callable[[Judge], None]) -> set[str]:
    """Return the claim that the judge of a world finds broken."""
    watcher = ClaimWatcher()
    tell(Judge(watcher))
    return {watcher.broken.claim} if watcher.broken is not None else set()


def granted(number: int, fence: int) -> Grant:
    return Grant(
        token=TOKEN,
        job_id="j1",
        task="t",
        input=msgspec.Raw(b"{}"),
        attempt=number,
        fence=fence,
        granted_at=NOON,
        expires_at=NOON + timedelta(seconds=30),
        ttl_s=30,
        heartbeat_every_s=10,
        timeout_s=60,
    )


def fence_stands_still(judge: Judge) -> None:
    judge.granted(granted(1, 7))
    judge.granted(granted(2, 7))


def refusal_is_not_kept(judge: Judge) -> None:
    report = Complete(token=TOKEN, runner_id="anna#1", sequence=1, outcome=Succeeded(msgspec.Raw(b"1")))
    judge.answered(report, Stale(code=StaleCode.LEASE_EXPIRED, error="It has ended."))


def wish_becomes_two_runs(judge: Judge) -> None:
    judge.runs.acknowledged(1, "r1")
    judge.runs.acknowledged(1, "r2")


def in_model() -> set[str]:
    """Return the claims that break in the model of a store that forgets requests."""
    plan = ModelPlan(name="again", doc="", submits=True, duplicates=1)
    with pytest.MonkeyPatch.context() as patch:
        why_not = MemoryStore._why_not
        patch.setattr(
            MemoryStore,
            "_why_not",
            lambda store, commit, now: why_not(store, msgspec.structs.replace(commit, request=None), now),
        )
        return {violation.claim for violation in check(JobWorld(plan), most=2_000).violations}


TWICE = (done_by("anna#1"), done_by("anna#1", "1.2"))
FOUND: list[tuple[Sequence[FactClaim[Any]], str, Callable[[], set[str]]]] = [
    (claims.SUBMISSION_CLAIMS, claims.DONE_ONCE, in_model),
    (claims.SUBMISSION_CLAIMS, claims.DONE_ONCE, lambda: in_world(wish_becomes_two_runs)),
    (claims.SUBMISSION_CLAIMS, claims.DONE_ONCE, lambda: in_chaos(jobs=("j1", "j2"))),
    (claims.FINAL_CLAIMS, claims.KEPT, lambda: in_chaos(acknowledged={"i1": "j1", "i2": "j9"})),
    (claims.FINAL_CLAIMS, claims.TOLD, lambda: in_chaos(acknowledged={})),
    (claims.GRANT_CLAIMS, claims.FENCE, lambda: in_world(fence_stands_still)),
    (claims.HEARD_CLAIMS, claims.HOLDER, lambda: in_chaos(tries=(done_by("bela#1"),))),
    (claims.REPORT_CLAIMS, claims.UNHEARD, lambda: in_chaos(late=(Late("j1", "late-runner#1", True),))),
    (claims.REPORT_CLAIMS, claims.UNHEARD, lambda: in_chaos(result=bytes(TOO_LATE))),
    (claims.REPORT_CLAIMS, claims.RECORDED, lambda: in_world(refusal_is_not_kept)),
    (claims.REPORT_CLAIMS, claims.RECORDED, lambda: in_chaos(late=(Late("j1", "late-runner#1", False),))),
    (
        claims.END_CLAIMS,
        claims.FINISHED_ONCE,
        lambda: in_world(lambda judge: judge._has_ended("j1", look(attempt.SUCCEEDED, attempt.SUCCEEDED))),
    ),
    (claims.END_CLAIMS, claims.FINISHED_ONCE, lambda: in_chaos(tries=TWICE)),
    (claims.END_CLAIMS, claims.COMPLETED_ONCE, lambda: in_chaos(completed=2)),
    (
        claims.VALUE_CLAIMS,
        "a job is COMPLETED exactly when each shard has succeeded",
        lambda: in_chaos(kept=look(attempt.FAILED)),
    ),
]


@pytest.mark.parametrize(("table", "claim", "judge"), FOUND)
def test_a_judge_names_the_claim_and_is_blind_when_that_claim_is_taken_away(
    monkeypatch: pytest.MonkeyPatch,
    table: Sequence[FactClaim[Any]],
    claim: str,
    judge: Callable[[], set[str]],
) -> None:
    assert judge() == {claim}
    (taken_away,) = (one for one in table if one.sentence == claim)
    monkeypatch.setattr(taken_away, "holds", lambda _: True)
    assert judge() == set()


def test_a_sound_history_breaks_no_claim_of_the_chaos_judge() -> None:
    assert in_chaos() == set()


@pytest.mark.parametrize(
    ("kept", "claim"),
    [
        (look(attempt.QUEUED, state=job.PENDING), claims.SETTLES),
        (FAILED, "every job completes"),
    ],
)
def test_in_chaos_every_job_has_to_settle_and_to_complete(kept: DecodedJob, claim: str) -> None:
    assert claim in in_chaos(kept=kept, completed=0)
