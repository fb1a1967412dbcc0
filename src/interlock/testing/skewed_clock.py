"""A host whose clock is wrong: `libfaketime` gives a process another time of day.

The library of the system is used (the package `faketime`), else the one in the wheel `libfaketime`.
Without either, `MissingFaketime` names the package to install: a missing fault would prove nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

AN_HOUR_S = 3_600
_TRY_S = 60.0
_FAR_S = 1_800
"""Offset that is far beyond any accident."""


class MissingFaketime(Exception):
    """No working libfaketime is installed."""


def environment(skew_s: int) -> dict[str, str]:
    """Return the environment of a process whose time of day is off.

    Its monotonic clock is unchanged.
    """
    return _environment(library(), skew_s)


def settable(clock: Path) -> dict[str, str]:
    """Return an environment whose clock can be set meanwhile.

    The offset is in a file, so the clock can be set while a process runs.
    """
    set_clock(clock, 0)
    found = _environment(library(), 0)
    del found["FAKETIME"]
    return {**found, "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}


def set_clock(clock: Path, skew_s: int) -> None:
    """Set the clock of the processes with this file, atomically."""
    fresh = clock.with_suffix(".new")
    fresh.write_text(f"{skew_s:+d}\n", encoding="ascii")
    fresh.chmod(0o644)  # the processes may be those of another user
    fresh.replace(clock)


@functools.cache
def library() -> Path:
    """Return the first library that works."""
    tried = list(_candidates())
    for library in tried:
        if library.exists() and _works(library):
            return library
    raise MissingFaketime(
        "There is no libfaketime that works here, and a clock that is wrong cannot be shown without it. "
        "Install it, for example with: apt-get install faketime. "
        f"Looked for: {', '.join(map(str, tried))}."
    )


def _candidates() -> Iterator[Path]:
    for folder in (Path("/usr/lib"), Path("/usr/local/lib"), Path("/usr/lib64")):
        yield from sorted(folder.glob("**/faketime/libfaketime.so.1"))
    spec = importlib.util.find_spec("libfaketime")
    if spec is not None and spec.origin:
        yield Path(spec.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"


def _works(library: Path) -> bool:
    finished = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "import time; print(time.time(), time.monotonic())"],
        env=_environment(library, -AN_HOUR_S),
        capture_output=True,
        text=True,
        check=False,
        timeout=_TRY_S,
    )
    honest = subprocess.run(
        [sys.executable, "-I", "-S", "-c", "import time; print(time.time(), time.monotonic())"],
        capture_output=True,
        text=True,
        check=False,
        timeout=_TRY_S,
    )
    try:
        (wall, steady), (now, present) = _numbers(finished.stdout), _numbers(honest.stdout)
    except ValueError:
        return False
    return now - wall > _FAR_S and abs(present - steady) < _FAR_S


def _numbers(words: str) -> tuple[float, float]:
    wall, steady = words.split()
    return float(wall), float(steady)


def _environment(library: Path, skew_s: int) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{skew_s:+d}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",  # the name in older versions
        "FAKETIME_DONT_RESET": "1",
    }
