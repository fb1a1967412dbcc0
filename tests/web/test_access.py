"""Every page with a confined token, with a token that is revoked meanwhile, and without its server."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from tests.effort import pick
from tests.server.running import Running, any_port, running
from tests.waiting import PATIENCE_S
from tests.web.visiting import PATTERNS, Visitor, fill, path_of, visit, visiting

from interlock.wire.access import Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

SECRET = "zebra"
"""Is in everything of another queue, and nowhere else."""


async def sign_in(page: Page, url: str, token: str) -> None:
    """Sign in with a token, and wait until the page is there."""
    await page.goto(url)
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


async def tabs_of(visitor: Visitor, made: dict[str, str]) -> list[Visitor]:
    """Open all pages, each in a tab of its own."""
    tabs = []
    for pattern in PATTERNS:
        tab = await visit(visitor.context, visitor.url)
        await tab.open(path_of(pattern, made))
        tabs.append(tab)
    return tabs


@pytest.mark.long  # server/test_confined_tokens.py has every route
async def test_a_restricted_token_is_shown_no_other_queue_and_no_link_to_a_refused_page(
    browser: Browser, tmp_path: Path
) -> None:
    async with running(f"sqlite:///{tmp_path}/jobs.db") as server:
        made = await fill(server)
        named = {"queue": SECRET, "labels": (f"{SECRET}-label",), "description": f"a {SECRET}"}
        theirs = await server.submit(f"{SECRET}.task", **named)
        hidden = {"every": "1h", "job": {"task": f"{SECRET}.task", "queue": SECRET}}
        made_too = await server.client().post("/api/schedules", json={"name": "hourly", "schedule": hidden})
        assert made_too.status_code == 201, made_too.text
        token = await server.token(Role.OPERATOR, "ada", ["shop"])
        async with visiting(browser, server.url) as visitor:
            page = visitor.page
            await sign_in(page, server.url, token)
            await visitor.open("/jobs")
            links = await page.get_by_role("navigation", name="Pages").get_by_role("link").all()
            linked = {await link.get_attribute("href") or "" for link in links}
            assert {"/", "/jobs", "/schedules", "/queues", "/admin"} <= linked
            pages = {path_of(pattern, made) for pattern in PATTERNS}
            assert linked <= pages
            visitor.taken()
            # What a route refuses is the server's business: tests/server/test_confined_tokens.py.
            for path in (*sorted(linked), *sorted(pages - linked)[:: pick(4, 1)]):
                await visitor.turn_to(path)
                content = await page.content()
                assert SECRET not in content, path
                assert theirs not in content, path
                if path in linked:
                    assert await page.locator("main").get_by_text("is restricted to shop").count() == 0, path
                    assert [each for each in visitor.taken() if "/api/events" not in each] == [], path


@pytest.mark.long
async def test_every_page_shows_the_sign_in_form_after_its_token_is_revoked(
    browser: Browser, tmp_path: Path
) -> None:
    async with running(f"sqlite:///{tmp_path}/jobs.db") as server:
        made = await fill(server)
        admin, token = await server.token(Role.ADMIN), await server.token(Role.VIEWER, "ada")
        async with visiting(browser, server.url) as visitor:
            await sign_in(visitor.page, server.url, token)
            tabs = await tabs_of(visitor, made)
            answer = await server.client(admin).post("/api/tokens/ada/revoke", json={})
            assert answer.status_code == 200, answer.text
            for pattern, tab in zip(PATTERNS, tabs, strict=True):
                await tab.page.bring_to_front()
                await expect(tab.page.get_by_label("Token"), pattern).to_be_visible()
                assert await tab.page.locator("main h1").inner_text() == "Interlock"


@pytest.mark.long
async def test_every_page_keeps_its_heading_and_shows_an_alert_while_the_server_is_unreachable(
    browser: Browser, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with AsyncExitStack() as stack:
        async with running(url) as server:
            port = server.address[1]
            made = await fill(server)
            visitor = await stack.enter_async_context(visiting(browser, server.url))
            tabs = await tabs_of(visitor, made)
            before = [await tab.page.locator("main h1").inner_text() for tab in tabs]
        for pattern, tab in zip(PATTERNS, tabs, strict=True):
            await tab.page.bring_to_front()
            await expect(tab.page.get_by_role("alert"), pattern).to_have_count(1)
            await expect(tab.page.get_by_role("alert")).to_contain_text("The server cannot be reached.")
        assert [await tab.page.locator("main h1").inner_text() for tab in tabs] == before
        async with running(url, any_port(port=port)):
            for pattern, tab in zip(PATTERNS, tabs, strict=True):
                await tab.page.bring_to_front()
                await expect(tab.page.get_by_role("alert"), pattern).to_have_count(0)
        await stack.aclose()


@pytest.mark.long  # test_journeys.py and test_pages.py have them on SQLite; the contract has PostgreSQL
async def test_the_main_journeys_work_on_postgresql_too(browser: Browser, on_postgres: Running) -> None:
    async with visiting(browser, on_postgres.url) as visitor:
        page = visitor.page
        await visitor.open("/jobs")
        await visitor.live()
        job = await on_postgres.submit()
        await page.get_by_role("link", name=job).click()
        await expect(page.locator("h1 .chip")).to_have_text("PENDING")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator("h1 .chip")).to_have_text("CANCELED")
        made = await fill(on_postgres)
        wrong: dict[str, list[str]] = {}
        for pattern in PATTERNS:
            await visitor.turn_to(path_of(pattern, made))
            wrong |= {pattern: found} if (found := visitor.taken()) else {}
        assert wrong == {}
