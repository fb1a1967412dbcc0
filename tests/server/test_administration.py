"""What admins see of a server: its health, its store, its webhooks, and the browsers that have signed in."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
from tests.server.runners import Runner, done
from tests.server.running import Running, any_port, running
from tests.server.test_sessions import signed_in
from tests.waiting import until

from interlock.server.api.server import STATUS_FOR_S
from interlock.server.settings import ServerSettings
from interlock.systems.retention import QueueRetention, RetentionSettings
from interlock.systems.runs.settings import ReportingSettings, RunSettings, WebhookReporting
from interlock.systems.runs.trigger_events import Hook, TriggerSettings
from interlock.systems.runs.webhook_security import Secret
from interlock.systems.settings import Settings
from interlock.wire.access import Role


async def test_a_server_reports_its_health_with_the_last_error_of_each_loop(
    server: Running, client: httpx2.AsyncClient
) -> None:
    await server.parts.runtime.figures.round()
    health = (await client.get("/api/server")).json()
    assert {"deadlines", "figures", "journal"} <= {loop["name"] for loop in health["loops"]}
    assert all(loop["last_error"] == "" for loop in health["loops"])
    assert datetime.fromisoformat(health["started_at"]) <= datetime.fromisoformat(health["at"])
    assert health["counted_until"] is not None
    assert 0 < health["connections"] <= health["max_connections"]
    assert health["memory_bytes"] is None or health["memory_bytes"] > 1_000_000
    assert (health["waiting_runners"], health["streams"], health["tokens_required"]) == (0, 0, False)


async def test_the_store_status_shows_size_record_counts_and_retention_and_is_cached(tmp_path: Path) -> None:
    async with running(f"sqlite:///{tmp_path}/jobs.db") as server:
        await server.submit()
        client = server.client()
        status = (await client.get("/api/server/store")).json()
        assert status["server"].startswith("SQLite ")
        assert status["schema_version"] == status["wanted_version"]
        assert status["size_bytes"] >= 4_096
        assert status["records"]["job"] == {"PENDING": 1}
        kept = {each["kind"]: each for each in status["retention"]}
        assert kept["job"]["seconds"] == 30 * 86_400
        assert kept["message"]["seconds"] == 7 * 86_400
        assert "COMPLETED" in kept["job"]["states"]
        await server.submit()
        again = (await client.get("/api/server/store")).json()
        assert again["records"]["job"] == {"PENDING": 1}  # an answer serves for a while, since it counts
        assert STATUS_FOR_S <= 60


async def test_the_retention_of_a_queue_is_described_beside_the_general_one() -> None:
    overrides = RetentionSettings(
        completed="7d", queues={"mail": QueueRetention(completed="1d", failed="90d")}
    )
    settings = any_port(retention=overrides.over(ServerSettings().retention))
    async with running(settings=settings) as server:
        status = (await server.client().get("/api/server/store")).json()
        assert [each for each in status["retention"] if each["kind"] == "job" and each["queue"]] == [
            {"kind": "job", "queue": "mail", "seconds": 86_400.0, "states": ["COMPLETED"]},
            {"kind": "job", "queue": "mail", "seconds": 90 * 86_400.0, "states": ["FAILED"]},
        ]


async def test_webhooks_are_shown_without_their_secrets_and_with_deliveries_that_fail() -> None:
    key = Secret(b"k" * 32)
    receiver = WebhookReporting(
        name="team", url="http://127.0.0.1:1/hook/s3cret", keys=(key,), allow=("127.0.0.1",)
    )
    edges = RunSettings(
        triggers=TriggerSettings(hooks=(Hook(name="deploy", keys=(key,)), Hook(name="lacking"))),
        reporting=ReportingSettings(webhooks=(receiver,), first_pause_s=3_600.0),
    )
    async with running(orchestration=Settings(runs=edges)) as server:
        client, runner = server.client(), Runner(server.client())
        plan = {"jobs": [{"name": "lint", "task": "a.lint"}]}
        run = (await client.post("/api/runs", json={"workflow": "ci", "plan": plan})).json()

        async def told() -> dict[str, Any]:
            answer = await client.get("/api/server/webhooks")
            assert answer.status_code == 200, answer.text
            assert "s3cret" not in answer.text
            found: dict[str, Any] = answer.json()
            return found

        shown = await told()
        assert [(each["name"], each["keys"]) for each in shown["incoming"]] == [("deploy", 1), ("lacking", 0)]
        (team,) = shown["receivers"]
        assert (team["name"], team["to"], team["able"]) == ("team", "127.0.0.1", True)
        assert shown["failing"] == []

        async def granted() -> bool:
            grants = await runner.grants()
            for grant in grants:
                await runner.say("complete", grant["token"], **done())
            return bool(grants)

        await until(granted, "the job of the run is given out")

        async def fails() -> bool:
            return bool((await told())["failing"])

        await until(fails, "the receiver cannot be told")
        (failing,) = (await told())["failing"]
        assert (failing["run_id"], failing["reporter"], failing["state"]) == (run["id"], "team", "waiting")
        assert failing["last_error"]


async def test_an_admin_lists_browser_sessions_and_revokes_one() -> None:
    async with running(settings=any_port(tokens_required=True)) as server:
        admin = await signed_in(server, Role.ADMIN, "ann")
        other = await signed_in(server, Role.VIEWER, "bob")
        shown = (await admin.client.get("/api/server/sessions")).json()
        by_name = {each["name"]: each for each in shown["sessions"]}
        assert set(by_name) == {"ann", "bob"}
        assert shown["own"] == by_name["ann"]["id"]
        assert other.secret not in str(shown)
        path = f"/api/server/sessions/{by_name['bob']['id']}/revoke"
        assert (await other.post(path, {})).status_code == 403
        ended = await admin.post(path, {"reason": "the laptop was lost"})
        assert (ended.status_code, ended.json()["state"]) == (200, "ended")
        assert (await other.client.get("/api/session")).status_code == 401
        refused = await admin.post(path, {})
        assert (refused.status_code, refused.json()["code"]) == (404, "unknown_session")
        listed = (await admin.client.get("/api/server/sessions")).json()["sessions"]
        assert [each["name"] for each in listed] == ["ann"]


async def test_only_admins_of_all_queues_see_the_server() -> None:
    async with running(settings=any_port(tokens_required=True)) as server:
        operator = server.client(await server.token(Role.OPERATOR))
        confined = server.client(await server.token(Role.ADMIN, "mailer", queues=("mail",)))
        for path in ("", "/store", "/webhooks", "/sessions"):
            for client in (operator, confined):
                assert (await client.get(f"/api/server{path}")).status_code == 403, path
