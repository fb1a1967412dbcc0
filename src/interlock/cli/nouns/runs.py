"""Commands `interlock run …`.

Only the declarations are here: each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlock.cli.options import (
    Cursor,
    DryRun,
    Filter,
    FilterCommand,
    FilteredRecordsCommand,
    Follow,
    GraphFormat,
    Id,
    IdsOrFilter,
    Json,
    Limit,
    Place,
    Plain,
    Reason,
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
    from interlock.wire.runs import Which

FILTERS = """\b
FILTER is any of these words; all of them must match:
  outcome:failed,timeout     -state:reported       workflow:ci
  repository:shop/web        branch:main           tag:v1         sha:5f1c0d0...
  label:nightly              origin:r_...          id:r_...       group:release
  since:1d until:10m         time of submission; also since:2026-01-31 (UTC)"""
OUTCOMES = """\b
Exit codes:
  0    the run succeeded
  2    invalid usage, or the store is unavailable
  3    the run failed or timed out
  4    the run was canceled
  5    the outcome was not decided in time
  130  Ctrl-C; the run continues"""

app: typer.Typer = typer.Typer(
    help="Submit, list, follow, cancel and rerun workflow runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=epilog(
        "\b\nA run evaluates a plan of jobs that need each other, from a workflow file, a Python flow or\n"
        "a plan in JSON.",
        "\b\nID is r_ and twelve hex digits. The start is enough where only one run has it, and r_ may\n"
        "be left out.",
        FILTERS,
    ),
)


def _noun() -> Noun[Any]:
    from interlock.cli.nouns.run_views import NOUN

    return NOUN


@app.command(
    "submit",
    epilog=epilog(
        "\b\nThe source is one of:\n"
        "  --workflow FILE      a workflow file (default: .interlock/*.yml if there is only one)\n"
        "  --plan FILE          a plan in JSON; - is standard input\n"
        "  shop.flows:release   a Python function with @flow\n"
        "Errors are reported with line and column, and nothing is stored.",
        with_wait(OUTCOMES),
        examples(
            "run submit",
            "run submit --workflow .interlock/ci.yml --input target=staging --wait",
            "run submit shop.flows:release --input version=1.2",
            "run submit --plan plan.json --request-id push-17",
        ),
    ),
)
def submit(
    flow: Annotated[str | None, typer.Argument(metavar="[MODULE:FLOW]", help="Python flow to run.")] = None,
    workflow: Annotated[
        Path | None, typer.Option("--workflow", "-w", metavar="FILE", help="Workflow file to run.")
    ] = None,
    plan: Annotated[str | None, typer.Option(metavar="FILE", help="Plan in JSON to run.")] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", metavar="NAME=VALUE", help="Input of the workflow; repeatable."),
    ] = None,
    repository: Annotated[
        str | None, typer.Option(help="Repository to run on (default: the git repository here).")
    ] = None,
    ref: Annotated[
        str | None, typer.Option(help="Git ref, such as refs/heads/main (default: the checked-out one).")
    ] = None,
    sha: Annotated[str | None, typer.Option(help="Commit (default: the checked-out one).")] = None,
    base: Annotated[
        str | None, typer.Option(help="Base commit: `paths` filters match the changes since it.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run (default: from the file).")] = None,
    group: Annotated[
        str | None,
        typer.Option(help="Concurrency group: a run cancels older runs of its group ('' for none)."),
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="LABEL", help="Label to filter by; repeatable.")
    ] = None,
    priority: Annotated[int, typer.Option(help="Priority; higher runs first.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan; submit nothing.")] = False,
    request_id: RequestId = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Follow the run until its outcome is decided.")
    ] = False,
    timeout: WaitTimeout = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Submit a run and print its id.

    With --wait it is followed as `run watch` does, and the exit code is that of its outcome.
    """
    from interlock.cli.nouns import run_submit, run_watch

    options = run_submit.RunOptions(
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
    timeout_s = parse_seconds(timeout)
    code = run_submit.submit(
        store,
        options,
        request_id,
        follow=run_watch.follow if wait else None,
        dry_run=dry_run,
        timeout_s=timeout_s,
        as_json=as_json,
    )
    raise typer.Exit(code)


@app.command(
    "list",
    cls=FilteredRecordsCommand,
    epilog=epilog(
        FILTERS,
        examples("run list", "run list outcome:failed since:1d", "run list -state:reported --json"),
    ),
)
def list_runs(
    words: Filter = None, limit: Limit = 50, cursor: Cursor = "", store: Place = None, as_json: Json = False
) -> None:
    """List runs, newest first."""
    from interlock.cli.nouns import run_views

    run_views.list_runs(store, filter_words(words), limit=limit, cursor=cursor, as_json=as_json)


add_views(
    app,
    "run",
    _noun,
    "r_0a4e98fa6cab",
    show="Show a run with its jobs, and why each was planned or skipped.",
    history="Show every transition of a run, and every refused request.",
    explain="Explain why a run waits, and show its next deadline.",
)


@app.command(
    "graph",
    epilog=examples("run graph r_0a4e98fa6cab", "run graph 0a4e --format svg > run.svg"),
)
def graph(
    run_id: Id,
    form: Annotated[
        GraphFormat, typer.Option("--format", "-f", help="Output format of the graph.")
    ] = GraphFormat.TEXT,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Draw the dependency graph of a run."""
    from interlock.cli.nouns import run_views

    run_views.show_graph(store, run_id, GraphFormat.JSON if as_json else form)


@app.command(
    "watch",
    epilog=epilog(OUTCOMES, examples("run watch r_0a4e98fa6cab", "run watch 0a4e | cut -f2,4")),
)
def watch(run_id: Id, timeout: WaitTimeout = None, store: Place = None, as_json: Json = False) -> None:
    """Follow a run until its outcome is decided.

    A terminal shows the graph; a pipe gets a line for each change of the run or of one of its jobs. JSON
    is a line for each as well, then the run.
    """
    from interlock.cli.nouns import run_watch

    raise typer.Exit(run_watch.watch_run(store, run_id, parse_seconds(timeout), as_json=as_json))


@app.command(
    "logs",
    epilog=examples("run logs r_0a4e98fa6cab", "run logs 0a4e 'test (3.12)' --follow"),
)
def logs(
    run_id: Id,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job, by its name.")] = None,
    follow: Follow = False,
    plain: Plain = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Print the logs of the jobs of a run."""
    from interlock.cli.logs import show_run_logs

    show_run_logs(store, run_id, job, follow=follow, plain=plain, as_json=as_json)


add_action(
    app,
    _noun,
    "cancel",
    """Cancel runs, with all of their active jobs.

    A filter is previewed and confirmed first. Prints one line for each run.
    """,
    FILTERS,
    "run cancel r_0a4e98fa6cab",
    "run cancel workflow:ci branch:topic --dry-run",
)


@app.command(
    "approve",
    epilog=epilog(
        "\b\nThe approval holds for the commit of the run: a later push is another run, which waits again.\n"
        "List the runs that wait: interlock run list state:awaiting_approval",
        examples("run approve r_0a4e98fa6cab", "run approve 0a4e --comment 'looked at the whole diff'"),
    ),
)
def approve(
    run_id: Id,
    comment: Annotated[str, typer.Option(help="Comment, for the journal.")] = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Approve a run: a change from a fork, or a deployment."""
    from interlock.cli.nouns import run_views

    run_views.decide(store, "approve", run_id, request_id, as_json=as_json, comment=comment)


@app.command("decline", epilog=examples("run decline r_0a4e98fa6cab --reason 'it reads the environment'"))
def decline(
    run_id: Id,
    reason: Reason = "",
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Decline a run that waits for approval; it is canceled."""
    from interlock.cli.nouns import run_views

    run_views.decide(store, "decline", run_id, request_id, as_json=as_json, reason=reason)


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
    words: IdsOrFilter,
    failed: Annotated[bool, typer.Option("--failed", help="Only jobs that did not succeed.")] = False,
    job: Annotated[str, typer.Option("--from", metavar="JOB", help="Only this job and its dependents.")] = "",
    preview: Annotated[
        bool, typer.Option("--preview", help="List the jobs of one run that would run again; change nothing.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Submit finished runs again as new runs, and print their ids.

    A filter is previewed and confirmed first.
    """
    if failed and job:
        raise typer.BadParameter("either --failed or --from", param_hint="--from")
    which: Which = "failed" if failed else "from" if job else "all"
    if preview:
        from interlock.cli.nouns import run_views

        run_views.preview(store, which, job, filter_words(words), as_json=as_json)
        return
    details = {"which": which, "job": job, "request_id": request_id}
    act_on_all(_noun, "rerun", details, store, words, yes=yes, dry_run=dry_run, as_json=as_json)


@app.command(
    "compare", epilog=examples("run compare r_0a4e98fa6cab", "run compare 0a4e --with r_0a4d113c9f20 --json")
)
def compare(
    run_id: Id,
    other: Annotated[str, typer.Option("--with", metavar="ID", help="Compare with this run instead.")] = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Compare a run with the last green run of its workflow.

    That is the last one of its repository and ref. Lists jobs that have failed, become slower, been added or
    been removed.
    """
    from interlock.cli.nouns import run_views

    run_views.compare(store, run_id, other, as_json=as_json)


@app.command("flaky", epilog=examples("run flaky", "run flaky --repository shop/web --json"))
def flaky(
    repository: Annotated[str, typer.Option(help="Only jobs of this repository.")] = "",
    workflow: Annotated[str, typer.Option(help="Only jobs of this workflow.")] = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List jobs that passed and failed on the same commit lately."""
    from interlock.cli.nouns import run_views

    run_views.flaky(store, repository, workflow, as_json=as_json)


@app.command("report", epilog=examples("run report r_0a4e98fa6cab", "run report r_0a4e98fa6cab --again"))
def report(
    run: Id,
    again: Annotated[bool, typer.Option("--again", help="Retry failed deliveries.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Show notification status for a run."""
    from interlock.cli.nouns import run_views

    run_views.report(store, run, again=again, as_json=as_json)


@app.command(
    "artifacts",
    epilog=examples(
        "run artifacts r_0a4e98fa6cab",
        "run artifacts r_0a4e98fa6cab 'test (3.12)' --get coverage.tar.gz --to out",
    ),
)
def artifacts(
    run: Id,
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Only this job, by its name.")] = None,
    get: Annotated[str | None, typer.Option(metavar="NAME", help="Fetch this artifact of JOB.")] = None,
    to: Annotated[str, typer.Option(metavar="FOLDER", help="Folder to write it to.")] = ".",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List the artifacts of a run, or fetch one."""
    from interlock.cli.artifacts import fetch_run_artifact, list_run_artifacts

    if get is None:
        list_run_artifacts(store, run, job, as_json=as_json)
    else:
        fetch_run_artifact(store, run, job, get, to, as_json=as_json)
