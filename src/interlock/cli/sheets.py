"""Tables of cells that commands print, and the colours of states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

COLOURS = {"good": "green", "bad": "red", "stopped": "yellow", "active": "cyan"}
"""Colours of states, by their tone."""


HISTORY = ("when", "what", "event", "from", "to", "owner", "actor", "reason")
"""Columns of `history`."""
EXPLANATION = ("what", "state", "why", "turn", "deadline")
"""Columns of `explain`."""


def columns_of_entries(*, versions: bool) -> tuple[str, ...]:
    """Return the columns of the `history` of a record with one machine."""
    return ("when", *(["version"] if versions else ()), "event", "to", "by", "reason")


FORMER_NAMES = {"said": "message", "says": "message"}
"""Earlier names of columns, which `--columns` and `--sort` accept as well, each with the present one."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table. `noun` begins each line of a pipe if several tables share it."""

    noun: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]] = field(default=())
    one_line: bool = False
    """A terminal shows each row on one line: long cells end with an ellipsis instead of wrapping."""
    spare: Sequence[str] = ()
    """Columns that a terminal leaves out while it is too narrow for all, the first of these first."""
