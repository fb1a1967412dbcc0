"""`interlock job …`: look at jobs, follow them, stop them, do them again.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli import watching
from interlock.cli.options import (
    FILTERS,
    FilterCommand,
    JobId,
    JobsOrFilter,
    Json,
    Place,
    epilog,
    examples,
    filter_words,
)

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
    from interlock.cli import looking

    looking.list_jobs(
        store, filter_words(words), limit=None if everything else limit, cursor=cursor, as_json=as_json
    )


@app.command("show", epilog=examples("job show j_0a4e98fa6cab", "job show 0a4e --json"))
def show(job_id: JobId, store: Place = None, as_json: Json = False) -> None:
    """Show one job with its attempts, its input and its result."""
    from interlock.cli import looking

    looking.show(store, job_id, as_json=as_json)


@app.command("history", epilog=examples("job history j_0a4e98fa6cab", "job history 0a4e | grep refused"))
def history(job_id: JobId, store: Place = None, as_json: Json = False) -> None:
    """Tell everything that has happened to a job: each step, who took it, and what was refused."""
    from interlock.cli import looking

    looking.history(store, job_id, as_json=as_json)


@app.command("explain", epilog=examples("job explain j_0a4e98fa6cab", "job explain 0a4e --json"))
def explain(job_id: JobId, store: Place = None, as_json: Json = False) -> None:
    """Say what a job waits for, whose turn it is and when the next deadline is."""
    from interlock.cli import looking

    looking.explain(store, job_id, as_json=as_json)


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
    from interlock.cli import bulk

    order = bulk.Cancel(reason=reason, request_id=request_id)
    raise typer.Exit(bulk.carry_out(store, order, filter_words(words), yes, dry_run, as_json))


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
    from interlock.cli import bulk

    order = bulk.Retry(request_id=request_id)
    raise typer.Exit(bulk.carry_out(store, order, filter_words(words), yes, dry_run, as_json))


watching.register(app)
