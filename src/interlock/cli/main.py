"""The program `interlock`: what is asked, and every error that can come of it.

`main` is the one place where errors end. Whatever happens, a user meets a sentence and an exit
code that means something; a traceback only when INTERLOCK_DEBUG=1 asks for it.

    0    fine
    1    the answer is no: a check found something
    2    the question was wrong
    3    a job that was waited for has failed
    4    it was canceled
    5    it has not ended in time
    70   a bug in Interlock
    130  interrupted with Ctrl-C
    141  whoever read the output went away
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
    db,
    dev,
    jobs,
    machine,
    queues,
    record,
    runner_check,
    runs,
    schedules,
    serving,
    simulations,
    supervisor,
    tokens,
    verify,
    webhooks,
    workers,
    workload,
)
from interlock.cli.errors import tell, tell_surprise
from interlock.cli.options import Ca
from interlock.errors import InterlockError
from interlock.processes import credentials, early_signals

HUNG_UP = 141

app = typer.Typer(
    name="interlock",
    help="A work orchestrator in which every lifecycle is a declared, checked state machine.",
    epilog="\b\nExamples:\n  interlock demo\n  interlock worker start shop.tasks\n"
    "  interlock submit shop.tasks:send address=a@b.example\n  interlock job list state:failed since:1h\n"
    "  interlock machine show job",
    no_args_is_help=True,
    add_completion=False,
    # Plain help and plain errors: rich alone would take longer to import than all the rest.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
jobs.register_submit(app)
app.add_typer(runs.app, name="run")
app.add_typer(simulations.app, name="simulation")
app.add_typer(jobs.app, name="job")
app.add_typer(record.app, name="record")
app.add_typer(queues.app, name="queue")
app.add_typer(schedules.app, name="schedule")
app.add_typer(workers.app, name="worker")
app.add_typer(workload.app, name="workload")
supervisor.register(app)
serving.register(app)
dev.register(app)
runner_check.register(app)
agent.register(app)
app.add_typer(tokens.app, name="token")
app.add_typer(webhooks.app, name="webhook")
app.add_typer(machine.app, name="machine")
verify.register(app)
app.add_typer(db.app, name="db")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; the answer is the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        credentials.take()  # before anything can be started that would inherit them
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
        return tell(error, as_json="--json" in given)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        return tell_surprise(error, given, as_json="--json" in given)


def _run(given: list[str]) -> int:
    """Let typer read the words; it answers wrong usage itself and always ends with SystemExit."""
    try:
        with _only_what_is_asked_for(given):
            app(given, prog_name="interlock")
    except SystemExit as done:
        if isinstance(done.__context__, BrokenPipeError):
            raise done.__context__ from None  # typer would call it 1, which here is a finding
        return done.code if isinstance(done.code, int) else 0
    return 0


@contextmanager
def _only_what_is_asked_for(given: list[str]) -> Iterator[None]:
    """Hide the commands of all other groups: to build them would take longer than to answer."""
    groups = {group.name for group in app.registered_groups}
    asked = next((word for word in given if word in groups), "")  # an option may come before it
    others = [group.typer_instance for group in app.registered_groups if group.name != asked]
    hidden = [(group, group.registered_commands) for group in others if group is not None]
    for group, _ in hidden:
        group.registered_commands = []
    try:
        yield
    finally:
        for group, commands in hidden:
            group.registered_commands = commands


def _print_in_any_encoding() -> None:
    """A terminal that knows no arrows gets `\\u2192`, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Nobody reads any more, so Python's own last flush must not complain either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # only this answer needs it

        typer.echo(f"interlock {version('interlock')}")
        raise typer.Exit


@app.callback()
def interlock(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_show_version, is_eager=True),
    ] = False,
    ca: Ca = None,
) -> None:
    """A work orchestrator in which every lifecycle is a declared, checked state machine."""
    if ca is not None:
        os.environ["INTERLOCK_CA"] = ca  # where every command looks that asks a server


@app.command(
    epilog="\b\nExamples:\n  interlock demo\n  NO_COLOR=1 interlock demo\n  interlock demo > demo.txt\n"
    "  interlock demo --repository ."
)
def demo(
    repository: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Instead: its workflow, evaluated by two runners here."),
    ] = None,
) -> None:
    """See a small studio at work on SQLite: two workers, of which one is killed, and 28 jobs.

    Shows them live, then tells the story of the killed worker's job from the journal. Half a minute.
    """
    if repository is not None:
        from interlock.cli.demo import run_ci

        raise typer.Exit(run_ci(repository))
    from interlock.cli.demo import run_demo  # so that --help answers at once

    raise typer.Exit(run_demo())


if __name__ == "__main__":
    sys.exit(main())
