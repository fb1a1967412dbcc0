"""Signing in with a browser: a cookie instead of a token, and nothing that a token does not allow."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from tests.server.listeners import listening
from tests.server.runners import Runner
from tests.server.running import FOR_EVER_S, Running, any_port, running
from tests.server.test_program import certificate
from tests.waiting import PATIENCE_S, until

from interlock.server import parts as parts_module
from interlock.server.settings import Rate
from interlock.store.records import Query
from interlock.systems.access.authentication import LIFETIME, SESSION
from interlock.wire.access import Role


def plain(server: Running) -> str:
    """Return the name of the cookie without TLS: the browser opens the server at its port."""
    return f"interlock_session_{server.address[1]}"


def host(server: Running) -> str:
    """Return the name of the cookie under TLS."""
    return f"__Host-{plain(server)}"


@pytest.fixture
async def guarded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A server that asks for tokens, and looks often at who still is let in."""
    monkeypatch.setattr(parts_module, "ACCESS_EVERY_S", 0.05)
    async with running(settings=any_port(tokens_required=True)) as one:
        for believer in (one.parts.check, one.parts.sessions):
            monkeypatch.setattr(believer, "_believed_s", 0.0)
        monkeypatch.setattr(one.parts.runtime.engine.clock, "_resync_s", 0.0)
        yield one


class Browser:
    """Keeps a cookie and says where its pages are from, as browsers do."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.own = {"Origin": server.url, "Sec-Fetch-Site": "same-origin"}
        self.client = server.client()
        self.cookie = ""

    async def sign_in(self, token: str) -> httpx2.Response:
        """Sign in, and keep the cookie by hand, so that no library judges it."""
        answer = await self.client.post("/api/sessions", json={"token": token}, headers=self.own)
        self.client.cookies.clear()
        if answer.is_success:
            self.cookie = answer.headers["set-cookie"].partition(";")[0]
            self.client.headers["Cookie"] = self.cookie
        return answer

    @property
    def secret(self) -> str:
        """What the browser has."""
        return self.cookie.partition("=")[2]

    async def post(self, path: str, json: object = None, **headers: str) -> httpx2.Response:
        """Change something from a page of the server, or with other headers."""
        return await self.client.post(path, json=json, headers=headers or self.own)


async def signed_in(server: Running, role: Role, name: str = "ann", queues: tuple[str, ...] = ()) -> Browser:
    browser = Browser(server)
    answer = await browser.sign_in(await server.token(role, name, queues=queues))
    assert answer.status_code == 200, answer.text
    return browser


async def test_a_browser_signs_in_once_and_is_known_by_a_cookie_that_no_script_reads(
    guarded: Running,
) -> None:
    browser = Browser(guarded)
    token = await guarded.token(Role.OPERATOR, "ann")
    answer = await browser.sign_in(token)
    assert answer.json() == {
        "name": "ann",
        "roles": ["viewer", "submitter", "operator"],
        "queues": [],
        "signed_in": True,
    }
    parts = answer.headers["set-cookie"].split("; ")
    assert parts[0].startswith(f"{plain(guarded)}=is_")
    assert set(parts[1:]) == {"Path=/", f"Max-Age={LIFETIME.seconds:.0f}", "HttpOnly", "SameSite=Strict"}
    assert answer.headers["cache-control"] == "no-store"
    assert token not in answer.text
    assert (await browser.client.get("/api/session")).json() == answer.json()
    job_id = (await browser.post("/api/jobs", {"task": "shop.send"})).json()["id"]
    history = (await browser.client.get(f"/api/jobs/{job_id}/history")).json()["entries"]
    assert {entry["actor"] for entry in history} == {"ann"}


async def test_behind_a_proxy_with_tls_the_cookie_is_for_this_host_and_encrypted_connections_only(
    guarded: Running,
) -> None:
    address = guarded.url.removeprefix("http://")
    sent = {"token": await guarded.token(Role.VIEWER)}
    answer = await guarded.client().post("/api/sessions", json=sent, headers={"Origin": f"https://{address}"})
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{host(guarded)}=is_")
    assert "; Secure" in cookie
    client = guarded.client()
    client.headers["Cookie"] = cookie.partition(";")[0]
    assert (await client.get("/api/session")).status_code == 200
    out = await client.post("/api/session/end", headers={"Origin": f"https://{address}"})
    assert out.headers["set-cookie"].startswith(f"{host(guarded)}=;")


async def test_two_servers_on_one_host_do_not_sign_each_other_out(guarded: Running) -> None:
    """A browser sends the cookies of a host to all of its ports."""
    async with running(settings=any_port(tokens_required=True)) as another:
        first, second = (
            await signed_in(guarded, Role.VIEWER, "ann"),
            await signed_in(another, Role.ADMIN, "bob"),
        )
        jar = dict(each.cookie.split("=", 1) for each in (first, second))
        for browser, name in ((first, "ann"), (second, "bob")):
            browser.client.headers["Cookie"] = "; ".join(f"{key}={value}" for key, value in jar.items())
            assert (await browser.client.get("/api/session")).json()["name"] == name
        out = await first.post("/api/session/end")
        assert out.headers["set-cookie"].startswith(f"{plain(guarded)}=; ")
        assert (await second.client.get("/api/session")).status_code == 200


async def test_servers_behind_one_proxy_share_the_cookie_of_the_address_that_is_opened(
    guarded: Running,
) -> None:
    client = guarded.client()
    for opened, name in (("localhost", "interlock_session"), ("localhost:8443", "interlock_session_8443")):
        own = {"Host": opened, "Origin": f"http://{opened}"}
        sent = {"token": await guarded.token(Role.VIEWER, f"of-{len(opened)}")}
        answer = await client.post("/api/sessions", json=sent, headers=own)
        client.cookies.clear()
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert cookie.startswith(f"{name}=is_"), answer.text
        response = await client.get("/api/session", headers={"Host": opened, "Cookie": cookie})
        assert response.status_code == 200


async def test_a_server_with_tls_takes_cookies_for_this_host_only(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    settings = any_port(tls_cert=str(cert), tls_key=str(key), tokens_required=True)
    async with running(settings=settings) as server:
        client = server.client(verify=ssl.create_default_context(cafile=str(cert)))
        sent = {"token": await server.token(Role.ADMIN)}
        own = {"Origin": server.url}
        answer = await client.post("/api/sessions", json=sent, headers=own)
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"{host(server)}=is_")
        assert "; Secure" in cookie
        client.cookies.clear()
        client.headers["Cookie"] = cookie.partition(";")[0]
        assert (await client.get("/api/session")).status_code == 200
        assert (await client.post("/api/jobs", json={"task": "shop.send"}, headers=own)).is_success
        plain = {"Origin": server.url.replace("https:", "http:")}
        refused = await client.post("/api/jobs", json={"task": "shop.send"}, headers=plain)
        assert (refused.status_code, refused.json()["code"]) == (403, "foreign_origin")
        client.headers["Cookie"] = cookie.partition(";")[0].removeprefix("__Host-")
        assert (await client.get("/api/session")).status_code == 401


async def test_a_token_that_does_not_work_opens_no_session(guarded: Running) -> None:
    revoked = await guarded.token(Role.ADMIN, "gone")
    await guarded.parts.tokens.revoke("gone")
    for token in ("nonsense", "il_" + "0" * 16 + "_" + "0" * 64, revoked):
        answer = await Browser(guarded).sign_in(token)
        assert (answer.status_code, answer.json()["code"]) == (401, "not_signed_in")
        assert "set-cookie" not in answer.headers
    assert not (await guarded.parts.store.find(Query(kind=SESSION.name))).records


async def test_the_token_of_a_runner_opens_no_session(guarded: Running) -> None:
    answer = await Browser(guarded).sign_in(await guarded.token(Role.RUNNER))
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    assert "viewer" in answer.json()["todo"]
    assert not (await guarded.parts.store.find(Query(kind=SESSION.name))).records


async def test_guessed_tokens_are_rate_limited_at_the_sign_in_too() -> None:
    settings = any_port(tokens_required=True, stranger_rate=Rate(0.001, 4))
    async with running(settings=settings) as server:
        ways = [server.client(), server.client("il_nonsense")]
        ways[0].headers["Cookie"] = f"{plain(server)}=is_nonsense"
        statuses = [(await Browser(server).sign_in("nonsense")).status_code for _ in range(2)]
        statuses += [(await way.get("/api/jobs")).status_code for way in ways]
        assert statuses == [401] * 4  # each is counted once, wherever it was shown
        assert (await Browser(server).sign_in("nonsense")).status_code == 429
        assert (await ways[0].get("/api/jobs")).status_code == 429
        browser = await signed_in(server, Role.VIEWER)  # a good token is let in all the same
        assert (await browser.client.get("/api/jobs")).status_code == 200


async def test_a_token_opens_a_limited_number_of_sessions_at_once() -> None:
    async with running(settings=any_port(tokens_required=True, sign_in_rate=Rate(0.001, 2))) as server:
        token = await server.token(Role.VIEWER, "ann")
        statuses = [(await Browser(server).sign_in(token)).status_code for _ in range(3)]
        assert statuses == [200, 200, 429]
        await signed_in(server, Role.VIEWER, "bob")


async def test_signing_out_ends_the_session_and_takes_the_cookie_away(guarded: Running) -> None:
    browser, other = await signed_in(guarded, Role.VIEWER), Browser(guarded)
    other.client.headers["Cookie"] = browser.cookie
    out = await browser.post("/api/session/end")
    assert out.json() == {"signed_in": False}
    assert out.headers["set-cookie"].startswith(f"{plain(guarded)}=; ")
    assert "Max-Age=0" in out.headers["set-cookie"]
    for each in (browser, other):
        assert (await each.client.get("/api/session")).status_code == 401
    (record,) = (await guarded.parts.store.find(Query(kind=SESSION.name))).records
    assert record.state == "ended"


async def test_a_caller_cannot_end_the_session_of_another_by_its_id(guarded: Running) -> None:
    ann = await signed_in(guarded, Role.VIEWER)
    forged = ann.secret[:-64] + "0" * 64
    client = guarded.client(await guarded.token(Role.VIEWER, "bob"))
    client.headers["Cookie"] = f"{plain(guarded)}={forged}"
    assert (await client.post("/api/session/end")).status_code == 200
    assert (await ann.client.get("/api/session")).status_code == 200


async def test_a_session_ends_with_its_token(guarded: Running) -> None:
    revoked = await signed_in(guarded, Role.VIEWER, "revoked")
    rotated = await signed_in(guarded, Role.VIEWER, "rotated")
    expired = Browser(guarded)
    issued = await guarded.parts.tokens.create("expired", Role.VIEWER, lasts=timedelta(hours=1))
    await expired.sign_in(issued.token)
    await guarded.parts.tokens.revoke("revoked")
    await guarded.parts.tokens.rotate("rotated", overlap=timedelta(0))
    for browser in (revoked, rotated):
        assert (await browser.client.get("/api/session")).status_code == 401
    assert (await expired.client.get("/api/session")).status_code == 200
    guarded.jump(3_601)
    assert (await expired.client.get("/api/session")).status_code == 401


async def test_a_session_lasts_for_twelve_hours_by_the_clock_of_the_store(guarded: Running) -> None:
    browser = await signed_in(guarded, Role.VIEWER)
    guarded.jump(LIFETIME.seconds - 60)
    assert (await browser.client.get("/api/session")).status_code == 200
    guarded.jump(61)
    assert (await browser.client.get("/api/session")).status_code == 401
    assert await guarded.parts.sessions.sweep() == 1
    (record,) = (await guarded.parts.store.find(Query(kind=SESSION.name))).records
    assert record.state == "expired"


@pytest.mark.parametrize("way", ["sign out", "revoke", "rotate", "bearer"])
async def test_an_event_stream_ends_when_its_session_ends_or_its_token_is_revoked_or_rotated(
    guarded: Running, way: str
) -> None:
    browser = await signed_in(guarded, Role.VIEWER)
    client = browser.client
    if way == "bearer":
        client = guarded.client(await guarded.token(Role.VIEWER, "bob"))
    staying = guarded.client(await guarded.token(Role.VIEWER, "carol"))
    async with listening(client) as events, listening(staying) as others:
        match way:
            case "sign out":
                await browser.post("/api/session/end")
            case "revoke":
                await guarded.parts.tokens.revoke("ann")
            case "rotate":
                await guarded.parts.tokens.rotate("ann", overlap=timedelta(0))
            case _:
                await guarded.parts.tokens.revoke("bob")
        await events.ended()
        job_id = await guarded.submit()
        assert (await others.entry())["id"] == job_id


async def test_a_long_poll_ends_with_its_token(guarded: Running, waiting_for_ever: None) -> None:
    runner = Runner(guarded.client(await guarded.token(Role.RUNNER, "bob")))
    polling = asyncio.create_task(runner.lease(wait_s=FOR_EVER_S))
    await until(lambda: len(guarded.parts.endings) == 1, "the poll waits")
    await guarded.parts.tokens.revoke("bob")
    async with asyncio.timeout(PATIENCE_S):
        assert (await polling).json()["grants"] == []
    assert (await runner.lease()).status_code == 401


async def test_another_site_changes_nothing_with_a_cookie(guarded: Running) -> None:
    browser = await signed_in(guarded, Role.ADMIN)
    own, host = guarded.url, guarded.url.removeprefix("http://")
    foreign: list[dict[str, str]] = [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://{host.partition(':')[0]}:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": own, "Sec-Fetch-Site": "cross-site"},
        {"Origin": own, "Sec-Fetch-Site": "same-site"},
        {"Accept": "*/*"},  # a program, which has a token to send instead
    ]
    for headers in foreign:
        answer = await browser.post("/api/jobs", {"task": "shop.send"}, **headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "foreign_origin"), headers
    for headers in ({"Origin": own}, {"Sec-Fetch-Site": "same-origin"}):
        assert (await browser.post("/api/jobs", {"task": "shop.send"}, **headers)).is_success, headers


async def test_a_page_that_may_change_something_with_a_token_may_not_with_a_cookie() -> None:
    page = "https://tools.example.org"
    settings = any_port(tokens_required=True, allowed_origins=(page,))
    async with running(settings=settings) as server:
        browser = await signed_in(server, Role.ADMIN)
        assert (await browser.post("/api/jobs", {"task": "shop.send"}, Origin=page)).status_code == 403
        bearer = server.client(await server.token(Role.ADMIN, "bob"))
        sent = await bearer.post("/api/jobs", json={"task": "shop.send"}, headers={"Origin": page})
        assert sent.is_success


async def test_another_site_cannot_sign_a_user_in(guarded: Running) -> None:
    token = await guarded.token(Role.VIEWER)
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = await guarded.client().post("/api/sessions", json={"token": token}, headers=headers)
        assert answer.status_code == 403
    form = await guarded.client().post("/api/sessions", data={"token": token})
    assert form.status_code == 415


async def test_a_bearer_token_takes_precedence_over_a_cookie(guarded: Running) -> None:
    browser = await signed_in(guarded, Role.ADMIN)
    viewer = {"Authorization": f"Bearer {await guarded.token(Role.VIEWER, 'bob')}"}
    assert (await browser.client.get("/api/session", headers=viewer)).json()["name"] == "bob"
    bad = {"Authorization": "Bearer il_nonsense"}
    assert (await browser.client.get("/api/session", headers=bad)).status_code == 401


@pytest.mark.parametrize(
    "sent",
    [
        "{plain}={secret}; {plain}=is_other",
        "{plain}=is_other; {plain}={secret}",
        "{plain}={secret}0",
        "{plain}=",
        "{plain}",
        "x{plain}={secret}",
        '{plain}="{secret}',
        "{host}=is_other; {plain}={secret}",
    ],
)
async def test_a_cookie_that_is_not_clearly_ours_grants_no_access(guarded: Running, sent: str) -> None:
    browser = await signed_in(guarded, Role.VIEWER)
    browser.client.headers["Cookie"] = sent.format(
        plain=plain(guarded), host=host(guarded), secret=browser.secret
    )
    assert (await browser.client.get("/api/session")).status_code == 401


@pytest.mark.parametrize(
    "sent",
    [
        "a=b; {plain}={secret}; c=d",
        'a=[1, "2"]; {plain}={secret}',
        "broken; {plain}={secret};",
        "{plain}={secret}; {plain}={secret}",
        "interlock_session_of_another=1; {plain}={secret}",
        "{plain}=is_planted_by_another_name; {host}={secret}",
    ],
)
async def test_cookies_of_others_beside_ours_do_no_harm(guarded: Running, sent: str) -> None:
    browser = await signed_in(guarded, Role.VIEWER)
    browser.client.headers["Cookie"] = sent.format(
        plain=plain(guarded), host=host(guarded), secret=browser.secret
    )
    assert (await browser.client.get("/api/session")).status_code == 200


async def test_no_secret_of_a_session_is_ever_logged_answered_or_stored(guarded: Running) -> None:
    browser = await signed_in(guarded, Role.ADMIN)
    secret = browser.secret
    answers = [
        await browser.client.get(path, params={"q": secret})
        for path in ("/api/session", "/api/jobs", f"/api/jobs/{secret}", f"/{secret}", "/api/journal")
    ]
    output = guarded.log.getvalue() + "".join(answer.text for answer in answers)
    stored = (await guarded.parts.store.find(Query(kind=SESSION.name))).records[0].body.decode()
    assert "ann" in output
    assert secret[-64:] not in output + stored
    assert "ookie" not in guarded.log.getvalue()


async def test_only_admins_read_of_sessions_in_the_journal_in_live_events_and_in_numbers(
    guarded: Running,
) -> None:
    admin = await signed_in(guarded, Role.ADMIN, "root")
    viewer = await signed_in(guarded, Role.VIEWER)
    for path in ("/api/journal", "/api/events"):
        assert (await viewer.client.get(path, params={"kind": "session"})).status_code == 403
    for name in ("session", "token"):
        standing = f"/api/machines/{name}/standing"
        assert (await viewer.client.get(standing)).status_code == 403
        assert (await admin.client.get(standing)).status_code == 200
    seen = (await viewer.client.get("/api/journal", params={"limit": 100})).json()["entries"]
    assert not {entry["kind"] for entry in seen} & {"session", "token"}
    query = {"kind": "session"}
    entries = (await admin.client.get("/api/journal", params=query)).json()["entries"]
    assert [(entry["actor"], entry["reason"]) for entry in entries] == [
        ("root", "signed in"),
        ("ann", "signed in"),
    ]


async def test_a_session_of_a_confined_token_lists_only_the_jobs_of_its_queues(guarded: Running) -> None:
    await guarded.submit(queue="builds")
    mine = await guarded.submit(queue="mail")
    browser = await signed_in(guarded, Role.VIEWER, queues=("mail",))
    assert (await browser.client.get("/api/session")).json()["queues"] == ["mail"]
    assert [job["id"] for job in (await browser.client.get("/api/jobs")).json()["jobs"]] == [mine]
    assert (await browser.client.get("/api/events")).status_code == 403


async def test_the_session_is_the_local_user_with_all_roles_if_no_token_is_required(server: Running) -> None:
    for headers in ({}, {"Cookie": f"{plain(server)}=is_stale"}):
        identity = (await server.client().get("/api/session", headers=headers)).json()
        assert identity["name"] == "local"
        assert identity["roles"] == ["viewer", "submitter", "operator", "admin", "runner"]
        assert identity["signed_in"] is False


async def test_a_sign_in_counts_as_a_use_of_the_token_from_its_address(guarded: Running) -> None:
    await signed_in(guarded, Role.VIEWER)
    await guarded.parts.check.store_uses()
    assert (await guarded.parts.tokens.get("ann")).used_from == "127.0.0.1"
