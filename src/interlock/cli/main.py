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

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli import (
    agent,
    approvals,
    batches,
    completion,
    config,
    db,
    dead_letters,
    dev,
    doctor,
    jobs,
    limits,
    machines,
    queues,
    records,
    runner_check,
    runs,
    schedules,
    server,
    simulations,
    tokens,
    top,
    verify,
    webhooks,
    workers,
    workloads,
)
from interlock.cli.errors import print_error, print_unexpected
from interlock.cli.options import Ca
from interlock.errors import InterlockError
from interlock.processes import credentials, early_signals

HUNG_UP = 141

app: typer.Typer = typer.Typer(
    name="interlock",
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
jobs.register_submit(app)
app.add_typer(runs.app, name="run")
app.add_typer(simulations.app, name="simulation")
app.add_typer(jobs.app, name="job")
app.add_typer(approvals.app, name="approval")
app.add_typer(dead_letters.app, name="dead-letter")
app.add_typer(records.app, name="record")
app.add_typer(queues.app, name="queue")
app.add_typer(limits.app, name="limit")
app.add_typer(batches.app, name="batch")
app.add_typer(schedules.app, name="schedule")
app.add_typer(workers.app, name="worker")
app.add_typer(workloads.app, name="workload")
workers.register_supervisor(app)
server.register(app)
dev.register(app)
doctor.register(app)
top.register(app)
completion.register(app)
runner_check.register(app)
agent.register(app)
app.add_typer(tokens.app, name="token")
app.add_typer(webhooks.app, name="webhook")
app.add_typer(machines.app, name="machine")
verify.register(app)
app.add_typer(db.app, name="db")
app.add_typer(config.app, name="config")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; return the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        credentials.take()  # before child processes can inherit them
    _print_in_any_encoding()
    try:
        code = _answer(given)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return HUNG_UP
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
    """Run the command; typer reports invalid usage itself and always ends with SystemExit."""
    try:
        with _one_group_only(completion.words_typed() or given):
            app(given, prog_name="interlock")
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):
            raise done.__context__ from None  # typer would exit with 1, which means a finding here
        return done.code if isinstance(done.code, int) else 0
    return 0


@contextmanager
def _one_group_only(given: list[str]) -> Iterator[None]:
    """Hide the commands of all other groups: building them takes longer than running the command."""
    groups = {group.name for group in app.registered_groups}
    chosen = next((word for word in given if word in groups), "")  # options may precede it
    others = [group.typer_instance for group in app.registered_groups if group.name != chosen]
    hidden = [(group, group.registered_commands) for group in others if group is not None]
    for group, _ in hidden:
        group.registered_commands = []
    try:
        yield
    finally:
        for group, commands in hidden:
            group.registered_commands = commands


def _print_in_any_encoding() -> None:
    """Escape characters that the encoding of the terminal lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Redirect stdout, so that Python's own last flush does not fail either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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


@app.command(
    epilog="\b\nExamples:\n  interlock demo\n  NO_COLOR=1 interlock demo\n  interlock demo > demo.txt\n"
    "  interlock demo --repository ."
)
def demo(
    repository: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Run the workflow of this repository on two runners instead."),
    ] = None,
) -> None:
    """Watch 28 jobs on two workers, one of which is killed.

    Shows the jobs live, then the history of the killed worker's job from the journal. Takes half a minute.
    """
    if repository is not None:
        from interlock.cli.demo import run_ci

        raise typer.Exit(run_ci(repository))
    from interlock.cli.demo import run_demo

    raise typer.Exit(run_demo())


if __name__ == "__main__":
    sys.exit(main())
