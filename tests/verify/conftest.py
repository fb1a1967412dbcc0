"""What a world leaves behind is collected before anything else runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left() -> Iterator[None]:
    """Collect handlers of worlds that ended in the middle, so that no later test does.

    Closing them formats tracebacks, for which Python 3.11 parses sources. When the collector does so while
    another test parses sources itself, that fails with `AST constructor recursion depth mismatch`.
    """
    yield
    gc.collect()
    gc.freeze()  # states that were explored are kept, and many
