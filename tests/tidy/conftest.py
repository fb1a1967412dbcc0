"""Modules are parsed once for all rules of the house."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.sources import tree_of


@pytest.fixture(scope="package", autouse=True)
def forget_trees() -> Iterator[None]:
    """Forget the parsed modules after the last of these tests; they take 200 MB."""
    yield
    tree_of.cache_clear()
