"""Who watches a world: the hash of all that is written, the story when it is told, and what was broken."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from interlock.store.records import StepLine

MOST_LINES = 4_000


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that does not hold."""

    claim: str
    words: str
    at_s: float
    about: str = ""
    """The job that it is about, where it is about one."""


class Watcher:
    """Sees everything; the first broken claim halts the world."""

    def __init__(self, *, tells: bool = False) -> None:
        self.tells = tells
        self.broken: Broken | None = None
        self.seen: Counter[str] = Counter()
        """What has happened how often, by its name: nothing shall hold because nothing happens."""
        self._hash = hashlib.blake2b(digest_size=8)
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=MOST_LINES)
        self.halt: Callable[[], None] = lambda: None
        self.time: Callable[[], float] = lambda: 0.0

    @property
    def trace(self) -> str:
        """A hash of everything that has happened."""
        return self._hash.hexdigest()

    def heard(self, what: bytes) -> None:
        """Something has happened; the same seed has to lead to the same again."""
        self._hash.update(what)

    def saw(self, name: str) -> None:
        """Something that has to be seen now and then."""
        self.seen[name] += 1

    def tell(self, at_s: float, words: str, about: str = "") -> None:
        """A line of the story."""
        if self.tells:
            self._lines.append((at_s, about, words))

    def broke(self, claim: str, words: str, about: str = "") -> None:
        """A claim does not hold. Only the first counts: what follows from it says little."""
        if self.broken is None:
            self.broken = Broken(claim=claim, words=words, at_s=self.time(), about=about)
            self.halt()

    def story(self, about: str = "") -> list[str]:
        """What was told: about everybody, and of jobs only about this one."""
        told = [line for line in self._lines if not line[1] or not about or line[1] == about]
        return [f"{clock(at)}  {words}" for at, _, words in told]


def clock(at_s: float) -> str:
    """A time of the world as people read it: days, then the time of day."""
    day, rest = divmod(at_s, 86_400.0)
    hour, rest = divmod(rest, 3_600.0)
    minute, second = divmod(rest, 60.0)
    return f"day {day + 1:.0f} {hour:02.0f}:{minute:02.0f}:{second:06.3f}"


def rows(lines: tuple[StepLine, ...]) -> str:
    """Steps in a line: machine, entity, from and to."""
    return "; ".join(
        f"{' '.join(filter(None, (line.machine, line.entity)))} {line.source} → {line.target} by {line.event}"
        for line in lines
        if line.moves
    )
