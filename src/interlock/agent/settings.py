"""What an agent can be told to do differently."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import msgspec

from interlock.errors import InvalidSettings
from interlock.lifecycles.durations import DEFAULTS, Durations

PORT = 7167


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One agent; each setting with the default that we run with."""

    host: str = "127.0.0.1"
    port: int = PORT
    """0: any that is free."""
    tokens: tuple[str, ...] = ()
    """Controllers that have one are let in; without any, on loopback, those of the agent's own user."""
    insecure: bool = False
    """Without a token let everybody in, whatever the address; with one let it travel in plain text."""
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    """Whoever has no certificate that these vouch for is not let in."""
    workloads: tuple[str, ...] = ()
    """Kinds beyond those that come with packages, each as `module:Class`."""
    sample_every_s: float = 1.0
    drain_s: float = 5.0
    """How long operations that were begun in time may take to end."""
    keepalive_s: float = 15.0
    """How often a silent controller is asked whether it is there, and how long it may take to answer."""
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
        """Whether strangers could reach it and would be let in."""
        guarded = self.tokens or self.client_ca or self.insecure
        return not guarded and not is_loopback(self.host)

    @property
    def _readable(self) -> bool:
        """Whether its token would be sent over the network for everybody on it to read."""
        plain = self.certificate is None and not self.insecure
        return bool(self.tokens) and plain and not is_loopback(self.host)

    def _faults(self) -> Iterator[str]:
        if self._open:
            yield f"on {self.host} others could reach it, and it has no token to tell them apart by"
        if self._readable:
            yield f"on {self.host} its token would travel in plain text, and who has it can run commands"
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
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
