"""The messages between an agent and the process of a workload: one line of JSON each."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

MAX_LINE_BYTES = 16 * 1024 * 1024


class Order(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The order to run a workload; the first message to its process."""

    home: str
    """Location of the class of its kind: `module:Class`."""
    spec: msgspec.Raw
    start_at_ns: int
    """Time of the first operation, by the monotonic clock, which all processes of a host share."""
    duration_s: float
    rate: float
    concurrency: int
    max_operations: int
    sample_every_s: float
    drain_s: float
    """Time for operations in progress to finish after the end."""
    path: list[str]
    """Module search path."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Stop and clean up."""


class Up(msgspec.Struct, frozen=True, tag=True):
    """The process is up and can be asked to stop."""


class Started(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Operations can start."""

    at_unix_ns: int
    late_ns: int


class LoadSample(msgspec.Struct, kw_only=True, tag=True):
    """Measurements since the previous sample."""

    elapsed_ns: int = 0
    """Time since the start."""
    operations: int = 0
    errors: int = 0
    size: int = 0
    counts: dict[int, int] = {}
    """Number of operations by duration in nanoseconds, rounded to eleven binary digits as in a histogram."""
    error_samples: list[str] = []
    backlog: int = 0
    """Number of due operations that have not started."""
    samples: int = 1
    """Number of samples merged into this one."""

    def absorb(self, later: LoadSample) -> None:
        """Merge a later sample into this one."""
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


class WorkloadEnded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The workload has ended and cleaned up; the last message of its process."""

    error: str | None = None


ERROR_SAMPLES = 5
ERROR_LENGTH = 300

ToChild: TypeAlias = Order | Stop
FromChild: TypeAlias = Up | Started | LoadSample | WorkloadEnded

_to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(Order | Stop)
_from_child: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(Up | Started | LoadSample | WorkloadEnded)


def line_of(word: ToChild | FromChild) -> bytes:
    """Return a message as a line."""
    return msgspec.json.encode(word) + b"\n"


def to_child(line: bytes) -> ToChild:
    """Decode a message of the agent."""
    return _to_child.decode(line)


def from_child(line: bytes) -> FromChild:
    """Decode a message of the process of a workload."""
    return _from_child.decode(line)


def short_error(error: BaseException) -> str:
    """Return an error in one short line."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    return (f"{name}: {text}" if text else name)[:ERROR_LENGTH]
