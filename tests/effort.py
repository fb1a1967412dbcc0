"""How much is tried: `make test` takes minutes, `make test-all` tries everything.

Set INTERLOCK_TEST_ALL to try everything. Mark a whole test with `@pytest.mark.long` to leave it to
`make test-all`; use `pick` where a test has a quick and a thorough size.
"""

from __future__ import annotations

import os
from typing import TypeVar

ALL = bool(os.environ.get("INTERLOCK_TEST_ALL"))

Size = TypeVar("Size")


def pick(quick: Size, thorough: Size) -> Size:
    """Return the size of a test: quick in `make test`, thorough in `make test-all`."""
    return thorough if ALL else quick
