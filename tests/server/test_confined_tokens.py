"""What a token that is confined to a queue learns about the others: nothing, whichever route it asks."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise, product
from typing import Any

import httpx2
import pytest
from tests.effort import pick
from tests.server.running import Running, any_port, path_of, running
from tests.server.test_trees import parent_of

from interlock.server.app import every_route
from interlock.server.routes import Route
from interlock.systems.orchestrator import views
from interlock.wire.access import Role
from interlock.wire.artifacts import LEASE, RUNNER
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import Complete, Heartbeat, LogLine, Succeeded
from interlock.wire.schedules import ScheduleSpec
from interlock.wire.simulations import SimulationSpec

MINE, THEIRS = "mine", "theirs"
SECRET = "zebra"
"""Is in everything of the other queue that has a name, and nowhere else."""
MANY = 37
"""How many jobs wait in the other queue: no answer may have this number, or one near it."""

SEALED = 100
"""Sealed cursors are longer than this, those of stores are shorter."""

GETS = [route for route in every_route() if route.method == "GET"]
PARAMETERS = re.compile(r"{(\w+)}")


@pytest.fixture
async def guarded() -> AsyncIterator[Running]:
    async with running(settings=any_port(tokens_required=True)) as one:
        yield one


class Town:
    """Two queues that know nothing of each other, but for a tree that spans both."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.mine: list[str] = []
        self.theirs: list[str] = []
        self.workers: list[str] = []
        self.others: list[str] = []
        self.headers: dict[str, str] = {}
        """Of a lease that the confined runner holds, on a job that has children in both queues."""

    async def build(self) -> Town:
        """Put one of everything into each queue, and many jobs into the other one."""
        server, jobs = self.server, self.server.parts.runtime.jobs
        await self._work()
        admin = server.client(await server.token(Role.ADMIN, f"{SECRET}-admin"))
        await server.token(Role.RUNNER, f"{SECRET}-runner")
        named: dict[str, Any] = {
            "task": f"{SECRET}.task",
            "queue": THEIRS,
            "labels": (f"{SECRET}-label",),
            "description": f"{SECRET} description",
        }
        for _ in range(MANY):
            self.theirs.append(await jobs.submit(JobSpec(**named), actor=f"{SECRET}-admin"))
        for _ in range(5):
            self.mine.append(await server.submit("shop.send", queue=MINE))
        # A child in the other queue, whose failure is passed on to its parent, and a child from there.
        _, family, parent = self.mine[:3]
        child = await jobs.submit(
            JobSpec(**{**named, "parent_job_id": parent, "if_fails": "fail_parent"}), actor="test"
        )
        foreign = await jobs.submit(JobSpec(**named), actor="test")
        guest = await server.submit("shop.guest", queue=MINE, parent_job_id=foreign)
        waits = await server.submit("shop.waits", queue=MINE, parent_job_id=foreign)
        await jobs.cancel(guest, reason=f"enough of {foreign}", actor="ann")
        await jobs.cancel(foreign, reason=f"{SECRET} reason", actor=f"{SECRET}-admin")
        await jobs.cancel(child, reason=f"{SECRET} reason", actor=f"{SECRET}-admin")
        for _ in range(4):
            await server.parts.runtime.deliver()
            await server.parts.runtime.trees.keep()
        own = await server.submit("shop.child", queue=MINE, parent_job_id=family)
        other = await jobs.submit(JobSpec(**{**named, "parent_job_id": family}), actor="test")
        self.mine += [guest, waits, own]
        self.theirs += [other, child, foreign]
        await self._others(admin)
        return self

    async def _work(self) -> None:
        """An attempt of the own queue that has ended, with a log of several pieces."""
        server, orchestrator = self.server, self.server.parts.runtime.orchestrator
        done = await server.submit("shop.done", queue=MINE)
        grant = await server.hold(done, MINE)
        now = await server.parts.runtime.engine.clock.now()
        for number in (1, 2, 3):
            line = LogLine(now, "info", f"line {number}")
            beat = Heartbeat(token=grant.token, runner_id="r", sequence=number, log=(line,))
            await orchestrator.report([beat])
        await orchestrator.report([Complete(token=grant.token, runner_id="r", outcome=Succeeded())])
        family = await server.submit("shop.family", queue=MINE)
        grant = await server.hold(family, MINE, "confined/r")
        self.headers = {LEASE: grant.token, RUNNER: "r"}
        parent = await server.submit("shop.parent", queue=MINE)
        await server.hold(parent, MINE)
        self.mine += [done, family, parent]

    async def _others(self, admin: httpx2.AsyncClient) -> None:
        runtime = self.server.parts.runtime
        made = await admin.post("/api/workers", json={"workspace_id": SECRET})
        assert made.status_code == 403  # an admin is no runner
        runner = self.server.client(await self.server.token(Role.RUNNER, f"{SECRET}-fleet"))
        spec = {"workspace_id": SECRET, "name": f"{SECRET}-worker", "queues": [THEIRS]}
        made = await runner.post("/api/workers", json=spec)
        assert made.status_code == 201, made.text
        self.workers.append(made.json()["id"])
        simulation = await runtime.simulations.create_run(
            SimulationSpec(task=f"{SECRET}.sim", queue=THEIRS, total_steps=3), actor="test"
        )
        self.others.append(simulation.run_id)
        job = JobSpec(task=f"{SECRET}.task", queue=THEIRS)
        await runtime.schedules.create(f"{SECRET}-nightly", ScheduleSpec(job=job, every="1h"))

    def values(self, name: str) -> list[str]:
        """Return what a parameter of a path may be, of both queues."""
        match name:
            case "job_id":
                return [*self.mine, *self.theirs[-3:]]
            case "attempt_id":
                return [f"{job_id}.1.1" for job_id in (self.mine[0], self.theirs[0], self.theirs[-1])]
            case "worker_id":
                return self.workers
            case "run_id" | "workload_id":
                return [*self.others, "r_000000000000"]
            case "schedule":
                return [f"{SECRET}-nightly", "nightly"]
            case "artifact":
                return ["report.txt"]
            case "name":
                return ["job", "token", f"{SECRET}-admin"]
            case _:
                return [f"{SECRET}-admin", "x_000000000000"]

    def asked(self, route: Route) -> Iterator[tuple[str, dict[str, str]]]:
        """Every way in which a route is asked here: its path, and its parameters."""
        names = PARAMETERS.findall(route.path)
        queries = [{}] if route.name != "listAttempts" else [{"job": job} for job in self.values("job_id")]
        if route.name in ("listJobs", "getJobLogs", "listWorkers", "listTokens"):
            queries = [{}, {"limit": "1"}, {"limit": "2"}]
        if route.name == "listJobs":
            queries += [{"q": f"id:{self.theirs[0]}"}, {"q": f"parent:{self.theirs[-1]}"}]
        for values, query in product(product(*map(self.values, names)), queries):
            path = path_of(route, **dict(zip(names, values, strict=True)))
            yield path, query


@pytest.mark.parametrize("role", pick((Role.ADMIN, Role.RUNNER), tuple(Role)))
async def test_no_route_shows_a_confined_token_anything_of_another_queue(
    guarded: Running, role: Role
) -> None:
    town = await Town(guarded).build()
    client = guarded.client(await guarded.token(role, "confined", queues=(MINE,)))
    leaks: list[str] = []
    seen = 0
    for route in GETS:
        for path, query in town.asked(route):
            answer = await client.get(path, params=query, headers=town.headers)
            seen += answer.status_code == 200
            requested = {*path.split("/"), *query.values(), *(part.split(".")[0] for part in path.split("/"))}
            leaks += [f"{route.method} {path} {query}: {what}" for what in learnt(answer, town, requested)]
    assert leaks == []
    assert seen >= (4 if role is Role.RUNNER else 40), "most of what was asked for was answered"


def learnt(answer: httpx2.Response, town: Town, requested: set[str]) -> Iterator[str]:
    """Whatever an answer says of the other queue, but for what was in the question itself."""
    text = answer.text + " ".join(f"{value}" for name, value in answer.headers.items() if name != "date")
    for known in [*town.theirs, *town.workers, *town.others]:
        if known in text and not any(known in part for part in requested):
            yield f"the id {known}"
    if SECRET in text and not any(SECRET in part for part in requested):
        yield f"a name: {text[max(0, text.index(SECRET) - 60) :][:120]}"
    if answer.headers.get("content-type", "") == "application/json" and "openapi" not in answer.text[:20]:
        yield from _numbers(answer.json(), len(town.theirs) + len(town.mine))


def _numbers(value: Any, total: int, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _numbers(each, total, key)
    elif isinstance(value, list):
        for each in value:
            yield from _numbers(each, total, name)
    elif name == "rounds":
        return  # of the server's own loops; with time it is any number
    elif isinstance(value, int) and not isinstance(value, bool) and MANY - 2 <= value <= total + 5:
        yield f"the number {value} ({name})"
    elif isinstance(value, str) and name == "cursor" and 0 < len(value) < SEALED:
        yield f"the place {value}"


async def test_a_job_of_another_queue_returns_the_same_404_to_a_confined_token_as_a_missing_job(
    guarded: Running,
) -> None:
    theirs = await guarded.submit(queue=THEIRS)
    missing = "j_000000000000"
    client = guarded.client(await guarded.token(Role.ADMIN, "confined", queues=(MINE,)))
    for method, path in (
        ("GET", "/api/jobs/{}"),
        ("GET", "/api/jobs/{}/history"),
        ("GET", "/api/jobs/{}/tree"),
        ("GET", "/api/jobs/{}/artifacts"),
        ("GET", "/api/attempts?job={}"),
        ("GET", "/api/attempts/{}.1.1"),
        ("POST", "/api/jobs/{}/cancel"),
        ("POST", "/api/jobs/{}/retry"),
    ):
        there, not_there = [await client.request(method, path.format(job)) for job in (theirs, missing)]
        assert there.status_code == not_there.status_code == 404, path
        bodies = [answer.json() | {"request": ""} for answer in (there, not_there)]
        assert json.dumps(bodies[0]).replace(theirs, missing) == json.dumps(bodies[1]), path


async def test_request_ids_do_not_reveal_the_number_of_requests(guarded: Running) -> None:
    client = guarded.client()
    names = [(await client.get("/healthz")).headers["x-request-id"] for _ in range(20)]
    steps = {abs(int(after, 16) - int(before, 16)) for before, after in pairwise(names)}
    assert len(set(names)) == len(names)
    assert min(steps) > 1_000


async def test_a_response_to_a_confined_token_omits_ids_of_children_and_parents_in_other_queues(
    guarded: Running,
) -> None:
    town = await Town(guarded).build()
    client = guarded.client(await guarded.token(Role.VIEWER, "confined", queues=(MINE,)))
    parent, guest = town.mine[2], town.mine[-3]
    failure = (await client.get(f"/api/jobs/{parent}")).json()["failure"]
    assert failure["error"] == "Its child (another queue) was stopped (cancel)."
    assert "parent_job_id" not in (await client.get(f"/api/jobs/{guest}")).json()
    everything = guarded.client(await guarded.token(Role.VIEWER, "everything"))
    assert town.theirs[-2] in (await everything.get(f"/api/jobs/{parent}")).json()["failure"]["error"]
    assert (await everything.get(f"/api/jobs/{guest}")).json()["parent_job_id"] == town.theirs[-1]


# Cursors


async def paged(
    client: httpx2.AsyncClient, path: str, name: str, **query: str
) -> tuple[list[Any], list[str]]:
    """Return everything of a list, and the cursors in between."""
    found: list[Any] = []
    cursors: list[str] = []
    while True:
        page = await client.get(path, params={**query, **({"cursor": cursors[-1]} if cursors else {})})
        assert page.status_code == 200, page.text
        found += page.json()[name]
        if not page.json().get("cursor"):
            return found, cursors
        cursors.append(page.json()["cursor"])


@pytest.mark.parametrize("queues", [(MINE,), (MINE, "empty")])
async def test_cursors_of_a_confined_token_page_through_the_list_and_reveal_no_ids(
    guarded: Running, queues: tuple[str, ...]
) -> None:
    mine = []
    for _ in range(7):
        mine.append(await guarded.submit(queue=MINE))
        theirs = await guarded.submit(queue=THEIRS)
    client = guarded.client(await guarded.token(Role.VIEWER, "confined", queues=queues))
    found, cursors = await paged(client, "/api/jobs", "jobs", limit="2")
    assert [job["id"] for job in found] == mine[::-1]
    assert cursors
    for cursor in cursors:
        assert theirs not in cursor
        assert not any(job_id in cursor for job_id in mine)
        assert len(cursor) == len(cursors[0]), "not even how large a number is can be seen"


async def test_cursors_are_of_one_token_and_one_list(guarded: Running) -> None:
    job_id = ""
    for _ in range(3):
        job_id = await guarded.submit(queue=MINE)
    one = guarded.client(await guarded.token(Role.VIEWER, "one", queues=(MINE,)))
    other = guarded.client(await guarded.token(Role.VIEWER, "other", queues=(MINE,)))
    wide = guarded.client(await guarded.token(Role.VIEWER, "wide"))
    cursor = (await one.get("/api/jobs", params={"limit": "1"})).json()["cursor"]
    plain = (await wide.get("/api/jobs", params={"limit": "1"})).json()["cursor"]
    assert (await one.get("/api/jobs", params={"limit": "1", "cursor": cursor})).status_code == 200
    for client, path, given in (
        (other, "/api/jobs", cursor),
        (one, f"/api/jobs/{job_id}/logs", cursor),
        (one, "/api/jobs", plain),
        (one, "/api/jobs", cursor[:-2] + ("AA" if cursor[-2:] != "AA" else "BB")),
        (one, "/api/jobs", "x"),
        (wide, "/api/jobs", cursor),
    ):
        refused = await client.get(path, params={"cursor": given})
        assert refused.status_code == 422, refused.text
        assert "Begin again without a cursor" in refused.json()["todo"]


async def test_cursors_of_a_confined_token_are_good_on_every_server(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/interlock.db"
    async with running(url, settings=any_port(tokens_required=True)) as first:
        for _ in range(3):
            await first.submit(queue=MINE)
        token = await first.token(Role.VIEWER, "confined", queues=(MINE,))
        query = {"limit": "1"}
        cursor = (await first.client(token).get("/api/jobs", params=query)).json()["cursor"]
    async with running(url, settings=any_port(tokens_required=True)) as second:
        answer = await second.client(token).get("/api/jobs", params={**query, "cursor": cursor})
        assert len(answer.json()["jobs"]) == 1


# Runners


async def test_a_runner_reads_the_orders_of_its_own_workers_only(guarded: Running) -> None:
    mine, theirs = [guarded.client(await guarded.token(Role.RUNNER, name)) for name in ("mine", "theirs")]
    worker_id = (await theirs.post("/api/workers", json={"workspace_id": "ci"})).json()["id"]
    assert (await theirs.get(f"/api/workers/{worker_id}/orders")).status_code == 200
    refused = await mine.get(f"/api/workers/{worker_id}/orders")
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown_worker")
    unknown = await mine.get("/api/workers/w_000000000000/orders")
    assert refused.text.replace(worker_id, "w_000000000000").partition('"request"')[0] in unknown.text


async def test_a_claim_with_the_worker_id_of_another_token_returns_404(guarded: Running) -> None:
    mine, theirs = [guarded.client(await guarded.token(Role.RUNNER, name)) for name in ("mine", "theirs")]
    worker_id = (await theirs.post("/api/workers", json={"workspace_id": "ci", "name": "w"})).json()["id"]
    await guarded.parts.runtime.workers.start(worker_id)
    await guarded.submit()
    claim = {"runner_id": "w", "queues": ["default"], "worker_id": worker_id}
    refused = await mine.post("/api/runner/lease", json=claim)
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown_worker")
    assert len((await theirs.post("/api/runner/lease", json=claim)).json()["grants"]) == 1


async def test_children_in_other_queues_are_not_listed_to_a_confined_runner(guarded: Running) -> None:
    parent = await parent_of(guarded, "mine/r")
    seen = await guarded.submit("shop.seen", queue="parents", parent_job_id=parent.job_id)
    hidden = await guarded.submit("shop.hidden", queue=THEIRS, parent_job_id=parent.job_id)
    headers = {LEASE: parent.token, RUNNER: "r"}
    confined = guarded.client(await guarded.token(Role.RUNNER, "mine", queues=("parents",)))
    page = await confined.get("/api/runner/children", headers=headers)
    assert [child["id"] for child in page.json()["children"]] == [seen]
    await guarded.parts.tokens.revoke("mine")
    everything = guarded.client(await guarded.token(Role.RUNNER, "mine"))
    page = await everything.get("/api/runner/children", headers=headers)
    assert [child["id"] for child in page.json()["children"]] == [seen, hidden]


@pytest.mark.parametrize("held_by", ["runners", "nobody"])
async def test_a_job_that_shows_its_lease_reads_all_its_children_page_by_page(
    guarded: Running, monkeypatch: pytest.MonkeyPatch, held_by: str
) -> None:
    monkeypatch.setattr(views, "PAGE", 2)
    await guarded.token(Role.RUNNER, "runners")
    parent = await parent_of(guarded, f"{held_by}/r")
    made = [await guarded.submit(queue="parents", parent_job_id=parent.job_id) for _ in range(5)]
    await guarded.submit(queue=THEIRS, parent_job_id=parent.job_id)
    found, cursors = await paged(guarded.client(parent.token), "/api/runner/children", "children")
    assert [child["id"] for child in found] == made
    assert all((len(cursor) > SEALED) is (held_by == "runners") for cursor in cursors)


# The journal of tokens


async def test_only_admins_read_of_tokens_in_the_journal(guarded: Running) -> None:
    await guarded.token(Role.OPERATOR, "somebody-secret")
    await guarded.submit()
    for role in (Role.VIEWER, Role.OPERATOR):
        client = guarded.client(await guarded.token(role, f"reads-as-{role}"))
        page = await client.get("/api/journal")
        assert {entry["kind"] for entry in page.json()["entries"]} == {"job"}
        assert "somebody-secret" not in page.text
        for path in ("/api/journal", "/api/events"):
            refused = await client.get(path, params={"kind": "token"})
            assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed"), path
    admin = guarded.client(await guarded.token(Role.ADMIN, "root"))
    assert "somebody-secret" in (await admin.get("/api/journal", params={"kind": "token"})).text
    assert "somebody-secret" in (await admin.get("/api/journal")).text


@pytest.mark.parametrize(("role", "expected"), [(Role.VIEWER, ["job"]), (Role.ADMIN, ["token", "job"])])
async def test_only_an_admin_receives_token_events_in_the_event_stream(
    guarded: Running, role: Role, expected: list[str]
) -> None:
    client = guarded.client(await guarded.token(role, "follower"))
    async with client.stream("GET", "/api/events") as stream:
        lines = stream.aiter_lines()
        await guarded.token(Role.RUNNER, "new-one")
        await guarded.submit()
        kinds: list[str] = []
        async for line in lines:
            if line.startswith("data:"):
                kinds.append(json.loads(line.removeprefix("data:"))["kind"])
            if kinds and kinds[-1] == "job":
                break
    assert kinds[-len(expected) :] == expected
    assert ("token" in kinds) is (role is Role.ADMIN)
