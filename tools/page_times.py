"""Measure the dashboard in a Chromium: `python tools/page_times.py`.

Print how long the first view of each main page takes with an empty cache, and how regular the frames are
while a list of 10,000 jobs is scrolled; both by the clock, and in time of a processor in the page's main
thread. No test holds them: the clock depends on the machine, whose load is printed.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Browser, CDPSession, Page, async_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.server.running import any_port, running  # noqa: E402 - the tests know how to start both
from tests.server.store_work import crowd  # noqa: E402
from tests.web.browsers import ARGUMENTS, chromium  # noqa: E402

ROUNDS = 5
JOBS = 10_000
PATHS = (
    *("/", "/jobs", "/batches", "/approvals", "/dead-letters", "/schedules"),
    *("/queues", "/limits", "/machines", "/journal"),
)
SIZE = {"width": 1280, "height": 800}
FRAMES, FRAME_MS = 600, 1_000 / 60
STEPS_PX = (120, 660)
"""How far the list is scrolled in each frame: a quick turn of a wheel; and all rows within ten seconds."""

READY = """() => {
  const main = document.querySelector("main");
  const there = main && main.ariaBusy !== "true" && main.querySelector("h1");
  return there && !/Loading/.test(main.innerText) ? performance.now() : 0;
}"""
"""The time since the navigation began; it is looked at in each frame until the page shows its content."""
ROWS = r"""() => {
  scrollTo(0, document.body.scrollHeight);
  const shown = /([\d,]+) shown of/.exec(document.querySelector("main").innerText);
  return Number((shown?.[1] ?? "0").replace(",", ""));
}"""
SCROLL = """async ([frames, step]) => {
  const frame = () => new Promise(requestAnimationFrame);
  scrollTo(0, 0);
  await frame().then(frame);
  const times = [];
  for (let number = 0; number < frames; number++) {
    times.push(await frame());
    scrollBy(0, step);
  }
  return times.slice(1).map((at, place) => at - times[place]);
}"""


async def main() -> int:
    """Measure and print."""
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}, {JOBS:,} jobs on SQLite")
    with tempfile.TemporaryDirectory() as folder:
        async with (
            async_playwright() as playwright,
            running(f"sqlite:///{folder}/jobs.db", any_port(tokens_required=False)) as server,
        ):
            await crowd(server, JOBS)
            found = chromium(playwright.chromium.executable_path)
            browser = await playwright.chromium.launch(
                executable_path=found.program,
                env={**os.environ, **found.environment},
                args=[*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])],
            )
            await first_views(browser, server.url)
            await scrolling(browser, server.url)
            await browser.close()
    print(f"load at the end {os.getloadavg()[0]:.1f}")
    return 0


async def opened(browser: Browser, address: str) -> tuple[Page, CDPSession, float]:
    """Open a page with an empty cache; return after how many milliseconds it was ready, too."""
    context = await browser.new_context(viewport=SIZE)  # type: ignore[arg-type]
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})
    await page.goto(address)
    ready = await page.wait_for_function(READY)
    return page, session, float(await ready.json_value())


async def worked(session: CDPSession) -> float:
    """Return how many milliseconds of a processor the main thread of the page has used."""
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return 1_000 * next(float(each["value"]) for each in metrics if each["name"] == "TaskDuration")


async def first_views(browser: Browser, url: str) -> None:
    """Print the medians of the first views of each page."""
    for path in PATHS:
        times, processor = [], []
        for _ in range(ROUNDS):
            page, session, time_ms = await opened(browser, url + path)
            times.append(time_ms)
            processor.append(await worked(session))
            await page.context.close()
        print(
            f"first view of {path:14} {statistics.median(times):5.0f} ms by the clock, "
            f"{statistics.median(processor):4.0f} ms of a processor (medians of {ROUNDS})"
        )


async def scrolling(browser: Browser, url: str) -> None:
    """Print how regular the frames are while the list is scrolled."""
    page, session, _ = await opened(browser, f"{url}/jobs")
    shown = 0
    while shown < JOBS:
        shown = int(await page.evaluate(ROWS))
        await page.wait_for_timeout(20)
    for step in STEPS_PX:
        before = await worked(session)
        spans = sorted(float(each) for each in await page.evaluate(SCROLL, [FRAMES, step]))
        processor = (await worked(session) - before) / FRAMES
        late = sum(each > 1.5 * FRAME_MS for each in spans) / len(spans)
        print(
            f"{JOBS:,} rows, {step} px a frame: {processor:.1f} ms of a processor (of {FRAME_MS:.1f}); "
            f"by the clock median {statistics.median(spans):.1f} ms, longest {spans[-1]:.1f} ms, "
            f"{late:.0%} late"
        )


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
