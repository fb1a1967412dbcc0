"""Settings of an agent."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import msgspec

from interlock.errors import InvalidSettings
from interlock.lifecycles.durations import DEFAULTS, Durations

PORT = 7167


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an agent, with their defaults."""

    host: str = "127.0.0.1"
    port: int = PORT
    """Port; 0: any free one."""
    tokens: tuple[str, ...] = ()
    """Accepted tokens of controllers; without any, on loopback, the agent's own user is accepted."""
    insecure: bool = False
    """Without a token accept every controller, at any address; with one allow plain text connections."""
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    """Certificate authorities; controllers need a certificate signed by one of them."""
    workloads: tuple[str, ...] = ()
    """Additional kinds, each as `module:Class`."""
    sample_every_s: float = 1.0
    drain_s: float = 5.0
    """Time for operations in progress to finish after the end."""
    keepalive_s: float = 15.0
    """Interval of pings to a silent controller, and the time for its answer."""
    durations: Durations = DEFAULTS

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise InvalidSettings(
                "This agent cannot be started: " + "; ".join(faults) + ".",
                todo="Give it --token-file (or INTERLOCK_AGENT_TOKEN) with --tls-cert and --tls-key; "
                "or let it listen on 127.0.0.1."
                if self._open
                else "Give it --tls-cert and --tls-key, or --insecure where the network itself is encrypted; "
                "or let it listen on 127.0.0.1."
                if self._readable
                else "Change the settings so that each of these holds.",
                facts={"faults": faults},
            )

    @property
    def _open(self) -> bool:
        """Whether other hosts can connect without authentication."""
        guarded = self.tokens or self.client_ca or self.insecure
        return not guarded and not is_loopback(self.host)

    @property
    def _readable(self) -> bool:
        """Whether its token would travel over the network in plain text."""
        plain = self.certificate is None and not self.insecure
        return bool(self.tokens) and plain and not is_loopback(self.host)

    def _faults(self) -> Iterator[str]:
        if self._open:
            yield f"on {self.host} other machines can reach it, and it has no token to authenticate them"
        if self._readable:
            yield f"on {self.host} its token would travel in plain text, and with it anyone can run commands"
        if (self.certificate is None) != (self.key is None):
            yield "TLS needs both a certificate and its key"
        if self.client_ca is not None and self.certificate is None:
            yield "certificates of controllers can only be checked over TLS"
        for name in ("sample_every_s", "drain_s", "keepalive_s"):
            if not getattr(self, name) > 0:
                yield f"{name} must be more than 0"
        if not 0 <= self.port <= 65_535:
            yield f"there is no port {self.port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
