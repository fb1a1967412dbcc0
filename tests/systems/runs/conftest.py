"""A house for each test, in which whoever sweeps looks after runs: so each step can be seen."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.systems.runs.site import Site


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """In memory, with a clock that jumps."""
    opened = Site()
    await opened.open()
    yield opened
    await opened.close()
