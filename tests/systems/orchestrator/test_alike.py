"""Jobs of one bulk are what each would be alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.systems.orchestrator.alike import Alike
from interlock.systems.orchestrator.settings import DEFAULT_SETTINGS
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


@given(st.lists(st.tuples(SPECS, st.booleans()), min_size=2, max_size=6))
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_a_job_of_a_bulk_is_what_it_would_be_alone(bulk: list[tuple[JobSpec, bool]]) -> None:
    alike, now = Alike(DEFAULT_SETTINGS, "somebody"), NOW
    for number, (spec, later) in enumerate(bulk):
        now += timedelta(seconds=later)
        for twin in (spec, msgspec.structs.replace(spec, input=msgspec.Raw(b"2"))):
            alone = new_job(twin, f"j_{number}", now, DEFAULT_SETTINGS).change(mark="m", actor="somebody")
            assert alike.change(twin, f"j_{number}", now, "m") == alone
