"""The clocks of an agent's machine: one that anybody can set, and one that only goes on."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent reads the time from; a simulated machine hands in its own."""

    wall_ns: Callable[[], int] = time.time_ns
    """Nanoseconds since 1970, as far as anybody here knows; instants are told by it."""
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    """It goes on whatever happens to the other one; whatever is waited for is waited for by it."""


THIS_MACHINE = Clocks()
