"""`interlock job watch|tree|wait|logs|artifacts`: follow jobs while they run, and take what they leave.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli.durations import parse_seconds
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
)

Patience = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Give up after 90s, 15m, 12h; the jobs go on.")
]


def register(app: typer.Typer) -> None:
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
    from interlock.cli import watchers

    raise typer.Exit(watchers.watch(store, filter_words(words), parse_seconds(timeout), as_json=as_json))


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
    from interlock.cli import job_trees

    job_trees.show(store, job_id, most=limit, once=once, everything=everything, as_json=as_json)


def wait(words: JobsOrFilter, timeout: Patience = None, store: Place = None, as_json: Json = False) -> None:
    """Wait for jobs to end; answers with their outcomes, and with the exit code of the worst."""
    from interlock.cli import watchers

    raise typer.Exit(watchers.wait(store, filter_words(words), parse_seconds(timeout), as_json=as_json))


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

    job_logs.show(store, job_id, attempt, follow=follow, plain=plain, as_json=as_json)


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
        job_artifacts.show(store, job_id, as_json=as_json)
    else:
        job_artifacts.fetch(store, job_id, get, to, attempt, as_json=as_json)
