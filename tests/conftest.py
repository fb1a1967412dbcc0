"""What all tests share: each module is compiled once, and not by each of the many processes they start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Where bytecode may not lie beside the sources, it lies in the cache of pytest.

    Without it a process spends most of its start on compiling, and the tests start over a thousand.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        _keep_bytecode_in(config.rootpath / ".pytest_cache" / "bytecode")


def _keep_bytecode_in(folder: Path) -> None:
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
    sys.dont_write_bytecode = False
