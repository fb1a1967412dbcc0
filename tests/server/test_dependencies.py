"""Jobs that come after others, over HTTP: submitted, shown, explained, and hidden where they must be."""

from __future__ import annotations

from typing import Any

import httpx2
import msgspec
import pytest
from tests.server.running import Running, any_port, running

from interlock.errors import InvalidArguments
from interlock.remote.jobs import HttpJobs
from interlock.wire.access import Role
from interlock.wire.artifacts import LEASE, RUNNER
from interlock.wire.jobs import After, JobSpec
from interlock.wire.runner import ClaimRequest


def next_job(*after: str, queue: str = "next", **rule: Any) -> dict[str, Any]:
    return {"task": "shop.next", "queue": queue, "after": {"jobs": after, **rule}}


async def test_a_job_is_submitted_after_another_and_gets_its_result(
    server: Running, client: httpx2.AsyncClient
) -> None:
    first = await server.submit()
    made = await client.post("/api/jobs", json=next_job(first, into="words"))
    job_id = made.json()["id"]
    view = (await client.get(f"/api/jobs/{job_id}")).json()
    assert (view["after"], view["waits_for"]) == ({"jobs": [first], "into": "words"}, [first])
    assert (await client.get(f"/api/jobs/{first}")).json()["followers"] == 1
    why = (await client.get(f"/api/jobs/{job_id}/explain")).json()["sentence"]
    assert why == f"It waits for the success of this job: {first} (PENDING)."
    await server.work(first, result=b"3")
    await server.parts.runtime.deliver()
    (grant,) = await server.parts.runtime.orchestrator.claim(ClaimRequest(runner_id="r", queues=("next",)))
    assert (grant.job_id, bytes(grant.input)) == (job_id, b'{"words":3}')
    headers = {LEASE: grant.token, RUNNER: "r"}
    page = (await client.get("/api/runner/predecessors", headers=headers)).json()
    assert page == {"jobs": [{"id": first, "task": "shop.send", "state": "COMPLETED", "result": 3}]}
    refused = await client.get("/api/runner/predecessors", headers={**headers, RUNNER: "another"})
    assert refused.status_code in (403, 409)


async def test_a_job_that_is_not_there_is_a_404_and_a_wrong_place_a_422(client: httpx2.AsyncClient) -> None:
    unknown = await client.post("/api/jobs", json=next_job("j_000000000000"))
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_job")
    wrong = await client.post("/api/jobs", json={"jobs": [next_job("#1"), next_job("#0")]})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_job")


async def test_a_confined_token_cannot_submit_after_a_job_of_another_queue_or_read_its_id() -> None:
    async with running(settings=any_port(tokens_required=True)) as server:
        theirs = await server.submit(queue="theirs")
        confined = server.client(await server.token(Role.OPERATOR, "confined", queues=["mine"]))
        refused = await confined.post("/api/jobs", json=next_job(theirs, queue="mine"))
        assert (refused.status_code, refused.json()["code"]) == (404, "unknown_job")
        after = After(jobs=(theirs,))
        job_id = await server.submit(queue="mine", after=after)
        for path in (f"/api/jobs/{job_id}", f"/api/jobs/{job_id}/explain"):
            assert theirs not in (await confined.get(path)).text


async def test_jobs_that_come_after_each_other_are_not_split_into_several_requests() -> None:
    specs = [JobSpec(task="t", input=msgspec.Raw(b'"' + b"x" * 600_000 + b'"')) for _ in range(2)]
    specs.append(JobSpec(task="t", after=After(jobs=("#0",))))

    async def now() -> Any:
        return None

    with pytest.raises(InvalidArguments, match="wait for each other"):
        await HttpJobs(None, clock=now).submit_jobs(specs)  # type: ignore[arg-type]
