"""Permissions of the user of a store, for `interlock doctor`. No store needs to report them.

Why: decision 0554.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec


class Severity(StrEnum):
    """The effect of missing permissions."""

    NOTHING = "nothing"
    LATER = "later"
    """Jobs run; the next upgrade, or privacy, is at risk."""
    NOW = "now"


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence about the permissions of this user, and the remedy if some are missing."""

    sentence: str
    missing: Severity = Severity.NOTHING
    todo: str = ""


@runtime_checkable
class ReportsPermissions(Protocol):
    """A store that knows what its user may do. It need not be open."""

    async def permissions(self) -> Sequence[Permission]:
        """Return the permissions; empty where the database does not report them."""
        ...
