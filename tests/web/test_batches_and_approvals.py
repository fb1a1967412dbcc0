"""Batches and approvals in a real browser: follow one, cancel one, answer as one of those who may."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Browser, expect
from tests.server.running import Running, running
from tests.server.test_openapi import waiting_approval
from tests.waiting import PATIENCE_S
from tests.web.test_access import sign_in
from tests.web.visiting import ON_EVERY_STORE, Visitor, visiting

from interlock.wire.access import Role
from interlock.wire.batches import BatchSpec
from interlock.wire.jobs import JobSpec
from interlock.wire.runner import ClaimRequest, Complete, Succeeded
from interlock.wire.runs import Plan, PlannedApproval, PlannedJob, RunSpec

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)


async def one_done(server: Running) -> None:
    """The oldest job of the queue `parts` is done."""
    orchestrator = server.parts.runtime.orchestrator
    (grant,) = await orchestrator.claim(ClaimRequest(runner_id="r", queues=("parts",)))
    await orchestrator.report([Complete(token=grant.token, runner_id="r", sequence=1, outcome=Succeeded())])


@ON_EVERY_STORE
async def test_a_batch_is_followed_to_its_callback_and_another_is_canceled(
    server: Running, visitor: Visitor
) -> None:
    page, batches = visitor.page, server.parts.runtime.batches
    await visitor.open("/")
    await page.keyboard.press("g")
    await page.keyboard.press("b")
    await expect(page.get_by_text("No batches.")).to_be_visible()
    await visitor.live()
    spec = BatchSpec(description="invoices", callback=JobSpec(task="shop.report", queue="reports"))
    parts = [JobSpec(task="shop.part", queue="parts")] * 3
    made = await batches.create(spec, parts, close=True, actor="ada")
    row = page.get_by_role("row", name=made.batch_id)
    await expect(row).to_contain_text("0 of 3")
    await row.get_by_role("link", name=made.batch_id).click()
    await expect(page.get_by_text("0 of 3 jobs have ended.")).to_be_visible()
    jobs = page.get_by_role("region", name="Jobs of the batch").locator("tbody tr")
    await expect(jobs).to_have_count(3)
    await one_done(server)
    await expect(jobs.first).to_contain_text("COMPLETED")
    await expect(page.get_by_text("1 of 3 jobs have ended.")).to_be_visible()
    for _ in made.ids[1:]:
        await one_done(server)
    await expect(page.locator("h1 .chip")).to_have_text("ENDED")
    callback = (await batches.get(made.batch_id)).callback_job_id or ""
    await expect(page.locator("main").get_by_role("link", name=callback)).to_be_visible()
    await expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    assert [*await visitor.complaints_midway(), *await visitor.sideways()] == []
    unwanted = await batches.create(BatchSpec(), parts, close=True)
    await page.get_by_role("link", name="Batches").click()
    page.once("dialog", lambda prompt: asyncio.ensure_future(prompt.accept()))
    row = page.get_by_role("row", name=unwanted.batch_id)
    await row.get_by_role("button", name="Cancel").click()
    await expect(row).to_contain_text("CANCELED")
    await expect(row).to_contain_text("3 of 3")
    assert visitor.taken() == []


@ON_EVERY_STORE
async def test_new_approvals_appear_on_the_page_and_are_rejected_or_approved_with_a_comment(
    server: Running, visitor: Visitor
) -> None:
    page, waits = visitor.page, server.parts.runtime.waits
    await visitor.open("/approvals")
    await expect(page.get_by_text("Nothing waits for an approval.")).to_be_visible()
    await visitor.live()
    first, second = [await waiting_approval(server) for _ in range(2)]
    rows = page.locator("main tbody tr")
    await expect(rows).to_have_count(2)
    await page.get_by_role("row", name=first.partition(".")[0]).get_by_role("button", name="Reject").click()
    await expect(rows).to_have_count(1)
    await page.get_by_role("link", name="Deploy?").click()
    await page.get_by_label("Comment").fill("the tests are green")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.locator("h1 .chip")).to_have_text("APPROVED")
    await expect(page.locator("dl.facts").first).to_contain_text("the tests are green")
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    assert [(await waits.get(each)).state for each in (first, second)] == ["REJECTED", "APPROVED"]
    await page.get_by_role("link", name="Approvals").click()
    await page.get_by_role("link", name="All").click()
    await expect(rows).to_have_count(2)
    await expect(rows.get_by_role("button")).to_have_count(0)
    assert [*await visitor.complaints_midway(), *await visitor.sideways(), *visitor.taken()] == []


@pytest.mark.long
async def test_only_users_who_may_answer_an_approval_see_its_buttons(browser: Browser) -> None:
    async with running() as server:
        for_all = await waiting_approval(server)
        for_ada = await waiting_approval(server, approvers=("ada",))
        for_admins = await waiting_approval(server, role=Role.ADMIN)
        approval_ids = (for_all, for_ada, for_admins)
        seen = {}
        for name, role in (("ada", Role.OPERATOR), ("bob", Role.OPERATOR), ("eve", Role.VIEWER)):
            token = await server.token(role, name)
            async with visiting(browser, server.url) as visitor:
                await sign_in(visitor.page, server.url, token)
                await visitor.turn_to("/approvals")
                rows = visitor.page.locator("main tbody tr")
                await expect(rows).to_have_count(3)
                answers = rows.filter(has=visitor.page.get_by_role("button", name="Approve"))
                texts = " ".join(await answers.all_inner_texts())
                seen[name] = {each for each in approval_ids if each.partition(".")[0] in texts}
                for each in approval_ids:
                    await visitor.turn_to(f"/approvals/{each}")
                    buttons = visitor.page.get_by_role("button", name=re.compile("Approve|Reject"))
                    await expect(buttons).to_have_count(2 if each in seen[name] else 0)
        assert seen == {"ada": {for_all, for_ada}, "bob": {for_all}, "eve": set()}


@pytest.mark.long  # the page of approvals does the same
async def test_a_job_of_a_run_is_approved_on_the_page_of_the_run(server: Running, visitor: Visitor) -> None:
    page = visitor.page
    planned = PlannedApproval(question="Deploy to production?")
    plan = Plan(jobs=(PlannedJob(name="deploy", task="shop.deploy", approval=planned),))
    run = await server.parts.runtime.runs.submit(RunSpec(plan=plan))
    await visitor.open(f"/runs/{run.id}")
    await expect(page.get_by_text("Deploy to production?").first).to_be_visible()
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    ((approval,), _) = await server.parts.runtime.waits.find(ended=True)
    assert (approval.state, approval.run_id) == ("APPROVED", run.id)
    await visitor.open(f"/approvals/{approval.id}")
    await page.get_by_role("link", name="Show the run").click()
    await expect(page.locator("h1")).to_contain_text(run.id)
