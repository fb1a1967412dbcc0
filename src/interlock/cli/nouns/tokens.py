"""Commands `interlock token …`: manage access tokens, in a store or through a server.

Each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import Json, Place, Reason, add_views, epilog, examples

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from interlock.cli.output import Sheet
    from interlock.cli.verbs import Noun
    from interlock.remote.interfaces import TokensApi
    from interlock.remote.service_connection import ServiceConnection
    from interlock.wire.access import Issued, TokenView

T = TypeVar("T")

ROLES = """\b
ROLE is one of:
  viewer     reads everything
  submitter  also submits and retries jobs
  operator   also cancels jobs
  admin      everything except for the protocol of runners
  runner     only the protocol of runners: claims jobs and reports on them"""

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name or id of the token.", autocompletion=completion.ids)
]


class RoleName(StrEnum):
    """The roles."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"
    RUNNER = "runner"


app: typer.Typer = typer.Typer(help="Manage access tokens.", no_args_is_help=True, rich_markup_mode=None)


def _noun() -> Noun[TokenView]:
    from interlock.cli.verbs import Noun

    return Noun(
        name="token",
        get=lambda connection, name: connection.services.tokens.get(name),
        list_sheet=list_sheet,
        sheets=_sheets,
    )


@app.command(
    "create",
    epilog=epilog(
        ROLES,
        examples(
            "token create ci --role submitter --queue builds --expires 30d",
            "token create ann --role admin --json | jq -r .token",
        ),
    ),
)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token; the actor in the journal.")],
    role: Annotated[RoleName, typer.Option(help="Role of the token.")],
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", metavar="QUEUE", help="Restrict the token to this queue; repeatable."),
    ] = None,
    expires: Annotated[str, typer.Option(metavar="AGE", help="Lifetime: 30d, 12h, ..., or never.")] = "90d",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Create a token and print its secret once."""
    from interlock.cli.connection import actor
    from interlock.cli.options import parse_duration
    from interlock.wire.access import Role

    lasts = None if expires == "never" else parse_duration(expires)

    async def work(tokens: TokensApi) -> tuple[Issued, bool]:
        is_first = not await tokens.list()  # afterwards a server may not answer without a token
        issued = await tokens.create(
            name, Role(role.value), queues=tuple(queues or ()), lasts=lasts, actor=actor()
        )
        return issued, is_first

    issued, is_first = _with_tokens(store, work)
    _print_issued(issued, as_json=as_json)
    if is_first:
        typer.echo("Servers on this store require a token from now on, on this machine as well.", err=True)


@app.command("list", cls=RecordsCommand, epilog=examples("token list", "token list --all --json"))
def list_tokens(
    everything: Annotated[bool, typer.Option("--all", help="Include expired and revoked tokens.")] = False,
    store: Place = None,
    as_json: Json = False,
) -> None:
    """List tokens with their scope, expiry and last use."""
    from interlock.cli.verbs import ListPage, list_records

    async def search(connection: ServiceConnection) -> ListPage[TokenView]:
        return ListPage(await connection.services.tokens.list(ended=everything))

    none = "There is no token." if everything else "There is no active token; see --all."
    list_records(_noun(), store, search, as_json=as_json, none=none)


add_views(
    app,
    "token",
    _noun,
    "ci",
    argument=Name,
    show="Show a token: role, queues, expiry, rotation and last use.",
)


@app.command(
    "rotate",
    epilog=examples("token rotate ci", "token rotate ci --overlap 1h", "token rotate ci --overlap 0"),
)
def rotate(
    name: Name,
    overlap: Annotated[
        str,
        typer.Option(metavar="AGE", help="Validity of the old secret: 10m, 1h, ...; 0 revokes it at once."),
    ] = "10m",
    reason: Reason = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Replace the secret of a token and print the new one once."""
    from interlock.cli.connection import actor
    from interlock.cli.options import parse_duration

    lasts = timedelta(0) if overlap == "0" else parse_duration(overlap)
    issued = _with_tokens(
        store, lambda tokens: tokens.rotate(name, overlap=lasts, actor=actor(), reason=reason)
    )
    _print_issued(issued, as_json=as_json)


@app.command("revoke", epilog=examples("token revoke ci", "token revoke ci --reason 'it was in a log'"))
def revoke(
    name: Name,
    reason: Reason = "",
    store: Place = None,
    as_json: Json = False,
) -> None:
    """Revoke a token.

    Servers that cache it accept it for a few more seconds.
    """
    from interlock.cli import verbs
    from interlock.cli.connection import actor

    async def work(connection: ServiceConnection) -> TokenView:
        return await connection.services.tokens.revoke(name, actor=actor(), reason=reason)

    verbs.act(store, work, lambda view, _: [f"{view.name} ({view.role}) is {view.state}."], as_json=as_json)


def _print_issued(issued: Issued, *, as_json: bool) -> None:
    """Print the secret on stdout, and its description on stderr."""
    from interlock.cli.output import print_struct

    if as_json:
        print_struct(issued)
        return
    view = issued.view
    typer.echo(issued.token)
    until = f"until {_moment(view.expires_at, '')}" if view.expires_at else "without expiry"
    typer.echo(f"{view.name} is {view.role} {until}. Store the secret now: it is not shown again.", err=True)
    if view.old_until is not None:
        typer.echo(f"The old secret works until {_moment(view.old_until, '')}.", err=True)


def _with_tokens(store: str | None, work: Callable[[TokensApi], Awaitable[T]]) -> T:
    from interlock.cli.connection import run_connected

    return run_connected(store, lambda connection: work(connection.services.tokens))


def list_sheet(views: Sequence[TokenView], *_: object, **__: bool) -> Sheet:
    from interlock.cli.output import Sheet

    rows = [
        (
            view.name,
            str(view.role),
            view.state,
            ", ".join(view.queues) or "all",
            _moment(view.expires_at, "never"),
            _moment(view.used_at, "never"),
            view.used_from,
            view.id,
        )
        for view in views
    ]
    columns = ("name", "role", "state", "queues", "expires", "last used", "from", "id")
    return Sheet("token", "Tokens", columns, rows)


def _sheets(view: TokenView, *_: object, **__: bool) -> list[Sheet]:
    from interlock.cli.output import Sheet

    rows = [
        ("name", view.name),
        ("id", view.id),
        ("role", str(view.role)),
        ("state", view.state),
        ("queues", ", ".join(view.queues) or "all"),
        ("created", _moment(view.created_at, "")),
        ("expires", _moment(view.expires_at, "never")),
        ("rotated", _moment(view.rotated_at, "never")),
        ("old secret until", _moment(view.old_until, "")),
        ("last used", _moment(view.used_at, "never")),
        ("from", view.used_from),
    ]
    return [Sheet("token", f"Token {view.name}", ("what", "value"), [row for row in rows if row[1]])]


def _moment(at: datetime | None, never: str) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else never
