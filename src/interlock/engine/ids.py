"""Where new names come from: a port, so that a simulated world can hand out its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeAlias

Ids: TypeAlias = Callable[[], str]
"""A name that nobody else will get."""


def random_id() -> str:
    """Sixteen hex digits: 64 bits, which do not repeat within the life of a record."""
    return secrets.token_hex(8)
