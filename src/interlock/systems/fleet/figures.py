"""How figures are shown to people: in a unit that fits, and without exponents."""

from __future__ import annotations


def took(ms: float | None) -> str:
    """A duration with its unit; a dash where nothing was measured."""
    if ms is None:
        return "—"
    size = abs(ms)
    if 0 < size < 0.001:
        return f"{ms * 1e6:.0f} ns"
    if size < 999.5:
        return f"{ms:.3g} ms"
    return f"{ms / 1e3:.1f} s" if size < 99_950 else f"{ms / 1e3:,.0f} s"


def in_ms(ms: float | None) -> str:
    """A duration in a column of milliseconds; empty where nothing was measured."""
    if ms is None:
        return ""
    return f"{ms:.3g}" if abs(ms) < 999.5 else f"{ms:.0f}"


def some(names: tuple[str, ...], most: int = 3) -> str:
    """The first few of them, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
