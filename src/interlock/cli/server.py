"""Command `interlock server`: the HTTP API for people, programs and runners.

It imports its modules when it runs, so that `--help` is quick. `interlock dev` uses `announcement` too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from interlock.cli.options import Kinds, Store, epilog, examples

if TYPE_CHECKING:
    from interlock.cli.project import Project
    from interlock.server.logs import ServerLog
    from interlock.server.parts import Parts
    from interlock.server.settings import ServerSettings
    from interlock.server.sockets import Listener


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(
        "server",
        epilog=epilog(
            "\b\nOn 127.0.0.1 no token is required until one is created; then it is within\n"
            "seconds, and until the server is started again. Any other address, and every request that\n"
            "a proxy forwards, requires a token: interlock token create NAME --role ROLE",
            "\b\nSIGTERM or Ctrl-C: open requests are finished, then the server exits. Several servers may\n"
            "share a store.",
            "\b\nExit codes:\n  0  stopped by a signal\n"
            "  2  it could not start: an address, a setting or the store",
            examples(
                "server",
                "server --kinds shop.orders",
                "server --port 9000 --store postgresql://ci@db/interlock",
                "server --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem",
            ),
        ),
    )(server)


def server(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 chooses a free one.")] = 8088,
    store: Store = None,
    kinds: Kinds = None,
    token_required: Annotated[
        bool | None,
        typer.Option(
            "--token-required/--no-token-required", help="Require a token (default: on public addresses)."
        ),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Serve without authentication, also through a proxy.")
    ] = False,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS certificate (PEM).")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="TLS key (PEM).")] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Answer to this host name too; requires a token in the store."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Origin whose pages may use the API (CORS).")
    ] = None,
    repository: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=ADDRESS", help="Repository to plan runs of, such as shop/web=https://…/web.git."
        ),
    ] = None,
    repository_secret: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=SECRET", help="Secret to fetch a private repository with."),
    ] = None,
    mirrors: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder for copies of the repositories (default: none)."),
    ] = None,
    polls_each: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of open long polls per token.")
    ] = 1_000,
    connections_each: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of unauthenticated connections per address.")
    ] = 100,
    log_level: Annotated[str, typer.Option(help="Log level: debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option(help="Log format: auto, json or text.")] = "auto",
) -> None:
    """Serve the HTTP API and the dashboard, and enforce deadlines."""
    from interlock.cli import project
    from interlock.server.logs import LEVELS, ServerLog
    from interlock.server.settings import ServerSettings

    _one_of("--log-level", log_level, LEVELS)
    _one_of("--log-format", log_format, ("auto", "json", "text"))
    settings = ServerSettings(
        host=host,
        port=port,
        tokens_required=token_required,
        insecure=insecure,
        tls_cert=str(tls_cert) if tls_cert else None,
        tls_key=str(tls_key) if tls_key else None,
        allowed_hosts=tuple(allow_host or ()),
        allowed_origins=tuple(allow_origin or ()),
        repositories=dict(_named(one, "--repository", "ADDRESS") for one in repository or ()),
        repository_secrets=dict(
            _named(one, "--repository-secret", "SECRET") for one in repository_secret or ()
        ),
        mirrors=str(mirrors) if mirrors else None,
        polls_each=polls_each,
        connections_each=connections_each,
    )
    run_server(project.load(store, kinds=kinds), settings, ServerLog(log_level, log_format))


def run_server(here: Project, settings: ServerSettings, log: ServerLog) -> None:
    """Serve the store of a project until a signal."""
    import asyncio

    import msgspec

    from interlock.cli.machine_names import load_kinds
    from interlock.processes.credentials import hide_password, make_private
    from interlock.server.sockets import collect_seldom, serve
    from interlock.systems.kinds import lifecycles_with

    settings = msgspec.structs.replace(settings, retention=here.retention.over(settings.retention))
    make_private()  # steps of a worker on this host must not read its secrets
    hide_password(here.url)

    def started(listener: Listener, parts: Parts) -> None:
        collect_seldom()
        if here.schedules or here.limits:
            declaring.append(asyncio.ensure_future(_declare(here, parts)))
        typer.echo("\n".join(announcement(listener.url, parts)))

    declaring: list[asyncio.Future[None]] = []
    serving = serve(
        here.url,
        settings,
        orchestration=here.settings,
        log=log,
        lifecycles=lifecycles_with(declared=load_kinds(here.kinds)),
        started=started,
    )
    asyncio.run(serving)


async def _declare(here: Project, parts: Parts) -> None:
    """Register the limits and schedules of the project file.

    One that is refused is logged.
    """
    from interlock.errors import InterlockError

    for name, limit in here.limits.items():
        try:
            await parts.runtime.limits.declare(name, limit.spec, source=limit.source, actor="server")
        except InterlockError as error:
            parts.log.warning(f"The limit {name} was not registered: {error.sentence}")
    for name, declared in here.schedules.items():
        try:
            await parts.runtime.schedules.put(name, declared.spec, source=declared.source, actor="server")
        except InterlockError as error:
            parts.log.warning(f"The schedule {name} was not registered: {error.sentence}")


def announcement(url: str, parts: Parts) -> Iterator[str]:
    """Yield the addresses, the data's place, access and first commands."""
    yield f"Interlock listens at {url}"
    yield f"  data    {shown(parts.url)} ({parts.store.capabilities.durability})"
    if parts.tokens_required:
        yield "  access  with a token: interlock token create me --role admin"
        yield f"  try     curl -H 'Authorization: Bearer il_…' {url}/api/jobs"
    else:
        yield f"  access  {_let_in(parts)}"
        yield f"  try     curl {url}/api/jobs"
    yield f"  see     {_dashboard(url)}"
    yield f"  more    {url}/docs"


def _dashboard(url: str) -> str:
    from interlock.server import web

    return f"{url}/ (the dashboard)" if web.built() else "the dashboard is not built: make dashboard"


def _let_in(parts: Parts) -> str:
    """Return which clients have access without a token, and until when."""
    settings = parts.settings
    if settings.insecure and settings.allowed_hosts:
        return "ANYONE who can reach it or a proxy in front of it, without a token"
    if settings.insecure:
        return "ANYONE who can reach it, without a token"
    if parts.door.closes:
        return (
            "anyone on this machine, without a token, until one is created: "
            "interlock token create me --role admin"
        )
    return "anyone on this machine, without a token"


def shown(store_url: str) -> str:
    """Return the URL of a store without its password, or the whole path."""
    parts = urlsplit(store_url)
    if parts.scheme == "sqlite":
        return str(Path(parts.path.removeprefix("/")).resolve())
    return store_url.replace(f":{parts.password}@", "@") if parts.password else store_url


def _named(text: str, option: str, what: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise typer.BadParameter(f"{text!r} is not NAME={what}", param_hint=option)
    return name, value


def _one_of(option: str, given: str, known: Iterable[str]) -> None:
    names = list(known)
    if given not in names:
        raise typer.BadParameter(f"{given!r} is not one of {', '.join(names)}", param_hint=option)
