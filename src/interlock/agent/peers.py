"""Find out which user of this machine a connection over loopback belongs to.

TCP carries no credentials, but the kernel's table of connections names the owner of each. The client's end of
a connection is in it for as long as the client keeps it open, and no other user can make an entry for that
pair of addresses meanwhile. The kernel shows an end that was closed as user 0's, so only established ones
with an inode count, and the table is read twice.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from interlock.errors import InvalidSettings

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
UID_MAP = Path("/proc/self/uid_map")
ESTABLISHED = "01"
TRIES = 3
"""The table may change while it is read, so that an entry is missed."""
_ALL_USERS = ["0", "0", "4294967295"]
_UNKNOWN_USER = 65_534
"""What the kernel shows for a user who has no number in this namespace."""


class Peers:
    """The users behind connections to one address of this machine."""

    def __init__(self, host: str, port: int = 0) -> None:
        self._host = host
        self.port = port
        self._all_known = _knows_all_users()

    def is_own(self, peer: str) -> bool:
        """Whether a connection belongs to the user of this process; `peer` is as gRPC says it."""
        own = os.getuid()
        if own == _UNKNOWN_USER and not self._all_known:
            return False
        return self.uid_of(peer) == own and self.uid_of(peer) == own

    def uid_of(self, peer: str) -> int | None:
        """The user who owns the client's end of a connection; None when there is no such connection."""
        try:
            ends = list(self._ends(peer))
        except ValueError:
            return None
        for _ in range(TRIES):
            for table in TABLES:
                if (found := _owner(_read(table), ends)) is not None:
                    return found
        return None

    def _ends(self, peer: str) -> Iterator[bytes]:
        """Both ends as they stand in the tables, also for a client that maps IPv4 into IPv6."""
        _, _, place = unquote(peer).partition(":")
        host, _, port = place.rpartition(":")
        theirs = ipaddress.ip_address(host.strip("[]"))
        ours = self._address(theirs.version)
        ports = int(port), self.port
        yield _row((theirs, ours), ports)
        if isinstance(theirs, ipaddress.IPv4Address) and isinstance(ours, ipaddress.IPv4Address):
            yield _row((_mapped(theirs), _mapped(ours)), ports)

    def _address(self, version: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        if self._host == "localhost":
            return ipaddress.ip_address("127.0.0.1" if version == 4 else "::1")
        return ipaddress.ip_address(self._host)


def check_table() -> None:
    """Raise where the kernel does not say whose a connection is."""
    if not any(map(_read, TABLES)):
        raise InvalidSettings(
            f"This agent has no token, and cannot tell users of this machine apart: there is no {TABLES[0]}.",
            todo="Give it --token-file (or INTERLOCK_AGENT_TOKEN), or let everybody in with --insecure.",
        )


def _owner(table: bytes, ends: list[bytes]) -> int | None:
    for row in ends:
        _, found, rest = table.partition(row)
        if not found:
            continue
        fields = rest.split(None, 6)  # queues, timer, retransmits, user, timeout, inode
        if len(fields) > 5 and fields[5] != b"0":
            return int(fields[3])
    return None


def _row(
    addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...], ports: tuple[int, int]
) -> bytes:
    ends = (f"{_words(address.packed)}:{port:04X}" for address, port in zip(addresses, ports, strict=True))
    return f": {' '.join(ends)} {ESTABLISHED} ".encode()


def _words(packed: bytes) -> str:
    """An address as the kernel prints it: words of 32 bits, in the order of this machine."""
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words)


def _mapped(address: ipaddress.IPv4Address) -> ipaddress.IPv6Address:
    return ipaddress.IPv6Address(b"\0" * 10 + b"\xff" * 2 + address.packed)


def _read(table: Path) -> bytes:
    try:
        return table.read_bytes()
    except OSError:
        return b""


def _knows_all_users() -> bool:
    try:
        return UID_MAP.read_text().split() == _ALL_USERS
    except OSError:
        return False
