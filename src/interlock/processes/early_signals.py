"""Signals that come before a program has begun: nothing is under way yet, so it ends at once.

The program imports for a second or more. A signal in that time would end it with a traceback or with the
default action; and the first process of a container, which has no default actions, would not hear it.
Whoever takes care of signals from then on says `has_begun`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType

SERVICES = frozenset(("worker", "supervisor", "server", "dev", "agent"))
"""Commands that run until they are asked to go: to do so is no failure."""
STOPPING = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED, TERMINATED = 130, 143

_begun = False
_heed: Callable[[], None] | None = None


def heed(words: Sequence[str]) -> None:
    """End this process at a signal, until it has begun."""
    global _heed  # noqa: PLW0603 - there is one program in a process

    def end(number: int, _: FrameType | None) -> None:
        if not _begun:
            os._exit(exit_code(words, number))

    def heed_again() -> None:
        for number in STOPPING:
            signal.signal(number, end)

    _heed = heed_again
    heed_again()


def exit_code(words: Sequence[str], number: int) -> int:
    """Return the exit code of a program that was stopped before it had begun."""
    if number == signal.SIGINT:
        return INTERRUPTED
    return 0 if is_service(words) else TERMINATED


def is_service(words: Sequence[str]) -> bool:
    """Return whether a command runs until it is asked to go."""
    options = [index for index, word in enumerate(words) if word == "--ca"]
    command = (
        word for index, word in enumerate(words) if not word.startswith("-") and index - 1 not in options
    )
    return next(command, "") in SERVICES


def has_begun() -> None:
    """Leave signals to whoever ends what is under way in order."""
    global _begun  # noqa: PLW0603 - there is one program in a process
    _begun = True


def has_stopped() -> None:
    """Ignore further signals at the end of a program: they must not change its exit code."""
    if _heed is not None:
        _heed()


def has_ended() -> None:
    """Ignore signals from here on: they must not change what the program has to answer."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
