"""What people do with the dashboard in a real browser: follow, act, type, sign in, wait for the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from tests.server.runners import Runner, done
from tests.server.running import Running, any_port, running
from tests.waiting import PATIENCE_S
from tests.web.visiting import ON_EVERY_STORE, WIDE, Visitor, fill, visit, visiting

from interlock.wire.access import Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

expect.set_options(timeout=PATIENCE_S * 1_000)


@ON_EVERY_STORE
async def test_a_job_appears_in_the_list_by_itself_and_its_page_follows_it_to_the_end(
    server: Running, visitor: Visitor
) -> None:
    page = visitor.page
    await visitor.open("/jobs")
    await visitor.live()
    job = await server.submit(description="live")
    await page.get_by_role("link", name=job).click()
    state = page.locator("h1 .chip")
    await expect(state).to_have_text("PENDING")
    runner = Runner(server.client())
    token = (await runner.grant())["token"]
    await expect(state).to_have_text("RUNNING")
    line = ["2026-01-01T00:00:00Z", "info", "half of it is done"]
    await runner.say("complete", token, **done({"sent": 3}), log=[line])
    await expect(state).to_have_text("COMPLETED")
    await expect(page.get_by_text("half of it is done")).to_be_visible()
    await expect(page.get_by_text('"sent": 3')).to_be_visible()
    assert visitor.taken() == []


@ON_EVERY_STORE
async def test_a_job_is_canceled_and_retried_by_its_buttons(server: Running, visitor: Visitor) -> None:
    page = visitor.page
    job = await server.submit()
    await visitor.open(f"/jobs/{job}")
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator("h1 .chip")).to_have_text("CANCELED")
    await page.get_by_role("button", name="Retry").click()
    await expect(page.locator("h1 .chip")).to_have_text("PENDING")
    assert not page.url.endswith(job)
    await expect(page.get_by_role("link", name=job)).to_be_visible()


async def test_the_keyboard_alone_is_enough(server: Running, visitor: Visitor) -> None:
    page = visitor.page
    job = await server.submit()
    await visitor.open("/")
    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await page.keyboard.press("/")
    await expect(page.get_by_role("combobox", name="Find")).to_be_focused()
    await page.keyboard.type(job)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text(job)
    await page.go_back()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    await page.get_by_role("link", name=job).wait_for()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text(job)
    await expect(page.get_by_role("button", name="Cancel")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("cancel")
    found = page.get_by_role("listbox", name="Found").get_by_role("option")
    await expect(found).to_have_text("Do: Cancel")  # what the page offers
    await page.keyboard.press("Enter")
    await expect(page.locator("h1 .chip")).to_have_text("CANCELED")


HOSTILE = "\n".join(
    (
        "<img src=x onerror=window.ran=1><script>window.ran=1</script>",
        "javascript:window.ran=1 ]]>--></pre></section></main><h1>Mine</h1>",
        "\u202egnp.exe \u2066\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
        "\x1b[31mred\x1b[0m \x1b]8;;javascript:window.ran=1\x07link\x1b]8;;\x07 \x1b[2J\x1b[999;999H",
        "long" * 250,
        '{{constructor.constructor("window.ran=1")()}} ${window.ran=1} %s %n',
    )
)


async def test_hostile_texts_run_nothing_and_break_nothing(server: Running, visitor: Visitor) -> None:
    page = visitor.page
    made = await fill(server, HOSTILE)
    jobs, runs = ("/jobs", made["/jobs/:id"], f"/jobs/{made['waits']}"), ("/runs", made["/runs/:id"])
    more = (
        "/schedules",
        made["/schedules/:name"],
        "/workloads",
        made["/workloads/:id"],
        "/simulations",
        "/batches",
        made["/batches/:id"],
        "/approvals",
        made["/approvals/:id"],
        made["/records/:kind/:id"],
        "/journal",
        "/",
    )
    for path in (*jobs, *runs, *more):
        await visitor.turn_to(path)
        assert await page.evaluate("() => window.ran") is None, path
        assert await page.locator("main script, main img[src=x], main h1:has-text('Mine')").count() == 0, path
        assert await visitor.sideways() == [], path
        assert await page.get_by_role("heading", level=1).count() == 1, path
    await visitor.open(made["/jobs/:id"])
    await expect(page.get_by_text("<script>window.ran=1</script>").first).to_be_visible()
    await expect(page.locator(".log .ansi-red").first).to_have_text("red")
    assert await page.locator(".log a").count() == 0
    assert visitor.taken() == []


async def test_a_page_shows_that_the_server_is_unreachable_and_reconnects_when_it_returns(
    browser: Browser, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with running(url) as server:
        port = server.address[1]
        job = await server.submit()
        context = await browser.new_context(viewport=WIDE)  # type: ignore[arg-type]
        visitor = await visit(context, server.url)
        await visitor.open(f"/jobs/{job}")
        await visitor.live()
    page = visitor.page
    await expect(page.get_by_role("alert").first).to_contain_text("The server cannot be reached.")
    await expect(page.locator("h1 .chip")).to_have_text("PENDING")  # what was known is still there
    async with running(url, any_port(port=port)) as server:
        await expect(page.get_by_role("alert")).to_have_count(0)
        await visitor.live()
        await Runner(server.client()).grant()
        await expect(page.locator("h1 .chip")).to_have_text("RUNNING")
        await context.close()


async def test_a_page_requires_a_token_to_sign_in_and_again_after_the_token_is_revoked(
    browser: Browser, tmp_path: Path
) -> None:
    async with running(f"sqlite:///{tmp_path}/jobs.db") as server:
        admin, token = await server.token(Role.ADMIN), await server.token(Role.VIEWER, "ada")
        job = await server.submit()
        async with visiting(browser, server.url) as visitor:
            page = visitor.page
            await page.goto(f"{server.url}/jobs/{job}")
            await page.get_by_label("Token").fill("il_wrong")
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_role("alert").wait_for()
            assert await visitor.complaints() == []
            await page.get_by_label("Token").fill(token)
            await page.get_by_role("button", name="Sign in").click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text(job)
            await visitor.live()
            assert await page.get_by_role("button", name="Cancel").count() == 0  # a viewer would be refused
            assert await page.evaluate("() => document.cookie + JSON.stringify(localStorage)") == "{}"
            await page.reload()
            await expect(page.get_by_role("heading", level=1)).to_contain_text(job)
            answer = await server.client(admin).post("/api/tokens/ada/revoke", json={})
            assert answer.status_code == 200, answer.text
            await Runner(server.client(await server.token(Role.RUNNER))).grant()
            await page.get_by_label("Token").wait_for()


@pytest.mark.long  # test_live.py has two tabs that share what they are told
async def test_eight_tabs_of_one_browser_all_stay_live(server: Running, visitor: Visitor) -> None:
    tabs = [visitor, *[await visit(visitor.context, visitor.url) for _ in range(7)]]
    for tab in tabs:
        await tab.open("/jobs")
    for tab in tabs:
        await tab.live()
    job = await server.submit()
    for tab in tabs:
        await tab.page.bring_to_front()
        await expect(tab.page.get_by_role("link", name=job)).to_be_visible()
    assert [tab.taken() for tab in tabs] == [[]] * 8
