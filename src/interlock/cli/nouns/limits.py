"""`interlock limit …`: declare limits, and see the jobs that hold slots or wait.

Each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import Json, Place, Reason, add_views, examples, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from interlock.cli.output import Sheet
    from interlock.cli.verbs import Noun
    from interlock.remote.service_connection import ServiceConnection
    from interlock.wire.limits import KeyView, LimitView

Name = Annotated[
    str,
    typer.Argument(
        metavar="LIMIT",
        help="Key (vendor-x), pattern of keys (tenant:*), queue:NAME or task:NAME.",
        autocompletion=completion.ids,
    ),
]

app: typer.Typer = typer.Typer(
    help="Limit concurrent jobs, or the rate of starts.", no_args_is_help=True, rich_markup_mode=None
)


def _noun() -> Noun[LimitView]:
    from interlock.cli.verbs import Noun

    return Noun(
        name="limit",
        get=lambda connection, name: connection.services.limits.get(name),
        list_sheet=list_sheet,
        lines=_lines,
        sheets=_sheets,
    )


@app.callback()
def limit() -> None:
    """Limit concurrent jobs, or the rate of starts."""


@app.command("list", cls=RecordsCommand, epilog=examples("limit list", "limit list --json"))
def list_limits(store: Place = None, as_json: Json = False) -> None:
    """List limits, with slots in use and jobs that wait."""
    from interlock.cli import verbs

    async def search(connection: ServiceConnection) -> verbs.ListPage[LimitView]:
        return verbs.ListPage(await connection.services.limits.list())

    verbs.list_records(_noun(), store, search, as_json=as_json, none="No limit is declared.")


add_views(
    app,
    "limit",
    _noun,
    "vendor-x",
    "tenant:42",
    "'tenant:*'",
    argument=Name,
    show="Show a limit or one key of a pattern, and the jobs in its slots.",
)


@app.command(
    "set",
    epilog=examples(
        "limit set vendor-x --max 5",
        "limit set 'tenant:*' --max 10",
        "limit set queue:imports --max 20",
        "limit set vendor-y --rate 100 --per 1m --burst 10",
        "limit set task:shop.tasks.report --max 1",
    ),
)
def set_limit(
    name: Name,
    max_slots: Annotated[
        int | None, typer.Option("--max", metavar="N", help="Slots: jobs that run at the same time.")
    ] = None,
    rate: Annotated[int | None, typer.Option(metavar="N", help="Jobs that start in each period.")] = None,
    per: Annotated[
        str | None, typer.Option(metavar="TIME", help="Length of the period, as 30s or 1m (default 1s).")
    ] = None,
    burst: Annotated[
        int | None, typer.Option(metavar="N", help="Jobs that may start at once (default: the rate).")
    ] = None,
    description: Annotated[str, typer.Option(metavar="TEXT", help="Description, shown in lists.")] = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Declare a limit, or change it; running jobs continue."""
    from interlock.cli import verbs
    from interlock.cli.connection import actor
    from interlock.wire.limits import LimitSpec

    period_s = parse_seconds(per) or 1.0
    spec = LimitSpec(max=max_slots, rate=rate, period_s=period_s, burst=burst, description=description)

    async def work(connection: ServiceConnection) -> LimitView:
        return await connection.services.limits.set(name, spec, actor=actor())

    verbs.act(store, work, _lines, as_json=as_json)


@app.command("delete", epilog=examples("limit delete vendor-x --reason 'the contract allows any number'"))
def delete(name: Name, reason: Reason = "", store: Place = None, as_json: Json = False) -> None:
    """Delete a limit; jobs that wait for it are admitted."""
    from interlock.cli import verbs
    from interlock.cli.connection import actor

    async def work(connection: ServiceConnection) -> LimitView:
        return await connection.services.limits.delete(name, reason=reason, actor=actor())

    sentence = f"The limit {name} is deleted; jobs that waited for it are admitted."
    verbs.act(store, work, lambda *_: [sentence], as_json=as_json)


def _lines(view: LimitView, *_: object) -> Iterator[str]:
    about = f" ({view.spec.description})" if view.spec.description else ""
    each = " for each key" if view.name.endswith("*") else ""
    yield f"The limit {view.name} has {' and '.join(_allowed(view))}{each}{about}."
    for key in view.keys:
        named = "" if key.key == view.name else f"{key.key}: "
        used = f"{key.used} of {key.max} in use" if key.max is not None else f"{key.used} about to start"
        yield f"{named}{used}, {_waiting(key)} waiting"
    if view.more_keys:
        yield "There are more keys in use than are shown."


def _allowed(view: LimitView) -> Iterator[str]:
    from datetime import timedelta

    from interlock.text import counted, write_duration

    spec = view.spec
    if spec.max is not None:
        yield counted(spec.max, "slot")
    if spec.rate is not None:
        period = write_duration(timedelta(seconds=spec.period_s))
        yield f"{counted(spec.rate, 'start')} every {period}, at most {spec.capacity} at once"


def _waiting(key: KeyView) -> str:
    return f"{key.waiting}{' or more' if key.capped else ''}"


def list_sheet(limits: Sequence[LimitView], *_: object, **__: bool) -> Sheet:
    from interlock.cli.output import Sheet

    rows = [
        (
            view.name,
            "" if view.spec.max is None else str(view.spec.max),
            "" if view.spec.rate is None else f"{view.spec.rate} / {view.spec.period_s:g} s",
            f"{len(view.keys)}{'+' if view.more_keys else ''}",
            str(sum(key.used for key in view.keys)),
            f"{sum(key.waiting for key in view.keys)}{'+' if any(key.capped for key in view.keys) else ''}",
            view.source,
        )
        for view in limits
    ]
    return Sheet(
        "limit", "", ("name", "max", "rate", "keys in use", "slots in use", "waiting", "declared by"), rows
    )


def _sheets(view: LimitView, now: datetime, *, terminal: bool) -> list[Sheet]:
    from interlock.cli.output import Sheet, shown

    rows = [
        (
            key.key,
            holder.job_id,
            str(holder.weight),
            holder.runner_id or "",
            shown(holder.since, now, terminal=terminal),
        )
        for key in view.keys
        for holder in key.holders
    ]
    return [Sheet("limit", "", ("key", "held by", "slots", "runner", "since"), rows)]
