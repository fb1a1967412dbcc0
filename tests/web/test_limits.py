"""Limits in a real browser: see how full one is, who holds it and who waits; set, change and delete it."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, Locator, Page, expect
from tests.server.runners import Runner, done
from tests.server.running import Running, running
from tests.waiting import PATIENCE_S
from tests.web.test_access import sign_in
from tests.web.visiting import ON_EVERY_STORE, Visitor, visiting

from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec
from interlock.wire.limits import LimitSpec

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

KEYS = 60


def panel(page: Page, title: str) -> Locator:
    """Return a part of the page by its heading."""
    return page.locator("section", has=page.get_by_role("heading", name=title))


async def admitted(server: Running) -> None:
    """Wait until the slots are given out."""
    while await server.parts.runtime.limits.keep():
        pass


@pytest.mark.long  # other pages have such a journey
@ON_EVERY_STORE
async def test_a_limit_is_set_watched_from_a_job_that_waits_changed_and_deleted(
    server: Running, visitor: Visitor
) -> None:
    page, runner = visitor.page, Runner(server.client())
    await visitor.open("/")
    await page.keyboard.press("g")
    await page.keyboard.press("i")
    await expect(page.get_by_text("No limit is declared.")).to_be_visible()
    await set_limit(visitor)
    row = page.get_by_role("row", name="vendor-x")
    await expect(row).to_contain_text("1 at the same time")
    await visitor.live()
    first, second = [await server.submit(limits=("vendor-x",)) for _ in range(2)]
    await expect(row).to_contain_text("1 of 1")  # live
    grant = await runner.grant()
    await visitor.turn_to(f"/jobs/{second}")
    await expect(page.get_by_text("it waits in line")).to_be_visible()
    await page.get_by_role("link", name="vendor-x", exact=True).click()  # from a job to what it waits for
    await expect(panel(page, "In use")).to_contain_text(first)
    await expect(panel(page, "In use")).to_contain_text(runner.name)
    await expect(panel(page, "Waiting: 1")).to_contain_text(second)
    await expect(page.locator("h1 .chip")).to_have_text("full")
    assert [*await visitor.complaints_midway(), *await visitor.sideways()] == []
    await panel(page, "Waiting: 1").get_by_role("link", name=second).click()  # and back
    await page.get_by_role("link", name="vendor-x", exact=True).click()
    await page.get_by_role("button", name="Change …").click()
    dialog = page.get_by_role("dialog", name="Change vendor-x")
    await dialog.get_by_label("Slots").fill("2")
    await dialog.get_by_role("button", name="Change").click()
    await expect(panel(page, "Waiting: 0")).to_be_visible()
    await expect(panel(page, "In use")).to_contain_text("2 of 2")
    await runner.say("complete", grant["token"], **done())
    await expect(panel(page, "In use")).to_contain_text("1 of 2")  # live
    page.once("dialog", lambda prompt: asyncio.ensure_future(prompt.accept()))
    visitor.expected = ("404", "answered 404")
    await page.get_by_role("button", name="Delete").click()
    await expect(page.get_by_text("There is no limit vendor-x.")).to_be_visible()
    visitor.taken()


async def set_limit(visitor: Visitor) -> None:
    """Declare a limit by the keyboard alone, after one that the server refuses."""
    page = visitor.page
    visitor.expected = ("422", "answered 422")
    await page.get_by_role("button", name="Set a limit …").focus()
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Set a limit")
    await expect(dialog.get_by_label("Name")).to_be_focused()
    await page.keyboard.type("vendor-x")
    await page.keyboard.press("Enter")
    await expect(dialog.get_by_role("alert")).to_contain_text("it has neither max nor rate")
    await page.keyboard.press("Tab")
    await page.keyboard.type("1")
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_hidden()
    visitor.taken()
    visitor.expected = ()


@pytest.mark.long  # systems/limits has pages of keys
async def test_the_keys_of_a_pattern_come_in_pages_and_lead_to_the_page_of_each(
    server: Running, visitor: Visitor
) -> None:
    page, runtime = visitor.page, server.parts.runtime
    await runtime.limits.set("tenant:*", LimitSpec(max=1))
    specs = [JobSpec(task="shop.call", limits=(f"tenant:{number:02}",)) for number in range(KEYS)]
    await runtime.jobs.submit_many([*specs, specs[7]], actor="test")
    await admitted(server)
    await visitor.open("/limits")
    await expect(page.get_by_role("row", name="tenant:*")).to_contain_text(f"{KEYS} keys")
    await page.get_by_role("link", name="for 1 key").click()
    rows = page.locator("main tbody tr")
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("tenant:07")
    await page.get_by_role("link", name="All").click()
    await expect(rows).to_have_count(50)
    await page.get_by_role("button", name="Show more").click()
    await expect(rows).to_have_count(KEYS)
    await expect(page.get_by_role("button", name="Show more")).to_have_count(0)
    assert [*await visitor.complaints_midway(), *await visitor.sideways()] == []
    await page.get_by_role("link", name="tenant:07").click()
    await expect(page.get_by_text("It follows the limit tenant:*.")).to_be_visible()
    await expect(panel(page, "Waiting: 1")).to_be_visible()
    assert visitor.taken() == []


@pytest.mark.long  # dead letters and records have it in a quick run
async def test_a_viewer_sees_limits_and_no_button(browser: Browser) -> None:
    async with running() as server:
        await server.parts.runtime.limits.set("vendor-x", LimitSpec(max=1, rate=5))
        token = await server.token(Role.VIEWER, "ada")
        async with visiting(browser, server.url) as visitor:
            await sign_in(visitor.page, server.url, token)
            for path in ("/limits", "/limits/vendor-x"):
                await visitor.turn_to(path)
                await expect(visitor.page.locator("main")).to_contain_text("5 starts every 1 s")
                buttons = visitor.page.locator("main").get_by_role("button")
                assert {await each.inner_text() for each in await buttons.all()} <= {"Copy"}
