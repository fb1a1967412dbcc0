"""The page of a job, part by part: what one part refuses leaves the others alone."""

from __future__ import annotations

import json

import msgspec
import pytest
from playwright.async_api import Route, expect
from tests.server.runners import Runner
from tests.server.running import Running
from tests.server.test_openapi import waiting_approval
from tests.waiting import PATIENCE_S
from tests.web.visiting import Visitor

from interlock.wire.waits import WaitRequest

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)


async def fail(server: Running, error: str) -> str:
    """Return a job that has failed so."""
    job = await server.submit("shop.fail", queue="shop")
    runner = Runner(server.client())
    grant = await runner.grant(queues=["shop"])
    outcome = {"outcome": "failed", "error": error, "failure_class": "permanent"}
    answer = await runner.say("complete", grant["token"], outcome=outcome)
    assert answer.status_code == 200, answer.text
    return job


async def test_a_part_of_the_job_page_that_fails_shows_its_error_and_leaves_the_others_visible(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    job = await fail(server, "no route to host")
    refused = set()

    async def refuse(route: Route) -> None:
        part = route.request.url.rpartition("/")[2].partition("?")[0]
        refused.add(part)
        body = {"code": "unavailable", "error": f"The {part} cannot be read.", "todo": "Look again."}
        await route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(body))

    visitor.expected = ("503",)
    parts = ("explain", "history", "tree", "artifacts", "alike")
    for part in parts:
        await page.route(f"**/api/jobs/{job}/{part}*", refuse)
    await visitor.open(f"/jobs/{job}")
    for part in parts:
        await expect(page.get_by_role("alert").filter(has_text=f"The {part} cannot be read.")).to_be_visible()
    await expect(page.locator("h1 .chip")).to_have_text("FAILED")
    await expect(page.get_by_text("no route to host").first).to_be_visible()
    assert await visitor.complaints_midway() == []
    await page.unroute_all()
    for part in parts:
        alert = page.get_by_role("alert").filter(has_text=f"The {part} cannot be read.")
        await alert.get_by_role("button", name="Try again").click()
        await expect(alert).to_have_count(0)
    await expect(page.get_by_role("heading", name="History")).to_be_visible()
    assert refused == set(parts)
    visitor.taken()


@pytest.mark.long
async def test_the_same_failure_elsewhere_and_the_reason_of_a_cancel_are_shown(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    await fail(server, "disk full")
    jobs = [await fail(server, f"timeout after {seconds} s") for seconds in (3, 5, 8)]
    await visitor.open(f"/jobs/{jobs[-1]}")
    await expect(page.get_by_text("3 of the 4 failed jobs failed the same way, the first")).to_be_visible()
    await page.get_by_role("link", name="Show them").click()
    await expect(page.get_by_role("region", name="List of jobs").get_by_role("row")).to_have_count(4)
    canceled = await server.submit()
    await server.parts.runtime.jobs.cancel(canceled, reason="wrong <branch>")
    await visitor.open(f"/jobs/{canceled}")
    await expect(page.get_by_text("cancel: wrong <branch>")).to_be_visible()


async def test_keys_typed_right_after_the_slash_reach_the_palette_and_not_the_page(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    job = await server.submit()
    await visitor.open("/jobs")
    await page.get_by_role("link", name=job).wait_for()
    # Nothing is painted for a while, as on a machine that is busy: what waits for the picture comes late.
    await page.evaluate("""() => {
      const late = [], paint = window.requestAnimationFrame;
      window.requestAnimationFrame = (draw) => late.push(draw);
      window.paint = () => {
        window.requestAnimationFrame = paint;
        late.splice(0).forEach((draw) => draw(performance.now()));
      };
    }""")
    await page.keyboard.type("/cr")
    assert await page.get_by_role("combobox", name="Find").input_value() == "cr"
    await page.evaluate("() => window.paint()")
    await page.keyboard.press("Escape")
    (view,) = await server.parts.runtime.jobs.get_many([job])
    assert view is not None
    assert view.state == "PENDING"  # neither c nor r was heard by the list
    await page.keyboard.press("/")
    await page.keyboard.type("message")
    await page.get_by_role("option", name="Records of the kind message").click()
    await page.wait_for_url("**/records/message")


async def test_an_approval_or_a_signal_that_a_job_waits_for_is_sent_from_the_page_of_the_job(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    approval = await waiting_approval(server)
    job = approval.partition(".")[0]
    await visitor.open(f"/jobs/{job}")
    await expect(page.get_by_text("Deploy?").first).to_be_visible()
    await page.get_by_label("Comment").fill("read the notes")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    view = await server.parts.runtime.waits.get(approval)
    assert (view.state, view.comment) == ("APPROVED", "read the notes")
    other = await server.submit("shop.order", queue="orders")
    grant = await server.hold(other, "orders")
    wait = WaitRequest(token=grant.token, runner_id="r", name="paid")
    await server.parts.runtime.waits.wait(wait)
    await visitor.open(f"/jobs/{other}")
    await page.get_by_label("Data as JSON").fill('{"sum": 3}')
    await page.get_by_role("button", name="Send signal").click()
    await expect(page.get_by_role("button", name="Send signal")).to_have_count(0)
    answer = await server.parts.runtime.waits.wait(wait)
    assert (answer.state, answer.data) == ("RECEIVED", msgspec.Raw(b'{"sum":3}'))
    visitor.taken()
