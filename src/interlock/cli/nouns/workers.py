"""Commands `interlock worker …`.

Only the declarations are here: each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlock.cli import completion
from interlock.cli.options import (
    Ca,
    DryRun,
    Filter,
    FilterCommand,
    FilteredRecordsCommand,
    Isolate,
    JobLogLevel,
    Json,
    LogFormat,
    LogLevel,
    MemoryLimit,
    Mounts,
    Network,
    Place,
    Queues,
    Reason,
    RequestId,
    TaskModule,
    Yes,
    act_on_all,
    add_action,
    add_views,
    epilog,
    examples,
    filter_words,
)

if TYPE_CHECKING:
    from interlock.cli.verbs import Noun

FILTERS = """\b
FILTER is any of these words; all of them must match:
  state:running,paused       -state:terminated      name:web-1      workspace:ci
  label:gpu label:big        both labels; label:gpu,big is either
  id:w_...                   id of the worker
  since:1d until:10m         time of registration"""

Worker = Annotated[
    str,
    typer.Argument(
        metavar="WORKER", help="Id, or name: the newest worker of that name.", autocompletion=completion.ids
    ),
]
Workers = Annotated[
    list[str],
    typer.Argument(
        metavar="WORKER... | FILTER...", help="Ids, names, or a filter.", autocompletion=completion.words
    ),
]

app: typer.Typer = typer.Typer(
    help="Start, list, pause and stop workers.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def worker() -> None:
    """Start, list, pause and stop workers."""


def _noun() -> Noun[Any]:
    from interlock.cli.nouns.worker_views import NOUN

    return NOUN


@app.command(
    "start",
    epilog=epilog(
        "\b\nSIGTERM or Ctrl-C starts a graceful shutdown: no new jobs are taken, and running jobs may\n"
        "finish. After `shutdown_soft_s` they receive a stop request and return to the queue. A second\n"
        "signal changes nothing.",
        "\b\nExit codes:\n"
        "  0  every job ended or was returned to the queue\n"
        "  1  the shutdown had to be forced\n"
        "  2  it could not start: the module, a setting, or a store that cannot be used\n"
        "     (if the store is unavailable, the worker retries)",
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
    module: TaskModule = None,
    shell: Annotated[bool, typer.Option("--shell", help="Run workflow steps only, no tasks.")] = False,
    queues: Queues = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="LABEL", help="Label of this worker; repeatable.")
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Number of concurrent tasks (default 10).")] = None,
    threads: Annotated[
        int | None, typer.Option(help="Maximum number of concurrent tasks in threads.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Maximum number of concurrent tasks in processes.")
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="Executor of tasks that name none: async, thread or process (default: async functions run "
            "in the event loop, others in threads).",
        ),
    ] = None,
    prefetch: Annotated[int | None, typer.Option(help="Number of jobs to fetch ahead of free slots.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the worker (default: the host name).")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Serve Prometheus metrics on this port.")] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    job_log_level: JobLogLevel = None,
    memory_limit_mb: MemoryLimit = None,
    burst: Annotated[bool, typer.Option("--burst", help="Exit when no jobs are left.")] = False,
    isolate: Isolate = None,
    network: Network = None,
    mounts: Mounts = None,
    store: Place = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="TOKEN",
            show_default=False,
            help="Access token of the server (role runner). Every process on this machine can read a command "
            "line: prefer INTERLOCK_TOKEN or --token-file.",
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Read the access token from FILE; - reads it from standard input."),
    ] = None,
    ca: Ca = None,
) -> None:
    """Start a worker and run until stopped."""
    from interlock.cli.nouns import worker_start

    options = worker_start.WorkerOptions(
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
    raise typer.Exit(worker_start.start_worker(store, options))


@app.command(
    "list",
    cls=FilteredRecordsCommand,
    epilog=epilog(
        FILTERS, examples("worker list", "worker list state:running label:gpu", "worker list --all --json")
    ),
)
def list_workers(
    words: Filter = None,
    everything: Annotated[bool, typer.Option("--all", help="Also workers that have ended.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List live workers, newest first.

    A filter with a state, or --all, also lists workers that have ended.
    """
    from interlock.cli.nouns import worker_views

    worker_views.list_workers(store, filter_words(words), everything=everything, as_json=as_json)


add_views(
    app,
    "worker",
    _noun,
    "web-1",
    argument=Worker,
    show="Show a worker: host, queues, tasks and load.",
    history="Show every transition of a worker.",
)


@app.command(
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
)
def pause(
    words: Workers,
    give_back: Annotated[
        bool, typer.Option("--give-back", help="Return running jobs to the queue instead of finishing them.")
    ] = False,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Pause workers: they finish their jobs and claim no new ones."""
    details = {"reason": reason, "request_id": request_id, "give_back": give_back}
    act_on_all(_noun, "pause", details, store, words, yes=yes, dry_run=dry_run, as_json=as_json)


for _verb, _doc, _example in (
    ("resume", "Resume paused workers.", "worker resume web-1"),
    (
        "terminate",
        "Terminate workers; their jobs return to the queue.",
        "worker terminate w_0a4e98fa6cab --reason 'it is stuck'",
    ),
    (
        "drain",
        "Drain workers: they finish their jobs and exit.",
        "worker drain workspace:ci --yes",
    ),
):
    add_action(app, _noun, _verb, _doc, FILTERS, _example, argument=Workers)


@app.command("quarantined", epilog=examples("worker quarantined", "worker quarantined --json"))
def quarantined(store: Place = None, as_json: Json = False) -> None:
    """List runners that have lost work lately, or are quarantined."""
    from interlock.cli.nouns import worker_views

    worker_views.show_quarantined(store, as_json=as_json)


@app.command("lift", epilog=examples("worker lift build-7 --reason 'the disk was full'"))
def lift(
    runner: Annotated[str, typer.Argument(metavar="RUNNER", help="Name of the runner.")],
    reason: Reason = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Lift the quarantine of a runner."""
    from interlock.cli.nouns import worker_views

    worker_views.lift_quarantine(store, runner, reason, as_json=as_json)


def register_supervisor(app: typer.Typer) -> None:
    """Add `supervisor` to the program."""
    app.command(
        "supervisor",
        epilog=epilog(
            "\b\nA worker that dies is restarted, with backoff if it keeps dying. SIGTERM or Ctrl-C stops\n"
            "all workers gracefully. SIGHUP replaces them one after the other, for new code; if that\n"
            "cannot start, the running workers continue. Works as PID 1.",
            "\b\nExit codes:\n"
            "  0  every worker ended well\n"
            "  1  a worker had to be killed, or failed\n"
            "  2  no worker could start: the module, a setting, the store or the server",
            examples(
                "supervisor shop.tasks --workers 4",
                "supervisor shop.tasks --workers 2 --max 16 --queue mail --slots 20",
                "supervisor shop.tasks --server https://jobs.example.org:8088",
            ),
        ),
    )(supervise)


def supervise(
    module: TaskModule = None,
    workers: Annotated[int, typer.Option("--workers", "-w", help="Minimum number of workers.")] = 1,
    most: Annotated[
        int | None, typer.Option("--max", help="Maximum number of workers under load (default: --workers).")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the workers, followed by a number (default: the host name).")
    ] = None,
    queues: Queues = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="LABEL", help="Label of these workers; repeatable."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="Number of concurrent tasks in each worker (default 10).")
    ] = None,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
    job_log_level: JobLogLevel = None,
    memory_limit_mb: MemoryLimit = None,
    isolate: Isolate = None,
    network: Network = None,
    mounts: Mounts = None,
    store: Place = None,
) -> None:
    """Keep several workers running on this host, more under load."""
    from interlock.cli.nouns import worker_start

    options = worker_start.WorkerOptions(
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
    raise typer.Exit(worker_start.supervise(store, options, least=workers, most=most or workers))
