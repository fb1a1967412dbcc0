"""Long output on a terminal goes through a pager, as `git` and `gh` do it.

`INTERLOCK_PAGER` precedes `PAGER`; the default is `less`. An empty value or `cat` means none.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from interlock.cli import forms

VARIABLES = ("INTERLOCK_PAGER", "PAGER")
DEFAULT = "less"
_DEFAULTS = {"LESS": "FRX", "LV": "-c"}
"""Options of pagers unless the user has set others: colours, no clearing, quit if all fits on the screen."""


def print_long(text: str) -> None:
    """Print a text, through the pager if it is longer than the terminal."""
    command = _command() if _is_too_long(text) else []
    if not (command and _page_through(command, text)):
        print(text, end="", flush=True)


def _is_too_long(text: str) -> bool:
    if not forms.chosen.pager or os.environ.get("TERM", "dumb") == "dumb":
        return False
    if not sys.stdin.isatty():  # no person is there to leave the pager, as in a container with a terminal
        return False
    return text.count("\n") >= shutil.get_terminal_size().lines


def _command() -> list[str]:
    """Return the words of the pager; empty for none."""
    variable = next((name for name in VARIABLES if name in os.environ), "")
    wanted = os.environ[variable] if variable else DEFAULT
    try:
        words = shlex.split(wanted)
    except ValueError as error:
        _warn(f"{variable} is not a command: {error}.")
        return []
    if not words or words == ["cat"] or (not variable and shutil.which(DEFAULT) is None):
        return []
    return words


def _page_through(command: list[str], text: str) -> bool:
    """Show the text in a pager until it ends; return whether it started."""
    sys.stdout.flush()
    try:
        pager = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env={**_DEFAULTS, **os.environ},
            encoding=sys.stdout.encoding,
            errors="backslashreplace",
        )
    except OSError as error:
        _warn(f"The pager {command[0]!r} cannot be started: {error.strerror}.")
        return False
    with _interrupts_are_for_the_pager():
        try:
            pager.communicate(text)
        except BrokenPipeError:  # the user has read enough
            pager.wait()
    return True


@contextmanager
def _interrupts_are_for_the_pager() -> Iterator[None]:
    """Ignore Ctrl-C, which stops a search in `less` and does not leave it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _warn(sentence: str) -> None:
    typer.echo(f"{sentence} Set {VARIABLES[0]}, or pass --no-pager.", err=True)
