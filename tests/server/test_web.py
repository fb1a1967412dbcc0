"""The dashboard's files: one page at every address of it, and nothing that belongs to the API."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from tests.server.running import Running, any_port, running

from interlock.server import app, web
from interlock.server.app import every_route
from interlock.wire.access import Role

PAGE = b'<!doctype html><html lang="en"><title>Interlock</title><script src="/assets/main-1a2b.js"></script>'
SCRIPT = b"export const answer = 42;" * 50
BROTLI = b"not brotli, but nobody looks"
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dashboard as it is built: a page, an icon, and files that are named by their content."""
    (tmp_path / "assets").mkdir()
    for name, content in (
        ("index.html", PAGE),
        ("index.html.gz", gzip.compress(PAGE, mtime=0)),
        ("icon.svg", b"<svg/>"),
        ("licenses.txt", b"# Licenses"),
        ("assets/main-1a2b.js", SCRIPT),
        ("assets/main-1a2b.js.gz", gzip.compress(SCRIPT, mtime=0)),
        ("assets/main-1a2b.js.br", BROTLI),
        ("assets/style-3c4d.css", b"body{}"),
    ):
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.fixture
async def guarded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """A server that asks for tokens and has a dashboard."""
    monkeypatch.setattr(app, "built", lambda: web.read_files(folder))
    async with running(settings=any_port(tokens_required=True)) as one:
        yield one


@pytest.fixture
def browser(guarded: Running) -> httpx2.AsyncClient:
    """Somebody who has not signed in, with a browser."""
    return with_browser(guarded)


def with_browser(server: Running, token: str | None = None) -> httpx2.AsyncClient:
    client = server.client(token)
    client.headers.update(HTML)
    return client


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/jobs",
        "/queues/mail.high",
        "/attempts/j_0123456789ab.1.1",
        "/jobs/j_0123456789ab",
        "/index.html",
    ],
)
async def test_every_address_of_the_dashboard_is_its_page(browser: httpx2.AsyncClient, path: str) -> None:
    answer = await browser.get(path)
    assert (answer.status_code, answer.content) == (200, PAGE)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["vary"] == "Accept, Accept-Encoding"
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_page_runs_nothing_but_files_of_this_server(browser: httpx2.AsyncClient) -> None:
    for path in ("/", "/assets/main-1a2b.js"):
        policy = dict(
            part.split(" ", 1)
            for part in (await browser.get(path)).headers["content-security-policy"].split("; ")
        )
        assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["worker-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert not [value for value in policy.values() if "unsafe" in value or "http" in value]


async def test_files_that_are_named_by_their_content_are_kept_for_ever(browser: httpx2.AsyncClient) -> None:
    for path, media in (
        ("/assets/main-1a2b.js", "text/javascript; charset=utf-8"),
        ("/assets/style-3c4d.css", "text/css; charset=utf-8"),
    ):
        answer = await browser.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == media
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["vary"] == "Accept-Encoding"
    icon = await browser.get("/icon.svg")
    assert (icon.headers["content-type"], icon.headers["cache-control"]) == ("image/svg+xml", "no-cache")


async def test_the_licenses_of_bundled_packages_are_a_file_for_everyone(browser: httpx2.AsyncClient) -> None:
    answer = await browser.get("/licenses.txt")
    assert (answer.status_code, answer.content) == (200, b"# Licenses")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_page_that_has_not_changed_is_not_sent_again(browser: httpx2.AsyncClient) -> None:
    tags = {}
    for encoding in ("identity", "gzip"):
        headers = {"Accept-Encoding": encoding}
        tags[encoding] = (await browser.get("/", headers=headers)).headers["etag"]
        for sent in (tags[encoding], f'"other", W/{tags[encoding]}', "*"):
            again = await browser.get("/jobs", headers={**headers, "If-None-Match": sent})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tags[encoding]
            assert again.headers["cache-control"] == "no-cache"
        changed = await browser.get("/", headers={**headers, "If-None-Match": '"other"'})
        assert (changed.status_code, changed.content) == (200, PAGE)
    assert tags["identity"] != tags["gzip"]


@pytest.mark.parametrize(
    ("accepted", "sent"),
    [
        ("gzip, deflate, br", "br"),
        ("gzip;q=1.0, br;q=0.5", "br"),
        ("gzip", "gzip"),
        ("GZIP", "gzip"),
        ("br;q=0, gzip;q=0.2", "gzip"),
        ("br; q=0.000, gzip", "gzip"),
        ("br;q=nonsense, gzip", "gzip"),
        ("zstd", ""),
        ("identity", ""),
        ("", ""),
    ],
)
async def test_a_file_is_sent_as_the_browser_can_read_it(guarded: Running, accepted: str, sent: str) -> None:
    request = guarded.client().stream("GET", "/assets/main-1a2b.js", headers={"Accept-Encoding": accepted})
    async with request as answer:
        raw = b"".join([piece async for piece in answer.aiter_raw()])
    assert answer.headers.get("content-encoding", "") == sent
    assert raw == {"br": BROTLI, "gzip": gzip.compress(SCRIPT, mtime=0), "": SCRIPT}[sent]
    assert int(answer.headers["content-length"]) == len(raw)


async def test_head_is_answered_like_get_without_a_body(browser: httpx2.AsyncClient) -> None:
    for path in ("/", "/jobs", "/assets/main-1a2b.js"):
        full, head = await browser.get(path), await browser.head(path)
        assert (head.status_code, head.content) == (200, b"")
        for name in ("content-type", "content-length", "cache-control", "content-security-policy"):
            assert head.headers[name] == full.headers[name]


async def test_a_browser_is_not_sent_the_page_for_addresses_of_the_api(guarded: Running) -> None:
    stranger, viewer = with_browser(guarded), with_browser(guarded, await guarded.token(Role.VIEWER))
    firsts = {route.path.split("/")[1] for route in every_route()} | {"assets"}
    for first in sorted(firsts - {"healthz", "readyz"}):
        for path in (f"/{first}/nowhere", f"/{first}//nowhere", f"/{first}/nowhere/"):
            assert (await stranger.get(path)).status_code == 401, path
            unknown = await viewer.get(path)
            assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_page"), path
    assert (await stranger.get("/api/jobs")).status_code == 401
    assert (await viewer.get("/api/jobs")).headers["content-type"] == "application/json"
    assert (await stranger.get("/docs")).status_code == 401
    assert (await viewer.get("/docs")).text.startswith("<!doctype html>")


async def test_the_dashboard_page_is_sent_only_for_reads_that_accept_html(guarded: Running) -> None:
    token = await guarded.token(Role.VIEWER)
    for headers in ({"Accept": "application/json"}, {"Accept": "*/*"}):
        assert (await guarded.client().get("/jobs", headers=headers)).status_code == 401
        known = guarded.client(token)
        assert (await known.get("/jobs", headers=headers)).status_code == 404
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        for path in ("/", "/jobs", "/assets/main-1a2b.js"):
            assert (await guarded.client().request(method, path, headers=HTML)).status_code == 401
            response = await guarded.client(token).request(method, path, headers=HTML)
            assert (response.status_code, response.json()["code"]) == (404, "unknown_page")


@pytest.mark.parametrize(
    "path",
    [
        "/assets/..%2f..%2f..%2fsettings.py",
        "/assets/%2e%2e/%2e%2e/settings.py",
        "/..%2fsettings.py",
        "/assets/main-1a2b.js%00.html",
        "/assets/",
        "/assets",
        "/assets/main-1a2b.js.gz",
        "/index.html.gz",
        "/settings.py",
    ],
)
async def test_no_path_leads_to_any_other_file(guarded: Running, path: str) -> None:
    answer = await guarded.client(await guarded.token(Role.VIEWER)).get(path, headers=HTML)
    assert answer.status_code == 404
    assert answer.json()["code"] == "unknown_page"


async def test_a_page_under_another_name_is_refused_like_everything_else(browser: httpx2.AsyncClient) -> None:
    answer = await browser.get("/", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["code"]) == (421, "wrong_host")


async def test_a_server_without_a_built_dashboard_returns_a_page_with_the_build_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(app, "built", lambda: web.read_files(tmp_path / "nowhere"))
    async with running() as server:
        for path in ("/", "/jobs"):
            answer = await server.client().get(path, headers=HTML)
            assert answer.status_code == 503
            assert "not been built" in answer.text
            assert "make dashboard" in answer.text
            assert answer.headers["cache-control"] == "no-store"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert (await server.client().get("/api/jobs", headers=HTML)).status_code == 200
