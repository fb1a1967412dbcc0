"""Names as people type them."""

from __future__ import annotations


def fold_name(name: str) -> str:
    """One form for all spellings: any case, dashes or underscores, one l or two in cancel(l)ed."""
    return name.casefold().replace("-", "_").replace("cancelled", "canceled")
