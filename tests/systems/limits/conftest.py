"""A house in memory, and houses on each store in turn."""

from __future__ import annotations

from tests.systems.orchestrator.conftest import house
from tests.systems.orchestrator.test_every_store_alike import open_house

__all__ = ["house", "open_house"]
