"""The program `interlock`: its commands, and the one place where errors are handled.

Every error becomes a sentence and an exit code; a traceback is printed only with INTERLOCK_DEBUG=1.

    0    success
    1    a check found something
    2    invalid usage, or the store is unavailable
    3    a job that was waited for failed
    4    it was canceled
    5    it has not ended in time
    70   a bug in Interlock
    130  interrupted with Ctrl-C
    141  the reader of the output went away
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from copy import copy
from functools import cache
from importlib import import_module
from typing import Annotated, Any, TypeAlias, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_name
from typer.models import CommandInfo

from interlock.cli import completion, streams
from interlock.cli.errors import print_error, print_unexpected
from interlock.cli.options import Ca
from interlock.errors import InterlockError
from interlock.processes import credentials, early_signals

ClickCommand: TypeAlias = Any
"""A command of click, which typer brings under a name of its own."""

HOMES = {
    "submit": ("nouns.jobs.register_submit", "Submit a job and print its id."),
    "supervisor": (
        "nouns.workers.register_supervisor",
        "Keep several workers running on this host, more under load.",
    ),
    "server": ("server.register", "Serve the HTTP API and the dashboard, and enforce deadlines."),
    "dev": ("programs.register_dev", "Run a server and a worker on this machine, for development."),
    "doctor": ("programs.register_doctor", "Check the installation and suggest remedies."),
    "top": ("programs.register_top", "Show queues, workers, running jobs and problems, live."),
    "completion": ("completion.register", "Print the completion script of a shell."),
    "runner-check": ("runner_check.register", "Test a runner, in any language, against the protocol."),
    "agent": ("programs.register_agent", "Run a fleet agent."),
    "verify": ("verify.register", "Explore, mutate and simulate the lifecycles."),
    "demo": ("programs.register_demo", "Watch 28 jobs on two workers, one of which is killed."),
    "run": ("nouns.runs.app", "Submit, list, follow, cancel and rerun workflow runs."),
    "simulation": ("nouns.simulations.app", "Start, follow, pause, resume and cancel simulations."),
    "job": ("nouns.jobs.app", "List, follow, cancel and retry jobs."),
    "approval": ("nouns.approvals.app", "List, approve and reject requests of jobs."),
    "dead-letter": ("nouns.dead_letters.app", "List, edit, retry and discard dead letters."),
    "record": ("nouns.records.app", "Create records of your own kinds, and send them events."),
    "queue": ("nouns.queues.app", "List, pause and resume queues."),
    "limit": ("nouns.limits.app", "Limit concurrent jobs, or the rate of starts."),
    "batch": ("nouns.batches.app", "Show and cancel batches of jobs."),
    "schedule": ("nouns.schedules.app", "Submit jobs at certain times."),
    "worker": ("nouns.workers.app", "Start, list, pause and stop workers."),
    "workload": ("nouns.workloads.app", "Run a workload on many agents at the same time."),
    "token": ("nouns.tokens.app", "Manage access tokens."),
    "webhook": ("nouns.webhooks.app", "Create webhook secrets, and test receivers."),
    "machine": ("nouns.machines.app", "Show, draw, check and compare lifecycles."),
    "db": ("nouns.db.app", "Migrate, inspect, prune, restore and audit the database."),
    "config": ("nouns.config.app", "Manage profiles of stores and servers."),
}
"""The home and the summary of each command, in the order of `interlock --help`."""


class CommandsByName(Mapping[str, ClickCommand]):
    """The commands of the program, by name; the module of each is imported when it is looked up."""

    def __getitem__(self, name: str) -> ClickCommand:
        return command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(HOMES)

    def __len__(self) -> int:
        return len(HOMES)


@cache
def command(name: str, verb: str | None = None) -> ClickCommand:
    """Import a command, and make it; of a noun only that verb, if it has one."""
    module, _, attribute = HOMES[name][0].rpartition(".")
    found = getattr(import_module(f"interlock.cli.{module}"), attribute)
    program = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        program.add_typer(_with_one_command(found, verb), name=name)
    else:
        found(program)
    return typer.main.get_group(program).commands[name]


def _with_one_command(noun: typer.Typer, verb: str | None) -> typer.Typer:
    """Return the noun with the command of the verb alone, if it has that verb."""
    called = [each for each in noun.registered_commands if _name(each) == verb]
    if not called:
        return noun
    alone = copy(noun)
    alone.registered_commands, alone.registered_groups = called, []
    return alone


def _name(info: CommandInfo) -> str | None:
    return info.name or (get_command_name(info.callback.__name__) if info.callback else None)


class Program(TyperGroup):
    """The group of all commands.

    It imports the module of one command: to import all of them, and to make commands of their functions,
    takes longer than most commands run.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: MutableMapping[str, ClickCommand] = cast(
            "MutableMapping[str, ClickCommand]", CommandsByName()
        )

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - as click calls it
        """Return the names of the commands."""
        return list(HOMES)

    def get_command(self, ctx: Any, cmd_name: str) -> ClickCommand | None:  # noqa: ARG002 - as click calls it
        """Return the name and the summary of a command, for lists and completion."""
        if cmd_name not in HOMES:
            return None
        return TyperCommand(cmd_name, help=HOMES[cmd_name][1], rich_markup_mode=None)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, ClickCommand | None, list[str]]:
        """Return the command that is called."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, None if name is None else command(name, *rest[:1]), rest


app: typer.Typer = typer.Typer(
    name="interlock",
    cls=Program,
    help="A work orchestrator in which every lifecycle is a declared, checked state machine.",
    epilog="\b\nExamples:\n  interlock demo\n  interlock worker start shop.tasks\n"
    "  interlock submit shop.tasks:send address=a@b.example\n  interlock job list state:failed since:1h\n"
    "  interlock machine show job",
    no_args_is_help=True,
    add_completion=False,
    # Plain help and plain errors: importing rich would take longer than all other imports.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        credentials.take()  # before child processes can inherit them
    streams.print_in_any_encoding()
    try:
        code = _answer(given)
        sys.stdout.flush()
    except BrokenPipeError:
        streams.discard_output()
        return streams.HUNG_UP
    except KeyboardInterrupt:
        return early_signals.INTERRUPTED
    return code


def _answer(given: list[str]) -> int:
    try:
        return _run(given)
    except InterlockError as error:
        return print_error(error, as_json="--json" in given)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        return print_unexpected(error, given, as_json="--json" in given)


def _run(given: list[str]) -> int:
    """Run the command and return its exit code.

    typer reports invalid usage itself and always ends with SystemExit.
    """
    try:
        completion.prepare()
        app(given, prog_name="interlock")
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):
            raise done.__context__ from None  # typer would exit with 1, which means a finding here
        return done.code if isinstance(done.code, int) else 0
    return 0


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # needed only here

        typer.echo(f"interlock {version('interlock')}")
        raise typer.Exit


@app.callback()
def interlock(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True),
    ] = False,
    ca: Ca = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Use this profile: see `interlock config`.",
            envvar="INTERLOCK_PROFILE",
            autocompletion=completion.profile_names,
        ),
    ] = None,
) -> None:
    """A work orchestrator in which every lifecycle is a declared, checked state machine."""
    if ca is not None:
        os.environ["INTERLOCK_CA"] = ca  # where connections read it
    if profile is not None:
        os.environ["INTERLOCK_PROFILE"] = profile


if __name__ == "__main__":
    sys.exit(main())
