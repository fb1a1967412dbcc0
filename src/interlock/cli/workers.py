"""`interlock worker …`: do the work, and look after those who do it.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli import worker_commands
from interlock.cli.options import (
    Ca,
    Isolate,
    JobLogLevel,
    MemoryLimit,
    Mounts,
    Network,
    Place,
    epilog,
    examples,
)

app = typer.Typer(
    help="Do the work, and look after those who do it.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def worker() -> None:
    """Do the work, and look after those who do it."""


@app.command(
    "start",
    epilog=epilog(
        "\b\nSIGTERM or Ctrl-C: no new work is taken; what runs may finish, is asked to stop after a while,\n"
        "and is given back if it does not. A second signal changes nothing.",
        "\b\nExit codes:\n"
        "  0  every task ended or was given back\n"
        "  1  the end had to be forced\n"
        "  2  it could not begin: the module, a setting, the store or the server",
        examples(
            "worker start shop.tasks",
            "worker start shop/tasks.py --queue mail --queue default --slots 20",
            "worker start shop.tasks --label gpu --burst",
            "worker start shop.tasks --executor process --processes 4",
            "worker start --shell --queue ci --label linux",
            "worker start --shell --queue untrusted --isolate bubblewrap --no-network",
            "worker start shop.tasks --server https://jobs.example.org:8088",
        ),
    ),
)
def start(
    module: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE",
            help="Where the tasks are: package.module, module:registry or file.py; else as the project says.",
        ),
    ] = None,
    shell: Annotated[bool, typer.Option("--shell", help="Run steps of workflows, and no tasks.")] = False,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", metavar="QUEUE", help="Take work from it."),
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="LABEL", help="What this worker has.")
    ] = None,
    slots: Annotated[int | None, typer.Option(help="How many tasks run at once; 10 by default.")] = None,
    threads: Annotated[int | None, typer.Option(help="How many of them in threads.")] = None,
    processes: Annotated[int | None, typer.Option(help="How many of them in processes.")] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Where tasks run that do not say: async, thread or process. By default async functions run "
            "in the event loop and others in threads.",
        ),
    ] = None,
    prefetch: Annotated[int | None, typer.Option(help="How much work waits here for a free slot.")] = None,
    name: Annotated[str | None, typer.Option(help="What it is called; otherwise as the host.")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Serve Prometheus metrics there.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="auto, json or text.")] = None,
    job_log_level: JobLogLevel = None,
    memory_limit_mb: MemoryLimit = None,
    burst: Annotated[bool, typer.Option("--burst", help="End when there is nothing to do.")] = False,
    isolate: Isolate = None,
    network: Network = None,
    mounts: Mounts = None,
    store: Place = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            show_default=False,
            help="Access token of a server (role runner). Every process on this machine can read a command "
            "line: better set INTERLOCK_TOKEN, or use --token-file.",
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Read the access token from FILE; - reads it from standard input."),
    ] = None,
    ca: Ca = None,
) -> None:
    """Start a worker in this process; it works until somebody asks it to go."""
    from interlock.cli import working

    asked = working.Asked(
        module=module,
        shell=shell,
        name=name,
        queues=tuple(queues or ()),
        labels=tuple(labels or ()),
        slots=slots,
        threads=threads,
        processes=processes,
        executor=executor,
        prefetch=prefetch,
        metrics_port=metrics_port,
        log_level=log_level,
        log_format=log_format,
        job_log_level=job_log_level,
        memory_limit_mb=memory_limit_mb,
        burst=burst,
        isolate=isolate,
        network=network,
        mounts=tuple(mounts or ()),
        token=token,
        token_file=token_file,
        ca=ca,
    )
    raise typer.Exit(working.start(store, asked))


worker_commands.register(app)
