"""Arguments and options that several groups of commands share. Nothing here takes time to import."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="INTERLOCK_URL",
        metavar="URL",
        help="Which database; otherwise as interlock.toml says, or sqlite:///interlock.db.",
    ),
]
Place = Annotated[
    str | None,
    typer.Option(
        "--store",
        "--server",
        envvar="INTERLOCK_URL",
        metavar="URL",
        help="Which database or which server (http://..., with INTERLOCK_TOKEN); otherwise as "
        "interlock.toml says, or sqlite:///interlock.db.",
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kinds",
        metavar="MODULE",
        help="Read kinds of record from MODULE or FILE.py (repeatable); otherwise `kinds` in interlock.toml.",
    ),
]
Ca = Annotated[
    str | None,
    typer.Option(
        "--ca",
        envvar="INTERLOCK_CA",
        metavar="FILE",
        show_default=False,
        help="Certificates (PEM) that vouch for an https server; otherwise those of the system.",
    ),
]
Isolate = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="Isolate shell steps: user (an own user for each job; the worker must be root) or bubblewrap "
        "(own processes and files; needs Debian's bubblewrap). Default: none.",
    ),
]
Network = Annotated[
    bool | None,
    typer.Option("--network/--no-network", help="Let isolated steps use the network (default: yes)."),
]
Mounts = Annotated[
    list[str] | None,
    typer.Option("--mount", metavar="FOLDER", help="Show FOLDER to isolated steps, read-only (bubblewrap)."),
]
JobLogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="Lowest level of a handler's `logging` in the log of its job: debug, info, warning or error "
        "(default: info). off leaves it out, and prints with it.",
    ),
]
MemoryLimit = Annotated[
    int | None,
    typer.Option(
        "--memory-limit-mb", metavar="MB", help="Address space of each task in a process of its own."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
JobId = Annotated[str, typer.Argument(metavar="ID", help="A job, by its id or the beginning of it.")]
JobsOrFilter = Annotated[
    list[str],
    typer.Argument(metavar="ID... | FILTER...", help="Jobs by their ids, or a filter."),
]

FILTERS = """\b
FILTER is any of these words; all of them must hold:
  state:failed,canceled      -state:completed      queue:ci      task:shop.send
  label:gpu label:big        both labels; label:gpu,big is either
  parent:j_...  id:j_...     by the id of its parent, by its own
  since:1h until:10m         by when it was submitted; also since:2026-01-31 (UTC)"""
OUTCOMES = """\b
Exit codes:
  0    all completed
  2    the question was wrong, or the store does not answer
  3    one has failed
  4    one was canceled, and none has failed
  5    not all have ended in time
  130  Ctrl-C; the jobs go on"""


def epilog(*parts: str) -> str:
    """What stands below the options."""
    return "\n\n".join(parts)


def examples(*commands: str) -> str:
    """Commands that somebody could type, in the epilog."""
    return "\n".join(("\b", "Examples:", *(f"  interlock {command}" for command in commands)))


class FilterCommand(TyperCommand):
    """A command that takes a filter: `-state:failed` is one of its words, not a bundle of options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Hide the dash from whoever looks for options; `filter_words` brings it back."""
        hidden = [re.sub(r"^-(?=\w+:)", _DASH, word) for word in args]
        try:
            rest: list[str] = super().parse_args(ctx, hidden)
        except _Misused as error:
            raise _as_filter(error, args, ctx) or error from None
        return rest


def filter_words(words: list[str] | None) -> list[str]:
    """The words as they were typed."""
    return [word.replace(_DASH, "-", 1) if word.startswith(_DASH) else word for word in words or ()]


def _as_filter(error: Exception, args: list[str], ctx: Any) -> Exception | None:
    """Return what to say to an option that is a key of filters, such as `--state failed`."""
    from interlock.wire.filter_language import JOBS
    from interlock.wire.filters import RUNS, WORKERS

    option = str(getattr(error, "option_name", ""))
    key = option.lstrip("-")
    if key not in {*JOBS.keys, *RUNS.keys, *WORKERS.keys}:
        return None
    typed = " ".join(args).partition(option)[2].lstrip("= ").split(" ")[0]
    value = typed if typed and not typed.startswith("-") else "VALUE"
    words = f"There is no option {option}. Filters are words without dashes: {key}:{value}"
    said: Exception = _Misused(words, ctx)
    return said


_DASH = "\N{MINUS SIGN}"
_Misused: Any = typer.BadParameter.__mro__[1]
"""What typer raises for an option that there is not."""


def parse_duration(text: str) -> timedelta:
    """The duration that `text` says, or an error that says how to write one."""
    from interlock.text import read_duration

    try:
        return read_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def parse_seconds(text: str | None) -> float | None:
    """The same in seconds, for an option that may be left out."""
    return None if text is None else parse_duration(text).total_seconds()
