"""Which addresses everybody can reach, and which only some."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks that are meant; raises ValueError."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def is_public(address: Address) -> bool:
    """Whether everybody can reach it; one that wraps another is as public as that."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast and not address.is_reserved
