"""What somebody most likely meant by a name that nobody has."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

_NEAR = 0.6


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that somebody who typed `name` most likely meant."""
    folded = {candidate.casefold(): candidate for candidate in known}
    likeness, best = max(((_likeness(name.casefold(), each), each) for each in folded), default=(0.0, ""))
    return folded[best] if likeness >= _NEAR else None


def _likeness(name: str, candidate: str) -> float:
    """How alike two names are, from 0 to 1; the package that both begin with does not count."""
    while "." in name and name.partition(".")[0] == candidate.partition(".")[0] and "." in candidate:
        name, candidate = name.partition(".")[2], candidate.partition(".")[2]
    return difflib.SequenceMatcher(None, candidate, name).ratio()
