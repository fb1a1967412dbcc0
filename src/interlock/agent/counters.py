"""Counting operations without slowing them down.

An operation leaves a number in a queue, which any thread can do without a lock; what it means for a
histogram is worked out when a sample is taken. Every operation is counted exactly once.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TypeVar

from interlock.agent.words import ERROR_LENGTH, ERROR_SAMPLES, Sample

T = TypeVar("T")

DIGITS = 11
"""Binary digits that a histogram of three decimal digits keeps of a value."""
LONGEST_NS = 3_600_000_000_000
"""What takes longer is counted as this."""


class Counting:
    """What operations have taken since the last sample."""

    def __init__(self) -> None:
        self._took: deque[int] = deque()
        self._failed: deque[str] = deque()
        self._moved: deque[int] = deque()
        self._sample = Sample(samples=0)

    def note(self, took_ns: int, size: int | None = None, error: str | None = None) -> None:
        """One operation: how long it took, how many bytes it has moved, and why it has failed; any thread.

        An operation may be any function, which answers whatever it likes: only a number is a size.
        """
        if type(size) is int and size:
            self._moved.append(size)
        if error is not None:
            self._failed.append(error)
        self._took.append(took_ns)

    def gather(self) -> None:
        """Work out what the numbers mean, so that they do not pile up."""
        sample, took, failed = self._sample, _emptied(self._took), _emptied(self._failed)
        sample.operations += len(took)
        sample.errors += len(failed)
        sample.size += sum(_emptied(self._moved))
        for value, count in Counter(map(_bucket, took)).items():
            sample.counts[value] = sample.counts.get(value, 0) + count
        for text in dict.fromkeys(failed):
            if len(sample.error_samples) < ERROR_SAMPLES and text not in sample.error_samples:
                sample.error_samples.append(text[:ERROR_LENGTH])

    def take(self, elapsed_ns: int) -> Sample:
        """Everything since the last time."""
        self.gather()
        sample, self._sample = self._sample, Sample(samples=0)
        sample.elapsed_ns, sample.samples = elapsed_ns, 1
        return sample


def _emptied(queue: deque[T]) -> list[T]:
    """What is in it now; whatever others add meanwhile stays for the next time."""
    return [queue.popleft() for _ in range(len(queue))]


def _bucket(took_ns: int) -> int:
    """The lowest value that a histogram does not tell apart from this one."""
    if took_ns >= LONGEST_NS:
        return LONGEST_NS
    spare = took_ns.bit_length() - DIGITS
    return took_ns >> spare << spare if spare > 0 else max(took_ns, 0)
