"""Answers for programs: structs as JSON, one or a line each."""

from __future__ import annotations

import sys

import msgspec


def print_struct(answer: object) -> None:
    """An answer on several lines, for eyes as well."""
    _write(msgspec.json.format(msgspec.json.encode(answer), indent=2))


def print_line(answer: object) -> None:
    """An answer on one line, as one of many; it is there at once, also in a pipe."""
    _write(msgspec.json.encode(answer))
    sys.stdout.flush()


def _write(text: bytes) -> None:
    print(text.decode())
