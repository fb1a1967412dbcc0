"""Claims about limits: no more slots of a key are leased at a time than its limit has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from interlock_verification.claims import FactClaim


class LeasedSlots(NamedTuple):
    """The leased slots of a key."""

    key: str
    leased: int
    most: int

    def __str__(self) -> str:
        return f"{self.leased} slots of {self.key} are leased, not {self.most}"


LIMIT_CLAIMS: Sequence[FactClaim[Any]] = (
    FactClaim(
        "limit.slots",
        "a key never has more leased slots than its limit",
        LeasedSlots,
        lambda slots: slots.leased <= slots.most,
    ),
)
