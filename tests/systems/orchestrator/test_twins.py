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

from interlock.engine.applying import Decision
from interlock.store.records import Change, Record, record_after
from interlock.systems.orchestrator import echoes, twins
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.dispatching import Claiming, Offer, offer_of
from interlock.systems.orchestrator.echoes import Echoes
from interlock.systems.orchestrator.hearing import INLINE_RESULT, hear
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS
from interlock.systems.orchestrator.stencils import DIGEST, INPUT, stencil_of
from interlock.systems.orchestrator.submitting import new_job
from interlock.systems.orchestrator.twins import shares_of
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Answer, ClaimRequest, Complete, Failed, LogLine, Message, Succeeded

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
LARGEST = 1 << 20
INPUTS = [
    b"1",
    b'{"data":{"created_at":1}}',
    b'"x"',
    b'{"input":2}',
    b"[]",
    bytes(INPUT),
    DIGEST.encode().join([b'"'] * 2),
]
SPECS = st.builds(
    JobSpec,
    task=st.sampled_from(["a", "b"]),
    worker_count=st.sampled_from([1, 1, 2]),
    description=st.sampled_from(["", "why", bytes(INPUT).decode()]),
    timeout_s=st.sampled_from([None, 9.0]),
    priority=st.sampled_from([0, 1]),
    queue=st.sampled_from(["default", "mail"]),
    secrets=st.sampled_from([(), ("TOKEN",)]),
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
}


def queued(spec: JobSpec, job_id: str, given_input: bytes, at: datetime = NOW) -> Record:
    draft = new_job(replace(spec, input=msgspec.Raw(given_input)), job_id, at, DEFAULT_SETTINGS)
    return record_after(draft.change(mark="m", actor="a"), None, at)


def claiming(*, limit: int = 500, runner: str = "r#1", acknowledge: bool = True) -> Claiming:
    request = ClaimRequest(runner_id=runner, limit=limit, acknowledge=acknowledge)
    return Claiming(request, runner.encode() * 8, 1, "m", DEFAULT_SETTINGS, LARGEST)


def told(offers: Sequence[Offer]) -> list[tuple[object, Change, tuple[Change, ...]]]:
    """What becomes true and what is given, however it was found out."""
    return [(offer.grant, offer.change, offer.words) for offer in offers]


def alone(runner: Claiming, record: Record) -> Offer:
    """Return what a job becomes that is given out alone."""
    offer = offer_of(runner, record, NOW)
    assert offer is not None
    return offer


@given(
    st.lists(st.tuples(SPECS, st.integers(1, 4)), min_size=1, max_size=6), st.booleans(), st.integers(1, 9)
)
@settings(
    max_examples=pick(75, 300), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
def test_jobs_given_out_together_become_what_each_would_alone(
    makes: list[tuple[JobSpec, int]], acknowledge: bool, first: int
) -> None:
    records = [
        queued(spec, f"j_{place}_{number}", INPUTS[(place + number) % len(INPUTS)])
        for place, (spec, times) in enumerate(makes)
        for number in range(times)
    ]
    runners = [
        claiming(limit=first, acknowledge=acknowledge),
        claiming(runner="r#2", acknowledge=acknowledge),
    ]
    shares = shares_of(runners, records, NOW)
    for place, runner in enumerate(runners):
        mine = [offer for share, offer in shares if share == place]
        assert told(mine) == told([alone(runner, offer.before) for offer in mine])


@given(
    st.lists(st.sampled_from(list(OUTCOMES)), min_size=4, max_size=8), st.sampled_from([1, 2]), st.booleans()
)
@settings(
    max_examples=pick(50, 200), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
def test_reports_heard_together_do_what_each_would_alone(said: list[str], shards: int, late: bool) -> None:
    spec = JobSpec(task="a", worker_count=shards, retries=1)
    records = [queued(spec, f"j_{place}", INPUTS[place % len(INPUTS)]) for place in range(len(said))]
    together = Echoes(DEFAULT_SETTINGS)
    at = NOW + timedelta(seconds=500 if late else 1)
    for (_, offer), name in zip(shares_of([claiming()], records, NOW), said, strict=True):
        assert offer.grant is not None
        message = Complete(**{"token": offer.grant.token, "runner_id": "r#1", **OUTCOMES[name]})
        record = record_after(offer.change, offer.before, NOW)
        echo, alone = heard(together, record, offer, message, at)
        assert echo is None or echo == alone


def heard(
    together: Echoes, record: Record, offer: Offer, message: Message, at: datetime
) -> tuple[Decision[Answer] | None, Decision[Answer]]:
    assert offer.pattern is not None
    assert offer.token is not None
    echo = together.hear(record, offer.pattern, offer.token, message, at, "m")
    return echo, hear(record, offer.token, message, at, "m", DEFAULT_SETTINGS)


@pytest.mark.parametrize(
    "other", [{"queue": "mail"}, {"priority": 3}, {"labels": ("gpu",)}], ids=["queue", "priority", "labels"]
)
def test_what_only_the_columns_of_a_record_say_keeps_jobs_apart(other: dict[str, Any]) -> None:
    specs = [JobSpec(task="a"), JobSpec(task="a", **other)] * 3
    records = [queued(spec, f"j_{place}", b"%d" % place) for place, spec in enumerate(specs)]
    offers = [offer for _, offer in shares_of([claiming()], records, NOW)]
    assert told(offers) == told([alone(claiming(), record) for record in records])


def test_twins_are_decided_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[str] = []

    def counted(module: Any, name: str) -> None:
        original = getattr(module, name)

        def count(*given: Any) -> Any:
            decided.append(name)
            return original(*given)

        monkeypatch.setattr(module, name, count)

    counted(twins, "granted")
    counted(twins, "offer_of")
    counted(echoes, "hear")
    records = [queued(JobSpec(task="a"), f"j_{place}", b"%d" % place) for place in range(9)]
    shares = shares_of([claiming()], records, NOW)
    together = Echoes(DEFAULT_SETTINGS)
    for place, (_, offer) in enumerate(shares):
        assert offer.grant is not None
        outcome = Succeeded(msgspec.Raw(b"%d" % place))
        message = Complete(token=offer.grant.token, runner_id="r#1", outcome=outcome)
        echo, _ = heard(together, record_after(offer.change, offer.before, NOW), offer, message, NOW)
        assert echo is not None
    assert decided == ["granted", "hear"]


def test_a_decision_that_depends_on_who_it_is_about_is_made_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    original = JobAggregate.change

    def change(draft: JobAggregate, **words: Any) -> Change:
        return original(draft, **{**words, "reason": f"{draft.id} was given {bytes(draft.body.input)!r}"})

    monkeypatch.setattr(JobAggregate, "change", change)
    records = [queued(JobSpec(task="a"), f"j_{place}", b"%d" % place) for place in range(5)]
    offers = [offer for _, offer in shares_of([claiming()], records, NOW)]
    assert [offer.pattern for offer in offers] == [None] * 5
    reasons = [offer.change.note.reason for offer in offers if offer.change.note]
    assert reasons == [f"j_{place} was given {b'%d' % place!r}" for place in range(5)]


def test_a_body_that_only_looks_alike_at_both_ends_is_another() -> None:
    stencil = stencil_of(b'{"input":%s,"data":1}' % bytes(INPUT), INPUT)
    assert stencil is not None
    assert stencil.found_in(b'{"input":[2],"data":1}') == b"[2]"
    assert stencil.found_in(b'{"input":2,"more":3,"data":1}') is None
    assert stencil.found_in(b'{"input":,"data":1}') is None
    assert stencil.found_in(b'{"input":"data":1}') is None


def test_marks_that_come_twice_or_in_another_order_make_no_stencil() -> None:
    one, other = bytes(INPUT), DIGEST.encode()
    assert stencil_of(b"[" + one + other + b"]", one, other) is not None
    for body in (one, other + one, one + one + other, one + other + other, one + other + b"id~of~no~job~"):
        assert stencil_of(body, one, other) is None
