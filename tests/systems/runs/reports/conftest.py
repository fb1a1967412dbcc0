"""Somebody who is told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.systems.runs.reports.receiver import Receiver, receiving


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver of reports."""
    async with receiving() as one:
        yield one
