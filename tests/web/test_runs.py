"""Pages of runs in a real browser: the graph, the steps of its jobs, reruns, approvals, and what is flaky."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from playwright.async_api import Page, Route, expect
from tests.server.runners import Runner, done
from tests.server.running import Running, running
from tests.server.test_artifacts import keeping, upload
from tests.waiting import PATIENCE_S, until
from tests.web.visiting import ON_EVERY_STORE, Visitor

from interlock.wire.access import Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

SOURCE = {"repository": "shop/web", "ref": "refs/heads/main", "sha": "5f1c0d0aa", "title": "A new basket"}
STEPS = {
    "steps": [{"name": "build", "run": "make"}, {"run": "make test\necho"}, {"name": "pack", "run": "tar"}]
}
AT = "2026-01-01T00:00:{:02}Z"


@pytest_asyncio.fixture(loop_scope="session")
async def server(tmp_path: Path) -> AsyncIterator[Running]:
    """A server on SQLite that keeps artifacts."""
    store = f"sqlite:///{tmp_path}/jobs.db"
    async with running(store, orchestration=keeping(tmp_path / "blobs")) as one:
        yield one


def matrix(variants: int = 12) -> dict[str, Any]:
    tests = [f"test ({number})" for number in range(1, variants + 1)]
    return {
        "fail_fast": False,
        "jobs": [
            {"name": "build", "task": "interlock.shell", "input": STEPS},
            *({"name": name, "task": "shop.test", "needs": ["build"]} for name in tests),
            {"name": "deploy", "task": "shop.deploy", "needs": tests},
        ],
    }


async def submit(client: httpx2.AsyncClient, plan: dict[str, Any], **source: Any) -> str:
    body = {"workflow": "ci", "plan": plan, "source": {**SOURCE, **source}, "concurrency_group": ""}
    answer = await client.post("/api/runs", json=body)
    assert answer.status_code == 201, answer.text
    run_id: str = answer.json()["id"]
    return run_id


async def work(client: httpx2.AsyncClient, run_id: str, *failing: str) -> None:
    """Do every job of a run as it comes; these fail."""
    runner = Runner(client)
    failure = {"outcome": "failed", "error": "exit 2", "failure_class": "user"}

    async def is_reported() -> bool:
        view = (await client.get(f"/api/runs/{run_id}")).json()
        names = {job["job_id"]: job["name"] for job in view.get("jobs", ())}
        for grant in await runner.grants(limit=100):
            outcome = {"outcome": failure} if names[grant["job_id"]] in failing else done()
            await runner.say("complete", grant["token"], **outcome)
        return bool(view["state"] == "REPORTED")

    await until(is_reported, "the run is reported")


async def zoom_of(page: Page) -> int:
    return int((await page.get_by_label("Zoom", exact=True).inner_text()).split()[0])


@pytest.mark.long
async def test_a_matrix_is_folded_and_the_graph_is_zoomed_with_keys_and_on_a_telephone(
    server: Running, visitor: Visitor
) -> None:
    page, client = visitor.page, server.client()
    run_id = await submit(client, matrix())
    await work(client, run_id, "test (7)")
    await visitor.open(f"/runs/{run_id}")
    graph = page.get_by_role("group", name="Graph of the jobs")
    fold = graph.get_by_role("button", name=re.compile(r"test . 12"))
    await expect(fold).to_have_attribute("aria-expanded", "false")
    await expect(fold).to_contain_text("11 COMPLETED")
    await expect(fold).to_contain_text("1 FAILED")
    await expect(graph.get_by_role("button")).to_have_count(3)
    await fold.focus()
    await page.keyboard.press("Enter")
    await expect(graph.get_by_role("button")).to_have_count(15)
    await expect(fold).to_be_focused()
    assert await visitor.complaints_midway() == []
    before = await zoom_of(page)
    await page.keyboard.press("-")
    await expect(page.get_by_label("Zoom", exact=True)).to_have_text(f"{round(before / 1.25)} %")
    await page.keyboard.press("0")
    inside = "box => box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight"
    await until(lambda: graph.evaluate(inside), "all of the graph is in view")
    await page.get_by_role("button", name="Zoom in").click()
    await graph.focus()
    await graph.evaluate("box => box.scrollTo(0, 0)")
    await page.keyboard.press("+")
    await page.keyboard.press("ArrowDown")
    await until(lambda: graph.evaluate("box => box.scrollTop > 0"), "the graph has moved by a key")
    await graph.evaluate("box => box.scrollTo(0, 0)")
    await graph.scroll_into_view_if_needed()
    box = await graph.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + 30, box["y"] + 200)  # below the only job of the first column
    await page.mouse.down()
    await page.mouse.move(box["x"] + 30, box["y"] + 120, steps=4)
    await page.mouse.up()
    await until(lambda: graph.evaluate("box => box.scrollTop > 40"), "the graph has moved with the mouse")
    before = await zoom_of(page)
    await page.keyboard.down("Control")
    await page.mouse.wheel(0, 120)
    await page.keyboard.up("Control")

    async def is_smaller() -> bool:
        return await zoom_of(page) < before

    await until(is_smaller, "the wheel has made it smaller")
    assert await visitor.sideways() == []
    await page.get_by_role("button", name="Unfold all").click()
    await expect(graph.get_by_role("button")).to_have_count(3)


@ON_EVERY_STORE
async def test_the_steps_of_a_job_are_followed_live_to_the_first_error(
    server: Running, visitor: Visitor
) -> None:
    page, client = visitor.page, server.client()
    run_id = await submit(client, {"jobs": matrix()["jobs"][:1]})
    runner = Runner(client)
    grant: dict[str, Any] = {}

    async def is_given() -> bool:
        grant.update(*await runner.grants())
        return bool(grant)

    await until(is_given, "the job is given out")
    await visitor.open(f"/runs/{run_id}")
    await visitor.live()
    await page.get_by_role("button", name=re.compile("^build")).click()
    panel = page.get_by_role("region", name="The job build")
    lines = [
        [AT.format(0), "info", "fetching the commit"],
        [AT.format(1), "step", "The step 'build' begins."],
        [AT.format(2), "stdout", "\x1b[32mcompiled\x1b[0m <b>it</b>"],
        [AT.format(5), "passed", "The step 'build' succeeded after 4.0 s."],
        [AT.format(5), "step", "The step 'make test' begins."],
    ]
    await runner.say("log", grant["token"], log=lines)
    steps = panel.locator("details")
    await expect(steps).to_have_count(4)
    await expect(steps.nth(1).locator("summary")).to_contain_text("build")
    await expect(steps.nth(1).locator("summary")).to_contain_text("passed")
    await expect(steps.nth(1).locator("summary")).to_contain_text("4 s")
    await expect(steps.nth(2)).to_have_attribute("open", "")
    await expect(steps.nth(3).locator("summary")).to_contain_text("waiting")
    assert await page.locator(".ansi-green").count() == 0, "what has passed is folded"
    await steps.nth(1).locator("summary").click()
    await expect(panel.locator(".ansi-green")).to_have_text("compiled")
    assert await panel.locator(".log b").count() == 0
    more = [
        [AT.format(6), "stderr", "E assert 1 == 2"],
        [AT.format(7), "failed", "It ended with exit code 2."],
    ]
    failure = {"outcome": "failed", "error": "exit 2", "failure_class": "user"}
    await runner.say("complete", grant["token"], sequence=2, outcome=failure, log=more)
    await expect(steps.nth(2).locator("summary")).to_contain_text("failed")
    await expect(steps.nth(3).locator("summary")).to_contain_text("left out")
    await steps.nth(2).locator("summary").click()
    await expect(page.get_by_text("E assert 1 == 2")).to_have_count(0)
    await panel.get_by_role("button", name="First error").click()
    await expect(page.get_by_text("E assert 1 == 2")).to_be_in_viewport()
    await expect(panel.get_by_text("It ended with exit code 2.")).to_be_in_viewport()
    assert await visitor.complaints_midway() == []
    assert await visitor.sideways() == []


@pytest.mark.long  # systems/runs compares and repeats runs; other journeys follow them
@ON_EVERY_STORE
async def test_a_run_is_compared_with_the_last_green_one_and_done_again_from_a_job_on(
    server: Running, visitor: Visitor
) -> None:
    page, client = visitor.page, server.client()
    green = await submit(client, matrix(2))
    await work(client, green)
    run_id = await submit(client, matrix(3))
    await work(client, run_id, "test (1)")
    await visitor.open(f"/runs/{run_id}")
    since = page.locator("section", has=page.get_by_role("heading", name="Since the last green run"))
    await expect(since.get_by_role("link", name=green)).to_be_visible()
    await expect(since.get_by_role("row", name=re.compile(r"test \(1\) failed, had passed"))).to_be_visible()
    await expect(since.get_by_role("row", name=re.compile(r"test \(3\) new"))).to_be_visible()
    flaky = page.locator("section", has=page.get_by_role("heading", name="Flaky jobs of this run"))
    await expect(flaky.get_by_role("row", name=re.compile(r"test \(1\) 1 of 1 commits"))).to_be_visible()
    assert await visitor.complaints_midway() == []

    await page.get_by_role("button", name=re.compile("^deploy")).click()
    await page.get_by_role("button", name="Rerun from here").click()
    dialog = page.get_by_role("dialog", name="Rerun from deploy")
    await expect(dialog.get_by_role("list").first).to_have_text("test (1)deploy")
    await expect(dialog.get_by_role("list").nth(1)).to_have_text("buildtest (2)test (3)")
    assert await visitor.complaints_midway() == []
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await page.get_by_role("button", name="Rerun from here").click()
    await dialog.get_by_role("button", name="Rerun 2 jobs").click()
    await expect(page.get_by_role("heading", level=1)).not_to_contain_text(run_id)
    await expect(page.get_by_text("does again")).to_be_visible()
    again = page.url.rpartition("/")[2]
    await work(client, again)
    await expect(page.locator("h1")).to_contain_text("SUCCESS")
    await expect(page.get_by_role("button", name="Rerun what failed")).to_have_count(0)

    await visitor.open("/runs")
    await page.get_by_role("link", name="Flaky jobs").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Flaky jobs")
    row = page.get_by_role("row", name=re.compile(r"shop.web ci test \(1\)"))
    await expect(row).to_contain_text("failed in j_")
    assert await visitor.complaints() == []
    assert await visitor.sideways() == []


@ON_EVERY_STORE
async def test_a_run_of_a_fork_is_approved_or_declined_in_a_dialog_and_its_artifact_is_downloaded(
    server: Running, visitor: Visitor
) -> None:
    page, client = visitor.page, server.client()
    plan = {"jobs": [{"name": "pack", "task": "interlock.shell", "input": {"run": "make"}}]}
    fork = {"from_fork": True, "pull_request": 7, "changed_paths": ["ci.yml"], "ref": "refs/pull/7/head"}
    declined, run_id = [await submit(client, plan, **fork) for _ in range(2)]
    await visitor.open("/runs")
    await page.get_by_role("link", name="Waiting for approval").click()
    await page.get_by_role("link", name=run_id).click()
    await page.get_by_role("button", name="Approve").click()
    dialog = page.get_by_role("dialog", name="Approve this run")
    for fact in (
        "#7",
        "5f1c0d0aa",
        "ci.yml",
        "untrusted, for all its jobs",
        "none: the change comes from a fork",
    ):
        await expect(dialog).to_contain_text(fact)
    assert await visitor.complaints_midway() == []
    await dialog.get_by_label("Comment for the journal").fill("looked at the diff")
    await dialog.get_by_role("button", name="Approve").click()
    await expect(page.locator("h1 .chip").first).to_have_text("QUEUED")
    await expect(page.get_by_text("looked at the diff").first).to_be_visible()
    runner = Runner(client)
    grant = await runner.grant(queues=["untrusted"], wait_s=30)
    assert (await upload(client, grant["token"], "shop.bin", b"x" * 48_000)).status_code == 200
    await runner.say("complete", grant["token"], sequence=2, **done())
    link = page.get_by_role("link", name="shop.bin")
    await expect(page.get_by_role("row", name=re.compile("shop.bin pack 1.1 48 kB"))).to_be_visible()
    async with page.expect_download() as download:
        await link.click()
    assert (Path(await (await download.value).path())).stat().st_size == 48_000

    await visitor.open(f"/runs/{declined}")
    await page.get_by_role("button", name="Decline").click()
    await page.get_by_label("Reason for the journal").fill("it reads the environment")
    await page.get_by_role("dialog").get_by_role("button", name="Decline").click()
    await expect(page.locator("h1")).to_contain_text("CANCELED")
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)


async def test_a_viewer_sees_a_run_but_no_rerun_approve_decline_or_cancel_button(
    server: Running, visitor: Visitor
) -> None:
    page, client = visitor.page, server.client()
    run_id = await submit(client, {"jobs": [{"name": "pack", "task": "shop.pack"}]})
    await work(client, run_id, "pack")
    waits = await submit(client, {"jobs": [{"name": "pack", "task": "shop.pack"}]}, from_fork=True)
    await server.token(Role.ADMIN)
    visitor.expected = ("401",)
    await page.goto(f"{server.url}/runs/{run_id}")
    await page.get_by_label("Token").fill(await server.token(Role.VIEWER))
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("region", name="The job pack")).to_be_visible()
    assert await page.get_by_role("button", name=re.compile("Rerun")).count() == 0
    await visitor.open(f"/runs/{waits}")
    await expect(page.get_by_text("It waits for approval")).to_be_visible()
    assert await page.get_by_role("button", name=re.compile("Approve|Decline|Cancel")).count() == 0


@pytest.mark.long
async def test_lines_that_come_while_others_are_read_are_shown_too(server: Running, visitor: Visitor) -> None:
    page, client = visitor.page, server.client()
    run_id = await submit(client, {"jobs": [{"name": "pack", "task": "shop.pack"}]})
    grant = await Runner(client).grant(wait_s=30)
    await visitor.open(f"/runs/{run_id}")
    await visitor.live()
    held, let_go = asyncio.Event(), asyncio.Event()

    async def answer(route: Route) -> None:
        """Answer what was there when it was asked for, but late."""
        response = await route.fetch()
        held.set()
        await let_go.wait()
        await route.fulfill(response=response)

    await page.route("**/logs*", answer)
    await page.get_by_role("button", name=re.compile("^pack")).click()
    await held.wait()
    lines = [[AT.format(1), "stdout", "the only line"]]
    await Runner(client).say("complete", grant["token"], **done(), log=lines)
    await expect(page.locator("h1")).to_contain_text("REPORTED")
    let_go.set()
    await expect(page.get_by_text("the only line")).to_be_visible()
