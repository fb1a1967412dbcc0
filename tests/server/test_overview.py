"""What is wrong now is said in a sentence with its remedy, and is gone when it is mended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.clocks import AskingClock
from tests.server.running import FOR_EVER_S, Running, any_port, running
from tests.waiting import PATIENCE_S, until

from interlock.errors import StoreUnavailable
from interlock.lifecycles.durations import Durations
from interlock.remote.services import RemoteOrchestrator
from interlock.store.records import Page, Query
from interlock.systems import overview
from interlock.systems.figures import figures
from interlock.systems.overview import LEAST_FAILURES, LEAST_GROWTH
from interlock.systems.quarantine import LostWork, QuarantineSettings
from interlock.systems.settings import Settings
from interlock.wire.access import Role
from interlock.wire.jobs import RetryRule
from interlock.wire.runner import ClaimRequest, Complete, Failed, Heartbeat, Succeeded
from interlock.wire.workers import WorkerBeat, WorkerSpec

SELDOM = Settings(durations=Durations(sweep_every_s=FOR_EVER_S), quarantine=QuarantineSettings(occasions=1))
"""Nobody sweeps but the test."""


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count and look whenever a test asks."""
    monkeypatch.setattr(figures, "EVERY_S", FOR_EVER_S)
    monkeypatch.setattr(figures, "SPACING_S", -PATIENCE_S)
    monkeypatch.setattr(overview, "FRESH_S", 0.0)


@pytest.fixture
async def server() -> AsyncIterator[Running]:
    async with running(orchestration=SELDOM) as one:
        one.parts.runtime.figures._spacing = timedelta(seconds=-FOR_EVER_S)
        runtime = one.parts.runtime
        runtime.engine.clock = AskingClock(one.parts.store)
        await runtime.figures.round()
        yield one


async def found(server: Running, client: httpx2.AsyncClient | None = None) -> dict[str, dict[str, Any]]:
    """Return what is wrong, by code, once everything is counted."""
    await server.parts.runtime.figures.round()
    answer = await (client or server.client()).get("/api/overview")
    assert answer.status_code == 200, answer.text
    return {each["code"]: each for each in answer.json()["findings"]}


async def worker(server: Running, **spec: Any) -> str:
    given = {"name": "anna", "incarnation": "1", "capacity": 4, **spec}
    return (await server.parts.runtime.workers.register(WorkerSpec(**given))).id


async def finish(server: Running, number: int, *, fails: bool, queue: str = "default") -> None:
    """Claim so many jobs, and end each of them."""
    orchestrator = server.parts.runtime.orchestrator
    grants = await orchestrator.claim(ClaimRequest(runner_id="r", limit=number, queues=(queue,)))
    assert len(grants) == number
    outcome = Failed(failure_class="user", error="It broke.") if fails else Succeeded()
    await orchestrator.report(
        [Complete(token=each.token, runner_id="r", sequence=1, outcome=outcome) for each in grants]
    )


async def test_nothing_is_wrong_with_a_server_that_has_nothing_to_do(server: Running) -> None:
    await worker(server)
    answer = (await server.client().get("/api/overview")).json()
    assert answer["findings"] == []
    assert answer["numbers"] == {
        "pending": 0,
        "running": 0,
        "capped": False,
        "workers": 1,
        "slots": 4,
        "busy": 0,
    }


async def test_the_overview_reports_a_queue_without_a_worker_until_a_worker_registers_for_it(
    server: Running,
) -> None:
    await worker(server)
    await server.submit(queue="mail")
    finding = (await found(server))["no_worker"]
    sentence = "Jobs wait in the queue mail. No live worker takes the queue mail."
    assert finding["sentence"] == f"{sentence} Those that are alive take: default."
    assert (finding["level"], finding["kind"], finding["id"]) == ("error", "queue", "mail")
    assert finding["since"]
    assert finding["remedy"] == {
        "verb": "start",
        "kind": "worker",
        "command": "interlock worker start MODULE --queue mail",
    }
    await worker(server, name="bert", queues=("mail",))
    assert await found(server) == {}


async def test_a_task_that_no_worker_has_and_a_paused_worker_are_found(server: Running) -> None:
    anna = await worker(server, tasks=("shop.send",))
    await server.submit("shop.sent")
    assert (
        "No live worker has the task shop.sent. Did you mean"
        in (await found(server))["no_worker"]["sentence"]
    )
    await server.submit("shop.send", queue="mail")
    bert = await worker(server, name="bert", queues=("mail", "default"))
    assert await found(server) == {}
    client = server.client()
    for each in (anna, bert):
        await client.post(f"/api/workers/{each}/start")
        held = await client.post(f"/api/supervisor/workers/{each}/pause", json={"reason": "deploy"})
        assert held.status_code == 200, held.text
    await server.parts.runtime.figures.round()
    reported = (await client.get("/api/overview")).json()["findings"]
    remedies = {each["queue"]: each["remedy"] for each in reported}
    assert remedies["mail"] == {
        "verb": "resume",
        "kind": "worker",
        "id": bert,
        "role": "operator",
        "command": f"interlock worker resume {bert}",
    }
    await client.post(f"/api/supervisor/workers/{bert}/resume")
    assert await found(server) == {}


async def test_a_worker_that_went_silent_is_found_before_it_is_written_off(server: Running) -> None:
    anna = await worker(server)
    server.jump(31)
    finding = (await found(server))["worker_silent"]
    assert finding["sentence"].startswith("The last heartbeat of the worker anna was 3")
    assert "It counts as dead at" in finding["sentence"]
    assert (finding["id"], finding["remedy"]["verb"]) == (anna, "terminate")
    await server.parts.runtime.workers.beat(anna, WorkerBeat(active=2))
    assert await found(server) == {}
    numbers = (await server.client().get("/api/overview")).json()["numbers"]
    assert (numbers["workers"], numbers["slots"], numbers["busy"]) == (1, 4, 2)


async def test_a_quarantined_runner_is_found_until_it_is_lifted(server: Running) -> None:
    await server.parts.runtime.quarantine.count([LostWork(runner="runner-7", job_id="j_1", attempt="1.1")])
    finding = (await found(server))["runner_quarantined"]
    assert finding["sentence"].startswith("runner-7 is quarantined until ")
    assert finding["remedy"] == {
        "verb": "lift",
        "kind": "runner",
        "id": "runner-7",
        "role": "operator",
        "command": "interlock worker lift runner-7",
    }
    await server.client().post("/api/quarantine/lift", json={"runner": finding["remedy"]["id"]})
    assert await found(server) == {}


async def test_an_overdue_deadline_is_found_until_a_sweep(server: Running) -> None:
    job_id = await server.submit()
    await server.hold(job_id, "default")
    server.jump(SELDOM.durations.lease_ttl_s + 31)
    finding = (await found(server))["deadline_missed"]
    assert finding["sentence"].startswith(f"The deadline of job {job_id} passed 3")
    assert (finding["level"], finding["queue"]) == ("error", "default")
    assert finding["remedy"]["command"] == f"interlock job show {job_id}"
    await server.parts.runtime.sweep()
    assert "deadline_missed" not in await found(server)


async def test_a_missed_deadline_is_found_however_many_older_jobs_run(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "JOBS", 1)
    older, late = await server.submit(queue="older"), await server.submit(queue="late")
    grant = await server.hold(older, "older")
    await server.hold(late, "late")
    server.jump(SELDOM.durations.lease_ttl_s - 1)
    await server.parts.runtime.orchestrator.report([Heartbeat(token=grant.token, runner_id="r", sequence=1)])
    server.jump(32)
    assert (await found(server))["deadline_missed"]["id"] == late


async def test_a_loop_of_the_server_that_fails_is_found_until_it_works_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(settings=any_port(deliver_every_s=0.01)) as server:
        runtime = server.parts.runtime
        deliver = runtime.deliver

        async def away() -> int:
            raise StoreUnavailable("The database does not answer.")

        monkeypatch.setattr(runtime, "deliver", away)

        async def is_found() -> bool:
            return "loop_fails" in await found(server)

        async def is_gone() -> bool:
            return "loop_fails" not in await found(server)

        await until(is_found, "the loop is found")
        finding = (await found(server))["loop_fails"]
        assert finding["id"] == "messages"
        assert "The database does not answer." in finding["sentence"]
        monkeypatch.setattr(runtime, "deliver", deliver)
        await until(is_gone, "the loop works again")


async def test_a_backlog_that_grows_is_found_until_it_is_worked_off(server: Running) -> None:
    await worker(server)
    for _ in range(LEAST_GROWTH):
        await server.submit()
    finding = (await found(server))["backlog_grows"]
    flow = f"in 10 minutes {LEAST_GROWTH} jobs were submitted and 0 ended"
    assert finding["sentence"] == f"The backlog of the queue default grows: {flow}."
    assert (finding["level"], finding["id"]) == ("warning", "default")
    await finish(server, LEAST_GROWTH, fails=False)
    assert await found(server) == {}


async def test_failures_that_jumped_are_found_until_they_are_over(server: Running) -> None:
    await worker(server)
    for _ in range(20):
        await server.submit()
    await finish(server, 20, fails=False)
    await server.parts.runtime.figures.round()
    server.jump(600)
    for _ in range(LEAST_FAILURES):
        await server.submit()
    await finish(server, LEAST_FAILURES, fails=True)
    finding = (await found(server))["failures_jumped"]
    assert finding["sentence"] == (
        f"{LEAST_FAILURES} of {LEAST_FAILURES} jobs with the task shop.send in the queue default failed "
        "in the last 5 minutes (100%); in the hour before 0%."
    )
    assert finding["remedy"] == {
        "verb": "open",
        "kind": "jobs",
        "id": "state:failed queue:default task:shop.send since:1h",
        "command": "interlock job list state:failed queue:default task:shop.send since:1h",
    }
    listed = (await server.client().get("/api/jobs", params={"q": finding["remedy"]["id"]})).json()
    assert len(listed["jobs"]) == LEAST_FAILURES
    server.jump(301)
    assert "failures_jumped" not in await found(server)


@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
async def test_a_queue_without_a_worker_is_found_on_every_store(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/interlock.db"
    if store != "sqlite":
        database = request.getfixturevalue(store)
        url = database.new_database() if store == "postgres" else database.url
    async with running(url, orchestration=SELDOM) as server:
        server.parts.runtime.figures._spacing = timedelta(seconds=-FOR_EVER_S)
        await server.submit(queue="mail")

        async def is_found() -> bool:
            return (await found(server)).get("no_worker", {}).get("queue") == "mail"

        await until(is_found, "the queue is found")
        await worker(server, queues=("mail",))
        assert await found(server) == {}
    if store == "redis":
        database.run("FLUSHALL")


async def test_a_small_queue_behind_many_jobs_of_another_one_is_found_too(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "JOBS", 2)
    await worker(server)
    for queue in ("default", "default", "mail", "default", "default"):
        await server.submit(queue=queue)
    finding = (await found(server))["no_worker"]
    assert finding["queue"] == "mail"
    assert finding["remedy"]["command"] == "interlock worker start MODULE --queue mail"
    await worker(server, name="bert", queues=("mail",))
    assert await found(server) == {}


async def test_a_job_that_is_not_ready_needs_no_worker_yet(server: Running) -> None:
    parent = await server.submit()
    await worker(server)
    await server.hold(parent, "default")
    rule = RetryRule(retries=1, first_pause_s=3_000.0, jitter=0.0)
    job_id = await server.submit(queue="mail", retry={"flaky": rule})
    grant = await server.hold(job_id, "mail")
    outcome = Failed(failure_class="flaky", error="It broke.")
    await server.parts.runtime.orchestrator.report(
        [Complete(token=grant.token, runner_id="r", sequence=1, outcome=outcome)]
    )
    assert await found(server) == {}


async def test_the_overview_reads_only_a_few_jobs_with_large_inputs(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = msgspec.Raw(b'"' + b"x" * 50_000 + b'"')
    for _ in range(20):
        await server.submit(input=large)
    loaded: list[int] = []
    find = server.parts.store.find

    async def noted(query: Query) -> Page:
        page = await find(query)
        loaded.extend(len(record.body) for record in page.records if record.kind == "job")
        return page

    monkeypatch.setattr(server.parts.store, "find", noted)
    assert "no_worker" in await found(server)
    assert sum(loaded) <= 2 * overview.FIRST * 51_000


async def test_a_server_whose_figures_fail_stays_ready_and_reports_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(figures, "EVERY_S", 0.01)

    async def away(_: object) -> int:
        raise StoreUnavailable("The figures cannot be read.")

    monkeypatch.setattr(figures.Figures, "round", away)
    async with running() as server:
        client = server.client()

        async def is_found() -> bool:
            reported = (await client.get("/api/overview")).json()["findings"]
            return [each["id"] for each in reported] == ["figures"]

        await until(is_found, "the loop is found")
        assert (await client.get("/readyz")).status_code == 200


async def test_findings_beyond_the_limit_are_counted(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "FINDINGS", 2)
    for number in range(5):
        await server.submit(queue=f"q{number}")
    await server.parts.runtime.figures.round()
    answer = (await server.client().get("/api/overview")).json()
    assert (len(answer["findings"]), answer["more"]) == (2, 3)


async def test_requests_for_the_overview_share_one_cached_response(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "FRESH_S", FOR_EVER_S)
    first = await server.client().get("/api/overview")
    await server.submit()
    assert (await server.client().get("/api/overview")).json() == first.json()


async def test_the_overview_shows_a_confined_token_only_findings_and_figures_of_its_own_queues() -> None:
    async with running(settings=any_port(tokens_required=True), orchestration=SELDOM) as server:
        runtime = server.parts.runtime
        runtime.engine.clock = AskingClock(server.parts.store)
        runtime.figures._spacing = timedelta(seconds=-FOR_EVER_S)
        await runtime.figures.round()
        await worker(server, name="zebra", queues=("theirs",))
        for queue in ("mine", "theirs", "zebra"):
            for _ in range(3):
                await server.submit(queue=queue)
        await runtime.quarantine.count([LostWork(runner="zebra", job_id="j_1", attempt="1.1")])
        server.jump(60)
        mine = server.client(await server.token(Role.VIEWER, "mine", queues=("mine",)))
        findings = await found(server, mine)
        assert list(findings) == ["no_worker"]
        answer = await mine.get("/api/overview")
        assert "zebra" not in answer.text
        assert "theirs" not in answer.text
        assert answer.json()["numbers"] == {
            "pending": 3,
            "running": 0,
            "capped": False,
            "workers": None,
            "slots": None,
            "busy": None,
        }
        shown = await mine.get("/api/figures")
        assert shown.json()["totals"]["submitted"] == 3
        assert {point["pending"] for point in shown.json()["points"]} <= {None, 0, 3}
        assert "zebra" not in shown.text
        refused = await mine.get("/api/figures", params={"queue": "zebra"})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
        everything = server.client(await server.token(Role.VIEWER, "all"))
        assert (await everything.get("/api/figures")).json()["totals"]["submitted"] == 9


async def test_figures_are_counted_by_the_server_itself_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "EVERY_S", 0.01)
    async with running() as server:
        client = server.client()
        server.parts.runtime.figures._spacing = timedelta(seconds=-FOR_EVER_S)

        async def has_begun() -> bool:
            return (await client.get("/api/figures")).json()["counted_until"] is not None

        await until(has_begun, "counting has begun")
        await server.work(await server.submit(queue="mail"))

        async def is_shown() -> bool:
            shown = await client.get("/api/figures", params={"minutes": 15, "queue": "mail"})
            return bool(shown.json()["totals"]["completed"] == 1)

        await until(is_shown, "the job is counted")


@pytest.mark.parametrize("query", [{"minutes": "0"}, {"minutes": "10081"}, {"minutes": "x"}, {"hours": "1"}])
async def test_a_question_that_makes_no_sense_is_refused(server: Running, query: dict[str, str]) -> None:
    answer = await server.client().get("/api/figures", params=query)
    assert answer.status_code in (400, 422)
    assert answer.json()["code"]


async def test_the_time_of_a_server_that_answered_late_is_not_behind(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that was just submitted would be one of the future, and no worker would be started for it."""
    passed_s = 0.0
    port = RemoteOrchestrator(server.url, monotonic=lambda: passed_s)
    call = port._client.call

    async def call_slowly(*given: Any) -> Any:
        nonlocal passed_s
        answer = await call(*given)
        passed_s += 600.0
        return answer

    monkeypatch.setattr(port._client, "call", call_slowly)
    await port.connect()
    assert await port.now() > await server.parts.runtime.engine.clock.now() + timedelta(seconds=300)
    await port.disconnect()
