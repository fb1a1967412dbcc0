"""`interlock supervisor`: keep several workers alive on this host.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli.options import Isolate, JobLogLevel, MemoryLimit, Mounts, Network, Place, epilog, examples


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "supervisor",
        epilog=epilog(
            "\b\nA worker that dies is replaced; one that keeps dying, after growing pauses.\n"
            "SIGTERM or Ctrl-C: all workers are asked to go. SIGHUP: they are replaced one after the other,\n"
            "for new code; new code that cannot start changes nothing. Works as PID 1.",
            "\b\nExit codes:\n"
            "  0  every worker has ended well\n"
            "  1  one had to be killed, or ended badly\n"
            "  2  no worker could begin: the module, a setting, the store or the server",
            examples(
                "supervisor shop.tasks --workers 4",
                "supervisor shop.tasks --workers 2 --max 16 --queue mail --slots 20",
                "supervisor shop.tasks --server https://jobs.example.org:8088",
            ),
        ),
    )(supervise)


def supervise(
    module: Annotated[
        str | None,
        typer.Argument(metavar="MODULE", help="Where the tasks are; otherwise as the project says."),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", "-w", help="How many there always are.")] = 1,
    most: Annotated[
        int | None, typer.Option("--max", help="How many there are when there is much to do.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What they are called, each with a number; otherwise as the host.")
    ] = None,
    queues: Annotated[
        list[str] | None, typer.Option("--queue", "-q", metavar="QUEUE", help="Take work from it.")
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="LABEL", help="What these workers have.")
    ] = None,
    slots: Annotated[int | None, typer.Option(help="How many tasks run at once in each; 10.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="auto, json or text.")] = None,
    job_log_level: JobLogLevel = None,
    memory_limit_mb: MemoryLimit = None,
    isolate: Isolate = None,
    network: Network = None,
    mounts: Mounts = None,
    store: Place = None,
) -> None:
    """Keep several workers alive on this host, more of them when there is more to do."""
    from interlock.cli import worker_processes
    from interlock.cli.worker_processes import WorkerOptions

    asked = WorkerOptions(
        module=module,
        name=name,
        queues=tuple(queues or ()),
        labels=tuple(labels or ()),
        slots=slots,
        log_level=log_level,
        log_format=log_format,
        job_log_level=job_log_level,
        memory_limit_mb=memory_limit_mb,
        isolate=isolate,
        network=network,
        mounts=tuple(mounts or ()),
    )
    raise typer.Exit(worker_processes.supervise(store, asked, least=workers, most=most or workers))
