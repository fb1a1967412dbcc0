"""A house for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.systems.orchestrator.house import House


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """In memory, with a clock that jumps."""
    opened = await House().open()
    yield opened
    await opened.close()
