"""Listen on sockets, serve until a signal, and shut down gracefully.

On SIGTERM or SIGINT a server accepts no new connection, ends its streams, finishes the requests that it has,
and then closes the store; a second signal has no effect. The garbage collector is tuned for a process that
only answers requests: reference counting frees the objects of a request.

Why: decision 0245.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from interlock.errors import CannotListen
from interlock.processes import early_signals
from interlock.server.app import make_app
from interlock.server.connections import TlsHandshake, connection_for
from interlock.server.logs import ServerLog, libraries_logging
from interlock.server.parts import Parts, open_parts
from interlock.server.routes import Route
from interlock.server.settings import ServerSettings
from interlock.systems.kinds import OURS, Lifecycles
from interlock.systems.settings import DEFAULT_SETTINGS, Settings

EVERY = (20_000, 20, 20)
"""Thresholds of the garbage collector for its three generations."""


def collect_seldom() -> None:
    """Freeze existing objects and collect seldom.

    For programs only: a library leaves that to its user.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*EVERY)


BACKLOG = 1_024
AT_ONCE = 64
"""Number of connections accepted before surplus ones can be closed."""
SPARE_FILES = 256
"""Number of files reserved for the store, git and new connections."""


class Listener(uvicorn.Server):
    """Serves requests until stopped."""

    def __init__(self, app: ASGIApp, parts: Parts, listening: socket.socket) -> None:
        settings = parts.settings
        super().__init__(
            uvicorn.Config(
                app,
                http=connection_for(settings, parts.connections, _counting(parts)),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=settings.keep_alive_s,
                timeout_graceful_shutdown=max(1, round(settings.shutdown_s)),
                ssl_certfile=settings.tls_cert,
                ssl_keyfile=settings.tls_key,
            )
        )
        self._parts = parts
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening; a handshake has the deadline of a head."""
        state, tls = self.server_state, self.config.ssl
        kind: Callable[..., Any] = self.config.http_protocol_class
        make = partial(kind, config=self.config, server_state=state)
        if tls is not None:
            make = partial(TlsHandshake, make, tls, state.connections, self._parts.settings.header_s)
        self.servers: list[asyncio.Server] = []
        for listening in sockets or (self._listening,):
            server = await asyncio.get_running_loop().create_server(make, sock=listening, backlog=AT_ONCE)
            listening.listen(BACKLOG)
            self.servers.append(server)
        self.started = True

    @property
    def url(self) -> str:
        """The URL of the server."""
        host, port = self._listening.getsockname()[:2]
        scheme = "https" if self._parts.settings.tls_cert else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    async def run_until_stopped(self, started: Callable[[Listener], None] | None = None) -> None:
        """Serve requests; call `started` once the server is listening."""
        serving = asyncio.create_task(self.serve([self._listening]), name="listener")
        try:
            if started is not None:
                started(self)
            await asyncio.shield(serving)
        finally:
            self.stop()
            await asyncio.wait([serving])

    def stop(self) -> None:
        """Start the shutdown: safe to call twice, and from a signal handler."""
        self._parts.hang_up()
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the owner of the loop; see `stopped_by_signals`."""
        yield


@contextmanager
def stopped_by_signals(listener: Listener) -> Iterator[None]:
    """Shut down gracefully on SIGTERM and SIGINT, within the context."""
    loop = asyncio.get_running_loop()
    early_signals.has_begun()
    for number in early_signals.STOPPING:
        loop.add_signal_handler(number, listener.stop)
    try:
        yield
    finally:
        for number in early_signals.STOPPING:
            loop.remove_signal_handler(number)
        early_signals.has_stopped()


def allow_files(parts: Parts) -> None:
    """Raise the limit of open files, or accept fewer connections."""
    wanted = parts.connections.most + SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft != resource.RLIM_INFINITY and soft < wanted:
        parts.connections.most = max(1, soft - SPARE_FILES)
        parts.log.warning(
            f"The system allows {soft} open files, so the server takes at most {parts.connections.most} "
            f"connections; allow {wanted} (ulimit -n, LimitNOFILE=).",
        )


def _counting(parts: Parts) -> Callable[[int], None]:
    """Return a function that counts refusals before a request."""

    def refused(status: int) -> None:
        parts.metrics.answered("", "", status, 0.0)

    return refused


def bind(settings: ServerSettings) -> socket.socket:
    """Return the listening socket; raise if the address is in use."""
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(settings, error) from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise _cannot_listen(settings, error) from None
    return listening


async def serve(
    url: str,
    settings: ServerSettings,
    *,
    orchestration: Settings = DEFAULT_SETTINGS,
    log: ServerLog | None = None,
    more: Sequence[Route] = (),
    lifecycles: Lifecycles = OURS,
    started: Callable[[Listener, Parts], None] | None = None,
    signals: bool = True,
) -> None:
    """Open the store and serve requests until a signal or a cancellation."""
    _check_tls(settings)
    listening = bind(settings)
    log = log or ServerLog()
    try:
        async with open_parts(
            url, settings, orchestration=orchestration, log=log, lifecycles=lifecycles
        ) as parts:
            allow_files(parts)
            listener = Listener(make_app(parts, more=more), parts, listening)
            with libraries_logging(log), stopped_by_signals(listener) if signals else nullcontext():
                await listener.run_until_stopped(lambda it: started(it, parts) if started else None)
    finally:
        listening.close()


def _check_tls(settings: ServerSettings) -> None:
    if settings.tls_cert is None or settings.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise CannotListen(
            f"The certificate {settings.tls_cert} and its key {settings.tls_key} cannot be used: {error}.",
            todo="Give files in PEM format that belong together and can be read.",
            facts={"tls_cert": settings.tls_cert, "tls_key": settings.tls_key},
        ) from None


def _cannot_listen(settings: ServerSettings, error: OSError) -> CannotListen:
    why = error.strerror or str(error)
    return CannotListen(
        f"Cannot listen at {settings.host}:{settings.port}: {why}.",
        todo="Stop the process that listens there, or choose another --port; 0 takes a free one.",
        facts={"host": settings.host, "port": settings.port, "cause": why},
    )
