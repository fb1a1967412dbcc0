"""Lists with the newest first: nothing moves away from under the eyes of a reader."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect
from tests.effort import pick
from tests.server.running import Running
from tests.waiting import PATIENCE_S
from tests.web.visiting import COUNT_NEWS, Visitor

from interlock.wire.jobs import JobSpec

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

ROWS = 60
SOME = pick(quick=("/jobs",), thorough=("/jobs", "/journal", "/records/job", "/runs", "/simulations"))
FIRST_SEEN = """() => {
  const rows = [...document.querySelectorAll("main tbody tr:not(.space)")];
  const seen = rows.find((row) => row.getBoundingClientRect().top >= 0);
  return [seen.querySelector("a.mono").innerText, seen.getBoundingClientRect().top];
}"""
"""The first row that can be seen whole, and where it is."""


async def happen(server: Running) -> None:
    """Let one more be in each of the lists."""
    client = server.client()
    flu = {"task": "flu", "scenario_name": "Flu", "total_steps": 3, "run_id": ""}
    assert (await client.post("/api/simulations", json=flu)).status_code == 201
    plan = {"jobs": [{"name": "a", "task": "a.b"}]}
    assert (await client.post("/api/runs", json={"workflow": "ci", "plan": plan})).status_code == 201


def new_rows(page: Page) -> Locator:
    """Return the button that shows what is new."""
    return page.get_by_role("button", name="new", exact=False).and_(page.locator(".new-rows"))


async def first(page: Page) -> str:
    """Return the id in the first row of the list."""
    return await page.locator("main tbody a.mono").first.inner_text()


async def test_a_scrolled_list_keeps_its_rows_in_place_and_shows_new_rows_only_on_request(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    for _ in range(ROWS if SOME[-1] == "/simulations" else 1):
        await happen(server)
    await server.parts.runtime.jobs.submit_many([JobSpec(task="shop.send")] * ROWS, actor="test")
    for path in SOME:
        await visitor.open(path)
        await visitor.live()
        await expect(new_rows(page)).to_have_count(0)
        await page.evaluate("() => scrollTo(0, 400)")
        before: Any = await page.evaluate(FIRST_SEEN)
        await happen(server)
        await expect(new_rows(page)).to_be_visible()
        assert await page.evaluate(FIRST_SEEN) == before, path
        assert await visitor.complaints_midway() == []
        await page.keyboard.press("n")
        await expect(new_rows(page)).to_have_count(0)
        top = await first(page)
        assert await page.evaluate("() => scrollY") == 0
        await happen(server)
        await expect(page.locator("main tbody a.mono").first).not_to_have_text(top)
        await expect(new_rows(page)).to_have_count(0)
    assert visitor.taken() == []


@pytest.mark.long
async def test_a_row_that_is_selected_or_focused_stays_where_it_is(server: Running, visitor: Visitor) -> None:
    page = visitor.page
    job = await server.submit()
    await visitor.open("/jobs")
    await visitor.live()
    box = page.get_by_role("checkbox", name=job)
    await box.check()
    second = await server.submit()
    await expect(new_rows(page)).to_have_text("Show 1 new")
    await server.submit()
    await expect(new_rows(page)).to_have_text("Show 2 new")
    assert await first(page) == job
    await new_rows(page).focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name=second)).to_be_visible()
    await expect(box).to_be_checked()
    await expect(page.locator("#content")).to_be_focused()
    await box.uncheck()
    await page.get_by_role("link", name=job).focus()
    await server.submit()
    await expect(new_rows(page)).to_have_text("Show 1 new")
    await expect(page.get_by_role("link", name=job)).to_be_focused()


async def test_keyboard_shortcuts_act_on_the_selected_job_and_not_on_a_job_that_arrives_later(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    job = await server.submit()
    await visitor.open("/jobs")
    await visitor.live()
    await page.keyboard.press("c")
    await expect(page.get_by_text("Choose a job first")).to_be_visible()
    await page.keyboard.press("j")
    await expect(page.locator("tr.current")).to_contain_text(job)
    other = await server.submit()
    await expect(new_rows(page)).to_have_text("Show 1 new")
    await page.keyboard.press("c")
    await expect(page.locator("tr.current")).to_contain_text("CANCELED")
    await page.keyboard.press("n")
    await expect(page.get_by_role("row").filter(has_text=other)).to_contain_text("PENDING")
    await expect(page.locator("tr.current")).to_contain_text(job)


async def test_new_rows_come_in_when_a_reader_is_back_at_the_beginning(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    await page.add_init_script(f"({COUNT_NEWS})()")
    await server.parts.runtime.jobs.submit_many([JobSpec(task="shop.send")] * ROWS, actor="test")
    await visitor.open("/journal")
    await visitor.live()
    await page.evaluate("() => scrollTo(0, 400)")
    job = await server.submit()
    await expect(new_rows(page)).to_be_visible()
    await page.evaluate("() => scrollTo(0, 0)")
    await expect(new_rows(page)).to_have_count(0)
    assert await first(page) == job
