"""`interlock job watch|wait|logs`: follow jobs while they run.

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


def watch(words: JobsOrFilter, timeout: Patience = None, store: Place = None, as_json: Json = False) -> None:
    """Follow jobs live, to their end.

    A terminal shows progress; a pipe gets a line for each transition, from the first one on. JSON is a
    line for each as well, then one for each job. Of a filter, the jobs are followed that match now.
    """
    from interlock.cli import watchers

    raise typer.Exit(watchers.watch(store, filter_words(words), parse_seconds(timeout), as_json=as_json))


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
