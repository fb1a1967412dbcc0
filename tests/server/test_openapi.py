"""The OpenAPI document is made from the declarations, and says what is true."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import jsonschema_rs
import pytest
from tests.server.loads import finished, started
from tests.server.runners import done
from tests.server.running import Running, any_port, path_of, running

from interlock.server.app import every_route
from interlock.server.openapi import document_of
from interlock.systems.fleet.spec import TASK
from interlock.wire.access import Role
from interlock.wire.artifacts import LEASE, RUNNER
from interlock.wire.batches import BatchSpec
from interlock.wire.jobs import JobSpec
from interlock.wire.limits import LimitSpec
from interlock.wire.runner import Complete, Failed
from interlock.wire.runs import Plan, PlannedJob, RunSpec
from interlock.wire.schedules import ScheduleSpec
from interlock.wire.simulations import SimulationSpec
from interlock.wire.waits import ApprovalQuestion, WaitRequest
from interlock.wire.workers import WorkerSpec
from interlock.wire.workloads import Happened, WorkloadFact

ROUTES = every_route()
DOCUMENT: dict[str, Any] = json.loads(json.dumps(document_of(ROUTES)))


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, one) for path, by in DOCUMENT["paths"].items() for method, one in by.items()]


def check(instance: object, schema: dict[str, Any]) -> None:
    """Raise unless the instance is as the schema says."""
    whole = {**schema, "components": DOCUMENT["components"]}
    jsonschema_rs.Draft202012Validator(whole).validate(instance)


def test_every_route_is_in_the_document_with_its_role_and_the_other_way_round() -> None:
    documented = {(path, method.upper(), one.get("x-role")) for path, method, one in operations()}
    assert documented == {(r.path, r.method, None if r.role is None else str(r.role)) for r in ROUTES}


def test_a_token_and_the_cookie_of_a_session_are_described_as_ways_to_be_let_in() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert {name: scheme["type"] for name, scheme in schemes.items()} == {
        "token": "http",
        "session": "apiKey",
    }
    assert (schemes["session"]["in"], schemes["session"]["name"]) == ("cookie", "interlock_session")
    assert DOCUMENT["security"] == [{"token": []}, {"session": []}]
    assert document_of(ROUTES, tokens_required=False)["security"][-1] == {}


def test_names_are_used_once_and_links_lead_somewhere() -> None:
    names = [one["operationId"] for _, _, one in operations()]
    assert len(set(names)) == len(names)
    parameters = {
        one["operationId"]: {parameter["name"] for parameter in one["parameters"]}
        for _, _, one in operations()
    }
    links = [
        link
        for _, _, one in operations()
        for response in one["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert len(links) >= 8
    for link in links:
        assert set(link["parameters"]) <= parameters[link["operationId"]]


def test_every_reference_leads_somewhere() -> None:
    for name in re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(DOCUMENT)):
        assert name in DOCUMENT["components"]["schemas"]


def test_every_part_of_a_path_is_described() -> None:
    for path, _, one in operations():
        described = {p["name"] for p in one["parameters"] if p["in"] == "path" and p["description"]}
        assert described == set(re.findall(r"{(\w+)}", path)), path


def takes_json(operation: dict[str, Any]) -> bool:
    return "application/json" in operation.get("requestBody", {}).get("content", {})


@pytest.mark.parametrize("operation", [o for o in operations() if takes_json(o[2])], ids=lambda o: o[0])
def test_every_example_of_a_body_fits_its_schema(operation: tuple[str, str, dict[str, Any]]) -> None:
    content = operation[2]["requestBody"]["content"]["application/json"]
    check(content["example"], content["schema"])


async def test_answers_fit_their_schemas() -> None:
    async with running(settings=any_port(tokens_required=False)) as server:
        await check_answers(server, server.client())


async def failed_job(server: Running) -> str:
    """A job that has no try left."""
    job_id = await server.submit("shop.letter", queue="letters")
    grant = await server.hold(job_id, "letters")
    outcome = Failed(error="no", failure_class="permanent")
    completion = Complete(token=grant.token, runner_id="r", sequence=1, outcome=outcome)
    await server.parts.runtime.orchestrator.report([completion])
    return job_id


async def waiting_approval(server: Running, text: str = "Deploy?", **terms: Any) -> str:
    """An approval that a job waits for."""
    job_id = await server.submit("shop.deploy", queue="deploys")
    grant = await server.hold(job_id, "deploys")
    wait = WaitRequest(token=grant.token, runner_id="r", question=ApprovalQuestion(text=text, **terms))
    return (await server.parts.runtime.waits.wait(wait)).id


async def check_answers(server: Running, client: httpx2.AsyncClient) -> None:
    assert (await client.get("/openapi.json")).json()["paths"].keys() == DOCUMENT["paths"].keys()
    job_id = await server.submit()
    await server.work(job_id, result=b"[1]")
    worker = await server.parts.runtime.workers.register(WorkerSpec(name="a"))
    plan = Plan(jobs=(PlannedJob(name="a", task="a.b"),))
    run = await server.parts.runtime.runs.submit(RunSpec(plan=plan))
    over = await server.parts.runtime.runs.submit(RunSpec(plan=plan))
    await server.parts.runtime.runs.cancel(over.id)
    await server.parts.runtime.simulations.create_run(SimulationSpec(task="a.b", run_id=run.id))
    load = WorkloadFact(workload_id="load_1", job_id=await server.submit(task=TASK), happened=Happened.READY)
    await server.parts.runtime.workloads.apply([load])
    drives, runner, lease = await started(client)
    assert (await runner.say("complete", lease, 2, **done(finished()))).status_code == 200
    held = await server.hold(await server.submit("shop.parent", queue="parents"), "parents")
    issued = await server.parts.tokens.create("ci", Role.VIEWER)
    every_hour = ScheduleSpec(job=JobSpec(task="a.b"), every="1h")
    await server.parts.runtime.schedules.create("nightly", every_hour)
    await server.parts.runtime.schedules.run("nightly")
    await server.parts.runtime.limits.set("vendor-x", LimitSpec(max=1))
    batch = await server.parts.runtime.batches.create(BatchSpec(), [JobSpec(task="a.b")])
    limit = {"limit": "vendor-x"}
    params = {"listAttempts": {"job": job_id}, "getLimit": limit, "listLimitKeys": limit}
    for route in ROUTES:
        if route.method != "GET" or route.output is None or not route.bounded:
            continue
        names = {"job_id": job_id, "attempt_id": f"{job_id}.1.1", "name": "lease", "worker_id": worker.id}
        names |= {"schedule": "nightly", "token_name": issued.view.id, "kind": "job", "record_id": job_id}
        names["batch_id"] = batch.batch_id
        if route.name == "getApproval":
            names["approval_id"] = await waiting_approval(server)
        if route.name == "getDeadLetter":
            names["job_id"] = await failed_job(server)
        if route.path.startswith("/api/workload-jobs/"):
            names["job_id"] = drives
        run_id = over.id if route.name == "previewRerun" else run.id
        path = path_of(route, run_id=run_id, workload_id=load.workload_id, **names)
        headers = {LEASE: held.token, RUNNER: "r"} if route.headers else {}
        answer = await client.get(path, params=params.get(route.name), headers=headers)
        assert answer.status_code == 200, answer.text
        content = DOCUMENT["paths"][route.path]["get"]["responses"]["200"]["content"]["application/json"]
        check(answer.json(), content["schema"])


async def test_problems_fit_their_schema(client: httpx2.AsyncClient) -> None:
    schema = {"$ref": "#/components/schemas/Problem"}
    for answer in (
        await client.get("/nowhere"),
        await client.get("/api/jobs/x"),
        await client.post("/api/jobs", json={"task": 1}),
        await client.put("/api/jobs"),
    ):
        check(answer.json(), schema)


async def test_the_page_for_people_names_every_route_and_needs_nothing_from_elsewhere(
    client: httpx2.AsyncClient,
) -> None:
    page = await client.get("/docs")
    for route in ROUTES:
        assert f"{route.method} {route.path}" in page.text
    assert "<script" not in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
