"""Arguments, options and commands that several nouns share. Nothing here takes time to import."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer
from typer.core import TyperCommand

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand, is_sorting

if TYPE_CHECKING:
    from interlock.cli.verbs import Noun

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="INTERLOCK_URL",
        metavar="URL",
        help="Database URL (default: `store` in interlock.toml, or sqlite:///interlock.db).",
    ),
]
Place = Annotated[
    str | None,
    typer.Option(
        "--store",
        "--server",
        envvar="INTERLOCK_URL",
        metavar="URL",
        help="URL of a database, or of a server (http://..., with INTERLOCK_TOKEN) (default: `store` in "
        "interlock.toml, or sqlite:///interlock.db).",
    ),
]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kinds",
        metavar="MODULE",
        help="Read kinds of record from MODULE or FILE.py; repeatable (default: `kinds` in interlock.toml).",
    ),
]
Ca = Annotated[
    str | None,
    typer.Option(
        "--ca",
        envvar="INTERLOCK_CA",
        metavar="FILE",
        show_default=False,
        help="CA certificates (PEM) for an https server (default: those of the system).",
    ),
]
Isolate = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="Isolate shell steps: user (a user of its own for each job; the worker must be root) or "
        "bubblewrap (own processes and files; needs Debian's bubblewrap). Default: none.",
    ),
]
Network = Annotated[
    bool | None,
    typer.Option("--network/--no-network", help="Let isolated steps use the network (default: yes)."),
]
Mounts = Annotated[
    list[str] | None,
    typer.Option("--mount", metavar="FOLDER", help="Mount FOLDER read-only in isolated steps (bubblewrap)."),
]
JobLogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="LEVEL",
        help="Minimum level of a handler's `logging` in the log of its job: debug, info, warning or error "
        "(default: info). off leaves logging and prints out.",
    ),
]
MemoryLimit = Annotated[
    int | None,
    typer.Option(
        "--memory-limit-mb", metavar="MB", help="Memory limit of each task that runs in its own process."
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="QUEUE",
        help="Queue to take jobs from; repeatable.",
        autocompletion=completion.queue_names,
    ),
]
TaskModule = Annotated[
    str | None,
    typer.Argument(
        metavar="MODULE",
        help="Module with the tasks: package.module, module:registry or file.py (default: `module` below "
        "[worker] in interlock.toml).",
    ),
]
LogLevel = Annotated[str | None, typer.Option(help="Log level: debug, info, warning or error.")]
LogFormat = Annotated[str | None, typer.Option(help="Log format: auto, json or text.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Id = Annotated[
    str, typer.Argument(metavar="ID", help="Id, or the start of it.", autocompletion=completion.ids)
]
IdsOrFilter = Annotated[
    list[str],
    typer.Argument(metavar="ID... | FILTER...", help="Ids, or a filter.", autocompletion=completion.words),
]
Filter = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILTER]...", help="Filter (default: all).", autocompletion=completion.filters),
]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of results.")]
Cursor = Annotated[str, typer.Option(metavar="TEXT", help="Continue after the page that ended with it.")]
Reason = Annotated[str, typer.Option(help="Reason, for the journal.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be changed; change nothing.")]
RequestId = Annotated[
    str | None,
    typer.Option("--request-id", metavar="ID", help="Idempotency key: repeating the command is safe."),
]
WaitTimeout = Annotated[
    str | None,
    typer.Option(
        "--timeout", metavar="TIME", help="Stop waiting after 90s, 15m, 12h; the work itself continues."
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until it has ended.")]
Plain = Annotated[bool, typer.Option("--plain", help="Print only the text of the lines.")]

FILTERS = """\b
FILTER is any of these words; all of them must match:
  state:failed,canceled      -state:completed      queue:ci      task:shop.send
  label:gpu label:big        both labels; label:gpu,big is either
  parent:j_...  id:j_...     id of the parent, id of the job
  since:1h until:10m         time of submission; also since:2026-01-31 (UTC)"""
OUTCOMES = """\b
Exit codes:
  0    all jobs completed
  2    invalid usage, or the store is unavailable
  3    a job failed
  4    a job was canceled, and none failed
  5    not all jobs ended in time
  130  Ctrl-C; the jobs continue"""
FOUND_SOMETHING = 1


def with_wait(outcomes: str) -> str:
    """Return exit codes that hold only with --wait."""
    return outcomes.replace("Exit codes:", "Exit codes with --wait; without it 0 or 2:")


def epilog(*parts: str) -> str:
    """Return the text below the options."""
    return "\n\n".join(parts)


def examples(*commands: str) -> str:
    """Return example commands, for the epilog."""
    return "\n".join(("\b", "Examples:", *(f"  interlock {command}" for command in commands)))


class GraphFormat(StrEnum):
    """Formats of the graph of a run."""

    TEXT = "text"
    SVG = "svg"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


class HasNoun(Protocol):
    """Returns a noun, which is imported when a command runs."""

    def __call__(self) -> Noun[Any]:
        """Import the noun."""
        ...


def add_views(
    app: typer.Typer, name: str, noun: HasNoun, *records: str, argument: Any = Id, **docs: str
) -> None:
    """Add `show`, `history` and `explain` for a noun.

    Only those that `docs` describes are added. `records` are ids for the examples.
    """
    for verb, doc in docs.items():
        commands = (*(f"{name} {verb} {record}" for record in records), f"{name} {verb} {records[-1]} --json")
        app.command(verb, cls=RecordsCommand, help=doc, epilog=examples(*commands))(
            _view(noun, verb, argument)
        )


def _view(noun: HasNoun, verb: str, argument: Any) -> Callable[..., None]:
    def view(record_id: Id, store: Place = None, as_json: Json = False) -> None:
        from interlock.cli import verbs

        views = {"show": verbs.show, "history": verbs.history, "explain": verbs.explain}
        views[verb](noun(), store, record_id, as_json=as_json)

    view.__annotations__["record_id"] = argument
    return view


def add_action(
    app: typer.Typer,
    noun: HasNoun,
    verb: str,
    doc: str,
    filters: str,
    *commands: str,
    argument: Any = IdsOrFilter,
) -> None:
    """Add an action on many records, such as `cancel`, for a noun."""

    def action(
        words: IdsOrFilter,
        reason: Reason = "",
        yes: Yes = False,
        dry_run: DryRun = False,
        request_id: RequestId = None,
        store: Place = None,
        as_json: Json = False,
    ) -> None:
        details = {"reason": reason, "request_id": request_id}
        act_on_all(noun, verb, details, store, words, yes=yes, dry_run=dry_run, as_json=as_json)

    action.__annotations__["words"] = argument
    app.command(verb, cls=FilterCommand, help=doc, epilog=epilog(filters, examples(*commands)))(action)


def act_on_all(
    noun: HasNoun,
    verb: str,
    details: dict[str, Any],
    store: str | None,
    words: list[str],
    *,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run an action of a noun, and exit with its code."""
    from interlock.cli import verbs

    named = noun()
    action = named.actions[verb](**details)
    code = verbs.act_on_all(
        named, action, store, filter_words(words), yes=yes, dry_run=dry_run, as_json=as_json
    )
    raise typer.Exit(code)


class FilterCommand(TyperCommand):
    """A command that takes a filter: `-state:failed` is one of its words, not a bundle of options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Hide the dash from the parser of options; `filter_words` brings it back."""
        hidden = [re.sub(r"^-(?=\w+:)", _DASH, word) for word in args]
        try:
            rest: list[str] = super().parse_args(ctx, hidden)
        except _Misused as error:
            raise _as_filter(error, args, ctx) or error from None
        return rest

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Offer options, and after a single dash the words of a negated filter."""
        options: list[Any] = [] if ":" in incomplete else super().shell_complete(ctx, incomplete)
        if incomplete.startswith("--"):
            return options
        return [*options, *completion.items(completion.filters(ctx, incomplete))]


class FilteredRecordsCommand(FilterCommand, RecordsCommand):
    """A command that prints the records that a filter selects."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Offer options and negated filters; after --sort and a dash, columns."""
        if is_sorting(ctx):
            return RecordsCommand.shell_complete(self, ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


def filter_words(words: list[str] | None) -> list[str]:
    """Return the words as they were typed."""
    return [word.replace(_DASH, "-", 1) if word.startswith(_DASH) else word for word in words or ()]


def _as_filter(error: Exception, args: list[str], ctx: Any) -> Exception | None:
    """Return the error of an option that is a filter key, as `--state`."""
    from interlock.wire.filter_language import JOBS
    from interlock.wire.filters import RUNS, WORKERS

    option = str(getattr(error, "option_name", ""))
    key = option.lstrip("-")
    if key not in {*JOBS.keys, *RUNS.keys, *WORKERS.keys}:
        return None
    typed = " ".join(args).partition(option)[2].lstrip("= ").split(" ")[0]
    value = typed if typed and not typed.startswith("-") else "VALUE"
    words = f"There is no option {option}. Filters are words without dashes: {key}:{value}"
    misuse: Exception = _Misused(words, ctx)
    return misuse


_DASH = "\N{MINUS SIGN}"
_Misused: Any = typer.BadParameter.__mro__[1]
"""The error of typer for an unknown option."""


def parse_duration(text: str) -> timedelta:
    """Return the duration; raise an error that describes the format."""
    from interlock.text import read_duration

    try:
        return read_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def parse_seconds(text: str | None) -> float | None:
    """Return the duration in seconds, of an option that may be left out."""
    return None if text is None else parse_duration(text).total_seconds()
