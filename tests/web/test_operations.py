"""Queues, workers and administration in a real browser: what is shown, and what its buttons do."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from tests.server.runners import Runner, done
from tests.server.running import Running, any_port, running
from tests.server.test_sessions import signed_in
from tests.waiting import PATIENCE_S
from tests.web.visiting import ON_EVERY_STORE, WIDE, Visitor, visit

from interlock.wire.access import Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)


@ON_EVERY_STORE
async def test_a_queue_is_paused_in_the_list_and_resumed_on_its_page(
    server: Running, visitor: Visitor
) -> None:
    page, runner = visitor.page, Runner(server.client())
    await server.submit(queue="mail/out")
    await visitor.open("/queues")
    row = page.get_by_role("row", name="mail/out")
    await expect(row).to_contain_text("none")  # no worker takes it
    await row.get_by_role("button", name="Pause").click()
    await expect(row.locator(".chip").first).to_have_text("paused")
    assert await runner.grants(queues=["mail/out"]) == []
    await row.get_by_role("link", name="mail/out").click()
    await expect(page.locator("h1")).to_have_text("mail/out paused")
    await expect(page.get_by_text("Its jobs are not given out.")).to_be_visible()
    await expect(page.get_by_text("interlock worker start MODULE --queue mail/out")).to_be_visible()
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("h1 .chip")).to_have_text("open")
    assert len(await runner.grants(queues=["mail/out"])) == 1
    assert await visitor.complaints_midway() == []


@ON_EVERY_STORE
async def test_a_worker_is_paused_and_terminated_on_its_page_which_shows_its_slots_and_its_end(
    server: Running, visitor: Visitor
) -> None:
    page, client = visitor.page, server.client()
    about = {"pool": "web", "pool_least": "2", "pool_most": "2"}
    spec = {"name": "web-1", "incarnation": "1", "host": "h1", "capacity": 3, "metadata": about}
    worker = (await client.post("/api/workers", json=spec)).json()
    runner = Runner(client, "web-1#1")
    ended = await server.submit("shop.done")
    await runner.say("complete", (await runner.grant())["token"], **done())
    job = await server.submit("shop.send", description="a letter", timeout_s=900.0)
    await client.post(f"/api/workers/{worker['id']}/heartbeat", json={"active": 1, "begun": True})
    await runner.grant(worker_id=worker["id"])
    await visitor.open("/workers")
    await expect(page.get_by_role("heading", name="Supervisor web on h1")).to_be_visible()
    await expect(page.get_by_text("too few")).to_be_visible()
    assert await visitor.complaints_midway() == []
    await page.get_by_role("row", name="web-1").get_by_role("link").click()
    slots = page.get_by_role("list", name="Slots that are taken")
    await expect(slots.get_by_role("link", name=job)).to_be_visible()
    await expect(slots).to_contain_text("deadline in 1")
    await expect(page.get_by_role("row", name=ended)).to_contain_text("SUCCEEDED")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.locator("h1 .chip").first).to_have_text("PAUSED")
    page.on("dialog", lambda dialog: dialog.accept())
    await page.get_by_role("button", name="Terminate").click()
    await expect(page.get_by_role("heading", name="Last breath")).to_be_visible()
    await expect(page.get_by_text("terminated").first).to_be_visible()
    await expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    await expect(page.get_by_role("row", name="terminate")).to_be_visible()  # its history
    assert await visitor.complaints_midway() == []


async def test_admin_shows_the_server_and_its_store_and_signs_another_browser_out(
    browser: Browser, tmp_path: Path
) -> None:
    async with running(f"sqlite:///{tmp_path}/jobs.db", any_port(tokens_required=True)) as server:
        admin, viewer = await server.token(Role.ADMIN, "ann"), await server.token(Role.VIEWER, "vera")
        other = await signed_in(server, Role.VIEWER, "bob")
        context = await browser.new_context(viewport=WIDE)  # type: ignore[arg-type]
        visitor = await visit(context, server.url)
        page = visitor.page
        page.on("dialog", lambda dialog: dialog.accept())
        for token, sees in ((viewer, False), (admin, True)):
            await page.goto(f"{server.url}/admin")
            await page.get_by_label("Token").fill(token)
            await page.get_by_role("button", name="Sign in").click()
            await expect(page.get_by_role("heading", name="Server")).to_be_visible()
            await expect(page.get_by_role("row", name="deadlines")).to_be_visible()
            await expect(page.get_by_role("heading", name="Store")).to_have_count(int(sees))
            if not sees:
                await page.get_by_role("button", name="Sign out").click()
                await page.get_by_label("Token").wait_for()
        await expect(page.get_by_text("SQLite 3")).to_be_visible()
        await expect(page.get_by_role("row", name="session")).to_contain_text("30 d")
        browsers = page.locator("section", has_text="Browsers that are signed in")
        await expect(browsers.get_by_role("row", name="ann")).to_contain_text("this browser")
        await browsers.get_by_role("row", name="bob").get_by_role("button", name="Sign out").click()
        await expect(browsers.get_by_role("row", name="bob")).to_have_count(0)
        assert (await other.client.get("/api/session")).status_code == 401
        assert await visitor.complaints_midway() == []
        assert await visitor.sideways() == []
        await context.close()


async def test_admin_links_to_the_licenses_of_the_packages_in_the_dashboard(visitor: Visitor) -> None:
    await visitor.open("/admin")
    await visitor.page.get_by_role("link", name="licenses").click()
    await expect(visitor.page).to_have_url(f"{visitor.url}/licenses.txt")
    await expect(visitor.page.locator("body")).to_contain_text("preact - ")
