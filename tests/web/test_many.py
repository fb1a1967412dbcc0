"""Very many jobs: a list of any length costs the page as much as a short one."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Page
from tests.effort import pick
from tests.server.running import Running
from tests.waiting import PATIENCE_S, until
from tests.web.visiting import Visitor

from interlock.wire.jobs import JobSpec

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROWS = pick(quick=500, thorough=10_000)
BATCH = 500
ROW_PX, STEPS = 40, pick(quick=10, thorough=40)
IN_THE_PAGE = 80
"""A window of 800 pixels has room for 20 rows; some more are drawn above and below."""

SHOWN = r"""() => {
  const said = /([\d,]+) shown of/.exec(document.querySelector("main").innerText);
  return said ? Number(said[1].replace(",", "")) : 0;
}"""
WATCH_DRAWS = """() => {
  window.draws = 0;
  const body = document.querySelector("table.rows tbody");
  new MutationObserver(() => { window.draws += 1; }).observe(body, { childList: true, subtree: true });
  return document.body.scrollHeight;
}"""
SCROLL_TO = """async (at) => {
  const frame = () => new Promise((shown) => requestAnimationFrame(shown));
  const body = document.querySelector("table.rows tbody");
  window.draws = 0;
  scrollTo(0, at);
  await frame().then(frame);
  const box = body.getBoundingClientRect();
  const seen = document.elementFromPoint(box.left + 100, Math.max(box.top, 0) + 300);
  return [body.rows.length, window.draws, seen?.closest("tr.space") ? "space" : "rows"];
}"""


async def shown(page: Page) -> int:
    """Return how many jobs the list says that it shows."""
    return int(await page.evaluate(SHOWN))


@pytest.mark.long  # test_lists.py scrolls a list
async def test_a_list_of_any_length_keeps_few_rows_in_the_page_and_draws_once_for_each_step(
    server: Running, visitor: Visitor
) -> None:
    for _ in range(0, ROWS, BATCH):
        await server.parts.runtime.jobs.submit_many([JobSpec(task="shop.send")] * BATCH, actor="test")
    page = visitor.page
    await visitor.open("/jobs")
    known = 0
    while known < ROWS:
        before = known

        async def more(before: int = before) -> bool:
            await page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
            return await shown(page) > before

        await until(more, f"more than {before} jobs are shown")
        known = await shown(page)
        assert await page.locator("table.rows tbody tr").count() <= IN_THE_PAGE
    await page.bring_to_front()  # others draw no frames
    height = await page.evaluate(WATCH_DRAWS)
    assert height > ROWS * ROW_PX
    steps = []
    for at in range(height, 0, -height // STEPS):
        async with asyncio.timeout(PATIENCE_S):
            steps.append(await page.evaluate(SCROLL_TO, at))
    assert [step for step in steps if step[0] > IN_THE_PAGE or step[1] > 2] == []
    assert {step[2] for step in steps[:-1]} == {"rows"}, "the window is never on empty space"
