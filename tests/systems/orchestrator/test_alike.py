"""Jobs of one bulk are what each would be alone."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.effort import pick

from interlock.errors import InvalidJob
from interlock.systems.orchestrator.alike import Alike, checked
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS
from interlock.systems.orchestrator.stencils import INPUT
from interlock.systems.orchestrator.submitting import new_job
from interlock.wire.jobs import JobSpec, RetryRule

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
SPECS = st.builds(
    JobSpec,
    task=st.sampled_from(["a", "b"]),
    input=st.sampled_from([b"1", b'{"x":"y"}', b"null"]).map(msgspec.Raw),
    queue=st.sampled_from(["default", "mail"]),
    labels=st.sampled_from([(), ("gpu",)]),
    priority=st.sampled_from([0, 3]),
    worker_count=st.sampled_from([1, 2]),
    delay_s=st.sampled_from([0.0, 5.0]),
    timeout_s=st.sampled_from([None, 9.0]),
    job_timeout_s=st.sampled_from([None, 9.0]),
    retries=st.sampled_from([None, 2]),
    retry=st.sampled_from([{}, {"user": RetryRule(retries=1)}]),
    losses=st.sampled_from([None, 1]),
    description=st.sampled_from(["", "why"]),
    secrets=st.sampled_from([(), ("TOKEN",)]),
    trace=st.sampled_from([{}, {"traceparent": "00-1"}]),
)


@given(st.lists(st.tuples(SPECS, st.integers(1, 3)), min_size=1, max_size=6))
@settings(max_examples=pick(50, 200), derandomize=True)
def test_a_job_of_a_bulk_is_what_it_would_be_alone(makes: list[tuple[JobSpec, int]]) -> None:
    bulk = [
        replace(spec, input=msgspec.Raw(b"%d" % number) if number else spec.input)
        for spec, times in makes
        for number in range(times)
    ]
    alike = Alike(DEFAULT_SETTINGS, "somebody", NOW, "m")
    for number, (spec, like) in enumerate(zip(bulk, checked(bulk, DEFAULT_SETTINGS), strict=True)):
        alone = new_job(spec, f"j_{number}", NOW, DEFAULT_SETTINGS).change(mark="m", actor="somebody")
        assert alike.change(like, spec.input, f"j_{number}") == alone


def test_a_job_whose_words_look_like_a_mark_keeps_them() -> None:
    spec = JobSpec(task="t", description=bytes(INPUT).decode(), input=msgspec.Raw(b"1"))
    (like,) = checked([spec], DEFAULT_SETTINGS)
    alone = new_job(spec, "j_1", NOW, DEFAULT_SETTINGS).change(mark="m", actor="somebody")
    assert Alike(DEFAULT_SETTINGS, "somebody", NOW, "m").change(like, spec.input, "j_1") == alone


@pytest.mark.parametrize(
    ("place", "fault"),
    [
        (0, JobSpec(task="t", worker_count=0)),
        (3, JobSpec(task="t", worker_count=0)),
        (3, JobSpec(task="t", input=msgspec.Raw(b"{"))),
        (3, JobSpec(task="t", input=msgspec.Raw(b"1 2"))),
    ],
)
def test_a_bad_one_among_many_that_are_alike_is_found(place: int, fault: JobSpec) -> None:
    bulk = [JobSpec(task="t", input=msgspec.Raw(b"%d" % number)) for number in range(5)]
    with pytest.raises(InvalidJob):
        checked([*bulk[:place], fault, *bulk[place:]], DEFAULT_SETTINGS)
