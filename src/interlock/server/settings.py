"""Settings of a server and their defaults."""

from __future__ import annotations

import ipaddress
import re
from datetime import timedelta

import msgspec

from interlock.engine.retention import Retention
from interlock.errors import InvalidSettings

DEFAULT_PORT = 8088
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_DEFAULT_PORTS = (("http://", ":80"), ("https://", ":443"))


class Rate(msgspec.Struct, frozen=True):
    """A rate limit: tokens per second, and the burst after a pause."""

    per_s: float
    burst: int


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses, authentication and limits of a server."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls_cert: str | None = None
    tls_key: str | None = None

    tokens_required: bool | None = None
    """None: required if other machines can reach the server, or if there are tokens."""
    insecure: bool = False
    """Serve other machines without tokens, as explicitly requested."""
    allowed_hosts: tuple[str, ...] = ()
    """Accepted host names in addition to its own; without tokens and names only those of this machine."""
    allowed_origins: tuple[str, ...] = ()
    """Other origins whose pages may use the API (CORS): https://tools.example.org"""

    max_body_bytes: int = 1_048_576
    max_json_depth: int = 64
    max_header_bytes: int = 16_384
    max_concurrent: int = 1_000
    """Concurrent requests; runners have as many places in addition."""
    concurrent_each: int = 500
    """Concurrent requests of one token."""
    max_waiting: int = 5_000
    """Long polls and transfers of runners at once."""
    polls_each: int = 1_000
    """Concurrent long polls of one token."""
    max_streams: int = 1_000
    """Live streams and downloads at once."""
    max_signed: int = 64
    """Webhooks whose body is being received, and the bytes that they may hold in all."""
    max_signed_bytes: int = 64 * 1_048_576
    max_connections: int = 10_000
    """Open connections; fewer where the system allows fewer files."""
    connections_each: int = 100
    """Open connections of one address without an authenticated request."""
    header_s: float = 20.0
    """Deadline for the head of a request."""
    body_s: float = 20.0
    request_s: float = 30.0
    """Deadline for a response."""
    keep_alive_s: int = 75
    api_rate: Rate = Rate(1_000.0, 2_000)
    runner_rate: Rate = Rate(5_000.0, 10_000)
    """Rate of runners, separate from other clients: listing jobs in a loop must not cost a lease."""
    stranger_rate: Rate = Rate(20.0, 200)
    """Rate of failed authentications from one address."""
    sign_in_rate: Rate = Rate(1.0, 100)
    """Sessions that can be opened with one token."""

    streams_each: int = 50
    """Live streams of one principal."""

    repositories: dict[str, str] = {}
    """Repositories whose workflow files are planned here: by name (`owner/name`), each with its git URL."""
    repository_secrets: dict[str, str] = {}
    """The secret to fetch each repository with, here and on runners."""
    mirrors: str | None = None
    """Folder for private copies of repositories; otherwise a temporary one."""

    deliver_every_s: float = 1.0
    retain_every_s: float = 60.0
    retention: Retention = Retention(
        by_kind={
            "message": timedelta(days=7),
            "history": timedelta(hours=1),
            "figures": timedelta(hours=1),
            "job_wait": timedelta(days=366),
        }
    )
    shutdown_s: float = 25.0
    """Time for running requests after SIGTERM."""

    def __post_init__(self) -> None:
        if faults := list(_faults(self)):
            raise InvalidSettings(
                "The server cannot be started: " + "; ".join(faults) + ".",
                todo="Change the settings so that each of these holds.",
                facts={"faults": faults},
            )

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _faults(settings: ServerSettings) -> list[str]:
    faults = [
        f"{name} is {value:g} and must be more than 0"
        for name, value in msgspec.structs.asdict(settings).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name != "port" and value <= 0
    ]
    if not 0 <= settings.port <= 65_535:
        faults.append(f"port is {settings.port} and must be 0 to 65535")
    if (settings.tls_cert is None) != (settings.tls_key is None):
        faults.append("a certificate and its key are given together")
    if settings.insecure and settings.tokens_required:
        faults.append("it cannot be insecure and require tokens")
    if not settings.loopback and settings.tokens_required is False and not settings.insecure:
        faults.append(
            f"other machines can reach {settings.host}, so it requires tokens unless it is --insecure"
        )
    faults += [
        f"{origin[:100]!r} is no origin as browsers send it: scheme, name in lower case and a port other "
        "than the default, such as https://tools.example.org"
        for origin in settings.allowed_origins
        if not _is_origin(origin)
    ]
    foreign = [name for name in settings.allowed_hosts if not is_loopback(name)]
    if foreign and settings.tokens_required is False and not settings.insecure:
        faults.append(
            f"other machines can reach it as {foreign[0]}, so it requires tokens unless it is --insecure"
        )
    return faults


def _is_origin(text: str) -> bool:
    """Return whether text is spelled as in the header Origin of browsers."""
    is_default = any(text.startswith(scheme) and text.endswith(port) for scheme, port in _DEFAULT_PORTS)
    return bool(_ORIGIN.fullmatch(text)) and not is_default
