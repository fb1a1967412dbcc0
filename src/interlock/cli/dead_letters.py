"""Commands `interlock dead-letter …`: failed jobs without attempts left.

Only the declarations are here: each command imports what it needs when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlock.cli.options import (
    FILTERS,
    Cursor,
    DryRun,
    Filter,
    FilterCommand,
    FilteredRecordsCommand,
    IdsOrFilter,
    Json,
    Limit,
    Place,
    Reason,
    RequestId,
    Yes,
    act_on_all,
    add_action,
    add_views,
    epilog,
    examples,
    filter_words,
)

if TYPE_CHECKING:
    from interlock.cli.nouns import Noun

app: typer.Typer = typer.Typer(
    help="List, edit, retry and discard dead letters.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=epilog(
        "\b\nA dead letter is a job that has failed and has no attempts left. It is listed until it is\n"
        "retried or discarded. Jobs of a run are not dead letters: use `interlock run rerun`.",
        FILTERS,
    ),
)


def _noun() -> Noun[Any]:
    from interlock.cli.dead_letter_views import NOUN

    return NOUN


@app.callback()
def dead_letter() -> None:
    """List, edit, retry and discard dead letters."""


@app.command(
    "list",
    cls=FilteredRecordsCommand,
    epilog=epilog(
        FILTERS,
        examples(
            "dead-letter list", "dead-letter list queue:mail since:1d", "dead-letter list --json --limit 500"
        ),
    ),
)
def list_letters(
    words: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List dead letters, newest first."""
    from interlock.cli import dead_letter_views

    dead_letter_views.list_letters(store, filter_words(words), limit=limit, cursor=cursor, as_json=as_json)


add_views(
    app,
    "dead-letter",
    _noun,
    "j_0a4e98fa6cab",
    show="Show a dead letter with its attempts and its handling.",
)


@app.command(
    "retry",
    cls=FilterCommand,
    epilog=epilog(
        FILTERS,
        examples(
            "dead-letter retry j_0a4e98fa6cab",
            'dead-letter retry j_0a4e98fa6cab --input \'{"address": "a@b.example"}\'',
            "dead-letter retry j_0a4e98fa6cab --input - < corrected.json",
            "dead-letter retry queue:mail since:1d --yes",
        ),
    ),
)
def retry(
    words: IdsOrFilter,
    given: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON", help="New input for one job; - reads standard input."),
    ] = None,
    reason: Reason = "",
    yes: Yes = False,
    dry_run: DryRun = False,
    request_id: RequestId = None,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Submit dead letters again as new jobs, and print their ids.

    A filter is previewed and confirmed first.
    """
    from interlock.cli import dead_letter_views

    details = {
        "reason": reason,
        "request_id": request_id,
        "given": dead_letter_views.read_input(given, filter_words(words)),
    }
    act_on_all(_noun, "retry", details, store, words, yes=yes, dry_run=dry_run, as_json=as_json)


add_action(
    app,
    _noun,
    "discard",
    """Discard dead letters.

    They are no longer listed; the jobs stay FAILED. A filter is previewed and confirmed first.
    """,
    FILTERS,
    "dead-letter discard j_0a4e98fa6cab --reason 'the customer has left'",
    "dead-letter discard task:shop.send until:30d --yes",
)
