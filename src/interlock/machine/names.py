"""Names: as people type them, and as functions carry them."""

from __future__ import annotations

from collections.abc import Callable


def fold_name(name: str) -> str:
    """One form for all spellings: any case, dashes or underscores, one l or two in cancel(l)ed."""
    return name.casefold().replace("-", "_").replace("cancelled", "canceled")


def name_of(function: Callable[..., object]) -> str:
    """What a guard, an update or an effect is called."""
    return getattr(function, "__name__", type(function).__name__)
