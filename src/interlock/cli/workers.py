"""Commands `interlock worker …`.

Only the declarations are here: each command imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli.options import (
    Ca,
    FilterCommand,
    Isolate,
    JobLogLevel,
    Json,
    MemoryLimit,
    Mounts,
    Network,
    Place,
    epilog,
    examples,
    filter_words,
)

FILTERS = """\b
FILTER is any of these words; all of them must hold:
  state:running,paused       -state:terminated      name:web-1      workspace:ci
  label:gpu label:big        both labels; label:gpu,big is either
  id:w_...                   by its id
  since:1d until:10m         by when it registered"""

Worker = Annotated[
    str, typer.Argument(metavar="WORKER", help="By its id, or by its name: then its newest life.")
]
Workers = Annotated[
    list[str], typer.Argument(metavar="WORKER... | FILTER...", help="By ids, by names, or by a filter.")
]
Reason = Annotated[str, typer.Option(help="What the journal says about it.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show which workers are meant.")]
RequestId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Do it once, however often this is sent with the same request id."),
]


def _register_commands(app: typer.Typer) -> None:
    """Add the commands to the group."""
    app.command(
        "list",
        cls=FilterCommand,
        epilog=epilog(
            FILTERS,
            examples("worker list", "worker list state:running label:gpu", "worker list --all --json"),
        ),
    )(list_workers)
    app.command("show", epilog=examples("worker show web-1", "worker show w_0a4e98fa6cab --json"))(show)
    app.command("history", epilog=examples("worker history web-1"))(history)
    app.command(
        "pause",
        cls=FilterCommand,
        epilog=epilog(
            FILTERS,
            examples(
                "worker pause web-1 --reason 'disk is full'",
                "worker pause label:gpu --give-back --yes",
                "worker pause state:running --dry-run",
            ),
        ),
    )(pause)
    app.command("quarantined", epilog=examples("worker quarantined", "worker quarantined --json"))(
        quarantined
    )
    app.command("lift", epilog=examples("worker lift build-7 --reason 'the disk was full'"))(lift)
    for verb, act, example in (
        ("resume", resume, "worker resume web-1"),
        ("terminate", terminate, "worker terminate w_0a4e98fa6cab --reason 'it is stuck'"),
        ("drain", drain, "worker drain workspace:ci --yes"),
    ):
        app.command(verb, cls=FilterCommand, epilog=epilog(FILTERS, examples(example)))(act)


def list_workers(
    words: Annotated[list[str] | None, typer.Argument(metavar="[FILTER]...", help="Which workers.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Those as well that have ended.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List workers, the newest first; without a filter those that live."""
    from interlock.cli import worker_actions

    worker_actions.list_workers(store, filter_words(words), everything=everything, as_json=as_json)


def show(worker: Worker, store: Place = None, as_json: Json = False) -> None:
    """Show one worker: where it runs, what it does, what it was told."""
    from interlock.cli import worker_actions

    worker_actions.show(store, worker, as_json=as_json)


def history(worker: Worker, store: Place = None, as_json: Json = False) -> None:
    """Tell everything that has happened to a worker."""
    from interlock.cli import worker_actions

    worker_actions.history(store, worker, as_json=as_json)


def pause(
    words: Workers,
    give_back: Annotated[
        bool, typer.Option("--give-back", help="Give back what it has, instead of finishing it.")
    ] = False,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Have workers take nothing new; what they have they finish."""
    _hold("pause", store, words, reason, yes, dry_run, request_id, as_json, give_back=give_back)


def resume(
    words: Workers,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Let paused workers take work again."""
    _hold("resume", store, words, reason, yes, dry_run, request_id, as_json)


def terminate(
    words: Workers,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Stop workers for certain, wherever they run; their work returns to the queue at no cost."""
    _hold("terminate", store, words, reason, yes, dry_run, request_id, as_json)


def drain(
    words: Workers,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Ask workers to finish what they have, and to go."""
    _hold("drain", store, words, reason, yes, dry_run, request_id, as_json)


def quarantined(store: Place = None, as_json: Json = False) -> None:
    """List runners that have lost work lately, and those that are given none because of it."""
    from interlock.cli import worker_actions

    worker_actions.show_quarantined(store, as_json=as_json)


def lift(
    runner: Annotated[str, typer.Argument(metavar="RUNNER", help="By its name, as the list has it.")],
    reason: Reason = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Give a runner work again that was quarantined."""
    from interlock.cli import worker_actions

    worker_actions.lift_quarantine(store, runner, reason, as_json=as_json)


def _hold(
    verb: str,
    store: str | None,
    words: list[str],
    reason: str,
    yes: bool,
    dry_run: bool,
    request_id: str | None,
    as_json: bool,
    **more: bool,
) -> None:
    from interlock.cli import worker_actions

    order = worker_actions.Order(verb=verb, reason=reason, request_id=request_id, more=more)
    raise typer.Exit(worker_actions.carry_out(store, order, filter_words(words), yes, dry_run, as_json))


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
    from interlock.cli import worker_processes

    asked = worker_processes.WorkerOptions(
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
    raise typer.Exit(worker_processes.start_worker(store, asked))


_register_commands(app)
