"""What a server can be told to do differently; each with the default that we run with."""

from __future__ import annotations

import ipaddress
from datetime import timedelta

import msgspec

from interlock.engine.retention import Retention
from interlock.errors import InvalidSettings

DEFAULT_PORT = 8088


class Rate(msgspec.Struct, frozen=True):
    """How much somebody may ask for: so many a second, and so many at once after a pause."""

    per_s: float
    burst: int


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens, whom it lets in, and what is too much."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls_cert: str | None = None
    tls_key: str | None = None

    tokens_required: bool | None = None
    """None: where others can reach the server, and wherever there are tokens."""
    insecure: bool = False
    """Others can reach the server and need no token, because somebody said so."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which it may be called beside its own; without tokens and names only those of this machine."""
    allowed_origins: tuple[str, ...] = ()
    """Pages of other servers that may change something here: https://tools.example.org"""

    max_body_bytes: int = 1_048_576
    max_json_depth: int = 64
    max_header_bytes: int = 16_384
    max_concurrent: int = 1_000
    """Requests that are answered at once; runners have as many places of their own."""
    concurrent_each: int = 500
    """How many of them one token may have."""
    max_waiting: int = 5_000
    """Long polls and transfers of runners at once."""
    polls_each: int = 1_000
    """How many of them one token may have."""
    max_streams: int = 1_000
    """Live streams and downloads at once."""
    max_signed: int = 64
    """Webhooks whose body is on its way, and how many bytes they may hold in all."""
    max_signed_bytes: int = 64 * 1_048_576
    max_connections: int = 10_000
    """Open connections; fewer where the system allows fewer files."""
    connections_each: int = 100
    """Open connections of one address on which no request was let in yet."""
    header_s: float = 20.0
    """How long the head of a request may take to arrive."""
    body_s: float = 20.0
    request_s: float = 30.0
    """How long an answer may take."""
    keep_alive_s: int = 75
    api_rate: Rate = Rate(1_000.0, 2_000)
    runner_rate: Rate = Rate(5_000.0, 10_000)
    """Runners have a lane of their own: whoever lists jobs in a loop does not cost somebody a lease."""
    stranger_rate: Rate = Rate(20.0, 200)
    """For each address from which a token comes that is none."""
    sign_in_rate: Rate = Rate(1.0, 100)
    """Sessions that can be opened with one token."""

    streams_each: int = 50
    """How many live streams somebody may have open."""

    repositories: dict[str, str] = {}
    """Whose workflow files are planned here: by name (`owner/name`), each with its address for git."""
    repository_secrets: dict[str, str] = {}
    """By name of the repository: which secret it is fetched with, here and by runners."""
    mirrors: str | None = None
    """A folder for private copies of them; otherwise a temporary one."""

    deliver_every_s: float = 1.0
    retain_every_s: float = 60.0
    retention: Retention = Retention(
        by_kind={
            "message": timedelta(days=7),
            "history": timedelta(hours=1),
            "figures": timedelta(hours=1),
        }
    )
    shutdown_s: float = 25.0
    """How long requests may go on after SIGTERM."""

    def __post_init__(self) -> None:
        if faults := list(_faults(self)):
            raise InvalidSettings(
                "The server cannot be started like this: " + "; ".join(faults) + ".",
                todo="Change the settings so that each of these holds.",
                facts={"faults": faults},
            )

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from this machine only."""
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
        faults.append("it cannot be insecure and ask for tokens")
    if not settings.loopback and settings.tokens_required is False and not settings.insecure:
        faults.append(f"others can reach {settings.host}, so it asks for tokens unless it is --insecure")
    foreign = [name for name in settings.allowed_hosts if not is_loopback(name)]
    if foreign and settings.tokens_required is False and not settings.insecure:
        faults.append(f"others can reach it as {foreign[0]}, so it asks for tokens unless it is --insecure")
    return faults
