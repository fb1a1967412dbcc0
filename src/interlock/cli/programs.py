"""Commands `agent`, `demo`, `dev`, `doctor` and `top`: small programs, each run by the module of its name.

Only the declarations are here: a command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.options import (
    FOUND_SOMETHING,
    Json,
    Kinds,
    Place,
    Store,
    TaskModule,
    Yes,
    epilog,
    examples,
)


def register_agent(app: typer.Typer) -> None:
    """Add `interlock agent` to the program."""
    app.command(
        "agent",
        epilog=epilog(
            "\b\nOn 127.0.0.1 without a token, only the agent's own user has access.\n"
            "Any other address requires a token, in --token-file or INTERLOCK_AGENT_TOKEN, and TLS.",
            "\b\nSIGTERM or Ctrl-C stops the workload within 15 seconds, then the agent.\n"
            "The deadlines are in interlock.toml, below [durations].",
            "\b\nExit codes:\n  0  stopped by a signal\n"
            "  2  it could not start: an address, a setting or a workload",
            examples(
                "agent",
                "agent --host 0.0.0.0 --token-file token --tls-cert cert.pem --tls-key key.pem",
                "agent --port 0 --json",
                "agent --workload shop.load:Checkout",
            ),
        ),
    )(agent)


def agent(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 7167,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the tokens of controllers, one per line."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve without authentication, or send tokens without TLS.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS key (PEM).")] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CA certificates (PEM) for client certificates of controllers."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:CLASS", help="Workload class of your own; repeatable."),
    ] = None,
    sample_every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Interval between two samples.")
    ] = 1.0,
    drain: Annotated[
        float, typer.Option(metavar="SECONDS", help="Grace period of operations at the end.")
    ] = 5.0,
    keepalive: Annotated[
        float, typer.Option(metavar="SECONDS", help="Keepalive; a controller is lost after twice this.")
    ] = 15.0,
    log_level: Annotated[str, typer.Option(help="Log level: debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="Log format: auto, json or text.")] = "auto",
    as_json: Json = False,
) -> None:
    """Run a fleet agent."""
    from interlock.cli.agent import AgentOptions, run_agent

    options = AgentOptions(
        host=host,
        port=port,
        token_file=token_file,
        insecure=insecure,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        workloads=tuple(workload or ()),
        sample_every_s=sample_every,
        drain_s=drain,
        keepalive_s=keepalive,
        log_level=log_level,
        log_format=log_format,
        as_json=as_json,
    )
    raise typer.Exit(run_agent(options))


def register_demo(app: typer.Typer) -> None:
    """Add `interlock demo` to the program."""
    app.command(
        "demo",
        epilog="\b\nExamples:\n  interlock demo\n  NO_COLOR=1 interlock demo\n  interlock demo > demo.txt\n"
        "  interlock demo --repository .",
    )(demo)


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


class Level(StrEnum):
    """The levels of a log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def register_dev(app: typer.Typer) -> None:
    """Add `interlock dev` to the program."""
    app.command(
        "dev",
        epilog=epilog(
            "\b\nThe data is kept. When a .py file in the folder of the tasks changes, the worker finishes\n"
            "its jobs and is restarted.",
            "\b\nSIGTERM or Ctrl-C stops both once the jobs have ended or returned to the queue; a second\n"
            "one stops them at once.",
            "\b\nExit codes:\n  0  stopped by a signal\n"
            "  1  emptying the database was not confirmed\n"
            "  2  it could not start: an address or the store",
            examples(
                "dev shop.tasks",
                "dev shop/tasks.py --port 9000",
                "dev shop.tasks --open",
                "dev shop.tasks --reset",
            ),
        ),
    )(dev)


def dev(
    module: TaskModule = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 8088,
    store: Store = None,
    kinds: Kinds = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Empty the database first (SQLite only), after confirmation.")
    ] = False,
    yes: Yes = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the dashboard in a browser.")] = False,
    log_level: Annotated[Level, typer.Option(help="Log level of server and worker.")] = Level.WARNING,
) -> None:
    """Run a server and a worker on this machine, for development."""
    import asyncio

    from interlock.cli import connection, project
    from interlock.cli.dev import TaskSource, WorkerReloader, print_line, run_dev, worker_command
    from interlock.cli.nouns.db import empty_database
    from interlock.processes.credentials import hide_password, make_private
    from interlock.server.logs import ServerLog
    from interlock.server.settings import ServerSettings

    here = project.load(store, kinds=kinds)
    url = connection.store_url(here)
    if reset:
        empty_database(url, sure=yes)
    name = module or here.worker.module
    worker = None
    if name is not None:
        deadline_s = here.settings.durations.shutdown_deadline_s
        command = worker_command(name, log_level)
        worker = WorkerReloader(command, url, TaskSource(name), print_line, deadline_s=deadline_s)
    make_private()
    hide_password(url)
    settings = ServerSettings(port=port)
    asyncio.run(run_dev(here, settings, ServerLog(log_level, "auto"), worker, open_browser=open_browser))


def register_doctor(app: typer.Typer) -> None:
    """Add `interlock doctor` to the program."""
    app.command(
        "doctor",
        epilog=epilog(
            "\b\nChecks the project file, the database or server, permissions on it and on the folder of\n"
            "artifacts, the clock of this machine, the disk, versions, workers and queues. Nothing is\n"
            "changed, except that opening a database migrates its schema, as with every command.",
            "\b\nExit codes:\n"
            "  0  no errors; there may be warnings\n"
            "  1  at least one error\n"
            "  2  invalid usage",
            examples("doctor", "doctor --server https://jobs.example.org:8088", "doctor --json"),
        ),
    )(doctor)


def doctor(store: Place = None, as_json: Json = False) -> None:
    """Check the installation and suggest remedies."""
    from interlock.cli.doctor import ERROR, diagnose, report

    found = diagnose(store)
    report(found, as_json=as_json)
    if any(each.status == ERROR for each in found):
        raise typer.Exit(FOUND_SOMETHING)


def register_top(app: typer.Typer) -> None:
    """Add `interlock top` to the program."""
    app.command(
        "top",
        epilog=epilog(
            "\b\nA terminal gets a live screen; Ctrl-C leaves it. A pipe gets one snapshot, and each line\n"
            "begins with its subject: live, finding, queue, worker or job.",
            "\b\nExit codes:\n  0  left with Ctrl-C, or the snapshot was printed\n"
            "  2  invalid usage, or the store is unavailable",
            examples("top", "top --every 10", "top --once", "top --json | jq .numbers"),
        ),
    )(top)


def top(
    every_s: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.5, max=3_600.0, help="Refresh interval.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Show queues, workers, running jobs and problems, live."""
    from interlock.cli.output import on_terminal
    from interlock.cli.top import follow, print_snapshot

    if as_json or once or not on_terminal():
        print_snapshot(store, as_json=as_json)
    else:
        follow(store, every_s)
