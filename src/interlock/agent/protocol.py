"""The messages between an agent and the process of a workload: one line of JSON each."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

MAX_LINE_BYTES = 16 * 1024 * 1024


class Order(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run this workload; the first line that its process is told."""

    home: str
    """Where the class of its kind is: `module:Class`."""
    spec: msgspec.Raw
    start_at_ns: int
    """The instant of the first operation, by the monotonic clock, which is one for all of a host."""
    duration_s: float
    rate: float
    concurrency: int
    max_operations: int
    sample_every_s: float
    drain_s: float
    """How long operations that were begun in time may take to end."""
    path: list[str]
    """Where modules are looked for."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Stop and clean up."""


class Up(msgspec.Struct, frozen=True, tag=True):
    """The process is there; from now on it can be asked to stop."""


class Started(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Operations can begin."""

    at_unix_ns: int
    late_ns: int


class Sample(msgspec.Struct, kw_only=True, tag=True):
    """What was done since the sample before."""

    elapsed_ns: int = 0
    """From the start until now."""
    operations: int = 0
    errors: int = 0
    size: int = 0
    counts: dict[int, int] = {}
    """How often an operation took so many nanoseconds, to eleven binary digits: what a histogram keeps."""
    error_samples: list[str] = []
    backlog: int = 0
    """Operations that were due by now and have not begun."""
    samples: int = 1
    """How many of them this one stands for."""

    def absorb(self, later: Sample) -> None:
        """Let this one stand for a later one as well."""
        self.elapsed_ns = later.elapsed_ns
        self.backlog = later.backlog
        self.operations += later.operations
        self.errors += later.errors
        self.size += later.size
        self.samples += later.samples
        for value, count in later.counts.items():
            self.counts[value] = self.counts.get(value, 0) + count
        fresh = [text for text in later.error_samples if text not in self.error_samples]
        self.error_samples = (self.error_samples + fresh)[:ERROR_SAMPLES]


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The workload has ended and cleaned up; the last line of its process."""

    error: str | None = None


ERROR_SAMPLES = 5
ERROR_LENGTH = 300

ToChild: TypeAlias = Order | Stop
FromChild: TypeAlias = Up | Started | Sample | Ended

_to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(Order | Stop)
_from_child: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(Up | Started | Sample | Ended)


def line_of(word: ToChild | FromChild) -> bytes:
    """A word as the other side reads it."""
    return msgspec.json.encode(word) + b"\n"


def to_child(line: bytes) -> ToChild:
    """What an agent has said."""
    return _to_child.decode(line)


def from_child(line: bytes) -> FromChild:
    """What the process of a workload has said."""
    return _from_child.decode(line)


def told_briefly(error: BaseException) -> str:
    """An error in one line that is not too long."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:ERROR_LENGTH]
