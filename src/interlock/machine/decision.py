"""The answers of a machine: moved, or refused and why; and the audit trail of a decision.

A decision is a value, so that it can be compared, stored, replayed and explored. A refusal becomes an error
(`Refused.error`) only where it is reported. The audit trail has one entry per step, in order.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from interlock import errors
from interlock.machine.table import Deadline, S

D_co = TypeVar("D_co", covariant=True)


class Step(msgspec.Struct, Generic[S], frozen=True):
    """One step of the journal. Created once per row and source, and shared."""

    machine: str
    event: str
    source: S
    target: S
    owner: str
    why: str
    arms: tuple[Deadline, ...] = ()
    moves: bool = True
    """False when the event was accepted without a transition."""


class Moved(msgspec.Struct, Generic[S, D_co], frozen=True, gc=False):
    """The event was accepted: the new state and data, the steps and the effects."""

    state: S
    data: D_co
    steps: tuple[Step[S], ...]
    effects: tuple[object, ...] = ()

    @property
    def sentence(self) -> str:
        """The move in words, one clause per step."""
        return (
            f"The {self.steps[0].machine} "
            + ", ".join(
                f"goes from {step.source} to {step.target} by {step.event}"
                if step.moves
                else f"stays {step.target} and accepts {step.event}"
                for step in self.steps
            )
            + "."
        )


class Refusal(StrEnum):
    """The kinds of refusal, in order of precedence."""

    ALREADY_THERE = "already_there"
    TERMINAL = "terminal"
    NOT_ALLOWED = "not_allowed"
    IGNORED = "ignored"
    GUARD = "guard"


class Refused(msgspec.Struct, Generic[S], frozen=True):
    """The event was refused, for this reason.

    `asked` is the event, or the requested state; `to` is the state that it would have led to, if the table
    has only one.
    """

    kind: Refusal
    machine: str
    state: S
    asked: str
    why: str = ""
    allowed: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    to: str = ""

    @property
    def sentence(self) -> str:
        """The refusal in words; the same on every surface."""
        requested = f"{self.asked} (to {self.to})" if self.to not in ("", self.asked) else self.asked
        opening = _SENTENCES[self.kind].format(
            machine=self.machine, state=self.state, asked=requested, guards=", ".join(self.guards)
        )
        return f"{opening}: {self.why}" if self.why else f"{opening}."

    def error(self) -> errors.TransitionRefused:
        """Return the refusal as an error with the same facts."""
        if self.allowed:
            todo = f"In {self.state} the {self.machine} accepts: {', '.join(self.allowed)}."
        else:
            todo = f"In {self.state} the {self.machine} accepts nothing more; create a new one."
        return _ERRORS[self.kind](
            self.sentence,
            allowed=self.allowed,
            todo=todo,
            facts={
                "machine": self.machine,
                "state": str(self.state),
                "asked": self.asked,
                **({"to": self.to} if self.to else {}),
                "refusal": str(self.kind),
                "guards": list(self.guards),
            },
        )


Decision: TypeAlias = Moved[S, D_co] | Refused[S]

_SENTENCES = {
    Refusal.ALREADY_THERE: "The {machine} is already {state}",
    Refusal.TERMINAL: "The {machine} is {state}, which is final, so {asked} is refused",
    Refusal.NOT_ALLOWED: "The {machine} is {state} and {asked} is not allowed there",
    Refusal.IGNORED: "The {machine} is {state} and {asked} does nothing there",
    Refusal.GUARD: "The {machine} is {state} and {asked} is held back by {guards}",
}

_ERRORS: dict[Refusal, type[errors.TransitionRefused]] = {
    Refusal.ALREADY_THERE: errors.AlreadyThere,
    Refusal.TERMINAL: errors.TerminalState,
    Refusal.NOT_ALLOWED: errors.TransitionNotAllowed,
    Refusal.IGNORED: errors.EventIgnored,
    Refusal.GUARD: errors.GuardRefused,
}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A journal entry of one move: owner, machine, states, event, time and reason."""

    at: datetime
    machine: str
    entity: str
    event: str
    source: str
    target: str
    owner: str
    reason: str = ""
    cause: str = ""
    """The entity whose move caused this one, through a coupling."""
    moves: bool = True
    """False when the event was accepted without a transition."""


def entries_of(
    moved: Moved[Any, Any], *, entity: str, at: datetime, reason: str = "", cause: str = ""
) -> tuple[Entry, ...]:
    """Return the entries to write atomically with the move."""
    entries: tuple[Entry, ...] = ()
    for step in moved.steps:  # mostly one; a comprehension would cost an extra call before Python 3.12
        entries += (
            Entry(
                at,
                step.machine,
                entity,
                step.event,
                step.source,
                step.target,
                step.owner,
                reason,
                cause,
                step.moves,
            ),
        )
    return entries
