"""Commands `interlock config …`: profiles for several stores and servers.

Only the declarations are here: each command imports its modules when it runs, so that `--help` is quick.
"""

from __future__ import annotations

from typing import Annotated

import typer

from interlock.cli import completion
from interlock.cli.forms import RecordsCommand
from interlock.cli.options import Json, epilog, examples

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the profile.", autocompletion=completion.profile_names)
]

COLUMNS = ("name", "use", "url", "token")

app: typer.Typer = typer.Typer(
    help="Manage profiles of stores and servers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""\b
A command uses the first of these that is set:
  --store or --server
  INTERLOCK_URL
  --profile or INTERLOCK_PROFILE
  `store` in interlock.toml
  the profile in use
  sqlite:///interlock.db""",
)


@app.callback()
def config() -> None:
    """Manage profiles of stores and servers."""


@app.command("list", cls=RecordsCommand, epilog=examples("config list", "config list --json"))
def list_profiles(as_json: Json = False) -> None:
    """List the profiles; tokens are not shown."""
    from interlock.cli import output, profiles

    found = profiles.read()
    rows = [
        {"name": name, "url": one.url, "token": bool(one.token), "in_use": name == found.use}
        for name, one in sorted(found.profiles.items())
    ]
    if as_json:
        output.print_json(rows)
        return
    cells = [
        (str(row["name"]), "in use" if row["in_use"] else "", str(row["url"]), "yes" if row["token"] else "")
        for row in rows
    ]
    output.print_sheets([output.Sheet("profile", "", COLUMNS, cells)])
    if not rows:
        typer.echo("There are no profiles: make one with `interlock config set NAME URL`.", err=True)


@app.command(
    "set",
    epilog=epilog(
        examples(
            "config set prod https://jobs.example.org:8088 --token-file token.txt",
            "config set local sqlite:////srv/jobs.db",
        )
    ),
)
def set_profile(
    name: Name,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of a database or a server.")],
    token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Read the access token from FILE; - is standard input.")
    ] = None,
    ca: Annotated[str, typer.Option(metavar="FILE", help="CA certificates (PEM) for the server.")] = "",
) -> None:
    """Add or replace a profile."""
    from pathlib import Path

    import msgspec

    from interlock.cli import connection, profiles
    from interlock.store.urls import url_of

    token = "" if token_file is None else connection.token_in(token_file)
    found = profiles.read()
    made = profiles.Profile(url=url_of(url), token=token, ca=str(Path(ca).resolve()) if ca else "")
    profiles.write(msgspec.structs.replace(found, profiles={**found.profiles, name: made}))
    typer.echo(f"The profile {name} is saved. Use it with: interlock config use {name}")


@app.command("use", epilog=examples("config use prod", "config use --none"))
def use(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="Name of the profile.", autocompletion=completion.profile_names
        ),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no profile.")] = False,
) -> None:
    """Set the profile of commands without --store and outside a project."""
    import msgspec

    from interlock.cli import profiles

    if (name is None) is not none:
        raise typer.BadParameter("Name a profile, or give --none.")
    found = profiles.read()
    url = found.named(name).url if name else ""
    profiles.write(msgspec.structs.replace(found, use=name or ""))
    typer.echo(f"Commands use {name}: {url}" if name else "Commands use no profile.")


@app.command("remove", epilog=examples("config remove prod"))
def remove(name: Name) -> None:
    """Remove a profile with its token."""
    import msgspec

    from interlock.cli import profiles

    found = profiles.read()
    found.named(name)
    left = {each: profile for each, profile in found.profiles.items() if each != name}
    used = "" if found.use == name else found.use
    profiles.write(msgspec.structs.replace(found, use=used, profiles=left))
    typer.echo(f"The profile {name} is removed.")
