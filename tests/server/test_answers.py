"""What the API answers, for one job from its submission to its end."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx2
import msgspec
from tests.server.running import Running

from interlock.lifecycles import MACHINES
from interlock.wire.access import Role
from interlock.wire.jobs import JobView
from interlock.wire.runner import LogLine

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def test_a_job_is_submitted_shown_and_listed(client: httpx2.AsyncClient) -> None:
    made = await client.post("/api/jobs", json={"task": "shop.send", "input": {"order": 17}, "queue": "mail"})
    assert made.status_code == 201
    job_id = made.json()["id"]
    assert made.json()["ids"] == [job_id]
    shown = await client.get(f"/api/jobs/{job_id}")
    view = msgspec.json.decode(shown.content, type=JobView)
    assert (view.state, view.queue, bytes(view.input)) == ("PENDING", "mail", b'{"order":17}')
    listed = (await client.get("/api/jobs", params={"q": "state:pending queue:mail"})).json()
    assert [job["id"] for job in listed["jobs"]] == [job_id]
    assert listed["count"] == {"number": 1}
    assert listed["cursor"] == ""


async def test_many_jobs_are_submitted_at_once_and_read_page_by_page(client: httpx2.AsyncClient) -> None:
    specs = [{"task": "shop.send", "labels": ["odd"] if n % 2 else []} for n in range(25)]
    ids = (await client.post("/api/jobs", json={"jobs": specs})).json()["ids"]
    assert len(ids) == 25
    first = (await client.get("/api/jobs", params={"limit": 10})).json()
    assert first["count"] == {"number": 25}
    seen, cursor = first["jobs"], first["cursor"]
    while cursor:
        page = (await client.get("/api/jobs", params={"limit": 10, "cursor": cursor})).json()
        assert "count" not in page
        seen, cursor = seen + page["jobs"], page["cursor"]
    assert [job["id"] for job in seen] == ids[::-1]


async def test_a_filter_that_the_store_cannot_answer_is_paged_without_gaps(
    client: httpx2.AsyncClient,
) -> None:
    specs = [{"task": "shop.send" if n % 3 == 0 else "shop.pack"} for n in range(30)]
    ids = (await client.post("/api/jobs", json={"jobs": specs})).json()["ids"]
    seen: list[str] = []
    cursor = ""
    while True:
        page = (
            await client.get("/api/jobs", params={"q": "task:shop.send", "limit": 3, "cursor": cursor})
        ).json()
        seen += [job["id"] for job in page["jobs"]]
        if not cursor:
            assert page["count"] == {"number": 3, "capped": True}
        if not (cursor := page["cursor"]):
            break
    assert seen == ids[::3][::-1]


async def test_the_story_of_a_job_can_be_read(server: Running, client: httpx2.AsyncClient) -> None:
    job_id = await server.submit()
    explained = (await client.get(f"/api/jobs/{job_id}/explain")).json()
    assert "waits for a worker of the queue default" in explained["sentence"]
    await server.work(job_id, result=b'{"sent":true}', lines=(LogLine(NOON, "info", "hello"),))
    assert (await client.get(f"/api/jobs/{job_id}")).json()["result"] == {"sent": True}
    history = (await client.get(f"/api/jobs/{job_id}/history")).json()["entries"]
    steps = [(step["machine"], step["from"], step["to"]) for entry in history for step in entry["steps"]]
    assert ("job", "SUBMITTED", "PENDING") in steps
    assert ("job", "RUNNING", "COMPLETED") in steps
    assert history[0]["actor"] == "test"
    first = (await client.get(f"/api/jobs/{job_id}/history", params={"limit": 1})).json()
    rest = (await client.get(f"/api/jobs/{job_id}/history", params={"after": first["after"]})).json()
    assert [*first["entries"], *rest["entries"]] == history
    last = (await client.get(f"/api/jobs/{job_id}/history", params={"limit": 1, "newest": True})).json()
    assert last == {"entries": history[-1:], "older": True}
    whole = (await client.get(f"/api/jobs/{job_id}/history", params={"newest": True})).json()
    assert whole == {"entries": history}
    logs = (await client.get(f"/api/jobs/{job_id}/logs")).json()
    assert [(line["text"], line["attempt"]) for line in logs["lines"]] == [("hello", 1)]
    ended = (await client.get(f"/api/jobs/{job_id}/explain")).json()
    assert ended["sentence"] == "It completed after 1 attempt."


async def test_attempts_are_shown_without_their_secrets(server: Running, client: httpx2.AsyncClient) -> None:
    job_id = await server.submit()
    grant = await server.work(job_id)
    listed = await client.get("/api/attempts", params={"job": job_id})
    (attempt,) = listed.json()["attempts"]
    assert (await client.get(f"/api/attempts/{attempt['id']}")).json() == attempt
    secret = grant.token.rpartition(".")[2]
    shown = await client.get(f"/api/jobs/{job_id}")
    assert not any(secret in text for text in (listed.text, shown.text, server.log.getvalue()))


async def test_a_job_is_stopped_and_done_again(server: Running, client: httpx2.AsyncClient) -> None:
    job_id = await server.submit()
    stopped = await client.post(f"/api/jobs/{job_id}/cancel", json={"reason": "changed my mind"})
    assert (stopped.status_code, stopped.json()["state"]) == (200, "CANCELED")
    history = (await client.get(f"/api/jobs/{job_id}/history")).json()["entries"]
    assert (history[-1]["actor"], history[-1]["reason"]) == ("local", "changed my mind")
    again = await client.post(f"/api/jobs/{job_id}/retry")
    assert again.status_code == 201
    view = (await client.get(f"/api/jobs/{again.json()['id']}")).json()
    assert (view["origin_job_id"], view["state"]) == (job_id, "PENDING")


async def test_an_action_by_a_filter_is_previewed_and_then_done(
    server: Running, client: httpx2.AsyncClient
) -> None:
    ids = [await server.submit(queue="mail") for _ in range(3)]
    other = await server.submit(queue="default")
    request = {"filter": "queue:mail", "action": "cancel", "dry_run": True, "limit": 2}
    preview = (await client.post("/api/jobs/actions", json=request)).json()
    assert (len(preview["done"]), preview["more"], preview["dry_run"]) == (2, True, True)
    assert {view.state for view in await server.parts.runtime.jobs.get_many(ids) if view} == {"PENDING"}
    done = (await client.post("/api/jobs/actions", json={**request, "dry_run": False, "limit": 10})).json()
    assert {each["id"]: each["state"] for each in done["done"]} == dict.fromkeys(ids, "CANCELED")
    assert "more" not in done
    assert (await client.get(f"/api/jobs/{other}")).json()["state"] == "PENDING"
    again = (await client.post("/api/jobs/actions", json={"filter": "queue:mail", "action": "retry"})).json()
    assert [each["id"] for each in again["done"]] == ids[::-1]
    assert (await client.get(f"/api/jobs/{again['done'][0]['new_id']}")).json()["state"] == "PENDING"


async def test_queues_machines_and_pictures_are_shown(server: Running, client: httpx2.AsyncClient) -> None:
    await server.submit(queue="mail")
    queues = (await client.get("/api/queues")).json()["queues"]
    assert [(queue["name"], queue["pending"]) for queue in queues] == [("mail", 1)]
    machines = (await client.get("/api/machines")).json()["machines"]
    assert set(MACHINES) < {machine["name"] for machine in machines}
    table = (await client.get("/api/machines/job")).json()
    assert table["initial"] == "SUBMITTED"
    picture = await client.get(
        "/api/machines/Job.svg", params={"state": "running", "path": "pending,running"}
    )
    assert picture.headers["content-type"].startswith("image/svg+xml")
    assert picture.text.startswith("<svg")
    assert (await client.get("/api/machines/interlocking.svg")).text.startswith("<svg")


async def test_the_journal_is_read_from_a_cursor(server: Running, client: httpx2.AsyncClient) -> None:
    first, second = await server.submit(), await server.submit()
    page = (await client.get("/api/journal", params={"limit": 1})).json()
    assert [entry["id"] for entry in page["entries"]] == [first]
    rest = (await client.get("/api/journal", params={"after": page["cursor"]})).json()
    assert [entry["id"] for entry in rest["entries"]] == [second]
    client = server.client(await server.token(Role.ADMIN))  # the first token closes the door
    jobs = (await client.get("/api/journal", params={"kind": "job", "id": second})).json()
    assert [entry["id"] for entry in jobs["entries"]] == [second]
    tokens = (await client.get("/api/journal", params={"kind": "token"})).json()
    assert [entry["kind"] for entry in tokens["entries"]] == ["token"]
    end = (await client.get("/api/journal", params={"after": tokens["cursor"], "kind": "job"})).json()
    assert end["entries"] == []


async def test_metrics_count_transitions_refusals_request_ids_and_http_requests(
    server: Running, client: httpx2.AsyncClient
) -> None:
    body = {"task": "shop.send", "request_id": "once"}
    for _ in range(3):
        await client.post("/api/jobs", json=body)
    job_id = (await client.post("/api/jobs", json=body)).json()["id"]
    await client.post(f"/api/jobs/{job_id}/cancel")
    await client.post(f"/api/jobs/{job_id}/cancel")
    await server.parts.following.round()
    text = (await client.get("/metrics")).text
    for line in (
        'interlock_transitions_total{from_state="PENDING",machine="job",to_state="CANCELED"} 1.0',
        'interlock_transitions_refused_total{code="already_there",machine="job",state="CANCELED"} 1.0',
        'interlock_state_seconds_count{machine="job",state="PENDING"} 1.0',
        'interlock_request_ids_total{outcome="done"} 1.0',
        'interlock_request_ids_total{outcome="repeated"} 3.0',
        'interlock_http_requests_total{method="POST",route="/api/jobs",status="201"} 4.0',
        'interlock_loop_failures_in_a_row{loop="deadlines"} 0.0',
    ):
        assert line in text, f"{line} is not in\n{text}"


async def test_a_server_reports_liveness_always_and_readiness_until_it_stops(
    server: Running, client: httpx2.AsyncClient
) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    ready = await client.get("/readyz")
    assert ready.status_code == 200
    assert {loop["name"] for loop in ready.json()["loops"]} >= {"deadlines", "messages", "retention"}
    server.parts.stopping.set()
    stopping = await client.get("/readyz")
    assert (stopping.status_code, stopping.json()["code"]) == (503, "not_ready")
    assert (await client.get("/healthz")).status_code == 200


async def test_a_head_request_returns_the_headers_without_a_body(client: httpx2.AsyncClient) -> None:
    head = await client.head("/api/jobs")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["x-content-type-options"] == "nosniff"
    assert head.headers["cache-control"] == "no-store"
