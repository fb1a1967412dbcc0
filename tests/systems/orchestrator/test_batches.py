"""Jobs that are decided about together become what each would become alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.effort import pick
from tests.systems.orchestrator.house import House, done

from interlock.engine.unit_of_work import Decision
from interlock.errors import InvalidJob
from interlock.store.records import Batch, Change, Commit, Record, one_by_one, record_after
from interlock.systems.orchestrator import grants, runner_messages
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.grants import ClaimInput, Offer, foresee, offer_of, offers_of
from interlock.systems.orchestrator.runner_messages import (
    INLINE_RESULT,
    Report,
    decide_completions,
    decide_message,
    result_in,
)
from interlock.systems.orchestrator.shapes import ANY_JOB
from interlock.systems.orchestrator.submission import group_equal_specs, new_job
from interlock.systems.orchestrator.tokens import digest_of, read_token
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.jobs import JobSpec, RetryRule
from interlock.wire.runner import (
    Answer,
    ClaimRequest,
    Complete,
    Failed,
    Grant,
    Heard,
    LogLine,
    NotHeard,
    Succeeded,
)

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
LARGEST = 1 << 20
SECRETS = {"r#1": "1" * 32, "r#2": "2" * 32}
INPUTS = [b"1", b'{"data":{"created_at":1}}', b'"x"', b'{"input":2}', b"[]", b'"%s"' % ANY_JOB.encode()]
SPECS = st.builds(
    JobSpec,
    task=st.sampled_from(["a", "b"]),
    input=st.sampled_from(INPUTS).map(msgspec.Raw),
    queue=st.sampled_from(["default", "mail"]),
    labels=st.sampled_from([(), ("gpu",)]),
    priority=st.sampled_from([0, 3]),
    worker_count=st.sampled_from([1, 1, 2]),
    delay_s=st.sampled_from([0.0, 0.0, 5.0]),
    timeout_s=st.sampled_from([None, 9.0]),
    job_timeout_s=st.sampled_from([None, 9.0]),
    retries=st.sampled_from([None, 2]),
    retry=st.sampled_from([{}, {"user": RetryRule(retries=1)}]),
    losses=st.sampled_from([None, 1]),
    description=st.sampled_from(["", "why", ANY_JOB]),
    secrets=st.sampled_from([(), ("TOKEN",)]),
    trace=st.sampled_from([{}, {"traceparent": "00-1"}]),
)
OUTCOMES: dict[str, dict[str, Any]] = {
    "nothing": {"outcome": Succeeded()},
    "something": {"outcome": Succeeded(msgspec.Raw(b'{"a":[1]}'))},
    "much": {"outcome": Succeeded(msgspec.Raw(b'"' + b"x" * INLINE_RESULT + b'"'))},
    "no json": {"outcome": Succeeded(msgspec.Raw(b"{"))},
    "failed": {"outcome": Failed(error="no", failure_class="infra")},
    "dear": {"outcome": Succeeded(), "cost": 2.5},
    "numbered": {"outcome": Succeeded(), "sequence": 7},
    "talkative": {"outcome": Succeeded(), "log": (LogLine(NOW, "info", "hello"),)},
    "another": {"outcome": Succeeded(), "runner_id": "r#2"},
    "forged": {"outcome": Succeeded(), "token": f"j_1.1.1.{SECRETS['r#2']}"},
}


def queued(spec: JobSpec, job_id: str, at: datetime = NOW) -> Record:
    submitted_at = at - timedelta(seconds=9)
    draft = new_job(spec, job_id, submitted_at, DEFAULT_SETTINGS)
    return record_after(draft.change(commit_id="m", actor="a"), None, submitted_at)


def claiming(*, runner: str = "r#1", acknowledge: bool = True) -> ClaimInput:
    request = ClaimRequest(runner_id=runner, limit=500, acknowledge=acknowledge)
    secret = SECRETS[runner]
    return ClaimInput(request, secret, digest_of(secret), 1, "m", DEFAULT_SETTINGS, LARGEST)


def told(offers: Sequence[Offer]) -> dict[str, tuple[Commit, Grant]]:
    """What becomes true and what is given, by job, however it was found out."""
    found: dict[str, tuple[Commit, Grant]] = {}
    for offer in offers:
        for commit, grant in zip(one_by_one([offer.work]), offer.grants, strict=True):
            found[grant.job_id] = commit, grant
    return found


def alone(runner: ClaimInput, records: Sequence[Record]) -> list[Offer]:
    """What each job becomes that is given out alone."""
    return [offer for offer in (offer_of(runner, record, NOW) for record in records) if offer is not None]


# Submitting


@given(st.lists(st.tuples(SPECS, st.integers(1, 3)), min_size=1, max_size=6))
@settings(max_examples=pick(50, 200), derandomize=True)
def test_a_job_submitted_in_bulk_is_stored_exactly_as_if_submitted_alone(
    makes: list[tuple[JobSpec, int]],
) -> None:
    bulk = [
        replace(spec, input=msgspec.Raw(b"%d" % number)) for spec, times in makes for number in range(times)
    ]
    found: dict[str, Commit] = {}
    for group in group_equal_specs(bulk, DEFAULT_SETTINGS):
        ids = [f"j_{place}" for place in group.places]
        batch = group.batch(ids, NOW, DEFAULT_SETTINGS, commit_id="m", actor="somebody")
        found |= dict(zip(ids, batch.commits(), strict=True))
    for place, spec in enumerate(bulk):
        change = new_job(spec, f"j_{place}", NOW, DEFAULT_SETTINGS).change(commit_id="m", actor="somebody")
        assert found[f"j_{place}"] == Commit(changes=(change,))


def test_jobs_that_alternate_make_one_batch_for_each_task() -> None:
    bulk = [JobSpec(task=f"t{place % 3}", input=msgspec.Raw(b"%d" % place)) for place in range(30)]
    assert [len(group.places) for group in group_equal_specs(bulk, DEFAULT_SETTINGS)] == [10, 10, 10]


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        (0, JobSpec(task="t", worker_count=0)),
        (3, JobSpec(task="t", worker_count=0)),
        (3, JobSpec(task="t", input=msgspec.Raw(b"{"))),
        (3, JobSpec(task="t", input=msgspec.Raw(b"1 2"))),
        (3, JobSpec(task="t", description="\ud800")),
        (3, JobSpec(task="t", trace={"traceparent": "x" * 5_000})),
    ],
)
def test_a_bad_one_among_many_that_are_alike_is_found(place: int, fault: JobSpec) -> None:
    bulk = [JobSpec(task="t", input=msgspec.Raw(b"%d" % number)) for number in range(5)]
    with pytest.raises(InvalidJob):
        group_equal_specs([*bulk[:place], fault, *bulk[place:]], DEFAULT_SETTINGS)


def test_jobs_of_a_task_have_the_same_body_regardless_of_input_trace_and_submission_time() -> None:
    specs = [
        JobSpec(
            task="t", input=msgspec.Raw(b"%d" % number), description=f"d{number}", trace={"t": str(number)}
        )
        for number in range(5)
    ]
    records = [
        queued(spec, f"j_{number}", NOW - timedelta(seconds=number)) for number, spec in enumerate(specs)
    ]
    assert len({record.body for record in records}) == 1
    (offer,) = offers_of(claiming(), records, NOW)
    assert isinstance(offer.work, Batch)
    assert [grant.input for grant in offer.grants] == [spec.input for spec in specs]
    assert [grant.trace for grant in offer.grants] == [spec.trace for spec in specs]


# Claiming


@given(st.lists(st.tuples(SPECS, st.integers(1, 4)), min_size=1, max_size=6), st.booleans())
@settings(
    max_examples=pick(75, 300), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
def test_jobs_claimed_together_get_the_same_commits_and_grants_as_each_job_alone(
    makes: list[tuple[JobSpec, int]], acknowledge: bool
) -> None:
    records = [
        queued(spec, f"j_{place}_{number}")
        for place, (spec, times) in enumerate(makes)
        for number in range(times)
    ]
    runner = claiming(acknowledge=acknowledge)
    assert told(offers_of(runner, records, NOW)) == told(alone(runner, records))


@pytest.mark.parametrize(
    "other", [{"queue": "mail"}, {"priority": 3}, {"labels": ("gpu",)}], ids=["queue", "priority", "labels"]
)
def test_jobs_that_differ_in_queue_priority_or_labels_are_offered_in_separate_batches(
    other: dict[str, Any],
) -> None:
    specs = [JobSpec(task="a"), JobSpec(task="a", **other)] * 3
    records = [queued(spec, f"j_{place}") for place, spec in enumerate(specs)]
    offers = offers_of(claiming(), records, NOW)
    assert [len(offer.before) for offer in offers] == [3, 3]
    assert told(offers) == told(alone(claiming(), records))


def test_a_decision_that_depends_on_which_job_it_is_about_is_made_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = JobAggregate.change

    def change(draft: JobAggregate, **words: Any) -> Change:
        return original(draft, **{**words, "reason": f"about {draft.id}"})

    monkeypatch.setattr(JobAggregate, "change", change)
    records = [queued(JobSpec(task="a"), f"j_{place}") for place in range(5)]
    offers = offers_of(claiming(), records, NOW)
    assert [offer.change.note.reason for offer in offers if offer.change.note] == [
        f"about j_{place}" for place in range(5)
    ]


def test_a_body_that_depends_on_which_job_it_is_about_is_made_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = JobAggregate.encoded

    def encoded(draft: JobAggregate) -> bytes:
        draft.body.cancel_reason = draft.id
        return original(draft)

    records = [queued(JobSpec(task="a"), f"j_{place}") for place in range(5)]
    monkeypatch.setattr(JobAggregate, "encoded", encoded)
    assert [offer.change.id for offer in offers_of(claiming(), records, NOW)] == [
        f"j_{place}" for place in range(5)
    ]


# Hearing


def heard_alone(record: Record, message: Complete, at: datetime) -> Decision[Answer]:
    token = read_token(message.token)
    assert token is not None
    return decide_message(record, token, message, at, "m", DEFAULT_SETTINGS)


@given(
    st.lists(st.sampled_from(list(OUTCOMES)), min_size=4, max_size=8), st.sampled_from([1, 2]), st.booleans()
)
@settings(
    max_examples=pick(50, 200), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
def test_reports_processed_together_have_the_same_effect_as_each_report_alone(
    outcomes: list[str], shards: int, late: bool
) -> None:
    spec = JobSpec(task="a", worker_count=shards, retries=1)
    records = [queued(spec, f"j_{place}") for place in range(len(outcomes))]
    if (
        shards > 1
    ):  # while another worker is wanted, a job keeps the place in the queue that it has by its age
        firsts = offers_of(claiming(runner="r#2"), records, NOW)
        records = [record_after(offer.change, offer.before[0], NOW) for offer in firsts]
        assert [record.ready_at for record in records] == [record.created_at for record in records]
    at = NOW + timedelta(seconds=500 if late else 1)
    (offer,) = offers_of(claiming(), records, NOW)
    groups: dict[Report, list[tuple[Record, Complete, bytes]]] = {}
    for before, grant, name in zip(offer.before, offer.grants, outcomes, strict=True):
        message = Complete(**{"token": grant.token, "runner_id": "r#1", **OUTCOMES[name]})
        result = result_in(message, grant.token, DEFAULT_SETTINGS)
        if result is not None:
            report = Report(1, message.runner_id, message.cost)
            groups.setdefault(report, []).append((record_after(offer.change, before, NOW), message, result))
    for report, some in groups.items():
        token = read_token(some[0][1].token)
        assert token is not None
        decision = decide_completions(report, token, some[0][0], at, "m", DEFAULT_SETTINGS)
        if decision is None:
            continue
        records = [record for record, _, _ in some]
        seen = [record.updated_at for record in records]
        work = decision.work(records, seen, [result for _, _, result in some], at)
        for (record, message, _), commit in zip(some, one_by_one([work]), strict=True):
            assert Decision(decision.answer, commit) == heard_alone(record, message, at)


def test_jobs_that_are_alike_are_decided_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[str] = []

    def counted(module: Any, name: str) -> None:
        original = getattr(module, name)

        def count(*given: Any) -> Any:
            decided.append(name)
            return original(*given)

        monkeypatch.setattr(module, name, count)

    counted(grants, "_granted")
    counted(runner_messages, "decide_message")
    records = [queued(JobSpec(task="a"), f"j_{place}") for place in range(9)]
    (offer,) = offers_of(claiming(), records, NOW)
    running = record_after(offer.change, offer.before[0], NOW)
    token = read_token(offer.grants[0].token)
    assert token is not None
    decision = decide_completions(Report(1, "r#1", None), token, running, NOW, "m", DEFAULT_SETTINGS)
    assert decision is not None
    assert decided == ["_granted", "decide_message"]


@given(SPECS, st.booleans())
@settings(max_examples=pick(75, 300), deadline=None, derandomize=True)
def test_a_foreseen_claim_is_decided_about_as_it_was_foreseen(spec: JobSpec, acknowledge: bool) -> None:
    records = [queued(spec, f"j_{place}") for place in range(4)]
    last = queued(spec, "j_before")
    runner = claiming(acknowledge=acknowledge)
    foresight = foresee(runner, last, NOW)
    offers = offers_of(runner, records, NOW)
    together = [offer.change for offer in offers if not offer.change.id]
    if last.deadline_at is not None:
        assert foresight is None
    else:
        assert together == ([] if foresight is None else [foresight.change])


# In a house


async def test_one_job_of_a_claim_may_be_cancelled_while_the_others_are_completed(house: House) -> None:
    ids = [await house.submit() for _ in range(6)]
    grants = await house.claim(limit=6)
    await house.jobs.cancel(ids[2])
    answers = await house.port.report([done(grant, b"%d" % place) for place, grant in enumerate(grants)])
    assert [answer.state for answer in answers if isinstance(answer, Heard)] == ["SUCCEEDED"] * 2 + [
        "CANCELED"
    ] + ["SUCCEEDED"] * 3
    views = [await house.jobs.get(each) for each in ids]
    assert [view.state for view in views] == ["COMPLETED"] * 2 + ["CANCELED"] + ["COMPLETED"] * 3
    assert [view.result for view in views if view.state == "COMPLETED"] == [
        msgspec.Raw(b"%d" % place) for place in (0, 1, 3, 4, 5)
    ]


async def test_jobs_for_several_workers_keep_their_place_in_the_queue_when_one_is_given(house: House) -> None:
    """They were put behind younger jobs where two of them were claimed at once."""
    old = [await house.submit(worker_count=2) for _ in range(2)]
    house.clock.jump(1)
    young = await house.submit()
    house.clock.jump(1)
    first, second = await house.claim(limit=2), await house.claim(limit=3)
    assert [grant.job_id for grant in first] == old
    assert [grant.job_id for grant in second] == [*old, young]


async def test_a_repeated_report_in_one_call_is_answered_alike_and_a_conflicting_one_is_refused(
    house: House,
) -> None:
    for _ in range(3):
        await house.submit()
    grants = await house.claim(limit=3)
    reports = [done(grant, b"7") for grant in grants]
    *answers, other = await house.port.report([*reports, reports[1], done(grants[2], b"8")])
    assert answers == [Heard(state="SUCCEEDED")] * 4
    assert isinstance(other, NotHeard)
    assert other.code == "conflicting_completion"
    assert await house.heard(reports[0]) == answers[0], "A repeat is answered as before."
