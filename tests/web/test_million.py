"""A store with a million jobs: pages show it, and what they ask for costs the store as little as ever.

`make test` has 20,000 jobs, and looks end as much earlier. Nothing here depends on the speed of the machine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Request, Response, expect
from tests.effort import ALL, pick
from tests.server.running import Running, any_port, running
from tests.server.store_work import BATCH, CAPS, STEPS, Asked, Work, counts_a_table, crowd, taken, watched
from tests.waiting import PATIENCE_S, until
from tests.web.visiting import Visitor, visiting

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

JOBS = pick(quick=20_000, thorough=1_000_000)
MOST_STEPS = pick(quick=3 * JOBS, thorough=STEPS)
"""For one request. Who looks at every job takes more steps than three for each."""
MOST_BYTES, MOST_RECORDS = 400_000, 500
PAGES = {
    "/jobs": "shown of",
    "/jobs?q=state:failed": "It broke.",
    "/jobs?q=task:shop.rare": "have not been looked at yet",
    "/machines/job": "Where the live ones stand",
    "/records/job": "PENDING",
    "/journal": "PENDING",
    "/admin": "Store",
}
FIGURES = {"/": "pending", "/queues/queue-0": "oldest pending", "/queues": "queue-6"}
"""The pages whose content depends on how many jobs there are, and what each shows then; and those with
figures, with which a server that has just begun has to catch up."""


class Answers:
    """What pages have asked for, and how much they were answered."""

    def __init__(self, page: Page) -> None:
        self.asked: Asked = {}
        self.bytes: dict[str, int] = {}
        page.on("request", self._begin)
        page.on("response", self._end)

    def _begin(self, request: Request) -> None:
        url = urlsplit(request.url)
        if request.method == "GET" and url.path.startswith("/api/") and url.path != "/api/events":
            query = dict(parse_qsl(url.query))
            which = sorted((name, value) for name, value in query.items() if name != "cursor")
            self.asked[f"{url.path} {which} {'cursor' in query}"] = (url.path, query)

    def _end(self, response: Response) -> None:
        self.bytes[response.url] = int(response.headers.get("content-length", 0))


@pytest_asyncio.fixture(loop_scope="session")
async def crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Running, Work]]:
    """A server with so many jobs, whose work is counted."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server:
        await crowd(server, JOBS)
    work = watched(monkeypatch, notes=True)
    if not ALL:
        for module, name in CAPS:
            monkeypatch.setattr(module, name, BATCH)
    async with running(url, any_port(tokens_required=False)) as server:
        await server.submit(queue="queue-0")
        yield server, work


async def open_all(server: Running, visitor: Visitor) -> Answers:
    """Open every page, and scroll the list of jobs on; return what they asked for."""
    answers, page, client = Answers(visitor.page), visitor.page, server.client()

    async def caught_up() -> bool:
        return "queue-6" in (await client.get("/api/queues")).text

    for pages in (PAGES, FIGURES):
        for path, expected in pages.items():
            await visitor.turn_to(path)
            await expect(page.locator("main")).to_contain_text(expected)
        await until(caught_up, "the figures know all queues")
    await visitor.turn_to("/jobs")
    rows = page.locator("table.rows tbody tr:not(.space)")
    await expect(rows.first).to_contain_text("queue-")
    first = await rows.first.get_by_role("link").inner_text()
    shown = page.get_by_text("shown of")
    before = await shown.inner_text()
    await page.evaluate("() => scrollTo(0, document.body.scrollHeight)")
    await expect(shown).not_to_have_text(before)  # the next page of the list
    await page.evaluate("() => scrollTo(0, 0)")
    await rows.first.get_by_role("link").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text(first)
    return answers


@pytest.mark.long  # server/test_page_work.py counts the same reads
async def test_dashboard_pages_read_little_from_a_very_large_store_and_count_no_table(
    browser: Browser, crowded: tuple[Running, Work], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, work = crowded
    work.noting = True
    async with visiting(browser, server.url) as visitor:
        answers = await open_all(server, visitor)
        assert visitor.taken() == []
    assert len(answers.asked) > len(PAGES)
    assert {url: size for url, size in answers.bytes.items() if size > MOST_BYTES} == {}
    limits = [int(query.get("limit", 0)) for _, query in answers.asked.values()]
    assert max(limits) <= MOST_RECORDS
    steps = await taken(server, work, answers.asked)
    assert {name: number for name, number in steps.items() if number > MOST_STEPS} == {}
    queries = [each for each in work.statements if each.lstrip("( ").upper().startswith(("SELECT", "WITH"))]
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
        assert len(queries) > 10
        assert [each for each in queries if counts_a_table(connection, each)] == []
        assert counts_a_table(connection, "SELECT count(*) FROM record_state"), "such a statement is noticed"
    for module, name in CAPS:
        monkeypatch.setattr(module, name, 10 * JOBS)
    rare = {"rare": ("/api/jobs", {"q": "task:shop.rare", "limit": "100"})}
    assert (await taken(server, work, rare, tries=1))["rare"] > MOST_STEPS, "a look at every job is noticed"
