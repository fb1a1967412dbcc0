"""Records of any kind in a real browser: a lifecycle that is declared in Python needs no page of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect
from tests.server.lifecycles import ARRIVED, PARCEL, SENT, move, pack, recalling
from tests.server.runners import Runner
from tests.server.running import Running, running
from tests.waiting import PATIENCE_S
from tests.web.visiting import WIDE, Visitor, fill, visit

from interlock.systems.kinds import lifecycles_with
from interlock.wire.access import Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)


@asynccontextmanager
async def looking(browser: Browser, url: str) -> AsyncIterator[Visitor]:
    context = await browser.new_context(viewport=WIDE, reduced_motion="reduce")  # type: ignore[arg-type]
    visitor = await visit(context, url)
    try:
        yield visitor
    finally:
        await context.close()


async def choose(page: Page, label: str, option: str) -> None:
    await page.get_by_role("combobox", name=label).select_option(option)


async def test_a_lifecycle_that_is_declared_in_python_has_a_list_pages_and_buttons(
    browser: Browser, tmp_path: Path
) -> None:
    servers: list[Running] = []
    lifecycles, more = lifecycles_with([PARCEL]), (recalling(servers),)
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url, lifecycles=lifecycles, more=more) as server:
        servers.append(server)
        for name in ("p-1", "p-2", "p-3"):
            await pack(server, name, weight_g=700, notes=["<b>fragile</b>"])
        await move(server, "p-2", "send", SENT)
        async with looking(browser, server.url) as visitor:
            page = visitor.page
            await visitor.open("/machines")
            await page.get_by_role("link", name="parcel", exact=True).click()
            await page.get_by_role("link", name="Records").click()
            rows = page.get_by_role("region", name="List of records: parcel").get_by_role("row")
            await expect(rows).to_have_count(4)
            await expect(rows.first).to_have_text("IdStateActs nextDeadlineCreatedChanged")
            await expect(rows.nth(2)).to_contain_text("p-2sentcourier")
            await page.get_by_role("navigation", name="States").get_by_role("link", name="packed").click()
            await expect(rows).to_have_count(3)
            await pack(server, "p-4")
            await expect(page.get_by_role("link", name="p-4")).to_be_visible()  # live
            assert [*await visitor.complaints_midway(), *await visitor.sideways()] == []
            await visitor.open("/records/parcel/p-1")
            await visitor.live()
            state = page.locator("h1 .chip")
            await expect(state).to_have_text("packed")
            await expect(page.get_by_text("Waits for the courier.")).to_be_visible()
            await expect(page.get_by_role("list", name="Possible next steps")).to_contain_text(
                "by shop: It was ordered by mistake."
            )
            await expect(page.get_by_text("There is one version only.")).to_be_visible()
            await move(server, "p-1", "send", SENT, weight_g=720, notes=["<b>fragile</b>", "signed"])
            await expect(state).to_have_text("sent")
            changed = page.locator("table.differences tbody tr")
            await expect(changed).to_have_text(["parcelpackedsent", "weight_g700720", 'notes[1]"signed"'])
            await expect(page.get_by_alt_text("It is sent, after packed, sent.")).to_be_visible()
            assert [*await visitor.complaints_midway(), *await visitor.sideways()] == []
            await page.get_by_role("button", name="Recall").click()
            await expect(state).to_have_text("returned")
            await expect(page.get_by_role("button", name="Recall")).to_have_count(0)
            await choose(page, "From version", "1")
            await expect(changed.first).to_have_text("parcelpackedreturned")
            await visitor.open("/records/parcel/p-2")  # what has happened before it was looked at
            await expect(changed).to_have_text(["parcelpackedsent"])
            await page.get_by_text("The change in between").click()
            await expect(page.get_by_text("Version 2: send by courier: because of send")).to_be_visible()
            await expect(page.get_by_text("The body of version 1 is not kept")).to_be_visible()
            await visitor.open("/records/parcel/p-1")
            story = page.locator("section", has=page.get_by_role("heading", name="History")).locator(
                "tbody tr"
            )
            await expect(story).to_have_count(3)
            await expect(story.first).to_contain_text("createdshopordered")
            await expect(story.last).to_contain_text("because of recall")
            assert visitor.taken() == []


async def test_a_record_page_shows_no_body_or_cancel_button_to_a_viewer_or_a_restricted_token(
    browser: Browser, tmp_path: Path
) -> None:
    async with running(f"sqlite:///{tmp_path}/jobs.db") as server:
        job = await server.submit(queue="ci")
        viewer = await server.token(Role.VIEWER, "ada")
        confined = await server.token(Role.ADMIN, "bob", queues=("ci",))
        for token, seen in ((viewer, "Its own page"), (confined, "is restricted to ci")):
            async with looking(browser, server.url) as visitor:
                page = visitor.page
                await page.goto(f"{server.url}/records/job/{job}")
                await page.get_by_label("Token").fill(token)
                await page.get_by_role("button", name="Sign in").click()
                await expect(page.get_by_role("main")).to_contain_text(seen)
                assert await page.get_by_role("button", name="Cancel").count() == 0
                assert await page.get_by_role("heading", name="Body").count() == 0


@pytest.mark.long
async def test_the_journal_page_filters_by_its_url_and_shows_the_history_of_one_record(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    await fill(server)
    stays = await server.submit(queue="q-stays")
    gone = await server.submit(queue="q-gone")
    await server.parts.runtime.jobs.cancel(gone, actor="ann", reason="a mistake")
    await visitor.open("/journal?actor=ann")
    entries = page.get_by_role("region", name="Entries of the journal").locator("tbody tr")
    await expect(entries).to_have_count(1)
    await expect(entries).to_contain_text("a mistake")
    await page.get_by_role("link", name=f"The story of {gone}").click()
    await expect(entries).to_have_count(2)
    await page.get_by_role("link", name="Clear").click()
    await choose(page, "Kind", "job")
    await page.get_by_label("State").fill("running")
    await page.get_by_label("State").press("Enter")
    await page.wait_for_url("**/journal?kind=job&state=running")
    await visitor.live()
    response = await server.client().get("/api/journal", params={"kind": "job", "state": "running"})
    before = len(response.json()["entries"])
    await expect(entries).to_have_count(before)  # the page shows none while it loads
    await Runner(server.client()).grant(queues=["q-stays"])
    await expect(entries).to_have_count(before + 1)  # live, by the same words
    await expect(entries.first).to_contain_text(stays)
    await entries.first.get_by_role("link", name=stays, exact=True).click()
    await expect(page.locator("h1")).to_contain_text(stays)
    visitor.expected = ("422",)
    await visitor.open("/journal?state=arrived")
    await expect(page.get_by_role("alert")).to_contain_text("There is no state 'arrived'")
    visitor.taken()


@pytest.mark.long
async def test_a_record_that_changes_a_thousand_things_is_compared_in_part(
    browser: Browser, tmp_path: Path
) -> None:
    async with running(f"sqlite:///{tmp_path}/jobs.db", lifecycles=lifecycles_with([PARCEL])) as server:
        await pack(server, "big", notes=["x" * 500] * 1_000)
        async with looking(browser, server.url) as visitor:
            await visitor.open("/records/parcel/big")
            await visitor.live()
            await move(server, "big", "send", SENT, notes=["y" * 500] * 1_000)
            await expect(visitor.page.get_by_text("800 more differ.")).to_be_visible()
            await move(server, "big", "arrive", ARRIVED)
            await expect(visitor.page.get_by_text("The body is the same in both.")).to_be_visible()
            assert visitor.taken() == []
