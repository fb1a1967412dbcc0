"""Dead letters in a real browser: inspect one, correct its input and retry it, discard it; all that match."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from playwright.async_api import Browser, Page, expect
from tests.server.running import Running, running
from tests.waiting import PATIENCE_S
from tests.web.test_access import sign_in
from tests.web.visiting import ON_EVERY_STORE, Visitor, visiting

from interlock.wire.access import Role
from interlock.wire.jobs import JobSpec, Unique
from interlock.wire.runner import ClaimRequest, Complete, Failed

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)

EXACT = b'{"order":12345678901234567890,"rate":1.0}'
"""A browser would round both numbers."""


async def fail(server: Running, number: int = 1, queue: str = "mail", **more: Any) -> list[str]:
    """Let jobs fail for good; return their ids."""
    jobs, orchestrator = server.parts.runtime.jobs, server.parts.runtime.orchestrator
    ids = await jobs.submit_many([JobSpec(task="shop.send", queue=queue, **more)] * number, actor="test")
    broken = Failed(failure_class="user", error="no such street", details="Traceback")
    for grant in await orchestrator.claim(ClaimRequest(runner_id="r", limit=number, queues=(queue,))):
        await orchestrator.report([Complete(token=grant.token, runner_id="r", sequence=1, outcome=broken)])
    return ids


async def open_letters(server: Running) -> list[str]:
    answer = await server.client().get("/api/dead-letters")
    return [letter["id"] for letter in answer.json()["letters"]]


@ON_EVERY_STORE
async def test_a_dead_letter_is_inspected_corrected_and_retried_and_another_discarded(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    await visitor.open("/")
    await page.keyboard.press("g")
    await page.keyboard.press("d")
    await expect(page.get_by_text("No dead letters")).to_be_visible()
    await visitor.live()
    (first,) = await fail(server, input=msgspec.Raw(EXACT))
    await page.get_by_role("link", name=first).click()  # it has come in
    await expect(page.get_by_text("no such street")).to_be_visible()
    await expect(page.locator("pre", has_text="Traceback")).to_be_hidden()
    box = page.get_by_label("Input of the new job")
    assert msgspec.json.decode(await box.input_value()) == msgspec.json.decode(EXACT)
    again = page.get_by_role("button", name="Retry with this input")
    await expect(again).to_have_count(0)
    await box.fill("{no")
    await expect(page.get_by_text("This is no JSON")).to_be_visible()
    await expect(again).to_have_count(0)
    corrected = EXACT.decode().replace("rate", "speed")
    await box.fill(corrected)
    await page.get_by_label("Reason").fill("a misspelt name")
    await again.click()
    await expect(page.locator("h1 .chip")).to_have_text("retried")
    await expect(page.get_by_text("It was retried with another input as")).to_contain_text("a misspelt name")
    new = page.locator(".notice").get_by_role("link", name="j_").first
    answer = await server.client().get(f"/api/jobs/{await new.inner_text()}")
    assert msgspec.json.decode(answer.content, type=dict[str, msgspec.Raw])["input"] == msgspec.Raw(
        corrected.encode()
    )
    assert [*await visitor.complaints_midway(), *await visitor.sideways()] == []
    (second,) = await fail(server, queue="post")
    await page.get_by_role("link", name="Dead letters").click()
    row = page.get_by_role("row", name=second)
    page.once("dialog", lambda prompt: asyncio.ensure_future(prompt.accept()))
    await row.get_by_role("button", name="Discard").click()
    await expect(row).to_have_count(0)
    assert await open_letters(server) == []


@pytest.mark.long  # test_many_jobs has bulk actions
async def test_all_dead_letters_that_match_are_retried_or_discarded_after_a_preview(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    kept = await fail(server, 2, description="kept")
    await fail(server, 130)
    await server.submit("shop.send", queue="other")
    await visitor.open("/dead-letters")
    rows = page.locator("main tbody tr")
    await expect(rows).to_have_count(50)
    await expect(page.get_by_role("button", name="Retry all that match")).to_have_count(0)
    await page.get_by_role("button", name="Show more").click()
    await expect(rows).to_have_count(100)
    await filtered(page, f"id:{','.join(kept)}")
    await expect(rows).to_have_count(2)
    await page.get_by_role("button", name="Discard all that match").click()
    dialog = page.get_by_role("dialog", name="Discard 2 dead letters?")
    await expect(dialog).to_contain_text(kept[0])
    await dialog.get_by_role("button", name="Discard them").click()
    await expect(page.get_by_text("Discarded: 2 dead letters.")).to_be_visible()
    await expect(rows).to_have_count(0)
    await filtered(page, "queue:mail")
    await page.get_by_role("button", name="Retry all that match").click()
    dialog = page.get_by_role("dialog", name="Submit 130 dead letters again?")
    await dialog.get_by_role("button", name="Submit them again").click()
    await expect(page.get_by_text("Submitted again: 130 dead letters.")).to_be_visible()
    await expect(rows).to_have_count(0)
    await page.get_by_role("button", name="Undo: cancel the new jobs that have not begun").click()
    await expect(page.get_by_text("Cancel was requested for 130 jobs.")).to_be_visible()
    assert await open_letters(server) == []
    assert visitor.taken() == []


async def filtered(page: Page, words: str) -> None:
    await page.get_by_label("Filter").fill(words)
    await page.keyboard.press("Enter")


async def test_a_viewer_sees_dead_letters_but_no_button_or_input_that_changes_them(browser: Browser) -> None:
    async with running() as server:
        (job,) = await fail(server)
        token = await server.token(Role.VIEWER, "ada")
        async with visiting(browser, server.url) as visitor:
            await sign_in(visitor.page, server.url, token)
            for path in ("/dead-letters?q=queue:mail", f"/dead-letters/{job}"):
                await visitor.turn_to(path)
                await expect(visitor.page.locator("main")).to_contain_text("no such street")
                buttons = visitor.page.locator("main").get_by_role("button")
                assert {await each.inner_text() for each in await buttons.all()} <= {
                    "Copy",
                    "Filter",
                    "Clear",
                }
                assert await visitor.page.get_by_label("Input of the new job").count() == 0


async def test_a_refused_retry_of_a_unique_job_leads_to_the_job_that_has_its_key(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    rule = Unique(key="order-17", within="1h", policy="existing")
    (failed,) = await fail(server, unique=rule)
    there = await server.submit("shop.send", queue="mail", unique=rule)
    await visitor.open(f"/jobs/{failed}")
    facts = page.locator("dl.facts").first
    await expect(facts).to_contain_text("order-17")
    await expect(facts).to_contain_text("for 1h after its end; another submission returns this job")
    visitor.expected = ("409", "answered 409")
    await page.get_by_role("button", name="Retry").click()
    toast = page.locator(".toasts .notice")
    await expect(toast).to_contain_text("has the unique key 'order-17' and is PENDING")
    await toast.get_by_role("link", name=there).first.click()
    await expect(page.locator("h1")).to_contain_text(there)
    visitor.taken()
