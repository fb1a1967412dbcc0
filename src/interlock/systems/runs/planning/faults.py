"""What is wrong with a file: every fault with its line and column, told all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from interlock.errors import InterlockError, PlanRefused
from interlock.plurals import counted
from interlock.suggestions import nearest

MOST_TOLD = 50
"""Whoever has made more faults than that mends some first."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line and a column of a file, counted from 1."""

    line: int
    column: int

    def after(self, offset: int) -> Place:
        """So many characters further on the same line."""
        return Place(self.line, self.column + offset)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing that is wrong."""

    place: Place
    sentence: str
    allowed: tuple[str, ...] = ()


@dataclass(slots=True)
class Faults:
    """The faults of one file, as they are found."""

    file: str
    found: list[Fault] = field(default_factory=list)
    page: str = "docs/reference/workflow.md"
    """Where every key is told."""
    error: type[InterlockError] = PlanRefused
    """What they are raised as."""

    def add(self, place: Place, sentence: str, *, allowed: Sequence[str] = ()) -> None:
        """One more; the same thing at the same place is told once."""
        fault = Fault(place, sentence, tuple(allowed))
        if fault not in self.found:
            self.found.append(fault)

    def unknown(self, place: Place, noun: str, name: str, known: Sequence[str]) -> None:
        """A name that is not known there, with the one that was most likely meant."""
        guess = nearest(name, known)
        end = f"; did you mean {guess}?" if guess else f"; there is {listed(known)}" if known else ""
        self.add(place, f"there is no {noun} {name[:100]!r}{end}", allowed=known)

    def refuse_if_any(self) -> None:
        """Raise them all, in the order of the file."""
        if self.found:
            raise self.refusal()

    def refusal(self) -> InterlockError:
        """All of them as one error."""
        faults = sorted(self.found)
        told = [f"{self.file}:{f.place.line}:{f.place.column}: {f.sentence}" for f in faults[:MOST_TOLD]]
        if len(faults) > MOST_TOLD:
            told.append(f"… and {len(faults) - MOST_TOLD} more")
        number = counted(len(faults), "fault")
        return self.error(
            "\n".join((f"{self.file} has {number}:", *told)),
            allowed=faults[0].allowed if len(faults) == 1 else (),
            todo=f"Mend the file; {self.page} has every key.",
            facts={
                "file": self.file,
                "line": faults[0].place.line,
                "column": faults[0].place.column,
                "faults": [
                    {
                        "line": fault.place.line,
                        "column": fault.place.column,
                        "error": fault.sentence,
                        "allowed": list(fault.allowed),
                    }
                    for fault in faults[:MOST_TOLD]
                ],
            },
        )


def listed(names: Sequence[str]) -> str:
    """A few names as part of a sentence."""
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"
