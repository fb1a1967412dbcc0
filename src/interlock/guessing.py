"""What somebody most likely meant by a name that nobody has."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def nearest(name: str, known: Sequence[str]) -> str | None:
    """The known name that somebody who typed `name` most likely meant."""
    folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    return folded[close[0]] if close else None
