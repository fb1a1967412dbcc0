"""Schedules in a real browser: see when one fires and what became of its jobs, and act on it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import Browser, Locator, Page, expect
from tests.server.runners import Runner, done
from tests.server.running import Running, running
from tests.waiting import PATIENCE_S
from tests.web.test_access import sign_in
from tests.web.visiting import ON_EVERY_STORE, WIDE, Visitor, visit, visiting

from interlock.wire.access import Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

NIGHTLY = {"cron": "0 2 * * 1-5", "tz": "Europe/Berlin", "job": {"task": "shop.report", "queue": "mail"}}
BERLIN = ZoneInfo("Europe/Berlin")
ACTIONS = ("Run now", "Pause", "Resume", "Backfill …", "Delete")
PLACES = """(axis) => {
  const track = axis.querySelector(".track").getBoundingClientRect();
  const middle = (box) => (box.left + box.right) / 2;
  return [...axis.querySelectorAll(".mark > span")].map(
    (mark) => (middle(mark.getBoundingClientRect()) - track.left) / track.width);
}"""
"""Where the fires are along the axis, from 0 to 1."""


async def create(server: Running, name: str = "nightly", **different: Any) -> None:
    body = {"name": name, "schedule": {**NIGHTLY, **different}}
    answer = await server.client().post("/api/schedules", json=body)
    assert answer.status_code == 201, answer.text


async def next_fires(server: Running) -> list[datetime]:
    answer = await server.client().get("/api/schedules/nightly/next")
    return [datetime.fromisoformat(each) for each in answer.json()["times"]]


async def buttons(page: Page) -> list[str]:
    """Return what can be done."""
    shown = await page.locator("main .head").get_by_role("button").all_inner_texts()
    return [name for name in ACTIONS if name in shown]


def recent(page: Page) -> Locator:
    """Return the rows of the last fires."""
    return page.locator("section", has=page.get_by_role("heading", name="Last fires")).locator("tbody tr")


@pytest.mark.long  # other pages have such a journey
@ON_EVERY_STORE
async def test_a_schedule_is_run_paused_backfilled_and_deleted_on_its_page(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    await create(server)
    await visitor.open("/")
    await page.keyboard.press("g")
    await page.keyboard.press("c")
    row = page.get_by_role("row", name="nightly")
    await expect(row).to_contain_text("every weekday at 02:00 in Berlin")
    await row.get_by_role("link", name="nightly").click()
    await expect(page.get_by_text("Every weekday at 02:00 in Berlin; next in")).to_be_visible()
    await visitor.live()
    assert await buttons(page) == ["Run now", "Pause", "Backfill …", "Delete"]
    await page.get_by_role("button", name="Run now").click()
    await expect(recent(page)).to_have_count(1)
    await expect(recent(page)).to_contain_text("PENDING")
    runner = Runner(server.client())
    await runner.say("complete", (await runner.grant(queues=["mail"]))["token"], **done())
    await expect(recent(page)).to_contain_text("COMPLETED")  # live
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("h1 .chip")).to_have_text("paused")
    await expect(page.get_by_text("the fires it would have if it were resumed")).to_be_visible()
    assert await buttons(page) == ["Run now", "Resume", "Backfill …", "Delete"]
    await backfill(visitor)
    await expect(recent(page)).to_have_count(6)
    await expect(recent(page).first).to_contain_text("Fri, Jan 10, 2025, 02:00")
    await expect(recent(page).first).to_contain_text("backfilled")
    await recent(page).last.get_by_role("link").click()
    await page.get_by_role("link", name="nightly").click()  # the page of the job leads back
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("h1 .chip")).to_have_text("active")
    page.once("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
    await page.get_by_role("button", name="Delete").click()
    await expect(page.locator("h1 .chip")).to_have_text("ended")
    await expect(page.get_by_text("There is no further fire.")).to_be_visible()
    assert await buttons(page) == []
    assert [*await visitor.complaints_midway(), *visitor.taken()] == []


async def backfill(visitor: Visitor) -> None:
    """Submit five jobs of the past, after a range of which the server has something to say."""
    page = visitor.page
    visitor.expected = ("422", "answered 400")
    await page.get_by_role("button", name="Backfill …").click()
    dialog = page.get_by_role("dialog", name="Submit the jobs of fires that have passed")
    await dialog.get_by_label("From").fill("2040-01-06T00:00")
    await dialog.get_by_label("Until").fill("2040-01-07T00:00")
    await expect(dialog.get_by_role("alert")).to_contain_text(
        "There is no past fire time from 2040-01-06T00:00 until 2040-01-07T00:00."
    )
    await expect(dialog.get_by_role("button", name="Submit")).to_be_disabled()
    await dialog.get_by_label("From").fill("2025-01-06T00:00")
    await dialog.get_by_label("Until").fill("2025-01-11T00:00")
    await expect(dialog.get_by_role("status")).to_have_text("5 fires of this range have no job yet.")
    await expect(dialog.get_by_role("img", name="5 fires, in Europe/Berlin")).to_be_visible()
    assert [*await visitor.complaints_midway(), *await visitor.sideways()] == []
    await dialog.get_by_role("button", name="Submit 5 jobs").click()
    await expect(dialog).to_be_hidden()
    await page.get_by_role("button", name="Backfill …").click()
    await dialog.get_by_label("From").fill("2025-01-06T00:00")
    await dialog.get_by_label("Until").fill("2025-01-11T00:00")
    await expect(dialog.get_by_role("status")).to_contain_text("5 fires have one already")
    await dialog.get_by_role("button", name="Close").click()
    visitor.taken()


@pytest.mark.long
async def test_the_next_fires_are_drawn_to_scale_in_the_zone_of_the_schedule(
    server: Running, browser: Browser
) -> None:
    await create(server)
    context = await browser.new_context(viewport=WIDE, locale="en-US", timezone_id="America/New_York")  # type: ignore[arg-type]
    visitor = await visit(context, server.url)
    page = visitor.page
    await visitor.open("/schedules/nightly")
    times = await next_fires(server)
    assert len(times) == 10
    axis = page.get_by_role("img", name="The next 10 fires, in Europe/Berlin")
    places = await axis.evaluate(PLACES)
    # Now is where the axis begins, so the places are those of the times up to a shift and a scale.
    span = (times[-1] - times[0]).total_seconds()
    for at, place in zip(times, places, strict=True):
        along = places[0] + (at - times[0]).total_seconds() / span * (places[-1] - places[0])
        assert abs(place - along) < 0.002, (at, place)
    assert places[-1] == pytest.approx(1.0, abs=0.002)
    listed = page.get_by_role("list", name="The next 10 fires, in Europe/Berlin").get_by_role("time")
    shown = await listed.evaluate_all("(times) => times.map((each) => [each.innerText, each.title])")
    for at, (text, title) in zip(times, shown[::2], strict=True):
        local, own = at.astimezone(BERLIN), at.astimezone(ZoneInfo("America/New_York"))
        assert text.startswith(f"{local:%a, %b} {local.day}"), (at, text)
        assert "02:00" in text
        assert f"{own:%b} {own.day}" in title.splitlines()[1]
        assert title.endswith("in America/New_York, where you are")
    assert times[0] > datetime.now(UTC)
    await context.close()


@pytest.mark.long  # dead letters and records have it in a quick run
async def test_a_viewer_sees_schedules_and_no_button(browser: Browser) -> None:
    async with running() as server:
        await create(server)
        token = await server.token(Role.VIEWER, "ada")
        async with visiting(browser, server.url) as visitor:
            await sign_in(visitor.page, server.url, token)
            for path in ("/schedules", "/schedules/nightly"):
                await visitor.turn_to(path)
                await expect(visitor.page.locator("main")).to_contain_text("very weekday at 02:00 in Berlin")
                assert await buttons(visitor.page) == []
                assert await visitor.page.locator("main tbody").get_by_role("button").count() == 0
