"""Several servers on one store: what one does the others see, and killing one loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx2
import pytest
from tests.server.running import program, running
from tests.waiting import PATIENCE_S

from interlock.store.records import Entry
from interlock.testing.servers import PostgresServer
from interlock.wire.access import Role


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/interlock.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.new_database()


async def test_a_change_made_at_one_server_is_in_the_api_and_the_metrics_of_another(url: str) -> None:
    async with running(url) as first, running(url) as second:
        here, there = first.client(), second.client()
        received = asyncio.Event()

        def read(entries: Sequence[Entry], _: bool) -> None:
            if any(step.target == "CANCELED" for entry in entries for step in entry.note.steps):
                received.set()

        first.parts.following.add(read)
        job_id = (await here.post("/api/jobs", json={"task": "a.b"})).json()["id"]
        assert (await there.get(f"/api/jobs/{job_id}")).json()["state"] == "PENDING"
        assert (await there.post(f"/api/jobs/{job_id}/cancel")).json()["state"] == "CANCELED"
        assert (await here.get(f"/api/jobs/{job_id}")).json()["state"] == "CANCELED"
        line = 'interlock_transitions_total{from_state="PENDING",machine="job",to_state="CANCELED"} 1.0'
        async with asyncio.timeout(PATIENCE_S):  # the feed holds back what could still be overtaken
            await received.wait()
        assert line in (await here.get("/metrics")).text


async def test_one_request_to_many_servers_at_once_is_done_once(url: str) -> None:
    async with running(url) as first, running(url) as second:
        job_id = await first.submit()
        for path, body in (
            ("/api/jobs", {"task": "a.b", "request_id": "make"}),
            (f"/api/jobs/{job_id}/cancel", {"request_id": "stop"}),
        ):
            clients = [first.client(), second.client()] * 8
            answers = await asyncio.gather(*(client.post(path, json=body) for client in clients))
            assert {answer.status_code for answer in answers} <= {200, 201}, [a.text for a in answers]
            assert len({answer.json()["id"] for answer in answers}) == 1
        assert len((await first.client().get("/api/jobs")).json()["jobs"]) == 2


async def test_a_token_that_one_server_has_made_opens_the_other(url: str) -> None:
    async with running(url) as first, running(url) as second:
        token = await first.token(Role.SUBMITTER, "ann")
        made = await second.client(token).post("/api/jobs", json={"task": "a.b"})
        assert made.status_code == 201
        history = await first.client(token).get(f"/api/jobs/{made.json()['id']}/history")
        assert history.json()["entries"][0]["actor"] == "ann"


async def test_texts_that_a_database_could_trip_over_come_back_as_they_were(url: str) -> None:
    odd = "quotes ' \" \\ and \u2028 and \U0001f4a5 and \ufffd"
    async with running(url) as server:
        client = server.client()
        body = {"task": "a.b", "input": {"text": odd, "nul": "\u0000"}, "description": odd}
        made = await client.post("/api/jobs", json=body)
        assert made.status_code == 201, made.text
        view = (await client.get(f"/api/jobs/{made.json()['id']}")).json()
        assert (view["input"], view["description"]) == (body["input"], odd)


def test_when_one_of_two_servers_is_killed_the_other_continues(tmp_path: Path) -> None:
    with program(folder=tmp_path) as (one, first, _), program(folder=tmp_path) as (_, second, _):
        with httpx2.Client(base_url=first, trust_env=False, verify=False, timeout=PATIENCE_S) as client:
            job_id = client.post("/api/jobs", json={"task": "a.b"}).json()["id"]
        one.kill()
        one.wait(PATIENCE_S)
        with httpx2.Client(base_url=second, trust_env=False, verify=False, timeout=PATIENCE_S) as client:
            assert client.get(f"/api/jobs/{job_id}").json()["state"] == "PENDING"
            assert client.post("/api/jobs", json={"task": "a.b"}).status_code == 201
            assert client.get("/readyz").status_code == 200
