"""Programs from Debian's packages, for tests that need the real thing; nothing is installed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from pathlib import Path

from tests.waiting import PROGRAM_S


def unpacked(package: str) -> Path:
    """Return a folder with the contents of a package and of all that it needs and that is not installed here.

    They are fetched once for all test processes. There is no folder where they cannot be fetched.
    """
    folder = folder_of(package)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # there are several test processes
        if not folder.exists():
            _fetch(folder, _with_dependencies(package))
    return folder


def folder_of(package: str) -> Path:
    """Return where a package is, or would be, unpacked."""
    return Path(tempfile.gettempdir()) / f"interlock-tests-{package}-{os.geteuid()}"


def _with_dependencies(package: str) -> tuple[str, ...]:
    found = _would_be_installed(package)
    if not found and os.geteuid() == 0:
        _apt(tempfile.gettempdir(), "update")
        found = _would_be_installed(package)
    return found


def _would_be_installed(package: str) -> tuple[str, ...]:
    try:
        done = subprocess.run(
            ["apt-get", "-q", "-s", "--no-install-recommends", "install", package],
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(line.split()[1] for line in done.stdout.splitlines() if line.startswith("Inst "))


def _fetch(folder: Path, packages: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o777)  # apt downloads as a user of its own
        if _apt(place, "download", *packages) and os.geteuid() == 0:
            _apt(place, "update")
            _apt(place, "download", *packages)
        found = sorted(Path(place).glob("*.deb"))
        if packages and len(found) == len(packages):
            fresh = Path(tempfile.mkdtemp(dir=folder.parent))
            fresh.chmod(0o755)
            for package in found:
                subprocess.run(["dpkg-deb", "-x", package, fresh], check=True, timeout=PROGRAM_S)
            fresh.rename(folder)


def _apt(folder: str, *words: str) -> int:
    try:
        return subprocess.run(
            ["apt-get", "-q", *words], cwd=folder, capture_output=True, timeout=PROGRAM_S, check=False
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return 1
