"""The list of jobs: columns to choose, and acting on all that match, with progress and a way back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect
from tests.server.runners import Runner
from tests.server.running import Running, running
from tests.waiting import PATIENCE_S
from tests.web.visiting import Visitor, visiting

from interlock.store.records import Query
from interlock.testing.servers import PostgresServer
from interlock.wire import filters
from interlock.wire.jobs import JobSpec

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

FEW, MANY = 60, 3_000


async def fail(server: Running, number: int) -> None:
    """Let so many jobs fail."""
    runner = Runner(server.client())
    failed = {"outcome": "failed", "error": "no route to host", "failure_class": "permanent"}
    for start in range(0, number, 500):
        specs = [JobSpec(task="shop.send", queue="mail")] * min(500, number - start)
        await server.parts.runtime.jobs.submit_many(specs)
        left = len(specs)
        while left:
            grants = await runner.grants(queues=["mail"], limit=min(left, 100))
            left -= len(grants)
            for grant in grants:
                answer = await runner.say("complete", grant["token"], outcome=failed)
                assert answer.status_code == 200, answer.text


async def states(server: Running) -> Counter[str]:
    found: Counter[str] = Counter()
    cursor = ""
    while True:
        page = await server.parts.store.find(Query(kind="job", limit=1_000, cursor=cursor))
        found.update(record.state for record in page.records)
        cursor = page.cursor
        if not cursor:
            return found


async def retry_all(page: Page, number: str) -> None:
    await page.get_by_role("button", name="Retry all that match").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading")).to_have_text(f"Submit {number} jobs again?")
    await expect(dialog).to_contain_text("state:failed queue:mail")
    await expect(dialog.get_by_role("listitem")).to_have_count(6)
    await dialog.get_by_role("button", name="Submit them again").click()


async def test_all_that_match_are_retried_with_a_preview_and_progress_and_undone_before_they_run(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    await fail(server, FEW)
    await visitor.open("/jobs?q=state:failed+queue:mail")
    await page.get_by_role("button", name="Retry all that match").click()
    assert await visitor.complaints_midway() == []
    await page.get_by_role("button", name="Do nothing").click()
    assert await states(server) == {"FAILED": FEW}
    await retry_all(page, str(FEW))
    progress = page.get_by_role("region", name="Progress")
    await expect(progress.get_by_role("status")).to_have_text(f"Submitted again: {FEW} jobs.")
    assert await states(server) == {"FAILED": FEW, "PENDING": FEW}
    assert await visitor.complaints_midway() == []
    await Runner(server.client()).grant(queues=["mail"])  # one of them runs by now
    await progress.get_by_role("button", name="Undo: cancel the new jobs that have not begun").click()
    await expect(progress.get_by_role("status")).to_have_text(f"Cancel was requested for {FEW - 1} jobs.")
    assert await states(server) == {"FAILED": FEW, "CANCELED": FEW - 1, "RUNNING": 1}
    await progress.get_by_role("button", name=f"Submit {FEW - 1} jobs again that had not begun").click()
    await expect(progress.get_by_role("status")).to_have_text(f"Submitted again: {FEW - 1} jobs.")
    await progress.get_by_role("button", name="Close").click()
    await expect(progress).to_have_count(0)
    assert visitor.taken() == []


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_three_thousand_failed_jobs_are_retried_with_progress(
    browser: Browser, tmp_path: Path, postgres: PostgresServer, kind: str
) -> None:
    url = postgres.new_database() if kind == "postgres" else f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server, visiting(browser, server.url) as visitor:
        page = visitor.page
        await fail(server, MANY)
        await visitor.open("/jobs?q=state:failed+queue:mail")
        await retry_all(page, "1,000 or more")
        progress = page.get_by_role("region", name="Progress")
        await expect(progress).to_contain_text("of 3,000")
        await expect(progress.get_by_role("status")).to_have_text("Submitted again: 3,000 jobs.")
        assert await states(server) == {"FAILED": MANY, "PENDING": MANY}
        assert visitor.taken() == []


async def test_a_request_that_was_lost_is_sent_again_and_nothing_is_done_twice(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    await fail(server, FEW)
    await visitor.open("/jobs?q=state:failed+queue:mail")

    async def lose(route: Route) -> None:
        if "dry_run" in (route.request.post_data or ""):
            await route.continue_()
            return
        await route.fetch()  # it is done, and the browser does not hear of it
        await route.abort()

    visitor.expected = ("/api/jobs/actions", "ERR_FAILED")
    await page.route("**/api/jobs/actions", lose)
    await retry_all(page, str(FEW))
    progress = page.get_by_role("region", name="Progress")
    await expect(progress.get_by_role("alert")).to_contain_text("The server cannot be reached.")
    await page.unroute("**/api/jobs/actions")
    await progress.get_by_role("button", name="Try again").click()
    await expect(progress.get_by_role("status")).to_have_text(f"Submitted again: {FEW} jobs.")
    assert await states(server) == {"FAILED": FEW, "PENDING": FEW}
    visitor.taken()


@pytest.mark.long
async def test_columns_are_chosen_and_the_browser_keeps_the_choice(server: Running, visitor: Visitor) -> None:
    page = visitor.page
    await server.submit(labels=("gpu",), priority=7, description="the letter to Ada")
    await visitor.open("/jobs")
    table = page.get_by_role("region", name="List of jobs").get_by_role("table")
    await expect(table.get_by_role("columnheader")).to_have_count(8)
    await page.get_by_text("Columns", exact=True).click()
    await page.get_by_label("Labels").check()
    await page.get_by_label("Priority").check()
    await page.get_by_label("Queue").uncheck()
    assert await visitor.complaints() == []
    await expect(table).to_contain_text("gpu")
    await page.reload()
    await expect(table.get_by_role("columnheader", name="Labels")).to_be_visible()
    await expect(table.get_by_role("columnheader", name="Queue")).to_have_count(0)
    assert await visitor.sideways() == []
    await page.get_by_text("Columns", exact=True).click()
    await page.get_by_role("button", name="As usual").click()
    await expect(table.get_by_role("columnheader", name="Queue")).to_be_visible()
    assert await page.evaluate("() => JSON.stringify(localStorage)") == "{}"


@pytest.mark.long
async def test_a_filter_finds_a_rare_job_behind_many_and_reports_when_older_jobs_are_unsearched(
    server: Running, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "LOOKED_AT", 2)
    jobs = server.parts.runtime.jobs
    await jobs.submit(JobSpec(task="shop.rare", queue="rare"))
    await jobs.submit_many([JobSpec(task="shop.send")] * 30)
    await visitor.open("/jobs?q=queue:rare")
    await expect(visitor.page.get_by_text("shop.rare")).to_be_visible()
    await jobs.submit_many([JobSpec(task="shop.send")] * 30)
    await visitor.open("/jobs?q=queue:rare")
    await expect(visitor.page.get_by_text("older ones have not been looked at yet")).to_be_visible()
    await expect(visitor.page.get_by_text("No job matches")).to_have_count(0)
    await visitor.page.get_by_role("button", name="Look further").click()
    await expect(visitor.page.get_by_text("shop.rare")).to_be_visible()
