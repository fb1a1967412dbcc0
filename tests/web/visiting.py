"""Somebody who looks at the dashboard in a real browser, and everything that goes wrong meanwhile."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response
from tests.effort import ALL
from tests.server.loads import started
from tests.server.runners import Runner
from tests.server.running import Running
from tests.server.test_openapi import waiting_approval
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
PATTERNS = re.findall(r'pattern: "([^"]+)"', (ROOT / "web/src/pages/index.tsx").read_text(encoding="utf-8"))
"""The addresses of all pages, with `:names` in them."""
NARROW = {"width": 375, "height": 740}
WIDE = {"width": 1280, "height": 800}
ZOOMED = {"width": 640, "height": 400}
"""What is left of a wide window when everything is twice as large."""

ON_EVERY_STORE = pytest.mark.parametrize(
    "server", ["sqlite", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)
"""A journey that is played on SQLite, and by `make test-all` on PostgreSQL as well."""

COUNT_NEWS = """() => {
  window.news = 0;
  const Own = window.SharedWorker;
  window.SharedWorker = class extends Own {
    constructor(...given) {
      super(...given);
      this.port.addEventListener("message", () => { window.news += 1; });
    }
  };
}"""
"""For pages that count how often they are told that something has happened."""

_SETTLED = """() => {
  const main = document.querySelector("main");
  return main && main.ariaBusy !== "true" && main.querySelector("h1, .empty, .notice")
    && !/Loading/.test(main.innerText);
}"""
_TURN = """async (path) => {
  const frame = () => new Promise((shown) => requestAnimationFrame(shown));
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
  await frame().then(frame);  // the other page has begun to be drawn
}"""
"""What a link does inside the dashboard."""
_SIDEWAYS = """async () => {
  const frame = () => new Promise((shown) => requestAnimationFrame(shown));
  await frame().then(frame);  // charts are drawn anew after the page is laid out
  const wide = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= wide) return [];
  const scrolls = (element) => element && element !== document.body &&
    (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
  return [...document.body.querySelectorAll("*")]
    .filter((each) => each.getBoundingClientRect().right > wide + 0.5 && !scrolls(each.parentElement))
    .map((each) => `${each.tagName}.${each.className} ends at ${each.getBoundingClientRect().right}`)
    .slice(0, 3);
}"""
_COMPLAINTS = """async (rules) => (await axe.run(document, {
  resultTypes: ["violations"],
  ...(rules.length ? { runOnly: rules } : {}),
})).violations.map(
  (found) => `${found.id}: ${found.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(" | ")}`)"""


class Visitor:
    """One page in a context of its own."""

    def __init__(self, context: BrowserContext, page: Page, url: str) -> None:
        self.context = context
        self.page = page
        self.url = url
        self.troubles: list[str] = []
        self.expected: tuple[str, ...] = ()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._note(f"error: {error}"))
        page.on("requestfailed", self._failed)
        page.on("response", self._response)

    async def open(self, path: str) -> None:
        """Go to a page and wait until it shows what it has to show."""
        await self.page.goto(self.url + path)
        await self.page.wait_for_function(_SETTLED)

    async def turn_to(self, path: str) -> None:
        """Go to another page as a link does; `make test-all` loads it anew, at three times the cost."""
        if ALL or not self.page.url.startswith(self.url):
            await self.open(path)
            return
        await self.page.evaluate(_TURN, path)
        await self.page.wait_for_function(_SETTLED)

    async def live(self) -> None:
        """Wait until the page is told what happens."""
        await self.page.get_by_text("● live").wait_for()

    async def text(self) -> str:
        """Return what can be read on the page."""
        return await self.page.locator("main").inner_text()

    async def complaints(self, *rules: str) -> list[str]:
        """Return what axe has to say about the page as it is now, by all of its rules or by these."""
        if not await self.page.evaluate("() => 'axe' in window"):
            await self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found: list[str] = await self.page.evaluate(_COMPLAINTS, rules)
        return found

    async def complaints_midway(self) -> list[str]:
        """Return the same in the middle of a journey, which costs as much as a page; `make test-all` alone.

        `make test` has axe look at every page as it is opened (test_pages.py), and at two dialogs.
        """
        return await self.complaints() if ALL else []

    async def sideways(self, size: Mapping[str, int] = NARROW) -> list[str]:
        """Return what reaches out of the page in a window of this size."""
        await self.page.set_viewport_size(size)  # type: ignore[arg-type]
        found: list[str] = await self.page.evaluate(_SIDEWAYS)
        await self.page.set_viewport_size(WIDE)  # type: ignore[arg-type]
        return found

    def taken(self) -> list[str]:
        """Return what has gone wrong since the last time."""
        found, self.troubles = self.troubles, []
        return found

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning", "assert"):
            self._note(f"console: {message.text} ({message.location.get('url', '')})")

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # the page itself has lost interest
            self._note(f"failed: {request.method} {request.url} {request.failure}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self._note(f"answered {response.status}: {response.request.method} {response.url}")

    def _note(self, what: str) -> None:
        if not any(each in what for each in self.expected):
            self.troubles.append(what)


async def visit(context: BrowserContext, url: str) -> Visitor:
    """Return a visitor with a page of its own in a context."""
    context.set_default_timeout(PATIENCE_S * 1_000)
    return Visitor(context, await context.new_page(), url)


@asynccontextmanager
async def visiting(browser: Browser, url: str) -> AsyncIterator[Visitor]:
    """Somebody who looks at another server than the one of the fixture."""
    context = await browser.new_context(viewport=WIDE)  # type: ignore[arg-type]
    try:
        yield await visit(context, url)
    finally:
        await context.close()


async def told(page: Page, least: int) -> None:
    """Wait until the worker that all tabs share has told the page so often that something has happened."""

    async def enough() -> bool:
        return int(await page.evaluate("() => window.news")) >= least

    await until(enough, f"the page was told {least} times")


async def fill(server: Running, text: str = "the letter to Ada") -> dict[str, str]:
    """Put something of everything into the store; return the path of each page that shows one of them."""
    client = server.client()
    runner = Runner(client)
    waits = await server.submit(description=text, queue="idle", labels=("<b onclick=x>gpu</b>",))
    fails = await server.submit("shop.fail", description=text, queue="shop", input=msgspec.Raw(b'{"a": [1]}'))
    grant = await runner.grant(queues=["shop"])
    failed = {"outcome": "failed", "error": text, "details": text, "failure_class": "permanent"}
    lines = [["2026-01-01T00:00:00Z", "error", line] for line in (*text.splitlines(), "long" * 250_000)]
    answer = await runner.say("complete", grant["token"], outcome=failed, log=lines)
    assert answer.status_code == 200, answer.text
    await server.submit("shop.hold", queue="held")
    await runner.grant(queues=["held"])
    worker = (
        await client.post("/api/workers", json={"workspace_id": "ci", "name": "w", "capacity": 2})
    ).json()
    plan = {"jobs": [{"name": "lint", "task": "a.lint"}, {"name": "t", "task": "a.t", "needs": ["lint"]}]}
    run_spec = {"workflow": "ci", "plan": plan, "source": {"title": text, "actor": text}}
    run = (await client.post("/api/runs", json=run_spec)).json()
    flu = {"task": "flu", "scenario_name": "Flu", "total_steps": 10, "run_id": "flu"}
    assert (await client.post("/api/simulations", json=flu)).status_code == 201
    load, _, _ = await started(client, text.splitlines()[0][:100])
    job = {"task": "shop.report", "queue": "shop", "description": text, "input": {"text": text}}
    nightly = {"cron": "0 2 * * 1-5", "tz": "Europe/Berlin", "jitter": "5m", "job": job}
    made = await client.post("/api/schedules", json={"name": "nightly", "schedule": nightly})
    assert made.status_code == 201, made.text
    fired = await client.post("/api/schedules/nightly/run", json={"reason": text[:500]})
    assert fired.status_code == 201, fired.text
    for name, spec in (
        ("vendor-x", {"max": 1, "description": text[:200]}),
        ("tenant:*", {"rate": 5, "max": 2}),
    ):
        answer = await client.post("/api/limits", json={"limit": name, "spec": spec})
        assert answer.status_code == 200, answer.text
    for limits in (("vendor-x",), ("vendor-x",), ("tenant:a", "vendor-x")):
        await server.submit("shop.call", queue="limited", limits=limits)
    while await server.parts.runtime.limits.keep():
        pass
    await runner.grant(queues=["limited"])
    batch = {"spec": {"description": text[:500]}, "jobs": [{"task": "shop.part", "queue": "idle"}] * 2}
    made = await client.post("/api/batches", json=batch)
    assert made.status_code == 201, made.text
    approval = await waiting_approval(server, text[:500])
    return {
        "/jobs/:id": f"/jobs/{fails}",
        "/dead-letters/:id": f"/dead-letters/{fails}",
        "/batches/:id": f"/batches/{made.json()['batch_id']}",
        "/approvals/:id": f"/approvals/{approval}",
        "/queues/:name": "/queues/idle",
        "/limits/:name": "/limits/vendor-x",
        "/schedules/:name": "/schedules/nightly",
        "/workers/:id": f"/workers/{worker['id']}",
        "/runs/:id": f"/runs/{run['id']}",
        "/simulations/:id": "/simulations/flu",
        "/workloads/:id": f"/workloads/{load}",
        "/workloads/:id/agents/:agent": f"/workloads/{load}/agents/{load}_1_0",
        "/machines/:name": "/machines/job",
        "/records/:kind": "/records/message",
        "/records/:kind/:id": f"/records/job/{fails}",
        "waits": waits,
    }


def path_of(pattern: str, made: dict[str, Any]) -> str:
    """Return an address of a page; one that needs an id has to be among what was made."""
    return str(made[pattern]) if ":" in pattern else pattern
