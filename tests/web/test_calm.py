"""Pages stay calm: nothing moves by itself, little is fetched, and the keyboard reaches everything."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, Request, Response, expect
from tests.effort import pick
from tests.server.running import Running
from tests.waiting import PATIENCE_S, until
from tests.web.visiting import COUNT_NEWS, PATTERNS, Visitor, fill, path_of, told

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

WATCH_SHIFTS = """() => {
  // On a slow machine a page would be shown before its parts are there.
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("main[aria-busy] * { animation: none !important }");
  document.adoptedStyleSheets = [sheet];
  window.shifts = [];
  const named = (node) => node ? (node.outerHTML ?? node.data ?? "").slice(0, 90) : "what is gone";
  window.watch = new PerformanceObserver((list) => list.getEntries().forEach(window.seen));
  window.seen = (entry) => {
    const moves = entry.sources.map(({ node, previousRect, currentRect }) =>
      [named(node), JSON.stringify(previousRect), JSON.stringify(currentRect)]);
    window.shifts.push(...moves.filter(([, from, to]) => from !== to).map((move) => move.join(" ")));
  };
  window.watch.observe({ type: "layout-shift", buffered: true });
}"""
TAKE_SHIFTS = """async () => {
  const frame = () => new Promise((shown) => requestAnimationFrame(shown));
  await frame().then(frame).then(frame);
  window.watch.takeRecords().forEach(window.seen);
  return window.shifts.splice(0);
}"""
AFTER_A_LOOK = "(ms) => new Promise((over) => setTimeout(over, ms))"
LOOK_MS, OVERVIEW_MS = 300, 2_100
"""So long after the news a page looks at the latest."""
FEEDS, ROW = ("/jobs", "/journal", "/records/", "/runs", "/simulations", "/workers", "/workloads"), "<tr"
"""What is new comes first there and moves the rows below, as long as the list is at its beginning."""

FIRST_REQUESTS = 16
FIRST_BYTES = 250_000
"""What a first view may cost: as much as a laptop fetches in less than a second, also from another town."""

REACHED = """() => {
  const at = document.activeElement;
  if (at === document.body) return "";
  window.reached ??= new Set();
  if (window.reached.has(at)) return "again";
  window.reached.add(at);
  const style = getComputedStyle(at);
  return style.outlineStyle === "none" && style.boxShadow === "none" ? `no outline: ${at.outerHTML}` : "new";
}"""
UNREACHED = """() => [...document.querySelectorAll(
    "a[href], button, input, select, textarea, summary, [role=button], [tabindex='0']")]
  .filter((each) => !each.disabled && each.checkVisibility({ visibilityProperty: true }))
  .filter((each) => !window.reached.has(each))
  .map((each) => each.outerHTML.slice(0, 120))"""


class Requests:
    """The requests of a page: how many there were, and how many are not answered yet."""

    def __init__(self, page: Page) -> None:
        self.begun: list[Request] = []
        self._open: set[Request] = set()
        page.on("request", self._begin)
        page.on("requestfinished", self._end)
        page.on("requestfailed", self._end)

    def _begin(self, request: Request) -> None:
        self.begun.append(request)
        if "/api/" in request.url:
            self._open.add(request)

    def _end(self, request: Request) -> None:
        self._open.discard(request)

    async def answered(self) -> None:
        """Wait until nothing is on its way any more."""
        await until(lambda: not self._open, "all requests are answered", story=lambda: str(self._open))


async def happen(server: Running, made: dict[str, str]) -> None:
    """Let something happen to every kind of record."""
    client = server.client()
    for queue in ("shop", "somewhere-else"):
        await server.submit(queue=queue)
    beat = {"incarnation": "", "active": 1, "processed": 10_000}
    await client.post(f"/api{made['/workers/:id']}/heartbeat", json=beat)
    await client.post("/api/runs", json={"workflow": "ci", "plan": {"jobs": [{"name": "a", "task": "a.b"}]}})
    await client.post(
        "/api/simulations", json={"task": "flu", "scenario_name": "Flu", "total_steps": 3, "run_id": ""}
    )


@pytest.mark.long
async def test_nothing_moves_while_a_page_is_opened_and_while_things_happen(
    server: Running, visitor: Visitor
) -> None:
    made = await fill(server)
    page = visitor.page
    requests = Requests(page)
    await page.add_init_script(f"({COUNT_NEWS})()")
    await page.add_init_script(f"({WATCH_SHIFTS})()")
    moved: dict[str, list[str]] = {}
    for path in (path_of(pattern, made) for pattern in PATTERNS):
        await visitor.open(path)
        await visitor.live()
        await requests.answered()
        found = [f"opening: {each}" for each in await page.evaluate(TAKE_SHIFTS)]
        before = int(await page.evaluate("() => window.news"))
        await happen(server, made)
        await told(page, before + 1)
        await page.evaluate(AFTER_A_LOOK, OVERVIEW_MS if path == "/" else LOOK_MS)
        await requests.answered()
        shifts = await page.evaluate(TAKE_SHIFTS)
        found += [each for each in shifts if not (path.startswith(FEEDS) and each.startswith(ROW))]
        moved |= {path: found} if found else {}
    assert moved == {}


async def test_the_layout_shift_check_detects_a_heading_that_moves(visitor: Visitor) -> None:
    await visitor.page.add_init_script(f"({WATCH_SHIFTS})()")
    await visitor.open("/admin")
    await visitor.page.evaluate(TAKE_SHIFTS)
    await visitor.page.evaluate(
        """() => document.querySelector("main").prepend(Object.assign(document.createElement("h3"), {
          textContent: "Something that pushes",
        }))"""
    )

    async def noticed() -> bool:
        return any("Admin" in each for each in await visitor.page.evaluate(TAKE_SHIFTS))

    await until(noticed, "the heading was seen to move")


async def test_a_first_view_takes_few_requests_and_few_bytes(server: Running, visitor: Visitor) -> None:
    made = await fill(server)
    sizes: dict[str, int] = {}

    def answered(answer: Response) -> None:
        sizes[answer.url] = int(answer.headers.get("content-length", 0))

    visitor.page.on("response", answered)
    for path in ("/", "/jobs", made["/jobs/:id"]):
        sizes.clear()
        await visitor.open(path)
        assert len(sizes) <= FIRST_REQUESTS, sizes
        assert sum(sizes.values()) <= FIRST_BYTES, sizes


async def test_the_first_tab_stop_leads_past_the_side_bar(visitor: Visitor) -> None:
    page = visitor.page
    await visitor.open("/jobs")
    await page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    await expect(skip).to_be_focused()
    box = await skip.bounding_box()
    assert box is not None
    assert box["width"] > 50
    assert await skip.evaluate("(link) => getComputedStyle(link).clipPath") == "none"
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    assert page.url.endswith("/jobs#content")
    await page.keyboard.press("Tab")
    assert await page.evaluate("() => document.querySelector('main').contains(document.activeElement)")


async def test_another_page_begins_with_the_focus_at_its_beginning(server: Running, visitor: Visitor) -> None:
    page, job = visitor.page, await server.submit()
    await visitor.open("/jobs")
    await page.get_by_role("link", name=job).focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text(job)
    await expect(page.locator("main")).to_be_focused()
    await expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Cancel")).to_be_focused()


@pytest.mark.long  # test_journeys uses the keyboard alone
async def test_the_tab_key_reaches_everything_that_can_be_used_and_shows_where_it_is(
    server: Running, visitor: Visitor
) -> None:
    made = await fill(server)
    wrong: dict[str, list[str]] = {}
    page = visitor.page
    some = ("/jobs", "/jobs/:id")
    for pattern in PATTERNS if pick(quick=False, thorough=True) else some:
        await visitor.open(path_of(pattern, made))
        found = []
        while True:
            await page.keyboard.press("Tab")
            at = str(await page.evaluate(REACHED))
            if at in ("", "again"):
                break
            found += [at] if at != "new" else []
        found += [f"not reached: {each}" for each in await page.evaluate(UNREACHED)]
        wrong |= {pattern: found} if found else {}
    assert wrong == {}
