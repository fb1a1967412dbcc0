"""Pages of other origins in a real browser: those that a server names may use its API with a token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Browser, Page
from tests.server.running import Running, any_port, running
from tests.waiting import PATIENCE_S

from interlock.wire.access import Role

pytestmark = pytest.mark.asyncio(loop_scope="session")

_CALL = """async ([url, token, method, body]) => {
  const headers = { Authorization: `Bearer ${token}`, "Idempotency-Key": "once" };
  if (body) headers["Content-Type"] = "application/json";
  try {
    const answer = await fetch(url, { method, headers, body: body && JSON.stringify(body) });
    return [answer.status, await answer.json(), answer.headers.get("X-Request-ID")];
  } catch (error) {
    return [0, error.name, null];
  }
}"""
_FOLLOW = """async ([url, token]) => {
  const stop = new AbortController();
  const headers = { Authorization: `Bearer ${token}` };
  const answer = await fetch(url, { headers, signal: stop.signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let heard = "";
  while (!heard.includes("event: entry")) heard += (await reader.read()).value;
  stop.abort();
  return heard;
}"""


@asynccontextmanager
async def page_at(browser: Browser, url: str) -> AsyncIterator[Page]:
    """A page of another server, which has no policy of its own about where it may send requests."""
    context = await browser.new_context()
    context.set_default_timeout(PATIENCE_S * 1_000)
    try:
        page = await context.new_page()
        await page.goto(f"{url}/healthz")
        yield page
    finally:
        await context.close()


async def call(page: Page, server: Running, path: str, token: str, body: Any = None) -> list[Any]:
    """What a script of the page gets: status, JSON and request id, or 0 where the browser blocks it."""
    method = "POST" if body else "GET"
    found: list[Any] = await page.evaluate(_CALL, [server.url + path, token, method, body])
    return found


async def test_a_page_of_a_named_origin_uses_the_api_with_a_token_and_one_of_another_is_blocked(
    browser: Browser,
) -> None:
    async with running() as pages:
        settings = any_port(tokens_required=True, allowed_origins=(pages.url,))
        async with running(settings=settings) as server:
            token = await server.token(Role.ADMIN)
            async with page_at(browser, pages.url) as page:
                status, made, request = await call(page, server, "/api/jobs", token, {"task": "shop.send"})
                assert (status, len(request)) == (201, 16), made
                status, seen, _ = await call(page, server, f"/api/jobs/{made['id']}", token)
                assert (status, seen["state"]) == (200, "PENDING"), seen
                status, problem, _ = await call(page, server, "/api/jobs/j_000000000000", token)
                assert (status, problem["code"]) == (404, "unknown_job"), problem
                status, problem, _ = await call(page, server, "/api/jobs", "il_nonsense")
                assert (status, problem["code"]) == (401, "not_signed_in"), problem
                events = [f"{server.url}/api/events?after=0", token]
                assert made["id"] in await page.evaluate(_FOLLOW, events)
            elsewhere = pages.url.replace("127.0.0.1", "localhost")
            async with page_at(browser, elsewhere) as page:
                jobs = (await server.client(token).get("/api/jobs")).json()["jobs"]
                assert await call(page, server, "/api/jobs", token) == [0, "TypeError", None]
                body = {"task": "shop.send"}
                assert await call(page, server, "/api/jobs", token, body) == [0, "TypeError", None]
                assert (await server.client(token).get("/api/jobs")).json()["jobs"] == jobs
