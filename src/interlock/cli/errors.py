"""Print errors, for people or for programs.

An allowed name that the sentence or the advice already contains is not repeated. Facts are for programs:
`--json` prints them. Facts and the traceback are shown only with INTERLOCK_DEBUG=1.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

import typer

from interlock.errors import InterlockError
from interlock.text import harmless_lines

INVALID_USAGE = 2
BUG = 70
"""EX_SOFTWARE in sysexits.h."""


def print_error(error: InterlockError, *, as_json: bool) -> int:
    """Print the error and its advice; return the exit code."""
    _trace(error)
    if as_json:
        _print_json(error.as_dict())
    else:
        _print_lines(error.sentence, (*_details(error), *_advice(error.todo)))
    return INVALID_USAGE


def print_unexpected(error: Exception, arguments: Sequence[str], *, as_json: bool) -> int:
    """Print an unexpected exception in one line; return the exit code."""
    _trace(error)
    sentence = f"Unexpected {one_line(error)}."
    todo = f"To see where it happened: INTERLOCK_DEBUG=1 interlock {' '.join(arguments)}"
    if as_json:
        blank: dict[str, object] = {"facts": {}, "allowed": []}
        _print_json({"code": "unexpected", "status": 500, "error": sentence, **blank, "todo": todo})
    else:
        _print_lines(sentence, () if _debugging() else _advice(todo))
    return BUG


def one_line(error: BaseException) -> str:
    """Return an exception as its type and its message, on one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def colour_wanted() -> bool | None:
    """Return False when NO_COLOR is set; None lets the stream decide."""
    return False if os.environ.get("NO_COLOR") else None


def _details(error: InterlockError) -> Iterator[str]:
    text = f"{error.sentence}\n{error.todo}"
    facts: dict[str, object] = {**(error.facts if _debugging() else {}), "allowed": error.allowed}
    if isinstance(found := error.facts.get("faults"), list):
        facts["allowed"] = [*_leaves(error.allowed), *_allowed(found)]
    for name, value in facts.items():
        leaves = [leaf for leaf in dict.fromkeys(_leaves(value)) if leaf not in text]
        if leaves:
            yield f"  {name}: {', '.join(leaves)}"
            text = "\n".join((text, *leaves))


def _allowed(faults: list[object]) -> Iterator[str]:
    """Yield the values allowed in the place of each fault."""
    for fault in faults:
        if isinstance(fault, dict):
            yield from _leaves(fault.get("allowed"))


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield str(value)


def _advice(todo: str) -> tuple[str, ...]:
    return (f"→ {todo}",) if todo else ()


def _print_lines(sentence: str, more: Sequence[str]) -> None:
    sys.stdout.flush()  # output comes before the error, also when both go to one pipe
    typer.secho("Error: ", fg="red", bold=True, nl=False, err=True, color=colour_wanted())
    typer.echo(harmless_lines("\n".join((sentence, *more))), err=True, color=colour_wanted())


def _print_json(error: dict[str, object]) -> None:
    typer.echo(json.dumps({"error": error}, ensure_ascii=False, indent=2, default=str))


def _debugging() -> bool:
    return os.environ.get("INTERLOCK_DEBUG", "0") not in ("", "0")


def _trace(error: Exception) -> None:
    if _debugging():
        traceback.print_exception(error)
