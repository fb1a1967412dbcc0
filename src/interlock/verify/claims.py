"""What is to be true of a model, as claims in words.

    always("at most one live lease", …)       holds in every state that can be reached
    sometimes("a lost attempt is retried", …) is seen at least once, so that nothing holds vacuously
    eventually("every job settles", …)        from every state a state like that can still be reached,
                                              although nobody helps and nothing more breaks

A state is looked at once, and what was seen of it is a number: each claim has two bits of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

AIDED = 1
"""The bit of a step that somebody chose or that a fault is: no promise may rest on it."""

Looked: TypeAlias = Callable[[Any], bool]


class Mode(StrEnum):
    """When a claim has to hold."""

    ALWAYS = "always"
    SOMETIMES = "sometimes"
    EVENTUALLY = "eventually"


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim. `holds` is None where the model itself tells with `look`."""

    mode: Mode
    claim: str
    holds: Looked | None = None
    when: Looked | None = None
    conditional: bool = False
    """Whether an `eventually` is only asked of the states that its second bit marks."""


def always(claim: str, holds: Looked | None = None) -> Claim:
    """In every state that can be reached."""
    return Claim(Mode.ALWAYS, claim, holds)


def sometimes(claim: str, holds: Looked | None = None) -> Claim:
    """In at least one state that can be reached."""
    return Claim(Mode.SOMETIMES, claim, holds)


def eventually(
    claim: str, holds: Looked | None = None, *, when: Looked | None = None, conditional: bool = False
) -> Claim:
    """From every state (or from each `when`) a state in which it holds can be reached."""
    return Claim(Mode.EVENTUALLY, claim, holds, when, conditional or when is not None)


def bit(place: int) -> int:
    """The first bit of the claim at this place: broken (always), seen (sometimes), there (eventually)."""
    return 2 << (2 * place)


def trigger_bit(place: int) -> int:
    """The second bit: from here on an `eventually` is asked for."""
    return 4 << (2 * place)


def look_with(claims: Sequence[Claim]) -> Callable[[Any], int]:
    """A function that asks each claim about a state, for models that do not know a quicker way."""
    asked = [(bit(n), one.mode is not Mode.ALWAYS, one.holds) for n, one in enumerate(claims) if one.holds]
    asked += [(trigger_bit(n), True, one.when) for n, one in enumerate(claims) if one.when]

    def look(state: Any) -> int:
        seen = 0
        for its_bit, wanted, holds in asked:
            if holds(state) is wanted:
                seen |= its_bit
        return seen

    return look
