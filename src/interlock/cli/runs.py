"""Commands `interlock run …`.

Only the declarations are here: each command imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from interlock.cli.options import (
    FilterCommand,
    Json,
    Place,
    epilog,
    examples,
    filter_words,
    parse_seconds,
)

RunId = Annotated[str, typer.Argument(metavar="ID", help="A run, by its id or the beginning of it.")]
RunsOrFilter = Annotated[
    list[str], typer.Argument(metavar="ID... | FILTER...", help="Runs by their ids, or a filter.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show which runs are meant.")]
RequestId = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Do it once, however often this is sent with the same request id."),
]
Patience = Annotated[
    str | None,
    typer.Option("--timeout", metavar="TIME", help="Give up after 90s, 15m, 12h; the run goes on."),
]

FILTERS = """\b
FILTER is any of these words; all of them must hold:
  outcome:failed,timeout     -state:reported       workflow:ci
  repository:shop/web        branch:main           tag:v1         sha:5f1c0d0...
  label:nightly              origin:r_...          id:r_...       group:release
  since:1d until:10m         by when it was asked for; also since:2026-01-31 (UTC)"""
OUTCOMES = """\b
Exit codes:
  0    it succeeded
  2    the question was wrong, or the store does not answer
  3    it has failed, or ran out of time
  4    it was canceled
  5    its outcome was not decided in time
  130  Ctrl-C; the run goes on"""


app = typer.Typer(
    help="Ask for runs, look at them, follow them, stop them, do them again.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=epilog(
        "\b\nA run is one evaluation: a plan of jobs that need each other, from a workflow file, a Python\n"
        "flow or a plan in JSON.",
        "\b\nID is r_ and twelve hex digits; the beginning is enough where only one run has it, and r_ may\n"
        "be left out.",
        FILTERS,
    ),
)


class Format(StrEnum):
    """How a graph is written."""

    TEXT = "text"
    SVG = "svg"
    MERMAID = "mermaid"
    DOT = "dot"
    JSON = "json"


@app.command(
    "submit",
    epilog=epilog(
        "\b\nWhat is evaluated is one of:\n"
        "  --workflow FILE      a workflow file; without any other, .interlock/*.yml if there is only one\n"
        "  --plan FILE          a plan in JSON; - is standard input\n"
        "  shop.flows:release   a Python function with @flow\n"
        "Faults are told at once, with line and column, and nothing is stored.",
        OUTCOMES.replace("Exit codes:", "Exit codes with --wait; without it 0 or 2:"),
        examples(
            "run submit",
            "run submit --workflow .interlock/ci.yml --input target=staging --wait",
            "run submit shop.flows:release --input version=1.2",
            "run submit --plan plan.json --request-id push-17",
        ),
    ),
)
def submit(
    flow: Annotated[str | None, typer.Argument(metavar="[MODULE:FLOW]", help="A Python flow.")] = None,
    workflow: Annotated[
        Path | None, typer.Option("--workflow", "-w", metavar="FILE", help="A workflow file.")
    ] = None,
    plan: Annotated[str | None, typer.Option(metavar="FILE", help="A plan in JSON.")] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="NAME=VALUE", help="What it is given.")
    ] = None,
    repository: Annotated[
        str | None, typer.Option(help="What is evaluated; otherwise the git repository here, if it is one.")
    ] = None,
    ref: Annotated[str | None, typer.Option(help="refs/heads/main; otherwise what is checked out.")] = None,
    sha: Annotated[str | None, typer.Option(help="The commit; otherwise what is checked out.")] = None,
    base: Annotated[
        str | None, typer.Option(help="A commit; what has changed since then decides about paths.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What the run is called; otherwise as the file says.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Runs of one group supersede older ones; '' never does.")
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="LABEL", help="To find it again by.")
    ] = None,
    priority: Annotated[int, typer.Option(help="Higher goes first.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    request_id: RequestId = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow it to its outcome.")] = False,
    timeout: Patience = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Ask for a run; answers with its id, and nothing else.

    With --wait it is followed as `run watch` does, and the exit code is that of its outcome.
    """
    from interlock.cli import run_actions

    asked = run_actions.RunOptions(
        flow=flow,
        workflow=workflow,
        plan=plan,
        inputs=tuple(inputs or ()),
        repository=repository,
        ref=ref,
        sha=sha,
        base=base,
        name=name,
        group=group,
        labels=tuple(labels or ()),
        priority=priority,
    )
    ordered = run_actions.Ordered(
        asked=asked, request_id=request_id, wait=wait, dry_run=dry_run, patience_s=parse_seconds(timeout)
    )
    raise typer.Exit(run_actions.submit(store, ordered, as_json=as_json))


@app.command(
    "list",
    cls=FilterCommand,
    epilog=epilog(
        FILTERS,
        examples("run list", "run list outcome:failed since:1d", "run list -state:reported --json"),
    ),
)
def list_runs(
    words: Annotated[list[str] | None, typer.Argument(metavar="[FILTER]...", help="Which runs.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many at most.")] = 50,
    cursor: Annotated[str, typer.Option(metavar="TEXT", help="Go on where a list has ended.")] = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List runs, the newest first."""
    from interlock.cli import run_views

    run_views.list_runs(store, filter_words(words), limit=limit, cursor=cursor, as_json=as_json)


@app.command("show", epilog=examples("run show r_0a4e98fa6cab", "run show 0a4e --json"))
def show(run_id: RunId, store: Place = None, as_json: Json = False) -> None:
    """Show one run with its jobs, why each is there, and what was left out."""
    from interlock.cli import run_views

    run_views.show(store, run_id, as_json=as_json)


@app.command("history", epilog=examples("run history r_0a4e98fa6cab"))
def history(run_id: RunId, store: Place = None, as_json: Json = False) -> None:
    """Tell everything that has happened to a run: each step, who took it, and what was refused."""
    from interlock.cli import run_views

    run_views.history(store, run_id, as_json=as_json)


@app.command("explain", epilog=examples("run explain r_0a4e98fa6cab", "run explain 0a4e --json"))
def explain(run_id: RunId, store: Place = None, as_json: Json = False) -> None:
    """Say what a run waits for, whose turn it is and when the next deadline is."""
    from interlock.cli import run_views

    run_views.explain(store, run_id, as_json=as_json)


@app.command(
    "graph",
    epilog=examples("run graph r_0a4e98fa6cab", "run graph 0a4e --format svg > run.svg"),
)
def graph(
    run_id: RunId,
    form: Annotated[Format, typer.Option("--format", "-f", help="How it is written.")] = Format.TEXT,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Draw the jobs of a run and what each needs."""
    from interlock.cli import run_views

    run_views.show_graph(store, run_id, Format.JSON if as_json else form)


@app.command(
    "watch",
    epilog=epilog(OUTCOMES, examples("run watch r_0a4e98fa6cab", "run watch 0a4e | cut -f2,4")),
)
def watch(run_id: RunId, timeout: Patience = None, store: Place = None, as_json: Json = False) -> None:
    """Follow a run live, to its outcome.

    A terminal shows the graph; a pipe gets a line for each change of the run or of one of its jobs. JSON
    is a line for each as well, then the run.
    """
    from interlock.cli import run_actions

    raise typer.Exit(run_actions.watch(store, run_id, parse_seconds(timeout), as_json=as_json))


@app.command(
    "logs",
    epilog=examples("run logs r_0a4e98fa6cab", "run logs 0a4e 'test (3.12)' --follow"),
)
def logs(
    run_id: RunId,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only of this job, by its name.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it has ended.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Only what was written.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Show what the jobs of a run have written."""
    from interlock.cli import job_logs

    job_logs.show_run_logs(store, run_id, job, follow=follow, plain=plain, as_json=as_json)


@app.command(
    "cancel",
    cls=FilterCommand,
    epilog=epilog(
        FILTERS,
        examples("run cancel r_0a4e98fa6cab", "run cancel workflow:ci branch:topic --dry-run"),
    ),
)
def cancel(
    words: RunsOrFilter,
    reason: Annotated[str, typer.Option(help="What the journal says about it.")] = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Ask runs to stop, with everything of them that is active.

    With a filter the runs are shown first, and you are asked. Answers with a line for each run.
    """
    from interlock.cli import run_actions

    order = run_actions.Cancel(reason=reason, request_id=request_id)
    raise typer.Exit(run_actions.carry_out(store, order, filter_words(words), yes, dry_run, as_json))


@app.command(
    "approve",
    epilog=epilog(
        "\b\nThe approval is for the commit that the run is about: a later push is another run and waits\n"
        "again. See what waits: interlock run list state:awaiting_approval",
        examples("run approve r_0a4e98fa6cab", "run approve 0a4e --comment 'looked at the whole diff'"),
    ),
)
def approve(
    run_id: RunId,
    comment: Annotated[str, typer.Option(help="Text for the journal.")] = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Approve a run that waits for it: a change from a fork, or one that deploys."""
    from interlock.cli import run_actions

    run_actions.approve(store, run_id, comment, request_id, as_json=as_json)


@app.command("decline", epilog=examples("run decline r_0a4e98fa6cab --reason 'it reads the environment'"))
def decline(
    run_id: RunId,
    reason: Annotated[str, typer.Option(help="Text for the journal.")] = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Decline a run that waits for an approval; it is canceled."""
    from interlock.cli import run_actions

    run_actions.decline(store, run_id, reason, request_id, as_json=as_json)


@app.command(
    "rerun",
    cls=FilterCommand,
    epilog=epilog(
        FILTERS,
        examples(
            "run rerun r_0a4e98fa6cab --failed",
            "run rerun r_0a4e98fa6cab --from 'test (3.12)'",
            "run rerun r_0a4e98fa6cab --from 'test (3.12)' --preview",
            "run rerun outcome:failed workflow:ci since:1d --failed --yes",
        ),
    ),
)
def rerun(
    words: RunsOrFilter,
    failed: Annotated[bool, typer.Option("--failed", help="Only what has not succeeded.")] = False,
    job: Annotated[str, typer.Option("--from", metavar="JOB", help="Only from this job on.")] = "",
    preview: Annotated[
        bool, typer.Option("--preview", help="Show which jobs of one run would run again; change nothing.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Do runs that have ended again, as new ones; answers with their ids.

    With a filter the runs are shown first, and you are asked.
    """
    from interlock.cli import run_actions

    if failed and job:
        raise typer.BadParameter("either --failed or --from", param_hint="--from")
    order = run_actions.Rerun(
        which="failed" if failed else "from" if job else "all", job=job, request_id=request_id
    )
    if preview:
        run_actions.preview(store, order, filter_words(words), as_json=as_json)
        return
    raise typer.Exit(run_actions.carry_out(store, order, filter_words(words), yes, dry_run, as_json))


@app.command(
    "compare", epilog=examples("run compare r_0a4e98fa6cab", "run compare 0a4e --with r_0a4d113c9f20 --json")
)
def compare(
    run_id: RunId,
    other: Annotated[str, typer.Option("--with", metavar="ID", help="Compare with this run instead.")] = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Compare a run with the last green run of its workflow, repository and ref.

    Lists jobs that have failed, become slower, been added or been removed.
    """
    from interlock.cli import run_views

    run_views.compare(store, run_id, other, as_json=as_json)


@app.command("flaky", epilog=examples("run flaky", "run flaky --repository shop/web --json"))
def flaky(
    repository: Annotated[str, typer.Option(help="Only of this repository.")] = "",
    workflow: Annotated[str, typer.Option(help="Only of this workflow.")] = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List jobs that have passed and failed on one commit lately."""
    from interlock.cli import run_views

    run_views.flaky(store, repository, workflow, as_json=as_json)


@app.command("report", epilog=examples("run report r_0a4e98fa6cab", "run report r_0a4e98fa6cab --again"))
def report(
    run: RunId,
    again: Annotated[
        bool, typer.Option("--again", help="Tell those once more who were given up on.")
    ] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Show who is told about a run, and how far that is."""
    from interlock.cli import run_views

    run_views.report(store, run, again=again, as_json=as_json)


@app.command(
    "artifacts",
    epilog=examples(
        "run artifacts r_0a4e98fa6cab",
        "run artifacts r_0a4e98fa6cab 'test (3.12)' --get coverage.tar.gz --to out",
    ),
)
def artifacts(
    run: RunId,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only of this job.")] = None,
    get: Annotated[str | None, typer.Option(metavar="NAME", help="Fetch this one, of JOB.")] = None,
    to: Annotated[str, typer.Option(metavar="FOLDER", help="Where to.")] = ".",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List what the jobs of a run have left behind, and fetch it."""
    from interlock.cli import job_artifacts

    job_artifacts.show_or_fetch_of_run(store, run, job, get, to, as_json=as_json)
