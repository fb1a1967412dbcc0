"""`interlock token …`: who is let in by a server.

Only the words are here; what they need is imported where they run, so that `--help` answers at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from interlock.cli.options import Json, Store, epilog, examples

if TYPE_CHECKING:
    from interlock.systems.access.tokens import Tokens, TokenView

T = TypeVar("T")

ROLES = """\b
ROLE is one of:
  viewer     looks at everything
  submitter  also submits jobs and does ended ones again
  operator   also stops jobs
  admin      everything that people can do
  runner     asks for work and reports on it, nothing else"""


class RoleName(StrEnum):
    """The roles, as they are typed."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"
    RUNNER = "runner"


app = typer.Typer(help="Say who is let in by a server.", no_args_is_help=True, rich_markup_mode=None)


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
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whom it is for; the journal calls them so.")],
    role: Annotated[RoleName, typer.Option(help="What they may do.")],
    queues: Annotated[
        list[str] | None, typer.Option("--queue", metavar="QUEUE", help="Confine it to this queue.")
    ] = None,
    expires: Annotated[str, typer.Option(metavar="AGE", help="30d, 12h, ...; or never.")] = "90d",
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Make a token and show it, this once."""
    from interlock.cli.answers import print_struct
    from interlock.cli.connecting import actor
    from interlock.cli.durations import parse_duration
    from interlock.systems.access.principals import Role

    lasts = None if expires == "never" else parse_duration(expires)
    issued = _ask(
        store,
        lambda tokens: tokens.create(
            name, Role(role.value), queues=tuple(queues or ()), lasts=lasts, actor=actor()
        ),
    )
    if as_json:
        print_struct(issued)
        return
    typer.echo(issued.token)
    until = f"until {_day(issued.view)}" if issued.view.expires_at else "for ever"
    typer.echo(f"{name} is {role} {until}. Keep it now: it is not shown again.", err=True)


@app.command("list", epilog=examples("token list", "token list --all --json"))
def list_tokens(
    everything: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """List tokens, without their secrets."""
    from interlock.cli import printing
    from interlock.cli.answers import print_struct

    views = _ask(store, lambda tokens: tokens.list(ended=everything))
    if as_json:
        print_struct(views)
        return
    rows = [(v.name, str(v.role), v.state, ", ".join(v.queues) or "all", _day(v), v.id) for v in views]
    columns = ("name", "role", "state", "queues", "until", "id")
    printing.print_sheets([printing.Sheet("token", "Tokens", columns, rows)])


@app.command("revoke", epilog=examples("token revoke ci", "token revoke ci --reason 'it was in a log'"))
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A token, by its name or its id.")],
    reason: Annotated[str, typer.Option(help="Why; the journal keeps it.")] = "",
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Take a token back. Servers that have just seen it let it in for a few seconds more."""
    from interlock.cli.answers import print_struct
    from interlock.cli.connecting import actor

    view = _ask(store, lambda tokens: tokens.revoke(name, actor=actor(), reason=reason))
    if as_json:
        print_struct(view)
    else:
        typer.echo(f"{view.name} ({view.role}) is {view.state}.")


def _ask(store: str | None, work: Callable[[Tokens], Awaitable[T]]) -> T:
    from interlock.cli.connecting import ask_store
    from interlock.systems.access.tokens import Tokens

    return ask_store(store, lambda port: work(Tokens(port.here.engine)))


def _day(view: TokenView) -> str:
    return f"{view.expires_at:%Y-%m-%d %H:%M} UTC" if view.expires_at else "for ever"
