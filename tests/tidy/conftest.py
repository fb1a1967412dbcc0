"""Modules are parsed once for all rules of the house."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources import tree_of


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process check all rules, so that one parses the modules."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.together("parsed modules"))


@pytest.fixture(scope="package", autouse=True)
def forget_trees() -> Iterator[None]:
    """Forget the parsed modules after the last of these tests; they take 200 MB.

    Until then the garbage collector would traverse them again and again.
    """
    gc.disable()
    yield
    tree_of.cache_clear()
    gc.enable()
