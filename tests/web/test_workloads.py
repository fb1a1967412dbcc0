"""Workloads in a real browser: start one on real agents by the form, watch it, abort it, compare two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import expect
from tests.server.loads import finished, started
from tests.server.runners import done
from tests.server.running import Running
from tests.systems.fleet.fleets import LOADS, fleet
from tests.waiting import PATIENCE_S
from tests.web.visiting import ON_EVERY_STORE, Visitor

from interlock.testing.agent_process import AgentProcess
from interlock.wire.workloads import QUEUE
from interlock.worker.http import HttpOrchestrator
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log
from interlock.workloads import drive_workload

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[AgentProcess]]:
    with fleet(tmp_path_factory.mktemp("fleet"), [{}, {}]) as agents:
        yield agents


@asynccontextmanager
async def controller(server: Running) -> AsyncIterator[None]:
    """A worker that drives what is started."""
    registry, names = Registry(), count()
    registry.add(drive_workload)
    process = WorkerProcess(
        WorkerSettings(name="controller", queues=(QUEUE,), log_level="error"),
        registry,
        lambda: HttpOrchestrator(server.url, names=lambda: f"n{next(names)}"),
        incarnation="1",
        log=make_log("error", "text"),
    )
    working = asyncio.create_task(process.run())
    try:
        yield
    finally:
        process.shutdown.request()
        await asyncio.wait([working])


@pytest.mark.long  # real agents; a workload of a runner is among the pages of test_pages.py
@ON_EVERY_STORE
async def test_a_workload_is_started_by_a_form_watched_live_on_real_agents_and_aborted(
    server: Running, visitor: Visitor, agents: list[AgentProcess], tmp_path: Path
) -> None:
    page = visitor.page
    visitor.expected = ("422",)
    await visitor.open("/workloads")
    await page.get_by_role("link", name="Start a workload").click()
    await page.get_by_label("kind", exact=True).select_option("python")
    await page.get_by_label("target").fill("no such function")
    await page.get_by_label("path").fill(str(LOADS))
    await page.get_by_label("arguments").fill(
        msgspec.json.encode({"gate": str(tmp_path / "gate"), "free": 50}).decode()
    )
    await page.get_by_label("name", exact=True).fill("checkout")
    await page.get_by_label("agents").fill("\n".join(agent.address for agent in agents))
    await page.get_by_label("duration s").fill("600")
    await page.get_by_label("rate").fill("500")
    await page.get_by_label("thresholds").fill('{"p99_ms": 60000, "rate": 1000000}')
    await page.get_by_text("More", exact=True).click()
    await page.get_by_label("skew limit s").fill("60")
    await page.get_by_label("ready within s").fill("60")
    await page.get_by_role("button", name="Start", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("target must look like package.module:function")
    await page.get_by_label("target").fill("gated:work")
    await page.get_by_role("button", name="Check").click()
    await expect(page.get_by_text("interlock workload run load.yml")).to_be_visible()
    await page.get_by_role("button", name="Start", exact=True).click()
    await expect(page.locator("h1")).to_contain_text("checkout")
    await expect(page.locator("h1 .chip").first).to_have_text("PENDING")
    async with controller(server):
        rows = page.get_by_role("row").filter(has=page.get_by_role("link", name="127.0.0.1:"))
        await expect(rows.get_by_text("RUNNING")).to_have_count(2)
        await expect(rows.nth(0)).to_contain_text("±")  # its clock is known
        await expect(page.get_by_role("img", name="Latency, of all agents merged")).to_be_visible()
        await expect(page.locator(".tile", has_text="of 2 agents running")).to_contain_text("2")
        await expect(page.locator(".tile", has_text="operations")).to_contain_text("100")
        page.once("dialog", lambda dialog: asyncio.ensure_future(dialog.accept()))
        await page.get_by_role("button", name="Abort").click()
        await expect(page.locator("h1 .chip").first).to_have_text("CANCELED")
    await expect(rows.get_by_text("ABORTED")).to_have_count(2)
    await expect(page.get_by_role("button", name="Abort")).to_have_count(0)
    await expect(page.locator("main")).to_contain_text("It was stopped")
    await expect(page.get_by_role("row", name="p99_ms at most")).to_contain_text("passed")
    await expect(page.get_by_role("row", name="rate at least")).to_contain_text("missed")
    await expect(page.get_by_role("link", name="report.html")).to_be_visible()
    await rows.nth(0).get_by_role("link").click()
    await expect(page.get_by_role("img", name="It is IDLE")).to_be_visible()
    await expect(page.get_by_text("from the common start")).to_be_visible()


@pytest.mark.long  # systems/fleet compares reports
async def test_two_workloads_are_compared_percentile_by_percentile(server: Running, visitor: Visitor) -> None:
    page, client = visitor.page, server.client()
    for name, slow_ms in (("before", 9), ("after", 18)):
        _, runner, token = await started(client, name)
        response = await runner.say("complete", token, 2, **done(finished(name, slow_ms)))
        assert response.status_code == 200, response.text
    await visitor.open("/workloads")
    await page.get_by_label("Compare before").check()
    await page.get_by_label("Compare after").check()
    await page.get_by_role("link", name="Compare these two").click()
    await expect(page.get_by_role("img", name="Latency by percentile along percentile")).to_be_visible()
    row = page.get_by_role("row", name="p99 ").first
    await expect(row).to_contain_text("8.91 ms")
    await expect(row).to_contain_text("17.8 ms")
    await expect(row).to_contain_text("+100 %")
    assert await visitor.complaints_midway() == []
    assert await visitor.sideways() == []
