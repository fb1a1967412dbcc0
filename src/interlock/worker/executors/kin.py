"""Who has started whom, as the system knows it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have, whatever their group."""
    children: dict[int, list[int]] = {}
    for member, parent, _ in processes():
        children.setdefault(parent, []).append(member)
    family = list(children.get(pid, ()))
    for member in family:
        family.extend(children.get(member, ()))
    return family


def running_system() -> str:
    """Names the system on which process numbers are unique until it is started anew; empty if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def began(pid: int) -> str:
    """When a process began, by a count of this system; empty when there is none, or only its remains."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return "" if state in "ZX" else fields[18]
    except (OSError, IndexError):
        return ""


def processes() -> Iterable[tuple[int, int, str]]:
    """Every process with its parent and its state."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
            yield int(entry.name), int(parent), state
