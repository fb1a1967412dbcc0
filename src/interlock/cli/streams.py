"""Standard output: characters that its encoding lacks, and readers that go away."""

from __future__ import annotations

import io
import os
import sys

HUNG_UP = 141
"""The exit code when the reader of the output has gone away."""


def print_in_any_encoding() -> None:
    """Escape characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Redirect stdout, so that Python's own last flush does not fail either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def written(text: str) -> int:
    """Write a text to stdout; return the exit code."""
    print_in_any_encoding()
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        return HUNG_UP
    return 0
