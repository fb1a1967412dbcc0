"""What cannot be is refused with a clear error, and nothing is stored."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import House, beat, done, failed, release

from interlock.errors import InterlockError, InvalidJob, TooLarge, TransitionNotAllowed, UnknownJob
from interlock.store.memory import MemoryStore
from interlock.systems.settings import Settings
from interlock.wire.jobs import JobSpec, RetryRule
from interlock.wire.runner import ClaimRequest, LogLine

YEAR_S = 366 * 86_400.0

BAD_SPECS: dict[str, dict[str, Any]] = {
    "no shard": {"worker_count": 0},
    "a negative number of shards": {"worker_count": -1},
    "eleven shards": {"worker_count": 11},
    "no task": {"task": ""},
    "a task of many letters": {"task": "x" * 201},
    "a task of two lines": {"task": "a\nb"},
    "half a character in the task": {"task": "\ud800"},
    "a task with a zero": {"task": "a\x00b"},
    "a long description": {"description": "x" * 2_001},
    "half a character in the description": {"description": "\ud800"},
    "a delay that is no number": {"delay_s": math.nan},
    "an endless delay": {"delay_s": math.inf},
    "a delay of a negative length": {"delay_s": -1.0},
    "a delay of a century": {"delay_s": 100 * YEAR_S},
    "no time": {"timeout_s": 0.0},
    "a time that is no number": {"timeout_s": math.nan},
    "an endless time": {"timeout_s": math.inf},
    "a negative time": {"job_timeout_s": -1.0},
    "a time of the job that is no number": {"job_timeout_s": math.nan},
    "a century for the job": {"job_timeout_s": 100 * YEAR_S},
    "negative retries": {"retries": -1},
    "too many retries": {"retries": 101},
    "negative losses": {"losses": -1},
    "too many losses": {"losses": 101},
    "a class that nobody knows": {"retry": {"sunspots": RetryRule()}},
    "the class that is counted apart": {"retry": {"lost": RetryRule(retries=1)}},
    "too many retries of a class": {"retry": {"user": RetryRule(retries=101)}},
    "a pause that is no number": {"retry": {"user": RetryRule(retries=1, first_pause_s=math.nan)}},
    "an endless pause": {"retry": {"user": RetryRule(retries=1, longest_pause_s=math.inf)}},
    "a negative pause": {"retry": {"user": RetryRule(retries=1, first_pause_s=-1.0)}},
    "a negative jitter": {"retry": {"user": RetryRule(retries=1, jitter=-0.1)}},
    "a pause of a thousand centuries": {
        "retry": {"user": RetryRule(retries=1, first_pause_s=1e12, longest_pause_s=1e12)}
    },
    "a factor that no pause can hold": {"retry": {"user": RetryRule(retries=100, factor=1e300)}},
    "a jitter that no pause can hold": {"retry": {"user": RetryRule(retries=1, jitter=1e300)}},
    "a priority that is too high": {"priority": 101},
    "a priority that is too low": {"priority": -101},
    "too many labels": {"labels": tuple(f"label-{n:02}" for n in range(17))},
    "a label without a name": {"labels": ("",)},
    "a label of many letters": {"labels": ("x" * 65,)},
    "a label of two lines": {"labels": ("a\nb",)},
    "a queue without a name": {"queue": ""},
    "a queue of two lines": {"queue": "a\nb"},
    "a queue of many letters": {"queue": "x" * 65},
    "half a character in the queue": {"queue": "\ud800"},
    "a parent that is not there": {"parent_job_id": "j_000000000000"},
    "a parent without a name": {"parent_job_id": ""},
    "a parent of two lines": {"parent_job_id": "a\nb"},
    "an input that is too large": {"input": msgspec.Raw(b'"' + b"x" * 262_144 + b'"')},
    "an input of 100 MB": {"input": msgspec.Raw(b'"' + b"x" * 100_000_000 + b'"')},
    "an input that is not JSON": {"input": msgspec.Raw(b"{x}")},
    "an empty input": {"input": msgspec.Raw(b"")},
    "an input that is two values": {"input": msgspec.Raw(b'1,"retries":7')},
    "half a character in the trace": {"trace": {"a": "\ud800"}},
    "an endless trace": {"trace": {"a": "x" * 2_000_000}},
}


def spec_with(parts: dict[str, Any]) -> JobSpec:
    return JobSpec(**{"task": "build", **parts})


@pytest.mark.parametrize("parts", BAD_SPECS.values(), ids=BAD_SPECS.keys())
async def test_a_submission_that_breaks_a_rule_is_refused_and_stores_nothing(
    house: House, parts: dict[str, Any]
) -> None:
    with pytest.raises(InterlockError) as refused:
        await house.jobs.submit(spec_with(parts))
    assert 400 <= refused.value.status < 500
    assert len(refused.value.sentence) < 1_000
    assert refused.value.todo
    assert isinstance(house.store, MemoryStore)
    assert house.store._records == {}
    assert house.store._journal == []


@pytest.mark.parametrize("parts", BAD_SPECS.values(), ids=BAD_SPECS.keys())
async def test_among_good_ones_a_bad_one_stores_none_of_them(house: House, parts: dict[str, Any]) -> None:
    good = JobSpec(task="build")
    with pytest.raises(InterlockError):
        await house.jobs.submit_many([good, good, spec_with(parts), good])
    assert await house.number_of_jobs() == 0


@pytest.mark.parametrize("parts", [{"priority": 101}, {"worker_count": 11}, {"queue": "a\nb"}])
async def test_a_bad_one_after_a_thousand_good_ones_stores_none_of_them(
    house: House, parts: dict[str, Any]
) -> None:
    with pytest.raises(InterlockError):
        await house.jobs.submit_many([*[JobSpec(task="build")] * 1_000, spec_with(parts)])
    assert await house.number_of_jobs() == 0


async def test_all_that_is_wrong_is_reported_at_once(house: House) -> None:
    with pytest.raises(InvalidJob) as refused:
        await house.submit("", worker_count=11, delay_s=-1.0, retries=-1)
    faults = refused.value.facts["faults"]
    assert isinstance(faults, list)
    assert len(faults) == 4


async def test_an_input_that_is_too_large_is_refused_with_the_limit(house: House) -> None:
    with pytest.raises(TooLarge) as refused:
        await house.submit(input=msgspec.Raw(b'"' + b"x" * 262_143 + b'"'))
    assert refused.value.facts["limit"] == 262_144
    assert await house.submit(input=msgspec.Raw(b'"' + b"x" * 262_142 + b'"'))


@pytest.mark.parametrize(
    "parts",
    [
        {"worker_count": 10},
        {"priority": -100},
        {"priority": 100},
        {"delay_s": YEAR_S},
        {"timeout_s": 0.001},
        {"job_timeout_s": YEAR_S},
        {"retries": 100, "losses": 0},
        {"labels": tuple(f"{n:064}" for n in range(16))},
        {"labels": ("b", "a", "b")},
        {"queue": "x" * 64},
        {"task": "größe.ß-日本"},
        {"description": "two\nlines, \x00 and 日本"},
        {"input": msgspec.Raw(b'"\\u0000"')},
    ],
)
async def test_a_submission_with_values_just_within_the_limits_is_accepted(
    house: House, parts: dict[str, Any]
) -> None:
    job_id = await house.jobs.submit(spec_with(parts))
    assert (await house.view(job_id)).state == "PENDING"


@pytest.mark.parametrize("request_id", ["", "x" * 65, "a\nb"])
async def test_a_request_id_that_no_store_takes_is_refused(house: House, request_id: str) -> None:
    with pytest.raises(InterlockError):
        await house.jobs.submit(JobSpec(task="build"), request_id=request_id)
    assert await house.number_of_jobs() == 0


async def test_no_jobs_are_no_mistake(house: House) -> None:
    assert await house.jobs.submit_many([]) == []


@pytest.mark.parametrize("job_id", ["", "j_000000000000", "nonsense", "a\nb", "\x00", "x" * 100])
async def test_an_operation_on_a_job_that_does_not_exist_raises_unknown_job(
    house: House, job_id: str
) -> None:
    for ask in (house.jobs.get, house.jobs.cancel, house.jobs.retry, house.jobs.history):
        with pytest.raises(UnknownJob):
            await ask(job_id)


async def test_a_retry_of_a_job_that_has_not_ended_is_refused(house: House) -> None:
    job_id = await house.submit()
    with pytest.raises(TransitionNotAllowed) as refused:
        await house.jobs.retry(job_id)
    assert refused.value.facts["state"] == "PENDING"
    assert await house.number_of_jobs() == 1


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_claim_with_a_limit_below_one_is_refused(house: House, limit: int) -> None:
    with pytest.raises(InterlockError):
        await house.port.claim(ClaimRequest(runner_id="r", limit=limit))


# What runners bring


async def test_a_result_that_is_too_large_is_refused_and_the_lease_lives_on(house: House) -> None:
    grant = await house.started()
    before = await house.record(grant.job_id)
    answer = await house.refused(done(grant, b'"' + b"x" * 262_143 + b'"'))
    assert answer.code == "too_large"
    assert answer.facts["limit"] == 262_144
    assert await house.record(grant.job_id) == before
    assert (await house.heard(failed(grant, error="The result is too large."))).state == "FAILED"


@pytest.mark.parametrize("say", [beat, release], ids=lambda say: str(say.__name__))
async def test_a_checkpoint_that_is_too_large_is_refused(house: House, say: Any) -> None:
    grant = await house.started()
    before = await house.record(grant.job_id)
    answer = await house.refused(say(grant, checkpoint=msgspec.Raw(b'"' + b"x" * 65_536 + b'"')))
    assert answer.code == "too_large"
    assert await house.record(grant.job_id) == before
    assert (await house.heard(done(grant))).state == "SUCCEEDED"


async def test_of_an_explanation_that_is_too_large_the_end_is_kept(house: House) -> None:
    """A failure is a failure; nobody should lose its report over a long traceback."""
    grant = await house.started()
    await house.heard(failed(grant, details="x" * 300_000 + "the end"))
    (one,) = (await house.view(grant.job_id)).attempts
    assert one.failure is not None
    assert one.failure.details.endswith("xthe end")
    assert len(one.failure.details) < 10_000


async def test_the_limits_are_settings() -> None:
    settings = Settings(max_input_bytes=4, max_result_bytes=4, max_checkpoint_bytes=4)
    house = await House(settings).open()
    with pytest.raises(TooLarge):
        await house.submit(input=msgspec.Raw(b"12345"))
    grant = await house.started(input=msgspec.Raw(b"1234"))
    assert (await house.refused(beat(grant, checkpoint=msgspec.Raw(b"12345")))).code == "too_large"
    assert (await house.refused(done(grant, b"12345"))).code == "too_large"
    assert (await house.heard(done(grant, b"1234"))).state == "SUCCEEDED"
    await house.close()


@pytest.mark.parametrize("result", [b"", b"{x}", b'1,"forced":true', b"1 2"])
async def test_a_result_that_is_not_one_json_value_is_refused_and_changes_nothing(
    house: House, result: bytes
) -> None:
    grant = await house.started()
    before = await house.record(grant.job_id)
    await house.refused(done(grant, result))
    assert await house.record(grant.job_id) == before
    assert (await house.heard(done(grant, b"1"))).state == "SUCCEEDED"


@pytest.mark.parametrize("checkpoint", [b"", b"{x}", b'1,"2":2'])
async def test_a_checkpoint_that_is_not_one_json_value_is_refused(house: House, checkpoint: bytes) -> None:
    grant = await house.started()
    before = await house.record(grant.job_id)
    await house.refused(beat(grant, checkpoint=msgspec.Raw(checkpoint)))
    assert await house.record(grant.job_id) == before


@pytest.mark.parametrize(
    "message",
    [{"error": "\ud800"}, {"details": "\udfff"}, {"exception": "\ud800"}],
    ids=["error", "details", "exception"],
)
async def test_a_lone_surrogate_in_a_failure_report_is_answered_and_blocks_no_other_report(
    house: House, message: dict[str, Any]
) -> None:
    """Programs print bytes that are no text; a report of that must arrive, or at least be answered."""
    strange, plain = await house.started(), await house.started()
    answers = await house.port.report([failed(strange, **message), done(plain)])
    assert len(answers) == 2
    assert (await house.view(plain.job_id)).state == "COMPLETED"


async def test_a_lone_surrogate_in_a_log_line_is_answered_and_blocks_no_other_report(house: House) -> None:
    strange, plain = await house.started(), await house.started()
    line = LogLine(house.clock(), "info", "\ud800")
    answers = await house.port.report([beat(strange, log=(line,)), done(plain)])
    assert len(answers) == 2
    assert (await house.view(plain.job_id)).state == "COMPLETED"


async def test_of_a_log_line_that_is_too_large_the_end_is_kept(house: House) -> None:
    grant = await house.started()
    line = LogLine(house.clock(), "info", "x" * 1_100_000 + "the end")
    await house.heard(beat(grant, log=(line,)))
    (chunk,) = await house.chunks(grant.job_id)
    assert chunk.lines[0].text.endswith("xthe end")
    assert len(chunk.lines[0].text) < 100_000
