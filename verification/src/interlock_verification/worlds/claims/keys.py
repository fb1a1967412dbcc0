"""Claims about unique keys: no job is created while another one with its key counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from interlock_verification.claims import FactClaim


class CreatedUniqueJob(NamedTuple):
    """A created job with a unique key."""

    job_id: str
    counting: Mapping[str, str]
    """The states of the other jobs that count for the key."""

    def __str__(self) -> str:
        return f"{self.job_id} is created, and others with its key are {dict(self.counting)}"


KEY_CLAIMS: Sequence[FactClaim[Any]] = (
    FactClaim(
        "key.unique",
        "at most one job with a unique key counts",
        CreatedUniqueJob,
        lambda created: not created.counting,
    ),
)
