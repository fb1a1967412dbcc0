"""A plugin of pytest that notes which functions the tests of each file call, and stops a file that has all.

`python -m pytest -p tests.verify.called_by_tests FILE…` reads the functions, by file, from the path in
INTERLOCK_CALLED, and writes those that were not called back to it.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType

import msgspec
import pytest

CALLED = "INTERLOCK_CALLED"
Places = set[tuple[str, int]]


class Calls:
    """The functions that each file has yet to call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left = msgspec.json.decode(path.read_bytes(), type=dict[str, Places])
        self._seen: set[CodeType] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        """Run a test if something of its file was not called yet."""
        left = self._left[str(item.path)]
        self._seen.clear()
        result = yield
        left -= {(code.co_filename, code.co_firstlineno) for code in self._seen.copy()}
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Leave out a test whose file has called everything."""
        if not self._left[str(item.path)]:
            pytest.skip("everything was called")

    def pytest_sessionfinish(self) -> None:
        """Write what no test has called."""
        self._path.write_bytes(msgspec.json.encode(self._left))

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call."""
        if event == "call":
            self._seen.add(frame.f_code)


def pytest_configure(config: pytest.Config) -> None:
    """Trace the calls."""
    calls = Calls(Path(os.environ[CALLED]))
    config.pluginmanager.register(calls)
    threading.settrace(calls.note)
    sys.settrace(calls.note)
