"""How the tests are run; what they share is beside those that share it."""

from __future__ import annotations

import os


def pytest_xdist_auto_num_workers() -> int:
    """One process more than processors: tests of real processes wait for half of their time."""
    return (os.cpu_count() or 1) + 1
