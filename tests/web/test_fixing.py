"""Find why jobs do not run, fix it in the dashboard, and see them run; with a real worker process."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from tests.programs import Program
from tests.server.running import Running, running
from tests.waiting import PATIENCE_S, PROGRAM_S, until
from tests.web.visiting import WIDE, visit

from interlock.testing.servers import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

TASKS = """\
from pathlib import Path

from interlock import task


@task(retries=0)
def deliver(number: int) -> str:
    if not Path(__file__).with_name("road").exists():
        raise OSError(f"no road to house {number}")
    return f"delivered to house {number}"
"""


@asynccontextmanager
async def worker(folder: Path, url: str) -> AsyncIterator[None]:
    """`interlock worker start`, for the queue of the post."""
    (folder / "post.py").write_text(TASKS)
    words = ("worker", "start", "post.py", "--store", url, "--name", "anna", "--queue", "post")
    process = Program(*words, folder=folder, environment={**os.environ, "NO_COLOR": "1"})
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.new_database()


async def workers_of(server: Running) -> list[dict[str, str]]:
    found: list[dict[str, str]] = (await server.client().get("/api/workers")).json()["workers"]
    return found


@pytest.mark.long  # other pages have such a journey
async def test_why_a_job_waits_is_found_and_mended_and_the_job_runs_and_is_retried(
    browser: Browser, tmp_path: Path, url: str
) -> None:
    async with running(url) as server, worker(tmp_path, url):

        async def registered() -> bool:
            return len(await workers_of(server)) == 1

        await until(registered, "the worker has registered", within_s=PROGRAM_S)
        (anna,) = await workers_of(server)
        client = server.client()
        for order in ("workers/{}/start", "supervisor/workers/{}/pause"):
            answer = await client.post("/api/" + order.format(anna["id"]), json={})
            assert answer.status_code == 200, answer.text
        spec = {"task": "post.deliver", "queue": "post", "input": {"number": 7}}
        job = (await client.post("/api/jobs", json=spec)).json()["id"]
        context = await browser.new_context(viewport=WIDE, reduced_motion="reduce")  # type: ignore[arg-type]
        visitor = await visit(context, server.url)
        page = visitor.page
        # Why does it wait? The list leads to the job, and the job to the worker.
        await visitor.open("/jobs?q=state:pending+queue:post")
        await visitor.live()
        await page.get_by_role("link", name=job).click()
        await expect(page.get_by_role("main")).to_contain_text(
            "The only live worker that could take it, anna, is paused."
        )
        await page.get_by_role("link", name=anna["id"]).first.click()
        await page.get_by_role("button", name="Resume").click()
        # It runs, fails for another reason, and the page says which.
        await page.go_back()
        state = page.locator("h1 .chip")
        await expect(state).to_have_text("FAILED")
        await expect(page.get_by_text("no road to house 7").first).to_be_visible()
        # The reason is mended, and the job is done again.
        (tmp_path / "road").touch()
        await page.get_by_role("button", name="Retry").click()
        await expect(state).to_have_text("COMPLETED")
        await expect(page.get_by_text("delivered to house 7")).to_be_visible()
        await expect(page.get_by_role("link", name=job)).to_be_visible()  # what it does again
        assert visitor.taken() == []
        await context.close()
