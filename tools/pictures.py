"""Take pictures of the dashboard for the README and the docs, light and dark: `make pictures`.

Start a server on SQLite with real workers, give them jobs that succeed, fail and wait, and a run with a
graph; then look at the main pages in a Chromium. The pictures are written to docs/pictures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserType, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.web.browsers import ARGUMENTS, chromium  # noqa: E402 - the tests know where a browser is

INTO = ROOT / "docs/pictures"
WORK_S = 130.0
"""How long the workers are given, so that there is something to see over time."""
SIZE = {"width": 1280, "height": 860}

TASKS = """
import asyncio, random
from interlock import Context, task

@task(retries=2)
async def resize(ctx: Context, picture: str) -> str:
    print(f"reading {picture}")
    await asyncio.sleep(random.uniform(0.1, 1.5))
    if random.random() < 0.15:
        raise OSError(f"{picture} is damaged")
    print("done")
    return picture.replace("raw", "small")

@task
async def publish(ctx: Context, film: str) -> str:
    answer = await ctx.approval(f"Publish {film} in all countries?", timeout="3d")
    return "published" if answer.approved else "kept"

@task
async def render(ctx: Context, film: str) -> int:
    for scene in range(1, 31):
        print(f"scene {scene} of 30")
        ctx.progress(scene, 30)
        await asyncio.sleep(7)
    return 30
"""
WORKFLOW = """
name: shop
on: [push]
jobs:
  lint: {steps: [{run: "sleep 1"}]}
  build: {steps: [{run: "sleep 3"}]}
  test: {needs: [build], matrix: {part: [api, store, worker]}, steps: [{run: "sleep 5"}]}
  docs: {needs: [lint], steps: [{run: "sleep 2"}]}
  deploy: {needs: [test, docs], steps: [{run: "sleep 240"}]}
"""


def main() -> int:
    """Take them all."""
    INTO.mkdir(exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "studio.py").write_text(TASKS, encoding="utf-8")
        (folder / "ci.yml").write_text(WORKFLOW, encoding="utf-8")
        environment = {**os.environ, "INTERLOCK_URL": f"sqlite:///{folder}/jobs.db"}
        server = stack.enter_context(_running(folder, environment, "server", "--port", "0"))
        assert server.stdout is not None
        url = server.stdout.readline().split()[-1]
        for name in ("anna", "ben"):
            words = ("worker", "start", "studio.py", "--name", name, "--slots", "4")
            stack.enter_context(_running(folder, environment, *words))
        stack.enter_context(_running(folder, environment, "worker", "start", "--shell", "--name", "ci"))
        shown = _fill(folder, environment, url)
        playwright = stack.enter_context(sync_playwright())
        for theme in ("light", "dark"):
            _take(playwright.chromium, url, shown, theme)
    return 0


def _fill(folder: Path, environment: dict[str, str], url: str) -> dict[str, str]:
    """Give the workers something to do; return the address of each page by the name of its picture."""
    film = _ask(
        url, "/api/jobs", {"task": "studio.render", "input": {"film": "heron"}, "description": "Heron, 4K"}
    )
    words = [sys.executable, "-m", "interlock", "run", "submit", "--workflow", "ci.yml"]
    submitted = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    _schedule(url)
    for name in ("heron", "otter", "badger"):
        _ask(url, "/api/jobs", {"task": "studio.publish", "input": {"film": name}, "queue": "default"})
    until, number = time.monotonic() + WORK_S, 0
    while time.monotonic() < until:
        jobs = [{"task": "studio.resize", "input": {"picture": f"raw-{number + i}.png"}} for i in range(8)]
        _ask(url, "/api/jobs", {"jobs": jobs})
        number += len(jobs)
        time.sleep(2.0)
    _ask(url, "/api/jobs", {"task": "studio.print", "queue": "paper"})
    parts = [{"task": "studio.resize", "input": {"picture": f"raw-book-{page}.png"}} for page in range(120)]
    batch = {"spec": {"description": "The pictures of the book"}, "jobs": parts, "close": True}
    made = _ask(url, "/api/batches", batch)
    return {
        "overview": "/?minutes=15",
        "jobs": "/jobs",
        "job": f"/jobs/{film['id']}",
        "run": f"/runs/{submitted.stdout.split()[-1]}",
        "batch": f"/batches/{made['batch_id']}",
        "approvals": "/approvals",
        "schedules": "/schedules",
        "schedule": "/schedules/nightly-contact-sheet",
    }


def _schedule(url: str) -> None:
    """Create schedules, one of them with fires that have passed."""
    job = {"task": "studio.resize", "input": {"picture": "raw-sheet.png"}}
    berlin = {"cron": "0 2 * * 1-5", "tz": "Europe/Berlin", "overlap": "queue", "job": job}
    poll = {"every": "15m", "job": {"task": "studio.resize", "input": {"picture": "raw-inbox.png"}}}
    paper = {"cron": "0 6 1 * *", "tz": "America/New_York", "job": {"task": "studio.print", "queue": "paper"}}
    for name, spec in (("poll-inbox", poll), ("monthly-prints", paper), ("nightly-contact-sheet", berlin)):
        _ask(url, "/api/schedules", {"name": name, "schedule": spec})
    _ask(url, "/api/schedules/monthly-prints/pause", {"reason": "the printer is being repaired"})
    today = datetime.now(UTC).date()
    days = {"since": str(today - timedelta(days=12)), "until": str(today)}
    _ask(url, "/api/schedules/nightly-contact-sheet/backfill", days)
    _ask(url, "/api/schedules/poll-inbox/run", {})


def _take(chromium_type: BrowserType, url: str, shown: dict[str, str], theme: str) -> None:
    found = chromium(chromium_type.executable_path)
    browser = chromium_type.launch(
        executable_path=found.program,
        env={**os.environ, **found.environment},
        args=[*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])],
    )
    context = browser.new_context(viewport=SIZE, color_scheme=theme)  # type: ignore[arg-type]
    for name, path in shown.items():
        page = context.new_page()
        page.goto(url + path)
        page.wait_for_selector("h1")
        page.wait_for_timeout(2_000)
        page.screenshot(path=INTO / f"{name}-{theme}.png")
        page.close()
        print(f"docs/pictures/{name}-{theme}.png")
    browser.close()


def _ask(url: str, path: str, body: Any) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@contextmanager
def _running(folder: Path, environment: dict[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "interlock", *words]
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    sys.exit(main())
