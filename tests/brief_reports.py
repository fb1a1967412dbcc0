"""Keep what a failing test prints short enough to be read.

pytest shortens neither what it compares, when it runs in CI, nor what was captured. A page of JSON hides
the one line that says what was expected and what happened.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntry

MAX_LINES, MAX_LENGTH = 40, 240


def brief(text: str, *, last: bool = False) -> str:
    """Return the first lines of a text, or the last ones, each cut at its end."""
    lines = text.splitlines()
    kept = lines[-MAX_LINES:] if last else lines[:MAX_LINES]
    left_out = [f"… {len(lines) - len(kept)} lines left out"] if len(lines) > len(kept) else []
    return "\n".join([*(left_out if last else ()), *map(_cut, kept), *(() if last else left_out)])


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LENGTH else f"{line[:MAX_LENGTH]}… ({len(line)} characters)"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Shorten the report of a failed test, unless it was asked for in full with `-vv`."""
    report = yield
    if report.failed and item.config.get_verbosity() < 2:
        report.sections = [(name, brief(text, last=True)) for name, text in report.sections]
        if isinstance(report.longrepr, ExceptionChainRepr):
            _shorten(report.longrepr)
    return report


def _shorten(shown: ExceptionChainRepr) -> None:
    for traceback, crash, _ in shown.chain:
        for entry in traceback.reprentries:
            if isinstance(entry, ReprEntry):
                entry.lines = brief("\n".join(entry.lines)).splitlines()
        if crash is not None:
            crash.message = brief(crash.message.partition("\n")[0])  # what the summary shows
