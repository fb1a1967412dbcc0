"""The help texts of all commands, as typer prints them, in one file: `help.txt`.

`interlock job list --help` prints its page and imports neither typer nor the module of the command. Pages are
as wide as help texts get; on a narrower terminal typer makes the text. `make docs` writes the file. The texts
of `interlock verify` are in a file of the distribution that has these commands, if it is installed.

Why: decisions 0520 and 0556.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from interlock.cli import __path__, streams

FILE = "help.txt"
OPTIONS = ("--help", "-h")
VERIFY, VERIFICATION = "verify", "interlock_verification"
"""The command of another distribution, and its package."""
WIDEST = 80
"""Columns of a terminal from which on help texts get no wider."""
COMPLETES = "_INTERLOCK_COMPLETE"
"""The variable with which a shell asks for completion."""


def print_page(words: Sequence[str]) -> int | None:
    """Print the help that is called for and return the exit code.

    Return None where there is no page.
    """
    if not words or words[-1] not in OPTIONS or COMPLETES in os.environ or _columns() < WIDEST:
        return None
    page = find(words[:-1])
    return None if page is None else streams.written(page)


def find(command: Sequence[str]) -> str | None:
    """Return the help of a command."""
    folder = _folder_of_verification() if command[:1] in ([VERIFY], (VERIFY,)) else __path__[0]
    if folder is None:
        return None
    try:
        # Without pathlib, which takes longer to import than all the rest.
        with open(f"{folder}/{FILE}", encoding="utf-8") as file:  # noqa: PTH123
            pages = file.read()
    except OSError:
        return None
    _, found, after = pages.partition(_head(command))
    return after.partition(_MARK)[0] if found else None


def content_of(pages: dict[tuple[str, ...], str]) -> str:
    """Return the content of the file with these pages."""
    return "".join(_head(command) + page for command, page in pages.items())


def _folder_of_verification() -> str | None:
    """Return the folder of the package, without importing it."""
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(VERIFICATION)
    places = spec.submodule_search_locations if spec else None
    return next(iter(places), None) if places else None


_MARK = "%%% "
"""Begins the line before each page; no help text has it."""


def _head(command: Sequence[str]) -> str:
    return f"{_MARK}{' '.join(('interlock', *command))}\n"


def _columns() -> int:
    """Return the columns of the terminal, as `shutil.get_terminal_size` does.

    Importing that takes long.
    """
    try:
        columns = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        columns = 0
    if columns > 0:
        return columns
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or WIDEST  # type: ignore[union-attr]
    except (AttributeError, ValueError, OSError):
        return WIDEST
