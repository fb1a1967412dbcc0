"""Fixtures for pytest, which loads them by itself where Interlock is installed.

    async def test_a_letter_is_sent(il) -> None:          # with pytest-asyncio, or anyio
        job = await il.submit(send, "Hello")
        assert await job.result() == "sent"

    def test_a_letter_is_sent_without_asyncio(il_sync) -> None:
        order_something()                                 # the code under test submits jobs to `il_sync`
        il_sync.drain()                                   # they run now
        il_sync.clock.jump("2h")                          # and so do those of the next two hours

`interlock_options` are the options of `in_memory` for both: define a fixture of that name, or mark a test
with `@pytest.mark.interlock(queues=("mail",))`. Nothing of Interlock is imported before a fixture is used.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from interlock.testing.memory_interlock import InMemory, SyncInMemory

if importlib.util.find_spec("pytest_asyncio"):
    from pytest_asyncio import fixture as async_fixture
else:  # anyio runs asynchronous fixtures of plain pytest
    async_fixture = pytest.fixture  # type: ignore[assignment]


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "interlock(**options): options of `in_memory` for `il` and `il_sync`")


@pytest.fixture
def interlock_options() -> dict[str, Any]:
    """Return the options of `in_memory`; override it for a module or a folder."""
    return {}


@pytest.fixture
def _interlock_given(request: pytest.FixtureRequest, interlock_options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `in_memory` from the marker, then the fixture."""
    marker = request.node.get_closest_marker("interlock")
    return {**interlock_options, **(marker.kwargs if marker else {})}


@async_fixture
async def il(_interlock_given: dict[str, Any]) -> AsyncIterator[InMemory]:
    """Yield an Interlock in memory with a worker, on virtual time."""
    from interlock.testing.memory_interlock import in_memory  # noqa: PLC0415 - see above

    async with in_memory(**_interlock_given) as one:
        yield one


@pytest.fixture
def il_sync(_interlock_given: dict[str, Any]) -> Iterator[SyncInMemory]:
    """Yield the same without asyncio."""
    from interlock.testing.memory_interlock import in_memory_sync  # noqa: PLC0415 - see above

    with in_memory_sync(**_interlock_given) as one:
        yield one
