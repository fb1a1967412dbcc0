"""Keep what a failing test prints short enough to be read.

pytest shortens neither what it compares, when it runs in CI, nor what was captured. A page of JSON hides
the one line that says what was expected and what happened.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from typing import TypeAlias

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntry, ReprEntryNative

MAX_LINES, MAX_LENGTH = 40, 240
MAX_SOURCE = 12
"""How many lines of a function are shown, up to the one that failed."""

Entry: TypeAlias = ReprEntry | ReprEntryNative

_LIBRARY = re.compile(r"site-packages/|/lib/python3|\.pyx$|^<frozen ")
_FRAME = re.compile(r'[ |+-]*File "([^"]+)"')


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
        traceback.reprentries = _ours(traceback.reprentries)
        for entry in traceback.reprentries:
            if isinstance(entry, ReprEntry):
                _shorten_entry(entry)
            elif isinstance(entry, ReprEntryNative):
                kept = _without_libraries("".join(entry.lines).splitlines())
                entry.lines = [brief("\n".join(kept), last=True) + "\n"]
        if crash is not None:
            crash.message = brief(crash.message.partition("\n")[0])  # what the summary shows


def _ours(entries: Sequence[Entry]) -> list[Entry]:
    """Leave out calls inside of libraries, but the last one, in which something was raised."""
    return [entry for entry in entries[:-1] if not _is_of_a_library(entry)] + [*entries[-1:]]


def _is_of_a_library(entry: Entry) -> bool:
    return (
        isinstance(entry, ReprEntry)
        and entry.reprfileloc is not None
        and _LIBRARY.search(entry.reprfileloc.path) is not None
    )


def _shorten_entry(entry: ReprEntry) -> None:
    """Keep the last lines up to the one that failed, and the first lines of what is wrong with it."""
    source = [line for line in entry.lines if not line.startswith("E")]
    wrong = [line for line in entry.lines if line.startswith("E")]
    failed = next((at for at, line in enumerate(source) if line.startswith(">")), len(source) - 1)
    kept = source[max(0, failed - (0 if _is_of_a_library(entry) else MAX_SOURCE)) :]
    left_out = [f"    … {len(source) - len(kept)} lines left out"] if len(source) > len(kept) else []
    entry.lines = [*left_out, *map(_cut, kept), *brief("\n".join(wrong)).splitlines()]
    if entry.reprfuncargs is not None:
        given = entry.reprfuncargs.args
        entry.reprfuncargs.args = [(name, shown) for name, shown in given if " at 0x" not in str(shown)]


def _without_libraries(lines: Sequence[str]) -> Iterator[str]:
    """Leave out of Python's own traceback, which groups of exceptions have, the calls inside of libraries."""
    inside: int | None = None
    for line in lines:
        depth = len(line) - len(line.lstrip(" |+-"))
        if inside is not None and depth > inside:
            continue
        found = _FRAME.match(line)
        inside = depth if found and _LIBRARY.search(found[1]) else None
        if inside is None:
            yield line
