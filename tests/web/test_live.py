"""Pages follow what happens: nothing is missed or doubled, and no faster than people can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import Browser, Request, expect
from tests.effort import pick
from tests.server.runners import Runner
from tests.server.running import Running, any_port, running
from tests.waiting import PATIENCE_S, until
from tests.web.test_access import sign_in
from tests.web.visiting import COUNT_NEWS, PATTERNS, Visitor, fill, path_of, told, visit, visiting

from interlock.testing.servers import PostgresServer
from interlock.wire.access import Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

RENDERS_A_SECOND = 5
SOME = pick(quick=("/", "/jobs/:id"), thorough=tuple(PATTERNS))

COUNT_RENDERS = """() => {
  window.renders = 0;
  const everything = { subtree: true, childList: true, characterData: true, attributes: true };
  new MutationObserver(() => { window.renders += 1; }).observe(document.getElementById("app"), everything);
}"""
HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def journal_of(visitor: Visitor) -> list[str]:
    """Return the jobs of which the journal tells on the page, newest first."""
    return await visitor.page.locator("main tbody tr td:nth-child(2) a.mono").all_inner_texts()


@pytest.mark.long
async def test_a_page_that_is_only_watched_renders_at_most_five_times_a_second(
    server: Running, visitor: Visitor
) -> None:
    page, job = visitor.page, await server.submit(queue="watched")
    runner = Runner(server.client())
    await page.add_init_script(f"({COUNT_NEWS})()")
    await page.clock.install()
    paths = ("/journal", f"/jobs/{job}", "/jobs")
    for path in paths:
        await visitor.open(path)
        await visitor.live()
        later = int(await page.evaluate("() => Date.now()")) + 60_000
        await page.clock.pause_at(later / 1_000)  # nobody has touched anything for so long
        await page.evaluate(COUNT_RENDERS)
        token = (await runner.grant(queues=["watched"]))["token"] if path == paths[1] else ""
        before = int(await page.evaluate("() => window.news"))
        for number in range(1, 9):
            await server.submit()
            if token:
                lines = [["2026-01-01T00:00:00Z", "info", f"line {number}"]]
                assert (await runner.say("heartbeat", token, log=lines)).status_code == 200
            await told(page, before + number)
            await page.clock.run_for(125)
        renders = int(await page.evaluate("() => window.renders"))
        await page.clock.resume()
        assert 1 <= renders <= RENDERS_A_SECOND + 1, (path, renders)  # both ends of the second may have one


async def test_a_hidden_page_sends_no_requests_and_updates_when_it_becomes_visible(
    server: Running, visitor: Visitor
) -> None:
    await visitor.open("/jobs")
    await visitor.live()
    other = await visit(visitor.context, visitor.url)
    await other.open("/jobs")
    await other.live()
    await visitor.page.evaluate(HIDE, True)
    requests: list[str] = []
    visitor.page.on("request", lambda request: requests.append(request.url))
    jobs = [await server.submit() for _ in range(3)]
    await expect(other.page.get_by_role("link", name=jobs[-1])).to_be_visible()
    assert requests == []
    assert await visitor.page.get_by_role("link", name=jobs[-1]).count() == 0
    await visitor.page.evaluate(HIDE, False)
    await expect(visitor.page.get_by_role("link", name=jobs[-1])).to_be_visible()
    assert other.taken() == []


@pytest.mark.long
async def test_the_stream_is_closed_while_every_tab_is_hidden_and_continues_where_it_was(
    server: Running, visitor: Visitor
) -> None:
    readers = server.parts.broadcast
    await visitor.open("/journal")
    await visitor.live()
    expected: list[str] = []
    for _ in range(2):  # first before anything has happened: only the server knows where it begins
        await visitor.page.evaluate(HIDE, True)
        await until(lambda: readers.readers == 0, "the stream is closed")
        expected = [*reversed([await server.submit() for _ in range(3)]), *expected]
        await visitor.page.evaluate(HIDE, False)
        await expect(visitor.page.get_by_role("link", name=expected[0], exact=True)).to_be_visible()
        assert await journal_of(visitor) == expected


async def test_nothing_is_missed_or_doubled_when_the_server_starts_again(
    browser: Browser, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with AsyncExitStack() as stack:
        async with running(url) as server:
            port = server.address[1]
            visitor = await stack.enter_async_context(visiting(browser, server.url))
            await visitor.open("/journal")
            await visitor.live()
            expected = [await server.submit()]
            await expect(visitor.page.get_by_role("link", name=expected[0], exact=True)).to_be_visible()
        for _ in range(2):
            await visitor.page.get_by_text("○ looking").wait_for()
            async with running(url, any_port(port=port)) as server:
                expected = [*reversed([await server.submit() for _ in range(3)]), *expected]
                await visitor.live()
                await expect(visitor.page.get_by_role("link", name=expected[0], exact=True)).to_be_visible()
                await until(partial(_shows, visitor, tuple(expected)), "the journal shows each entry once")


async def _shows(visitor: Visitor, expected: Sequence[str]) -> bool:
    return await journal_of(visitor) == list(expected)


async def test_a_page_that_is_opened_reads_everything_once(server: Running, visitor: Visitor) -> None:
    made = await fill(server)
    read: Counter[str] = Counter()

    def count(request: Request) -> None:
        if "/api/" in request.url:
            read[request.url.removeprefix(visitor.url)] += 1

    visitor.page.on("request", count)
    # A page reads without the stream, and then once more, when there is none after a second: here it waits.
    await visitor.page.add_init_script(
        "const real = window.setTimeout;"
        "window.setTimeout = (act, ms, ...more) => real(act, ms === 1000 ? 900_000 : ms, ...more);"
    )
    twice: dict[str, list[str]] = {}
    for path in (path_of(pattern, made) for pattern in SOME):
        read.clear()
        await visitor.open(path)
        await visitor.live()
        await visitor.page.evaluate("() => new Promise((over) => setTimeout(over, 300))")  # when it would
        found = [each for each, number in read.items() if number > 1]
        twice |= {path: found} if found else {}
    assert twice == {}


@pytest.mark.long
async def test_a_page_does_not_request_a_refused_stream_again_and_shows_the_reason(
    browser: Browser, tmp_path: Path
) -> None:
    async with running(f"sqlite:///{tmp_path}/jobs.db") as server:
        admin = server.client(await server.token(Role.ADMIN))

        async def refused() -> int:
            body = (await admin.get("/metrics")).text
            lines = [each for each in body.splitlines() if "/api/events" in each and "403" in each]
            return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if "_total{" in line)

        token = await server.token(Role.VIEWER, "ada", ["shop"])
        async with visiting(browser, server.url) as visitor:
            looks: list[str] = []
            visitor.page.on("request", lambda request: looks.append(request.url))
            await sign_in(visitor.page, server.url, token)
            status = visitor.page.get_by_role("banner").get_by_role("status")
            await expect(status).to_contain_text("looking every 3 s")
            await expect(status).to_contain_text("ada is restricted to shop")
            before = await refused()
            looks.clear()
            await until(
                lambda: sum("/api/overview" in each for each in looks) >= 3, "the page has looked again"
            )
            assert await refused() == before
            other = await visit(visitor.context, visitor.url)
            await other.open("/jobs")
            await expect(other.page.get_by_role("banner").get_by_role("status")).to_contain_text(
                "ada is restricted"
            )
            assert await refused() == before, "another tab is told what the browser knows already"
            job = await server.submit(queue="shop")
            await expect(other.page.get_by_role("link", name=job)).to_be_visible()


@pytest.mark.long
async def test_a_cursor_of_another_store_is_given_up_and_the_stream_begins_anew(
    browser: Browser, tmp_path: Path, postgres: PostgresServer
) -> None:
    async with AsyncExitStack() as stack:
        async with running(f"sqlite:///{tmp_path}/jobs.db") as server:
            port = server.address[1]
            visitor = await stack.enter_async_context(visiting(browser, server.url))
            await visitor.open("/jobs")
            await visitor.live()
            job = await server.submit()
            await expect(visitor.page.get_by_role("link", name=job)).to_be_visible()
        await visitor.page.get_by_text("○ looking").wait_for()
        async with running(postgres.new_database(), any_port(port=port)) as server:
            await visitor.live()
            job = await server.submit()
            await expect(visitor.page.get_by_role("link", name=job)).to_be_visible()
            await expect(visitor.page.locator("main")).to_contain_text("1 shown of 1.")
