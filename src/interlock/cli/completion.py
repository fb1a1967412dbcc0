"""Shell completion: the script for a shell, and the values that are offered after TAB.

The script runs `interlock` with `_INTERLOCK_COMPLETE` set whenever TAB is pressed. Values come from the store
or the server of the project, within `PATIENCE_S`; without an answer nothing is offered or printed.

Why: decision 0426.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from interlock.cli.help_pages import COMPLETES

if TYPE_CHECKING:
    from interlock.remote.service_connection import ServiceConnection

PATIENCE_S = 2.0
MOST = 50
RECENT_JOBS = 200
"""Jobs from which the names of tasks are taken: no index has them."""
Candidate: TypeAlias = tuple[str, str]
"""A value, and a few words about it, which some shells show."""
Lookup: TypeAlias = "Callable[[ServiceConnection], Awaitable[Iterable[Candidate]]]"

# Bash breaks words at colons, and a filter has some. So the line is split here, and of each offer only the
# part after the last colon is handed to bash. A key or `template=` needs a value: no space follows.
_BASH = """\
_interlock_completion() {
    local IFS=$'\\n' line="${COMP_LINE:0:COMP_POINT}" offer
    local word="${line##*[[:space:]]}"
    local before="${word%"${word##*:}"}"
    [[ "$COMP_WORDBREAKS" == *:* ]] || before=""
    COMPREPLY=()
    for offer in $(_INTERLOCK_LINE="$line" _INTERLOCK_COMPLETE=complete_bash "$1" 2>/dev/null); do
        offer="${offer#"$before"}"
        COMPREPLY+=("${offer// /\\\\ }")
    done
    if [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *[:=] ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -o nosort -F _interlock_completion interlock
"""

# As a file of `fpath` the script is the function that completes, of which the first TAB runs the whole.
_ZSH = """\
#compdef interlock
_interlock_completion() {
    eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _INTERLOCK_COMPLETE=complete_zsh interlock)
}
compdef _interlock_completion interlock
if [[ $funcstack[1] == _interlock ]]; then
    _interlock_completion "$@"
fi
"""


class Shell(StrEnum):
    """Shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(
        "completion",
        epilog=(
            "\b\nInstall it for your user:\n"
            "  bash  interlock completion bash > ~/.local/share/bash-completion/completions/interlock\n"
            "  zsh   interlock completion zsh > ~/.zfunc/_interlock (with ~/.zfunc in $fpath)\n"
            "  fish  interlock completion fish > ~/.config/fish/completions/interlock.fish\n\n"
            "\b\nExamples:\n"
            "  interlock completion bash\n"
            "  interlock completion bash > interlock.bash && source interlock.bash"
        ),
    )(print_script)


def print_script(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="Name of the shell: bash, zsh or fish.")],
) -> None:
    """Print the completion script of a shell."""
    if shell in _OURS:
        typer.echo(_OURS[shell], nl=False)
        return
    from typer._completion_shared import get_completion_script

    typer.echo(get_completion_script(prog_name="interlock", complete_var=COMPLETES, shell=shell))


_OURS = {Shell.BASH: _BASH, Shell.ZSH: _ZSH}


def prepare() -> None:
    """Prepare the answer if a shell asks for completion.

    bash passes the whole line, which is split here.
    """
    if COMPLETES not in os.environ:
        return
    from typer._completion_classes import completion_init

    completion_init()
    if "_INTERLOCK_LINE" in os.environ:
        words = _split(os.environ["_INTERLOCK_LINE"])
        os.environ["COMP_WORDS"] = shlex.join(words)
        os.environ["COMP_CWORD"] = str(len(words) - 1)


def _split(line: str) -> list[str]:
    """Return the words of a line; the last one is empty after a space."""
    try:
        words = shlex.split(line)
    except ValueError:  # a quote is still open
        words = line.split()
    return [*words, ""] if line[-1:].isspace() or not words else words


# The values


def ids(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Candidate ids or names of the noun of the command."""
    return _offered(ctx, incomplete, _LOOKS.get(_noun(ctx)))


def words(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Candidate ids of the noun of the command, or words of its filter."""
    if ":" in incomplete:
        return filters(ctx, incomplete)
    return [*ids(ctx, incomplete), *filters(ctx, incomplete)]


def filters(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Candidate the keys of a filter; after a key, its values."""
    from interlock.wire.filter_language import JOBS
    from interlock.wire.filters import RUNS, WORKERS

    vocabulary = {"run": RUNS, "worker": WORKERS}.get(_noun(ctx), JOBS)
    dash, word = ("-", incomplete[1:]) if incomplete.startswith("-") else ("", incomplete)
    key, colon, typed = word.partition(":")
    if not colon:
        return [(f"{dash}{each}:", "") for each in vocabulary.keys if each.startswith(word)]
    earlier, comma, last = typed.rpartition(",")
    found = _values(ctx, key, last)
    return [(f"{dash}{key}:{earlier}{comma}{value}", about) for value, about in found]


def items(offers: Iterable[Candidate]) -> list[Any]:
    """Return offers as the shells' classes take them."""
    from typer._click.shell_completion import CompletionItem

    return [CompletionItem(value, help=about) for value, about in offers]


def queue_names(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Candidate the queues that have jobs or are paused."""
    return _offered(ctx, incomplete, _queues)


def limit_names(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Return the limits that a job can name, as candidates.

    These are no patterns, and no limits of a queue or a task.
    """
    found = _offered(ctx, incomplete, _limits)
    return [each for each in found if "*" not in each[0] and not each[0].startswith(("queue:", "task:"))]


def task_names(ctx: typer.Context, incomplete: str) -> list[Candidate]:
    """Return the tasks of the project as candidates, then of recent jobs.

    The project is read and not imported.
    """
    if module := ctx.params.get("module"):
        names = (name.rpartition(":")[2] for name in _tasks_of(module))
        return [(name, "") for name in dict.fromkeys(names) if name.startswith(incomplete)][:MOST]
    own = [(name, "") for name in _project_tasks() if name.startswith(incomplete)]
    known = {name.replace(":", ".") for name, _ in own}
    recent = [
        (name, about)
        for name, about in _offered(ctx, incomplete, _tasks)
        if name not in known and not name.startswith("interlock.")
    ]
    return [*own, *recent][:MOST]


def _project_tasks() -> Iterable[str]:
    from interlock.cli import project, task_files
    from interlock.errors import InterlockError

    names: list[str] = []
    try:
        module = project.load().worker.module
    except (InterlockError, OSError):
        module = None
    if module is not None:
        names += _tasks_of(module)
    return dict.fromkeys([*names, *task_files.tasks_here()])


def _tasks_of(module: str) -> list[str]:
    from interlock.cli import task_files

    try:
        return list(task_files.tasks_of(module))
    except (OSError, ValueError):
        return []


def profile_names(incomplete: str) -> list[Candidate]:
    """Candidate the profiles of the user."""
    from interlock.cli import profiles
    from interlock.errors import InterlockError

    try:
        found = profiles.read().profiles
    except InterlockError:
        return []
    return [(name, one.url) for name, one in sorted(found.items()) if name.startswith(incomplete)]


def column_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Candidate the columns of a command, also after a comma and a dash."""
    earlier, comma, last = incomplete.rpartition(",")
    dash, name = ("-", last[1:]) if last.startswith("-") else ("", last)
    chosen = {each.removeprefix("-") for each in earlier.split(",")}
    known = _columns_of(_noun(ctx), ctx.info_name or "")
    return [f"{earlier}{comma}{dash}{each}" for each in known if each.startswith(name) and each not in chosen]


def _columns_of(noun: str, verb: str) -> Sequence[str]:
    """Return the columns of a verb on a terminal.

    There are none for `show`, whose tables depend on the record.
    """
    from interlock.cli import sheets

    match verb:
        case "list":
            return _list_columns(noun.replace("-", "_"))
        case "history" if noun in ("record", "schedule"):
            return sheets.columns_of_entries(versions=noun == "record")
        case "history":
            return sheets.HISTORY
        case "explain":
            return sheets.EXPLANATION
    return ()


def _list_columns(noun: str) -> Sequence[str]:
    """Return the columns of a list, from an empty table of its module."""
    from datetime import UTC, datetime
    from importlib import import_module
    from importlib.util import find_spec

    now = datetime.now(UTC)
    names = [f"interlock.cli.nouns.{noun}{end}" for end in ("_views", "s", "es", "")]
    for module in (import_module(name) for name in names if find_spec(name)):
        if sheet := getattr(module, "list_sheet", None):
            columns: Sequence[str] = sheet((), now, terminal=True).columns
            return columns
        if constant := getattr(module, "COLUMNS", ()):
            return tuple(constant)
    return ()


def machine_names(incomplete: str) -> list[Candidate]:
    """Candidate the built-in machines."""
    from interlock.lifecycles import MACHINES

    return [(name, "") for name in MACHINES if name.startswith(incomplete)]


def _values(ctx: typer.Context, key: str, incomplete: str) -> list[Candidate]:
    if key in ("state", "outcome"):
        return [(state, "") for state in _states(_noun(ctx), key) if state.startswith(incomplete.lower())]
    return _offered(
        ctx, incomplete, {"queue": _queues, "task": _tasks, "id": _LOOKS.get(_noun(ctx))}.get(key)
    )


def _states(noun: str, key: str) -> Iterator[str]:
    from interlock.lifecycles import MACHINES
    from interlock.lifecycles.run import OUTCOMES

    if key == "outcome":
        yield from (str(each).lower() for each in OUTCOMES)
    else:
        yield from (str(each).lower() for each in MACHINES.get(noun, MACHINES["job"]).states)


def _noun(ctx: typer.Context) -> str:
    """Return the noun of a command such as `interlock job show`."""
    return (ctx.parent.info_name if ctx.parent else None) or ""


def _offered(ctx: typer.Context, incomplete: str, look: Lookup | None) -> list[Candidate]:
    """Ask the store or the server, and return what begins as typed."""
    if look is None:
        return []
    import asyncio

    from interlock.cli import project
    from interlock.cli.connection import connected
    from interlock.errors import InterlockError

    async def look_up() -> Iterable[Candidate]:
        async with (
            asyncio.timeout(PATIENCE_S),
            connected(project.load(ctx.params.get("store"))) as connection,
        ):
            return await look(connection)

    try:
        found = asyncio.run(look_up())
    except (InterlockError, TimeoutError, OSError):
        return []
    return [(value, about) for value, about in dict(found).items() if value.startswith(incomplete)][:MOST]


async def _jobs(connection: ServiceConnection) -> Iterable[Candidate]:
    from interlock.store.records import Query

    found, _ = await connection.services.jobs.find(Query(kind="job", limit=MOST))
    return [(each.id, f"{each.state} {each.task}") for each in found]


async def _tasks(connection: ServiceConnection) -> Iterable[Candidate]:
    from interlock.store.records import Query

    found, _ = await connection.services.jobs.find(Query(kind="job", limit=RECENT_JOBS))
    return [(each.task, "") for each in found]


async def _queues(connection: ServiceConnection) -> Iterable[Candidate]:
    return [(each.name, f"{each.pending} pending") for each in await connection.services.queues.list()]


async def _workers(connection: ServiceConnection) -> Iterable[Candidate]:
    from interlock.store.records import Query
    from interlock.systems.supervisor.workers import LIVING

    found, _ = await connection.services.workers.find(Query(kind="worker", states=LIVING, limit=MOST))
    return [*((each.name, each.state) for each in found), *((each.id, each.name) for each in found)]


async def _runs(connection: ServiceConnection) -> Iterable[Candidate]:
    found, _ = await connection.services.runs.find(limit=MOST)
    return [(each.id, f"{each.state} {each.workflow}") for each in found]


async def _simulations(connection: ServiceConnection) -> Iterable[Candidate]:
    found, _ = await connection.services.simulations.list_runs(limit=MOST)
    return [(each.run_id, each.status) for each in found]


async def _batches(connection: ServiceConnection) -> Iterable[Candidate]:
    return [(each.id, each.state) for each in (await connection.services.batches.page(limit=MOST)).batches]


async def _schedules(connection: ServiceConnection) -> Iterable[Candidate]:
    found, _ = await connection.services.schedules.find(limit=MOST)
    return [(each.name, each.state) for each in found]


async def _limits(connection: ServiceConnection) -> Iterable[Candidate]:
    return [(each.name, "") for each in await connection.services.limits.list()]


async def _approvals(connection: ServiceConnection) -> Iterable[Candidate]:
    found, _ = await connection.services.waits.find(limit=MOST)
    return [(each.id, each.question) for each in found]


async def _dead_letters(connection: ServiceConnection) -> Iterable[Candidate]:
    from interlock.wire.filters import Filter

    found, _ = await connection.services.dead_letters.find(Filter(), limit=MOST)
    return [(each.id, each.job.task) for each in found]


async def _tokens(connection: ServiceConnection) -> Iterable[Candidate]:
    return [(each.name, each.role) for each in await connection.services.tokens.list()]


_LOOKS: Mapping[str, Lookup] = {
    "job": _jobs,
    "dead-letter": _dead_letters,
    "run": _runs,
    "simulation": _simulations,
    "worker": _workers,
    "batch": _batches,
    "schedule": _schedules,
    "limit": _limits,
    "queue": _queues,
    "approval": _approvals,
    "token": _tokens,
}
