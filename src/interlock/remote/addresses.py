"""Telling the address of a server from that of a store."""

from __future__ import annotations


def is_server(url: str) -> bool:
    """Whether a URL names a server, and not a store."""
    return url.lower().startswith(("http://", "https://"))
