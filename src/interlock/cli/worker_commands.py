"""`interlock worker list|show|history|pause|resume|terminate|drain|quarantined|lift`: see and hold them.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli.options import FilterCommand, Json, Place, epilog, examples, filter_words

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


def register(app: typer.Typer) -> None:
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
    from interlock.cli import holding

    holding.list_workers(store, filter_words(words), everything=everything, as_json=as_json)


def show(worker: Worker, store: Place = None, as_json: Json = False) -> None:
    """Show one worker: where it runs, what it does, what it was told."""
    from interlock.cli import holding

    holding.show(store, worker, as_json=as_json)


def history(worker: Worker, store: Place = None, as_json: Json = False) -> None:
    """Tell everything that has happened to a worker."""
    from interlock.cli import holding

    holding.history(store, worker, as_json=as_json)


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
    from interlock.cli import quarantining

    quarantining.show(store, as_json=as_json)


def lift(
    runner: Annotated[str, typer.Argument(metavar="RUNNER", help="By its name, as the list has it.")],
    reason: Reason = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Give a runner work again that was quarantined."""
    from interlock.cli import quarantining

    quarantining.lift(store, runner, reason, as_json=as_json)


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
    from interlock.cli import holding

    order = holding.Order(verb=verb, reason=reason, request_id=request_id, more=more)
    raise typer.Exit(holding.carry_out(store, order, filter_words(words), yes, dry_run, as_json))
