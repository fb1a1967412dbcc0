"""Patterns for branches, tags and paths: `*` within a part, `**` across parts, `?` for one character.

main              exactly that          docs/          everything below docs
release/*         one more part         src/**/*.py    any depth, also none
!docs/**          none of those: the last pattern that matches decides
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

MOST_PARTS = 20


def matching(name: str, patterns: Sequence[str]) -> str | None:
    """The pattern because of which a name counts; None when it does not."""
    found = None
    for pattern in patterns:
        if _matches(name, pattern.removeprefix("!")):
            found = None if pattern.startswith("!") else pattern
    return found


def first_matching(names: Sequence[str], patterns: Sequence[str]) -> tuple[str, str] | None:
    """The first name that counts, with its pattern."""
    return next(
        ((name, pattern) for name in names if (pattern := matching(name, patterns)) is not None), None
    )


def fault_of(pattern: str) -> str | None:
    """What is wrong with a pattern; None when it is fine."""
    bare = pattern.removeprefix("!")
    if not bare or bare.startswith("/"):
        return f"{pattern!r} matches nothing; paths begin without a slash"
    if bare.count("/") >= MOST_PARTS:
        return f"{pattern!r} has more than {MOST_PARTS} parts"
    return None


def _matches(name: str, pattern: str) -> bool:
    wanted = (f"{pattern}**" if pattern.endswith("/") else pattern).split("/")
    return _match_parts(name.split("/"), wanted)


def _match_parts(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Which beginnings of the pattern match which beginnings of the name, one part after the other."""
    reached = {0}
    for place, pattern in enumerate(wanted):
        if pattern == "**":
            least = min(reached, default=len(parts) + 1)
            # At the end it stands for something: `docs/**` is what is below docs, not docs itself.
            first = least + 1 if place == len(wanted) - 1 else least
            reached = set(range(first, len(parts) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(parts) and fnmatchcase(parts[at], pattern)}
    return len(parts) in reached
