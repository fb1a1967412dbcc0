"""One browser for all tests of a process, and a fresh context for each of them."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright
from tests.server.running import Running, running
from tests.waiting import PROGRAM_S
from tests.web.browsers import ARGUMENTS, chromium
from tests.web.visiting import WIDE, Visitor, visit
from tools import dashboard

from interlock.systems.blobs import BlobSettings
from interlock.systems.settings import Settings
from interlock.testing.servers import PostgresServer

ROOT = Path(__file__).parents[2]
LIMIT_S = 2 * PROGRAM_S
"""How long a test may take: a script in a page has no limit, and may wait for a frame that is never drawn."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test of a page a limit, and let one process run them with one browser."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.together("browser"))
            item.obj = within(LIMIT_S, item.obj) if inspect.iscoroutinefunction(item.obj) else item.obj


def within(limit_s: float, test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Return the same test, which fails after so long."""

    @functools.wraps(test)
    async def limited(*given: Any, **named: Any) -> None:
        async with asyncio.timeout(limit_s):
            await test(*given, **named)

    return limited


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A Chromium, which the tests of this process share; the loop is theirs as well."""
    if not dashboard.is_up_to_date(ROOT):
        pytest.fail("The dashboard is not built from these sources.\n→ Run: make dashboard", pytrace=False)
    async with async_playwright() as playwright:
        found = chromium(playwright.chromium.executable_path)
        browser = await playwright.chromium.launch(
            executable_path=found.program,
            env={**os.environ, **found.environment},
            args=[*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])],
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Running]:
    """A server that asks for no token: on SQLite, unless a journey is played on every store."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    if getattr(request, "param", "sqlite") == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.new_database()
    # SQLite has a place for files beside it; other stores have to be told one.
    settings = Settings(blobs=BlobSettings(directory=str(tmp_path / "blobs")))
    async with running(url, orchestration=settings) as one:
        yield one


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(browser: Browser, server: Running) -> AsyncIterator[Visitor]:
    """Somebody who looks at the dashboard of that server, and has met no trouble in the end."""
    context = await browser.new_context(viewport=WIDE, reduced_motion="reduce")  # type: ignore[arg-type]
    visitor = await visit(context, server.url)
    yield visitor
    await context.close()
    assert visitor.taken() == []


@pytest_asyncio.fixture(loop_scope="session")
async def on_postgres(postgres: PostgresServer) -> AsyncIterator[Running]:
    """A server on PostgreSQL that asks for no token."""
    async with running(postgres.new_database()) as one:
        yield one
