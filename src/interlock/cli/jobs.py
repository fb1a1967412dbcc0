"""Commands `interlock submit` and `interlock job …`.

Only the declarations are here: each command imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from interlock.cli.options import (
    FILTERS,
    OUTCOMES,
    FilterCommand,
    JobId,
    JobsOrFilter,
    Json,
    Place,
    epilog,
    examples,
    filter_words,
    parse_seconds,
)

MOST_COPIES = 100_000
_SHELL = "interlock.shell words"


class SubmitCommand(TyperCommand):
    """What stands behind `--` with nothing before it is a command for a shell, not a task."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Remember the words behind `--` when there are no others."""
        behind = args[args.index("--") + 1 :] if "--" in args else []
        rest: list[str] = super().parse_args(ctx, args)
        given = [ctx.params["task"], *(ctx.params["arguments"] or ())]
        ctx.meta[_SHELL] = behind if behind and given == behind else []
        return rest


WORDS = """\b
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
  -                    JSON lines on standard input: a job for each

\b
A command for a shell instead of a task:
  interlock submit -- make test
  interlock submit --shell 'make test && make deploy'"""


def register_submit(app: typer.Typer) -> None:
    """Add the word to `interlock`."""
    app.command(
        "submit",
        cls=SubmitCommand,
        epilog=epilog(
            WORDS,
            OUTCOMES.replace("Exit codes:", "Exit codes with --wait; without it 0 or 2:"),
            examples(
                "submit shop.tasks:send address=a@b.example --queue mail",
                "submit shop.tasks:resize '{\"width\": 200}' --retries 3 --timeout 10m --wait",
                "submit shop.tasks:resize - < images.jsonl",
                "submit --shell 'make test' --label linux",
                "job watch $(interlock submit shop.tasks:send address=a@b.example)",
            ),
        ),
    )(submit)


def submit(
    ctx: typer.Context,
    task: Annotated[str | None, typer.Argument(metavar="TASK", help="What to do.")] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[JSON | KEY=VALUE...]", help="Its arguments.")
    ] = None,
    shell: Annotated[str | None, typer.Option(metavar="COMMAND", help="Run this in a shell.")] = None,
    module: Annotated[
        str | None,
        typer.Option("--from", metavar="MODULE", help="Where the task is."),
    ] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", help="Do not look for the task; only workers know it.")
    ] = False,
    queue: Annotated[str | None, typer.Option("--queue", "-q", help="Which workers shall take it.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first.")] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="LABEL", help="What a worker must have.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="In how many shards, 1 to 10.")] = None,
    delay: Annotated[str | None, typer.Option(metavar="TIME", help="Not before 90s, 15m, 12h.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="For one attempt.")] = None,
    job_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="For all attempts together.")
    ] = None,
    retries: Annotated[int | None, typer.Option(help="How often to try again after a failure.")] = None,
    secrets: Annotated[
        list[str] | None, typer.Option("--secret", metavar="NAME", help="A secret that its runner is given.")
    ] = None,
    parent: Annotated[str | None, typer.Option(metavar="ID", help="The job it belongs to.")] = None,
    description: Annotated[str | None, typer.Option(metavar="TEXT", help="For people.")] = None,
    request_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Make it once, however often it is sent."),
    ] = None,
    count: Annotated[int, typer.Option(min=1, max=MOST_COPIES, help="So many of the same.")] = 1,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it has ended, and print its result last.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="With --wait: print every transition.")
    ] = False,
    wait_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="With --wait: give up after that; the job goes on.")
    ] = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Submit a job and print its id.

    With --wait its result is printed last, as JSON; of several jobs a line for each, with its id. --json
    prints the job as it stands, a line for each when there are several; with --wait as it ended.
    """
    from interlock.cli import job_actions

    options = {
        "queue": queue,
        "priority": priority,
        "labels": tuple(labels) if labels else None,
        "worker_count": workers,
        "delay_s": parse_seconds(delay),
        "timeout_s": parse_seconds(timeout),
        "job_timeout_s": parse_seconds(job_timeout),
        "retries": retries,
        "secrets": tuple(secrets) if secrets else None,
        "parent_job_id": parent,
        "description": description,
    }
    words = ctx.meta[_SHELL]
    asked = job_actions.SubmitOptions(
        task=None if words else task,
        arguments=() if words else tuple(arguments or ()),
        command=job_actions.command_of(shell, words),
        module=module,
        unchecked=unchecked,
        options={name: value for name, value in options.items() if value is not None},
        count=count,
    )
    patience_s = parse_seconds(wait_timeout)
    code = job_actions.submit(store, asked, request_id, wait, patience_s, verbose=verbose, as_json=as_json)
    raise typer.Exit(code)


Patience = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Give up after 90s, 15m, 12h; the jobs go on.")
]


def _register_follow_commands(app: typer.Typer) -> None:
    """Add the words to `interlock job`."""
    app.command(
        "watch",
        cls=FilterCommand,
        epilog=epilog(
            FILTERS, OUTCOMES, examples("job watch j_0a4e98fa6cab", "job watch queue:ci since:1h | cut -f2,6")
        ),
    )(watch)
    app.command(
        "tree",
        epilog=examples(
            "job tree j_0a4e98fa6cab",
            "job tree 0a4e --once",
            "job tree 0a4e | cut -f1,4",
            "job tree 0a4e --json",
        ),
    )(tree)
    app.command(
        "wait",
        cls=FilterCommand,
        epilog=epilog(
            FILTERS,
            OUTCOMES,
            examples("job wait j_0a4e98fa6cab --timeout 15m", "job wait $(interlock submit shop:send)"),
        ),
    )(wait)
    app.command(
        "logs",
        epilog=examples(
            "job logs j_0a4e98fa6cab", "job logs j_0a4e --follow", "job logs j_0a4e --attempt 2 --plain"
        ),
    )(logs)
    app.command(
        "artifacts",
        epilog=examples(
            "job artifacts j_0a4e98fa6cab",
            "job artifacts j_0a4e --get coverage.tar.gz",
            "job artifacts j_0a4e --get report.xml --to out --attempt 1.2",
        ),
    )(artifacts)


def watch(words: JobsOrFilter, timeout: Patience = None, store: Place = None, as_json: Json = False) -> None:
    """Follow jobs live, to their end.

    A terminal shows progress; a pipe gets a line for each transition, from the first one on. JSON is a
    line for each as well, then one for each job. Of a filter, the jobs are followed that match now.
    """
    from interlock.cli import job_watch

    raise typer.Exit(job_watch.watch(store, filter_words(words), parse_seconds(timeout), as_json=as_json))


def tree(
    job_id: JobId,
    limit: Annotated[int, typer.Option(min=1, max=5_000, help="How many jobs at most.")] = 1_000,
    once: Annotated[bool, typer.Option("--once", help="Draw it once, as it is now.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Each child, also where there are many that have ended.")
    ] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Draw a job and everything below it, live, until all of it has ended.

    A terminal shows states, progress, durations and costs, each with what is below it. A pipe gets a line
    for each job, as it is now.
    """
    from interlock.cli import job_watch

    job_watch.show(store, job_id, most=limit, once=once, everything=everything, as_json=as_json)


def wait(words: JobsOrFilter, timeout: Patience = None, store: Place = None, as_json: Json = False) -> None:
    """Wait for jobs to end; answers with their outcomes, and with the exit code of the worst."""
    from interlock.cli import job_watch

    raise typer.Exit(job_watch.wait(store, filter_words(words), parse_seconds(timeout), as_json=as_json))


def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job has ended.")] = False,
    attempt: Annotated[
        str | None, typer.Option(metavar="N", help="Only this attempt: 2, or 3.2 for the shard 3.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Only what was written.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Show what the attempts of a job have written."""
    from interlock.cli import job_logs

    job_logs.show_job_logs(store, job_id, attempt, follow=follow, plain=plain, as_json=as_json)


def artifacts(
    job_id: JobId,
    get: Annotated[str | None, typer.Option("--get", metavar="NAME", help="Fetch this one.")] = None,
    to: Annotated[str, typer.Option("--to", metavar="DIR", help="Into this folder.")] = ".",
    attempt: Annotated[
        str, typer.Option(metavar="N.M", help="That of this attempt; otherwise of the last that has one.")
    ] = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List the files that the attempts of a job have left behind, or fetch one."""
    from interlock.cli import job_artifacts

    if get is None:
        job_artifacts.list_job_artifacts(store, job_id, as_json=as_json)
    else:
        job_artifacts.fetch_job_artifact(store, job_id, get, to, attempt, as_json=as_json)


app = typer.Typer(
    help="Look at jobs, follow them, stop them, do them again.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=epilog(
        "\b\nID is j_ and twelve hex digits; the beginning is enough where only one job has it, and j_ may\n"
        "be left out.",
        FILTERS,
    ),
)

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show which jobs are meant.")]
RequestId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Do it once, however often this is sent with the same request id."),
]


@app.command(
    "list",
    cls=FilterCommand,
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
    words: Annotated[list[str] | None, typer.Argument(metavar="[FILTER]...", help="Which jobs.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    cursor: Annotated[str, typer.Option(metavar="TEXT", help="Go on where a list has ended.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="All of them, however many.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List jobs, the newest first."""
    from interlock.cli import job_views

    job_views.list_jobs(
        store, filter_words(words), limit=None if everything else limit, cursor=cursor, as_json=as_json
    )


@app.command("show", epilog=examples("job show j_0a4e98fa6cab", "job show 0a4e --json"))
def show(job_id: JobId, store: Place = None, as_json: Json = False) -> None:
    """Show one job with its attempts, its input and its result."""
    from interlock.cli import job_views

    job_views.show(store, job_id, as_json=as_json)


@app.command("history", epilog=examples("job history j_0a4e98fa6cab", "job history 0a4e | grep refused"))
def history(job_id: JobId, store: Place = None, as_json: Json = False) -> None:
    """Tell everything that has happened to a job: each step, who took it, and what was refused."""
    from interlock.cli import job_views

    job_views.history(store, job_id, as_json=as_json)


@app.command("explain", epilog=examples("job explain j_0a4e98fa6cab", "job explain 0a4e --json"))
def explain(job_id: JobId, store: Place = None, as_json: Json = False) -> None:
    """Say what a job waits for, whose turn it is and when the next deadline is."""
    from interlock.cli import job_views

    job_views.explain(store, job_id, as_json=as_json)


@app.command(
    "cancel",
    cls=FilterCommand,
    epilog=epilog(
        FILTERS,
        examples(
            "job cancel j_0a4e98fa6cab --reason 'wrong branch'",
            "job cancel queue:ci state:pending --dry-run",
            "job cancel parent:j_0a4e98fa6cab --yes",
        ),
    ),
)
def cancel(
    words: JobsOrFilter,
    reason: Annotated[str, typer.Option(help="What the journal says about it.")] = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Ask jobs to stop. What runs is told so, and has a while to do it.

    With a filter the jobs are shown first, and you are asked. Answers with a line for each job.
    """
    from interlock.cli import job_actions

    order = job_actions.Cancel(reason=reason, request_id=request_id)
    raise typer.Exit(job_actions.carry_out(store, order, filter_words(words), yes, dry_run, as_json))


@app.command(
    "retry",
    cls=FilterCommand,
    epilog=epilog(
        FILTERS,
        examples("job retry j_0a4e98fa6cab", "job retry state:failed queue:ci since:1h --yes"),
    ),
)
def retry(
    words: JobsOrFilter,
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Do jobs that have ended again, as new ones; answers with their ids.

    With a filter the jobs are shown first, and you are asked.
    """
    from interlock.cli import job_actions

    order = job_actions.Retry(request_id=request_id)
    raise typer.Exit(job_actions.carry_out(store, order, filter_words(words), yes, dry_run, as_json))


_register_follow_commands(app)
