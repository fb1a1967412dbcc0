"""A value that would make lists unreadable for everybody is refused wherever values come in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import House, beat, done, failed, release
from tests.systems.orchestrator.test_every_store_alike import OpenHouse, open_house
from tests.systems.simulations.worker import SPEC, running, simulations

from interlock.errors import InterlockError, InvalidJob, InvalidSimulation, NotJson, PlanRefused
from interlock.systems.runs.plan_validation import check_plan
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.jobs import JobSpec
from interlock.wire.runs import Plan, PlannedJob
from interlock.wire.simulations import Beat, Completed, Paused

__all__ = ["open_house"]

UNREADABLE = {
    "not finite": b'{"a":1e999}',
    "5,000 digits": b'{"a":' + b"9" * 5_000 + b"}",
    "not UTF-8": b'{"a":"\xff"}',
    "too deep": b"[" * 65 + b"]" * 65,
}
ODD = (
    b'{"a":"\\u0000","b":18446744073709551615,"c":-9223372036854775808,"d":1e308,"e":"\\ud83d\\ude00"}',
    b"[" * 64 + b"]" * 64,
    '{"größe":"名\x7f"}'.encode(),
)


@pytest.fixture(params=UNREADABLE.values(), ids=list(UNREADABLE))
def raw(request: pytest.FixtureRequest) -> msgspec.Raw:
    return msgspec.Raw(request.param)


async def test_no_input_is_accepted_that_others_cannot_read(house: House, raw: msgspec.Raw) -> None:
    good = JobSpec(task="build", input=msgspec.Raw(b'{"a":1}'))
    bad = JobSpec(task="build", input=raw)
    for specs in ([bad], [good, bad], [good, good, bad, good]):
        with pytest.raises(InvalidJob, match="the input") as refused:
            await house.jobs.submit_many(specs)
        assert refused.value.status == 422
    assert await house.number_of_jobs() == 0
    with pytest.raises(PlanRefused, match="the input"):
        check_plan(Plan(jobs=(PlannedJob(name="a", task="build", input=raw),)), DEFAULT_SETTINGS)
    with pytest.raises(InvalidSimulation, match="the input"):
        await simulations(house).create_run(msgspec.structs.replace(SPEC, input=raw))


async def test_a_result_that_others_cannot_read_is_refused_and_the_attempt_can_fail(
    house: House, raw: msgspec.Raw
) -> None:
    grant = await house.started()
    before = await house.record(grant.job_id)
    answer = await house.refused(done(grant, bytes(raw)))
    assert answer.code == "not_json"
    assert "The result" in answer.error
    for say in (beat, release):
        assert (await house.refused(say(grant, checkpoint=raw))).code == "not_json"
    assert await house.record(grant.job_id) == before
    assert (await house.heard(failed(grant, error=answer.error))).state == "FAILED"


async def test_among_results_that_are_alike_the_unreadable_one_is_found(
    house: House, raw: msgspec.Raw
) -> None:
    ids = await house.jobs.submit_many([JobSpec(task="build")] * 20)
    grants = await house.claim(limit=20)
    results = [bytes(raw) if number == 7 else b'{"a":1}' for number in range(20)]
    answers = await house.port.report(
        [done(grant, result) for grant, result in zip(grants, results, strict=True)]
    )
    assert [type(answer).__name__ for answer in answers].count("NotHeard") == 1
    states = [(await house.view(job_id)).state for job_id in ids]
    assert states.count("COMPLETED") == 19


@pytest.mark.parametrize("word", [Beat, Paused, Completed])
async def test_a_simulation_report_with_an_unreadable_value_is_refused_and_changes_nothing(
    house: House, raw: msgspec.Raw, word: Any
) -> None:
    view, player = await running(house)
    before = await simulations(house).get(view.run_id)
    with pytest.raises(NotJson):
        await player.say(word(step=3, checkpoint=raw))
    if word is Completed:
        with pytest.raises(NotJson):
            await player.say(Completed(step=10, result=raw))
    assert await simulations(house).get(view.run_id) == before


async def test_odd_values_come_back_as_they_were_from_every_store(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    for given in ODD:
        grant = await house.started(input=msgspec.Raw(given))
        assert bytes(grant.input) == given
        await house.heard(beat(grant, checkpoint=msgspec.Raw(given)))
        await house.heard(done(grant, given))
        view = await house.view(grant.job_id)
        assert (bytes(view.input), bytes(view.result)) == (given, given)  # type: ignore[arg-type]
        msgspec.json.decode(msgspec.json.encode(view))


async def test_unreadable_values_are_refused_on_every_store(open_house: OpenHouse) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    for given in UNREADABLE.values():
        with pytest.raises(InterlockError):
            await house.submit(input=msgspec.Raw(given))
    assert await house.number_of_jobs() == 0
