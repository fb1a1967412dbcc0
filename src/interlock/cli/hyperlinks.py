"""Links from ids in tables to their pages on the dashboard (OSC 8), on terminals that can show them.

Terminals do not say whether they can; those that do are known by their environment. `FORCE_HYPERLINK=1` and
`NO_HYPERLINKS=1` decide otherwise. Without a server there is no dashboard to link to.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote

server: str = ""
"""URL of the server that this command uses; empty if it uses a store."""

_LETTERS = {"b": "batches", "j": "jobs", "w": "workers", "r": "runs", "s": "simulations"}
_ID = re.compile(r"([bjrsw])_[0-9a-f]{12}")
_NAMED = {
    ("approval", "id"): "approvals",
    ("dead letter", "id"): "dead-letters",
    ("limit", "name"): "limits",
    ("machine", "name"): "machines",
    ("queue", "name"): "queues",
    ("schedule", "name"): "schedules",
    ("simulation", "id"): "simulations",
    ("workload", "id"): "workloads",
}
"""Pages of records that an id alone does not tell, by the noun of the table and the column."""
_VARIABLES = ("DOMTERM", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "WT_SESSION")
_PROGRAMS = frozenset({"ghostty", "Hyper", "iTerm.app", "mintty", "vscode", "WezTerm", "zed"})
_TERMS = frozenset({"alacritty", "contour", "foot", "xterm-ghostty", "xterm-kitty"})
_FIRST_VTE = 5_000
"""The first version of VTE (GNOME Terminal and others) with links, as it writes it: 0.50."""


def begin(url: str) -> None:
    """Link to the dashboard of this server from now on; the empty URL ends it."""
    global server  # noqa: PLW0603 - one command runs at a time
    server = url.rstrip("/")


def link_of(noun: str, column: str, cell: str) -> str:
    """Return the address of the page about a cell; empty if there is none."""
    if not server or not cell:
        return ""
    found = _ID.fullmatch(cell)
    folder = _NAMED.get((noun, column)) or (_LETTERS[found[1]] if found else "")
    return f"{server}/{folder}/{quote(cell, safe='')}" if folder and is_supported() else ""


def is_supported() -> bool:
    """Return whether this terminal can show links.

    Its environment tells, as far as it can.
    """
    if _is_set("NO_HYPERLINKS"):
        return False
    if "FORCE_HYPERLINK" in os.environ:
        return _is_set("FORCE_HYPERLINK")
    if os.environ.get("TERM") == "dumb" or _is_set("CI"):
        return False
    return (
        any(os.environ.get(name) for name in _VARIABLES)
        or os.environ.get("TERM_PROGRAM") in _PROGRAMS
        or os.environ.get("TERM") in _TERMS
        or _is_new_vte()
    )


def _is_new_vte() -> bool:
    version = os.environ.get("VTE_VERSION", "")
    return version.isdecimal() and int(version) >= _FIRST_VTE


def _is_set(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")
