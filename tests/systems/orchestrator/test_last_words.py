"""What a runner says last is kept and shown: a result under a cancel, an upload, the reason of a failure."""

from __future__ import annotations

import msgspec
import pytest
from tests.systems.orchestrator.house import House, beat, done, failed
from tests.systems.orchestrator.test_logs import lines, shown

from interlock.cli.nouns.job_views import job_sheets


@pytest.mark.parametrize("result", [b'{"built":7}', b'"' + b"x" * 20_000 + b'"'])
async def test_a_result_reported_after_a_cancel_is_shown_with_its_attempt(
    house: House, result: bytes
) -> None:
    job_id = await house.submit()
    (grant,) = await house.claim()
    await house.heard(beat(grant))
    await house.jobs.cancel(job_id)
    await house.heard(done(grant, result))
    view = await house.view(job_id)
    assert (view.state, view.attempts[0].state) == ("CANCELED", "CANCELED")
    assert view.attempts[0].result == msgspec.Raw(result)
    assert view.result is msgspec.UNSET, "the job was canceled"
    reasons = [entry.note.reason for entry in await house.history(job_id)]
    assert "it succeeded after the cancel, which stands" in reasons
    (about, _) = job_sheets(view, view.updated_at, terminal=False)
    assert ("result of 1.1, after the cancel", result.decode()) in about.rows


async def test_a_completed_job_shows_its_result_once(house: House) -> None:
    job_id = await house.submit()
    (grant,) = await house.claim()
    await house.heard(done(grant, b"7"))
    view = await house.view(job_id)
    assert (view.result, view.attempts[0].result) == (msgspec.Raw(b"7"), msgspec.UNSET)


async def test_a_heartbeat_with_uploading_moves_the_attempt_to_uploading_until_it_completes(
    house: House,
) -> None:
    job_id = await house.submit()
    (grant,) = await house.claim()
    assert (await house.heard(beat(grant, 1, uploading=True))).state == "UPLOADING", "it has been running"
    deadline = (await house.view(job_id)).attempts[0].deadline_at
    for number in (2, 3):
        assert (await house.heard(beat(grant, number, uploading=number == 2))).state == "UPLOADING"
    (one,) = (await house.view(job_id)).attempts
    assert (one.state, one.deadline_at) == ("UPLOADING", deadline)
    await house.heard(done(grant))
    assert (await house.view(job_id)).state == "COMPLETED"


async def test_an_uploading_runner_learns_of_a_cancel(house: House) -> None:
    job_id = await house.submit()
    (grant,) = await house.claim()
    await house.heard(beat(grant))
    await house.jobs.cancel(job_id)
    answer = await house.heard(beat(grant, 2, uploading=True))
    assert (answer.state, answer.cancel_requested) == ("CANCEL_REQUESTED", True)


async def test_the_last_output_of_a_command_is_in_the_log_once(house: House) -> None:
    job_id = await house.submit(retries=0)
    (grant,) = await house.claim()
    await house.heard(failed(grant, log=lines("boom"), details="boom", exit_code=4, logged=True))
    assert shown(await house.chunks(job_id)) == ["boom"]
    assert (await house.view(job_id)).failure is not None
