"""Every route for every principal: what each is answered follows from the declaration of the route.

A route declares who may ask (`role`, `signed`), whether it is about all queues (`everything`), and
otherwise how it keeps to the queues of a confined token (`confined`). Nothing here knows a route by
name but for what its request needs in order to be about something of somebody else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from tests.effort import pick
from tests.server.running import Running, any_port, path_of, running

from interlock.api.operation import QueueConfinement
from interlock.api.server import Alive
from interlock.server.app import every_route
from interlock.server.routes import Call, Route
from interlock.server.settings import Rate
from interlock.wire.access import Role
from interlock.wire.artifacts import LEASE, RUNNER
from interlock.wire.runner import Grant

ROUTES = every_route()
OPEN = {"/healthz", "/readyz"}
SIGNED = {"/api/webhooks/github", "/api/webhooks/generic/{name}"}
"""They need no token, because they are signed; tests/server/test_webhooks.py holds that against them."""
SIGN_IN = {"/api/sessions"}
"""The body has the token there; tests/server/test_sessions.py is about it."""
THEIRS = "theirs"
"""The queue that everything here is in; confined tokens are confined to another one."""
MALFORMED = ("Bearer", "Bearer il_", "Bearer nonsense", "Basic YTpi", "il_0000000000000000_" + "0" * 64)[
    : pick(2, 5)
]


@dataclass(frozen=True)
class Asker:
    """Somebody who asks: with which header, as what role, and confined or not."""

    name: str
    authorization: str | None = None
    role: Role | None = None
    confined: bool = False
    claim: bool = False
    """It shows the lease of an attempt."""
    session: str = ""
    """The secret in the cookie of a browser."""
    page: str = "same-origin"
    """Whose page asks, by the word of the browser; it is sent with a session only."""


@dataclass(frozen=True)
class Verdict:
    """What an answer has to be."""

    statuses: frozenset[int]
    code: str = ""
    silent: bool = False
    """Where it is a success, it says nothing of what is in the other queue."""


LET_IN = frozenset(range(200, 500)) - {401, 403}
"""Past the door; what comes behind it (an id of nothing, a body that does not fit) is another matter."""


def expected(route: Route, asker: Asker) -> Verdict:
    """Return what the declarations say of a route and an asker."""
    if route.signed:
        return Verdict(frozenset({401, 403, 404, 503}), silent=True)
    if route.shows_token:  # and this one is no access token
        return Verdict(frozenset({401}), "not_signed_in")
    if route.role is None:
        return Verdict(frozenset({200}))
    if asker.session and not asker.page and route.method != "GET":
        return Verdict(frozenset({403}), "foreign_origin")
    return _expected_of(asker, route, route.role)


def _expected_of(asker: Asker, route: Route, role: Role) -> Verdict:
    """Return what is said of a route that needs a role."""
    if asker.claim:
        return Verdict(LET_IN | {403}) if route.by_claim else Verdict(frozenset({403}), "not_allowed")
    if asker.role is None:
        return Verdict(frozenset({401}), "not_signed_in")
    if not asker.role.includes(role) or (asker.confined and route.everything):
        return Verdict(frozenset({403}), "not_allowed")
    return _confined(route) if asker.confined else Verdict(LET_IN)


def _confined(route: Route) -> Verdict:
    match route.confined:
        case QueueConfinement.HIDES:
            return Verdict(frozenset({200, 201, 404}), silent=True)
        case QueueConfinement.NAMES:
            return Verdict(frozenset({403}), "not_allowed")
        case QueueConfinement.LEASED:
            return Verdict(frozenset({200, 404, 409, 410}), silent=True)
        case QueueConfinement.OWNS:
            return Verdict(frozenset({404}))
        case QueueConfinement.NOTHING:
            return Verdict(frozenset({route.status}))
        case None:  # `everything`, which is answered above
            raise AssertionError(f"{route.method} {route.path} does not say what a confined token is told")


class Site:
    """A server on which everything is in one queue, and belongs to somebody else than whoever asks."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.client = server.client()
        self.job_id = ""
        self.worker_id = ""
        self.grant: Grant | None = None

    async def build(self) -> Site:
        """Make one of everything that a request can be about."""
        server = self.server
        owner = server.client(await server.token(Role.RUNNER, "owner"))
        worker = await owner.post("/api/workers", json={"name": "w", "queues": [THEIRS]})
        self.worker_id = worker.json()["id"]
        held = await server.submit("shop.held", queue=THEIRS)
        self.grant = await server.hold(held, THEIRS, "owner/r")
        self.job_id = await server.submit("shop.send", queue=THEIRS)
        return self

    async def ask(self, route: Route, asker: Asker) -> httpx2.Response:
        """Send one request that is about what is there, and wait for the answer, or its beginning."""
        assert self.grant is not None
        path = path_of(
            route,
            job_id=self.job_id,
            attempt_id=f"{self.job_id}.1.1",
            worker_id=self.worker_id,
            token_name="owner",
            name="job",
        )
        headers = {"Authorization": asker.authorization} if asker.authorization is not None else {}
        if asker.session:
            headers["Cookie"] = f"interlock_session_{self.server.address[1]}={asker.session}"
            headers |= {"Sec-Fetch-Site": asker.page} if asker.page else {}
        if route.headers:
            headers |= {LEASE: self.grant.token, RUNNER: "r"}
        query = {"job": self.job_id} if route.name == "listAttempts" else {}
        query |= {"key": "pip"} if route.path == "/api/runner/caches" else {}
        call = self.client.stream(route.method, path, json=self._body(route), params=query, headers=headers)
        async with call as answer:
            if route.bounded or answer.is_error:
                await answer.aread()
        return answer

    def _body(self, route: Route) -> Any:
        """Return the example of a route, about the other queue and the lease of somebody else."""
        assert self.grant is not None
        if not isinstance(route.example, dict):
            return route.example
        body = dict(route.example)
        body |= {name: self.grant.token for name in ("token",) if name in body}
        body |= {name: [THEIRS] for name in ("queues",) if name in body}
        body |= {name: THEIRS for name in ("queue",) if name in body}
        body.pop("request_id", None)
        if route.name == "registerWorker":
            body["queues"] = [THEIRS]
        if "wait_s" in body:
            body["wait_s"] = 0
        if "jobs" in body:
            body["jobs"] = [{**job, "queue": THEIRS} for job in body["jobs"]]
        if route.name in ("actOnJobs", "actOnDeadLetters"):
            body |= {"filter": f"id:{self.job_id}", "dry_run": True}
        return body

    def holds(self, asker: Asker, route: Route, answer: httpx2.Response) -> str:
        """Return what is wrong with an answer; nothing when it is as declared."""
        verdict = expected(route, asker)
        where = f"{asker.name}: {route.method} {route.path} is {answer.status_code}"
        if answer.status_code not in verdict.statuses:
            return f"{where}, not {sorted(verdict.statuses)[:8]}"
        if answer.is_error:
            problem = answer.json()
            if verdict.code and problem["code"] != verdict.code:
                return f"{where} {problem['code']}, not {verdict.code}"
            if problem["code"] == "not_allowed" and not (problem["todo"] and problem["facts"]):
                return f"{where}, and does not say why"
            if answer.status_code == 401 and not answer.headers.get("www-authenticate", "Bearer").startswith(
                "Bearer"
            ):
                return f"{where}, and does not say how to sign in"
        elif verdict.silent and route.bounded and self.job_id in answer.text:
            return f"{where}, and tells of {self.job_id}"
        return ""


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    settings = any_port(tokens_required=True, stranger_rate=Rate(1e6, 10**6))
    async with running(settings=settings) as server:
        yield await Site(server).build()


async def faults_of(site: Site, asker: Asker, routes: tuple[Route, ...] = ROUTES) -> list[str]:
    """Ask for every route, and return what is not as declared."""
    found = [site.holds(asker, route, await site.ask(route, asker)) for route in routes]
    return [fault for fault in found if fault]


async def bearer(site: Site, name: str, role: Role, *, confined: bool = False) -> Asker:
    token = await site.server.token(role, name, queues=("mine",) if confined else ())
    return Asker(name, f"Bearer {token}", role, confined)


@pytest.mark.parametrize("confined", [False, True], ids=["everywhere", "confined"])
@pytest.mark.parametrize("role", list(Role))
async def test_every_route_responds_to_each_role_as_declared(site: Site, role: Role, confined: bool) -> None:
    asker = await bearer(site, f"{role}-asks", role, confined=confined)
    assert await faults_of(site, asker) == []


async def test_without_a_token_that_works_nothing_is_answered_but_health(site: Site) -> None:
    assert site.grant is not None
    tokens = site.server.parts.tokens
    revoked = await tokens.create("revoked", Role.ADMIN)
    await tokens.revoke("revoked")
    expired = await tokens.create("expired", Role.ADMIN, lasts=timedelta(microseconds=1))
    rotated = await tokens.create("rotated", Role.ADMIN)
    await tokens.rotate("rotated", overlap=timedelta(0))
    askers = [
        Asker("nobody"),
        Asker("revoked", f"Bearer {revoked.token}"),
        Asker("expired", f"Bearer {expired.token}"),
        Asker("rotated", f"Bearer {rotated.token}"),
        Asker("forged lease", f"Bearer {site.grant.token[:-8]}{'0' * 8}"),
        *(Asker(f"malformed {sent!r}", sent) for sent in MALFORMED),
    ]
    faults = [fault for asker in askers for fault in await faults_of(site, asker)]
    assert faults == []


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
async def test_a_session_is_answered_like_the_token_that_opened_it(site: Site, role: Role) -> None:
    token = await site.server.token(role, f"{role}-signs-in")
    opened = await site.client.post("/api/sessions", json={"token": token})
    secret = opened.headers["set-cookie"].partition(";")[0].partition("=")[2]
    site.client.cookies.clear()
    routes = tuple(sorted(ROUTES, key=lambda route: route.name == "signOut"))  # nothing is answered after it
    assert await faults_of(site, Asker("session", role=role, session=secret), routes) == []


@pytest.mark.parametrize("page", ["same-origin", ""], ids=["own page", "no page"])
async def test_a_made_up_session_opens_nothing(site: Site, page: str) -> None:
    """Without a page of this server, what would change something is refused before the session is read."""
    assert await faults_of(site, Asker("made up", session=f"is_{'0' * 16}_{'0' * 64}", page=page)) == []


async def test_a_lease_is_answered_only_where_it_is_declared_to_be_enough(site: Site) -> None:
    assert site.grant is not None
    asker = Asker("lease", f"Bearer {site.grant.token}", claim=True)
    assert await faults_of(site, asker) == []


async def test_a_request_forwarded_by_a_proxy_needs_a_token_even_if_local_requests_need_none() -> None:
    async with running(settings=any_port(stranger_rate=Rate(1e6, 10**6))) as server:
        site = Site(server)
        site.grant = await server.hold(await server.submit(queue=THEIRS), THEIRS)
        site.client.headers["X-Forwarded-For"] = "203.0.113.9"
        assert await faults_of(site, Asker("forwarded")) == []


def test_only_the_health_sign_in_and_signed_webhook_routes_need_no_token() -> None:
    assert {route.path for route in ROUTES if route.role is None} == OPEN | SIGN_IN | SIGNED
    assert {route.path for route in ROUTES if route.shows_token} == SIGN_IN
    assert {route.path for route in ROUTES if route.signed} == SIGNED


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_open_to_confined_tokens_declares_how_it_confines_them(route: Route) -> None:
    reachable = route.role is not None and not route.everything
    assert (route.confined is not None) is reachable


CHANGES = {
    Role.VIEWER: {"signOut"},
    Role.SUBMITTER: {
        *("submitJobs", "retryJob", "submitRun", "rerun", "startSimulation", "startWorkload"),
        *("createSchedule", "runSchedule", "backfillSchedule", "retryDeadLetter", "signalJob"),
    },
    Role.ADMIN: {"createToken", "rotateToken", "revokeToken", "revokeSession"},
}
"""Who may change something, beside operators and runners, whose routes are told by their paths."""


@pytest.mark.parametrize(
    "route", [route for route in ROUTES if route.method != "GET"], ids=lambda route: route.name
)
def test_a_route_that_changes_something_is_for_the_role_that_was_decided_on(route: Route) -> None:
    """The declaration says who may; a second word for it keeps a role from being lowered unnoticed."""
    if route.path in SIGNED | SIGN_IN:
        assert route.role is None
    elif route.path.startswith("/api/runner/") or route.name in WORKERS_OWN:
        assert route.role is Role.RUNNER
    else:
        named = [role for role, names in CHANGES.items() if route.name in names]
        assert route.role is (named[0] if named else Role.OPERATOR)


WORKERS_OWN = {"registerWorker", "beatWorker", "leaveWorker", "reportDeath"}
"""What workers say about themselves."""


# The matrix itself


async def tells_all(_: Call) -> Alive:
    return Alive(status="ok")


NEW = Route(
    request="GET /api/new",
    name="new",
    summary="New.",
    handler=tells_all,
    role=Role.ADMIN,
    output=Alive,
)


async def test_a_route_that_lets_in_more_than_it_declares_is_found() -> None:
    """The server has one declaration, and the matrix is asked about another."""
    served = (replace(NEW, role=Role.VIEWER, confined=QueueConfinement.NOTHING),)
    settings = any_port(tokens_required=True)
    async with running(settings=settings, more=served) as server:
        one = await Site(server).build()
        viewer, confined = (
            await bearer(one, "viewer", Role.VIEWER),
            await bearer(one, "confined", Role.ADMIN, confined=True),
        )
        assert await faults_of(one, viewer, served) == []
        (fault,) = await faults_of(one, viewer, (NEW,))
        assert "viewer: GET /api/new is 200, not [403]" in fault
        (fault,) = await faults_of(one, confined, (NEW,))
        assert "is 200, not [403]" in fault
