"""Signals before a program has started: nothing is under way yet, so it exits at once.

Imports take a second or more. A signal in that time would end the program with a traceback or with the
default action; and the first process of a container, which has no default actions, would ignore it. The code
that handles signals from then on calls `has_begun`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from types import FrameType

SERVICES = frozenset(("worker", "supervisor", "server", "dev", "agent"))
"""Commands that run until stopped: stopping them is not a failure."""
STOPPING = (signal.SIGTERM, signal.SIGINT)
INTERRUPTED, TERMINATED = 130, 143

_begun = False
_install: Callable[[], None] | None = None


def exit_on_signals(arguments: Sequence[str]) -> None:
    """Exit on a signal, until the program has started."""
    global _install  # noqa: PLW0603 - there is one program in a process

    def end(number: int, _: FrameType | None) -> None:
        if not _begun:
            os._exit(exit_code(arguments, number))

    def install() -> None:
        for number in STOPPING:
            signal.signal(number, end)

    _install = install
    install()


def exit_code(arguments: Sequence[str], number: int) -> int:
    """Return the exit code of a program stopped before it had started."""
    if number == signal.SIGINT:
        return INTERRUPTED
    return 0 if is_service(arguments) else TERMINATED


def is_service(arguments: Sequence[str]) -> bool:
    """Return whether a command runs until stopped."""
    options = [index for index, argument in enumerate(arguments) if argument == "--ca"]
    command = (
        argument
        for index, argument in enumerate(arguments)
        if not argument.startswith("-") and index - 1 not in options
    )
    return next(command, "") in SERVICES


def has_begun() -> None:
    """Leave signals to the graceful shutdown of the program."""
    global _begun  # noqa: PLW0603 - there is one program in a process
    _begun = True


def has_stopped() -> None:
    """Ignore further signals at the end of a program.

    They must not change its exit code.
    """
    if _install is not None:
        _install()


def has_ended() -> None:
    """Ignore signals from here on.

    They must not change the result of the program.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
