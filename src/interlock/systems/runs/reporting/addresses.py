"""Which addresses are public, and which belong to a machine, a site or a protocol.

The table is our own, from IANA's registries of special-purpose addresses: what `ipaddress` says about an
address depends on the patch level of the interpreter (`fec0::/10` and `64:ff9b:1::/48` are global to some).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_UNICAST = ipaddress.ip_network("2000::/3")
"""The only part of IPv6 that is given out to the public; NAT64 and mapped addresses hold an IPv4 address."""
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind a carrier's NAT
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local; services that tell machines about themselves
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocols of the IETF
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4, retired
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
        "2001::/23",  # protocols of the IETF; among them Teredo, which holds an IPv4 address
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
)


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks that are meant; raise ValueError for what is none."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def is_public(address: Address) -> bool:
    """Whether everybody can reach it; one that wraps another is as public as that."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _UNICAST:
            return False
    return address.is_global and not any(address in network for network in _SPECIAL)
