"""How far an agent's clock is from the controller's, and how well that is known.

One exchange has four instants: the controller sends, the agent receives and answers, the controller
has the answer. Nobody knows how the time on the way was divided, so an exchange says only that the
difference lies within an interval as wide as the time on the way. Each exchange says so on its own,
and all are right: the truth lies in every one of their intervals, and so in what they have in common.
The quick ones say the most.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

BEST = 5
"""How many of the quickest exchanges are believed: slow ones add nothing, and drift meanwhile."""


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its answer; in nanoseconds, by the clock of whoever was there."""

    sent_ns: int
    received_ns: int
    """By the agent's clock, like the next."""
    answered_ns: int
    returned_ns: int

    @property
    def on_the_way_ns(self) -> int:
        """How long both ways took together."""
        return (self.returned_ns - self.sent_ns) - (self.answered_ns - self.received_ns)

    @property
    def least_ns(self) -> int:
        """The agent's clock is ahead by at least this: the answer was not under way for less than nothing."""
        return self.answered_ns - self.returned_ns

    @property
    def most_ns(self) -> int:
        """And by at most this, for the same reason on the way there."""
        return self.received_ns - self.sent_ns


class Offset(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's clock shows the controller's time plus `offset_ns`, give or take the uncertainty."""

    offset_ns: int
    uncertainty_ns: int
    exchanges: int = 1
    """How many have been believed."""
    steady: bool = True
    """False when the exchanges contradict each other: the clock was set, or runs at another pace."""


def offset_of(exchanges: Sequence[Exchange]) -> Offset:
    """What these exchanges say together. There is at least one."""
    best = sorted(exchanges, key=lambda each: each.on_the_way_ns)[:BEST]
    least = max(each.least_ns for each in best)
    most = min(each.most_ns for each in best)
    if least > most:
        # They cannot all be right. Whoever has to choose stays with all of them, and says so.
        least = min(each.least_ns for each in best)
        most = max(each.most_ns for each in best)
        return _between(least, most, len(best), steady=False)
    return _between(least, most, len(best), steady=True)


def _between(least_ns: int, most_ns: int, exchanges: int, *, steady: bool) -> Offset:
    middle = (least_ns + most_ns) // 2
    widest = max(most_ns - middle, middle - least_ns)
    return Offset(offset_ns=middle, uncertainty_ns=widest, exchanges=exchanges, steady=steady)
