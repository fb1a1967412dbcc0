"""The answer to a runner as an error, for whoever is answered one message at a time."""

from __future__ import annotations

from interlock.errors import (
    ConflictingCompletion,
    InterlockError,
    LeaseExpired,
    LeaseRevoked,
    MessageRefused,
    TooLarge,
    UnknownLease,
    WrongRunner,
)
from interlock.wire.caches import CacheRefused
from interlock.wire.runner import Answer, Heard, NotHeard, Stale

_ERRORS: dict[str, type[InterlockError]] = {
    error.code: error
    for error in (
        LeaseExpired,
        LeaseRevoked,
        UnknownLease,
        WrongRunner,
        ConflictingCompletion,
        TooLarge,
        CacheRefused,
    )
}


def raise_for_answer(answer: Answer) -> Heard:
    """What was heard; raises what was not."""
    match answer:
        case Heard():
            return answer
        case Stale(code=code, error=error, todo=todo):
            raise _ERRORS[code](error, todo=todo)
        case NotHeard(code=code, error=error, todo=todo, facts=facts):
            raise _ERRORS.get(code, MessageRefused)(error, todo=todo, facts={**facts, "refusal": code})
