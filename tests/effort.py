"""How much is tried: `make test` takes minutes, `make test-all` tries everything.

Set INTERLOCK_TEST_ALL to try everything. Mark a whole test with `@pytest.mark.long` to leave it to
`make test-all`; use `pick` where a test has a quick and a thorough size, and `further` for cases of a test
that try the same thing again.
"""

from __future__ import annotations

import os
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

ALL = bool(os.environ.get("INTERLOCK_TEST_ALL"))

Size = TypeVar("Size")


def pick(quick: Size, thorough: Size) -> Size:
    """Return the size of a test: quick in `make test`, thorough in `make test-all`."""
    return thorough if ALL else quick


def further(*cases: object) -> list[ParameterSet]:
    """Return cases of a parametrized test that are left to `make test-all`; several values are a tuple."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
        for case in cases
    ]
