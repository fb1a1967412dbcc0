"""Simulations in a real browser: curves that grow, a pause and a resume, and several compared."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from itertools import count

import pytest
from playwright.async_api import expect
from tests.server.running import Running
from tests.waiting import PATIENCE_S, PROGRAM_S
from tests.web.visiting import ON_EVERY_STORE, Visitor

from interlock.worker.http import HttpOrchestrator
from interlock.worker.process import WorkerProcess
from interlock.worker.settings import WorkerSettings
from interlock.worker.simulations import SimulationContext, simulation
from interlock.worker.tasks import Registry
from interlock.worker.telemetry import make_log

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

REGISTRY = Registry()
STEPS, HELD_AT = 40, 20
GATE = threading.Event()


@simulation(registry=REGISTRY, name="tests.flu", total_steps=STEPS, save_every_s=0)
def flu(sim: SimulationContext, people: int, rate: float = 0.1) -> Generator[float, None, float]:
    """Some fall ill in every step; in the middle it waits until the test goes on."""
    ill = sim.restored(type=float) or 1.0
    for step in sim.steps():
        if step == HELD_AT:
            GATE.wait(PROGRAM_S)
        ill += rate * ill * (1 - ill / people)
        sim.metrics(ill=ill, healthy=people - ill)
        yield ill
    return ill


@asynccontextmanager
async def worker(server: Running) -> AsyncIterator[None]:
    names = count()
    process = WorkerProcess(
        WorkerSettings(name="ward", queues=("default",), log_level="error"),
        REGISTRY,
        lambda: HttpOrchestrator(server.url, names=lambda: f"n{next(names)}"),
        incarnation="1",
        log=make_log("error", "text"),
    )
    working = asyncio.create_task(process.run())
    try:
        yield
    finally:
        GATE.set()
        process.shutdown.request()
        await asyncio.wait([working])


async def start(server: Running, run_id: str, **given: float) -> None:
    body = {"task": "tests.flu", "run_id": run_id, "input": given, "total_steps": STEPS}
    answer = await server.client().post("/api/simulations", json=body)
    assert answer.status_code == 201, answer.text


@pytest.mark.long  # systems/simulations has curves and comparisons
@ON_EVERY_STORE
async def test_curves_grow_with_the_steps_a_pause_holds_them_and_runs_are_compared_by_parameter(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    GATE.clear()
    await start(server, "mild", people=500, rate=0.1)
    async with worker(server):
        await visitor.open("/simulations/mild")
        curve = page.get_by_role("img", name="ill along step. Latest: ill ")
        await expect(page.get_by_text(f"{HELD_AT - 1} of {STEPS}").first).to_be_visible()
        await expect(curve).to_be_visible()
        before = await curve.get_attribute("aria-label")
        legend = curve.locator(".u-legend")
        # The legend has the last values, until another place is pointed at.
        await expect(legend.locator(".u-value").first).to_have_text(str(HELD_AT - 1))
        await curve.locator(".u-over").hover(position={"x": 1, "y": 20})
        await expect(legend.locator(".u-value").first).to_have_text("1")
        await page.mouse.move(0, 0)
        await expect(legend.locator(".u-value").first).to_have_text(str(HELD_AT - 1))
        await expect(page.get_by_role("img", name="healthy along step")).to_be_visible()
        await page.get_by_role("button", name="Pause").click()
        await expect(page.get_by_text("pause requested")).to_be_visible()
        GATE.set()
        state = page.locator("h1 .chip")
        await expect(state).to_have_text("paused")
        saved = page.locator("section.panel", has_text="Checkpoint").get_by_role("row").nth(1)
        await expect(saved).to_contain_text(f"continues with step {HELD_AT + 1}")
        await page.get_by_role("button", name="Resume").click()
        await expect(state).to_have_text("completed")
        await expect(page.get_by_text(f"{STEPS} of {STEPS}").first).to_be_visible()
        assert await curve.get_attribute("aria-label") != before
        await start(server, "severe", people=500, rate=0.4)
        await page.get_by_role("link", name="Simulations").click()
        await expect(page.get_by_role("row", name="severe")).to_contain_text("completed")
    await page.get_by_label("Compare mild").check()
    await page.get_by_label("Compare severe").check()
    await page.get_by_role("link", name="Compare these 2").click()
    await expect(page.get_by_role("row", name="rate 0.1 0.4")).to_be_visible()
    await expect(page.get_by_text("1 parameter is the same in all of them.")).to_be_visible()
    await page.get_by_label("Metric").select_option("healthy")
    await expect(page.get_by_role("img", name="healthy along step. Latest: mild ")).to_be_visible()
    assert await visitor.complaints_midway() == []
    assert await visitor.sideways() == []
