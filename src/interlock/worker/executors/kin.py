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


def processes() -> Iterable[tuple[int, int, str]]:
    """Every process with its parent and its state."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            state, parent = (entry / "stat").read_text().rpartition(") ")[2].split()[:2]
            yield int(entry.name), int(parent), state
