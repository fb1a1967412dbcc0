"""Commands `interlock submit` and `interlock job …`.

Only the declarations are here: each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from interlock.cli import completion
from interlock.cli.options import (
    FILTERS,
    OUTCOMES,
    Cursor,
    DryRun,
    Filter,
    FilterCommand,
    FilteredRecordsCommand,
    Follow,
    Id,
    IdsOrFilter,
    Json,
    Limit,
    Place,
    Plain,
    RequestId,
    WaitTimeout,
    Yes,
    act_on_all,
    add_action,
    add_views,
    epilog,
    examples,
    filter_words,
    parse_seconds,
    with_wait,
)

if TYPE_CHECKING:
    from interlock.cli.verbs import Noun

MOST_COPIES = 100_000
_SHELL = "interlock.shell words"
_TASK_AND_ARGUMENTS = """\b
TASK is one of:
  shop.tasks:send      a function with @task, as module:function or shop.tasks.send; its arguments are
                       checked before anything is stored
  send --from shop.tasks   a task by its name, in this module
  anything --unchecked     a name that only the workers know
  -                        JSON lines on standard input: {"task": ..., "input": {...}, "queue": ...}

\b
ARGUMENTS are one of:
  width=200 name=cat   by name; a value is JSON if it can be read as JSON, and text otherwise
  '{"width": 200}'     all of them as JSON; a JSON list is arguments by position
  -                    JSON lines on standard input: one job for each

\b
A shell command instead of a task:
  interlock submit -- make test
  interlock submit --shell 'make test && make deploy'"""

app: typer.Typer = typer.Typer(
    help="List, follow, cancel and retry jobs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=epilog(
        "\b\nID is j_ and twelve hex digits. The start is enough where only one job has it, and j_ may\n"
        "be left out.",
        FILTERS,
    ),
)


def _noun() -> Noun[Any]:
    from interlock.cli.nouns.job_views import NOUN

    return NOUN


class SubmitCommand(TyperCommand):
    """`submit`, where words after `--` are a shell command if no word precedes it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Store the words after `--` if no other words are given."""
        behind = args[args.index("--") + 1 :] if "--" in args else []
        rest: list[str] = super().parse_args(ctx, args)
        given = [ctx.params["task"], *(ctx.params["arguments"] or ())]
        ctx.meta[_SHELL] = behind if behind and given == behind else []
        return rest


def register_submit(app: typer.Typer) -> None:
    """Add `submit` to the program."""
    app.command(
        "submit",
        cls=SubmitCommand,
        epilog=epilog(
            _TASK_AND_ARGUMENTS,
            with_wait(OUTCOMES),
            examples(
                "submit shop.tasks:send address=a@b.example --queue mail",
                "submit shop.tasks:resize '{\"width\": 200}' --retries 3 --timeout 10m --wait",
                "submit shop.tasks:resize - < images.jsonl",
                "submit --shell 'make test' --label linux",
                "submit shop.tasks:index doc=17 --unique-by doc --if-exists debounce --delay 30s",
                "job watch $(interlock submit shop.tasks:send address=a@b.example)",
            ),
        ),
    )(submit)


def submit(
    ctx: typer.Context,
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Task to run.", autocompletion=completion.task_names)
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[JSON | KEY=VALUE...]", help="Arguments of the task.")
    ] = None,
    shell: Annotated[str | None, typer.Option(metavar="COMMAND", help="Run COMMAND in a shell.")] = None,
    module: Annotated[
        str | None, typer.Option("--from", metavar="MODULE", help="Read the task from MODULE.")
    ] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Skip the local task lookup.")] = False,
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", help="Queue to submit to.", autocompletion=completion.queue_names),
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Priority; higher runs first.")] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="LABEL", help="Require workers with this label; repeatable."),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="LIMIT",
            help="Limit that the job counts against; repeatable.",
            autocompletion=completion.limit_names,
        ),
    ] = None,
    weight: Annotated[int | None, typer.Option(help="Slots of each limit that it takes (default 1).")] = None,
    workers: Annotated[int | None, typer.Option(help="Run as this many parallel shards (1 to 10).")] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="TIME", help="Delay before the start: 90s, 15m, 12h.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="WHEN", help="Earliest start, such as 2026-12-24T18:00+01:00."),
    ] = None,
    not_after: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Expire if no worker starts it before this time, or within 15m."),
    ] = None,
    unique: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Unique key: at most one job of the task with it at a time."),
    ] = None,
    unique_by: Annotated[
        list[str] | None,
        typer.Option(metavar="ARGUMENT", help="Make the unique key of this argument; repeatable."),
    ] = None,
    unique_scope: Annotated[
        str | None, typer.Option(metavar="SCOPE", help="Unique among jobs of the task, or of the queue.")
    ] = None,
    unique_states: Annotated[
        list[str] | None,
        typer.Option("--unique-state", metavar="STATE", help="State in which a job counts; repeatable."),
    ] = None,
    unique_within: Annotated[
        str | None, typer.Option(metavar="TIME", help="Count completed jobs for this long, such as 1h.")
    ] = None,
    if_exists: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="If such a job exists: reject, existing, replace or debounce."),
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="Timeout of one attempt.")] = None,
    job_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Timeout of all attempts together.")
    ] = None,
    retries: Annotated[int | None, typer.Option(help="Maximum number of retries after a failure.")] = None,
    secrets: Annotated[
        list[str] | None,
        typer.Option("--secret", metavar="NAME", help="Secret to pass to the job; repeatable."),
    ] = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", metavar="KEY=TEXT", help="Metadata of the job; repeatable."),
    ] = None,
    parent: Annotated[str | None, typer.Option(metavar="ID", help="Parent job.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option("--after", metavar="ID", help="Start after this job has succeeded; repeatable."),
    ] = None,
    after_any: Annotated[
        bool, typer.Option("--after-any", help="Wait for any one of them, not for all.")
    ] = False,
    after_end: Annotated[
        bool, typer.Option("--after-end", help="Start after they have ended, with or without success.")
    ] = False,
    after_into: Annotated[
        str | None, typer.Option(metavar="ARGUMENT", help="Pass their results as this argument.")
    ] = None,
    or_skip: Annotated[
        bool, typer.Option("--or-skip", help="Skip the job if they do not succeed; its followers start.")
    ] = False,
    description: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Description, shown in lists.")
    ] = None,
    request_id: RequestId = None,
    count: Annotated[int, typer.Option(min=1, max=MOST_COPIES, help="Submit N copies of the job.")] = 1,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it has ended; print its result.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="With --wait: print every transition.")
    ] = False,
    wait_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --wait: stop waiting; the job continues.")
    ] = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Submit a job and print its id.

    With --wait the result is printed last, as JSON; of several jobs one line each, with the id. --json prints
    the job, one line for each if there are several; with --wait as it ended.
    """
    from interlock.cli.nouns import job_submit

    options = {
        "queue": queue,
        "priority": priority,
        "labels": tuple(labels) if labels else None,
        "limits": tuple(limits) if limits else None,
        "weight": weight,
        "worker_count": workers,
        "delay_s": parse_seconds(delay),
        "at": job_submit.read_time(at, "--at"),
        **job_submit.read_limit(not_after),
        "unique": job_submit.read_unique(
            key=unique,
            by=unique_by,
            scope=unique_scope,
            states=unique_states,
            within=unique_within,
            policy=if_exists,
        ),
        "timeout_s": parse_seconds(timeout),
        "job_timeout_s": parse_seconds(job_timeout),
        "retries": retries,
        "secrets": tuple(secrets) if secrets else None,
        "metadata": job_submit.read_metadata(metadata) if metadata else None,
        "parent_job_id": parent,
        "after": job_submit.read_after(
            after, need_any=after_any, on_end=after_end, into=after_into, skip=or_skip
        ),
        "description": description,
    }
    words = ctx.meta[_SHELL]
    chosen = job_submit.SubmitOptions(
        task=None if words else task,
        arguments=() if words else tuple(arguments or ()),
        command=job_submit.command_of(shell, words),
        module=module,
        unchecked=unchecked,
        options={name: value for name, value in options.items() if value is not None},
        count=count,
    )
    timeout_s = parse_seconds(wait_timeout)
    code = job_submit.submit(store, chosen, request_id, wait, timeout_s, verbose=verbose, as_json=as_json)
    raise typer.Exit(code)


@app.command(
    "list",
    cls=FilteredRecordsCommand,
    epilog=epilog(
        FILTERS,
        examples(
            "job list",
            "job list state:failed queue:ci since:1h",
            "job list -state:completed --json",
            "job list task:shop.send --all | cut -f1",
        ),
    ),
)
def list_jobs(
    words: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = "",
    everything: Annotated[bool, typer.Option("--all", help="List all jobs.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    from interlock.cli.nouns import job_views

    job_views.list_jobs(
        store, filter_words(words), limit=None if everything else limit, cursor=cursor, as_json=as_json
    )


add_views(
    app,
    "job",
    _noun,
    "j_0a4e98fa6cab",
    show="Show a job with its attempts, input and result.",
    history="Show every transition of a job, and every refused request.",
    explain="Explain why a job waits, and show its next deadline.",
)
add_action(
    app,
    _noun,
    "cancel",
    """Cancel jobs.

    Running handlers receive a stop request; after `cancel_deadline_s` they are canceled by force. A filter
    is previewed and confirmed first. Prints one line for each job.
    """,
    FILTERS,
    "job cancel j_0a4e98fa6cab --reason 'wrong branch'",
    "job cancel queue:ci state:pending --dry-run",
    "job cancel parent:j_0a4e98fa6cab --yes",
)


@app.command(
    "retry",
    cls=FilterCommand,
    epilog=epilog(
        FILTERS, examples("job retry j_0a4e98fa6cab", "job retry state:failed queue:ci since:1h --yes")
    ),
)
def retry(
    words: IdsOrFilter,
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Submit finished jobs again as new jobs, and print their ids.

    A filter is previewed and confirmed first.
    """
    details = {"request_id": request_id}
    act_on_all(_noun, "retry", details, store, words, yes=yes, dry_run=dry_run, as_json=as_json)


@app.command(
    "signal",
    epilog=examples(
        "job signal j_0a4e98fa6cab paid",
        "job signal j_0a4e paid --data '{\"sum\": 3}' --request-id paid-17",
        "job signal j_0a4e paid --data - < payment.json",
    ),
)
def signal(
    job_id: Id,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name that the handler waits for.")],
    data: Annotated[
        str | None, typer.Option(metavar="JSON", help="Data for the handler; - reads standard input.")
    ] = None,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Send a signal to a job; it is kept until the handler waits for it."""
    from interlock.cli.nouns.approvals import send_signal

    send_signal(store, job_id, name, data, request_id, as_json=as_json)


@app.command(
    "watch",
    cls=FilterCommand,
    epilog=epilog(
        FILTERS, OUTCOMES, examples("job watch j_0a4e98fa6cab", "job watch queue:ci since:1h | cut -f2,6")
    ),
)
def watch(
    words: IdsOrFilter, timeout: WaitTimeout = None, store: Place = None, as_json: Json = False
) -> None:
    """Follow jobs until they end.

    A terminal shows progress; a pipe gets a line for each transition, from the first one on. JSON is a
    line for each as well, then one for each job. A filter selects the jobs that match now.
    """
    from interlock.cli.nouns import job_watch

    raise typer.Exit(
        job_watch.watch_jobs(store, filter_words(words), parse_seconds(timeout), as_json=as_json)
    )


@app.command(
    "wait",
    cls=FilterCommand,
    epilog=epilog(
        FILTERS,
        OUTCOMES,
        examples("job wait j_0a4e98fa6cab --timeout 15m", "job wait $(interlock submit shop:send)"),
    ),
)
def wait(words: IdsOrFilter, timeout: WaitTimeout = None, store: Place = None, as_json: Json = False) -> None:
    """Wait for jobs to end, and print their outcomes.

    The exit code is that of the worst outcome.
    """
    from interlock.cli.nouns import job_watch

    raise typer.Exit(job_watch.wait(store, filter_words(words), parse_seconds(timeout), as_json=as_json))


@app.command(
    "tree",
    epilog=examples(
        "job tree j_0a4e98fa6cab", "job tree 0a4e --once", "job tree 0a4e | cut -f1,4", "job tree 0a4e --json"
    ),
)
def tree(
    job_id: Id,
    limit: Annotated[int, typer.Option(min=1, max=5_000, help="Maximum number of jobs.")] = 1_000,
    once: Annotated[bool, typer.Option("--once", help="Draw the tree once and exit.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Show every child; do not summarize ended ones.")
    ] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Draw a job with its descendants until they have ended.

    A terminal shows states, progress, durations and costs. A pipe gets a line for each job, as it is now.
    """
    from interlock.cli.nouns import job_watch

    job_watch.show_tree(store, job_id, most=limit, once=once, everything=everything, as_json=as_json)


@app.command(
    "logs",
    epilog=examples(
        "job logs j_0a4e98fa6cab", "job logs j_0a4e --follow", "job logs j_0a4e --attempt 2 --plain"
    ),
)
def logs(
    job_id: Id,
    follow: Follow = False,
    attempt: Annotated[
        str | None, typer.Option(metavar="N", help="Only this attempt: 2, or 3.2 of shard 3.")
    ] = None,
    plain: Plain = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Print the log of a job."""
    from interlock.cli.logs import show_job_logs

    show_job_logs(store, job_id, attempt, follow=follow, plain=plain, as_json=as_json)


@app.command(
    "artifacts",
    epilog=examples(
        "job artifacts j_0a4e98fa6cab",
        "job artifacts j_0a4e --get coverage.tar.gz",
        "job artifacts j_0a4e --get report.xml --to out --attempt 1.2",
    ),
)
def artifacts(
    job_id: Id,
    get: Annotated[str | None, typer.Option("--get", metavar="NAME", help="Fetch this artifact.")] = None,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Folder to write it to.")] = ".",
    attempt: Annotated[
        str, typer.Option(metavar="N.M", help="Attempt to fetch it from (default: the last that has it).")
    ] = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List the artifacts of a job, or fetch one."""
    from interlock.cli.artifacts import fetch_job_artifact, list_job_artifacts

    if get is None:
        list_job_artifacts(store, job_id, as_json=as_json)
    else:
        fetch_job_artifact(store, job_id, get, to, attempt, as_json=as_json)
