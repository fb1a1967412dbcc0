"""Samples of metrics by step, in a bounded number: a long simulation keeps the shape of its curves.

Steps are put into buckets of `stride` steps, and of each bucket the latest values are kept. When there are
too many buckets, each two become one. So curves are equally dense from the first step to the last, and the
last sample is always there.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

import msgspec

MOST_SAMPLES = 400
MOST_METRICS = 8
MOST_NAME = 64


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Numbers by their names, as they were in one step."""

    step: int
    values: dict[str, float]


class Samples(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Samples in the order of their steps."""

    stride: int = 1
    kept: tuple[Sample, ...] = ()

    @property
    def last_step(self) -> int:
        """The step of the latest sample; 0 while there is none."""
        return self.kept[-1].step if self.kept else 0

    def added(self, fresh: Iterable[Sample], most: int = MOST_SAMPLES) -> Samples:
        """Return these and later ones; what is not after the last is known already.

        There are at most so many metrics, the first ones: what is recorded under other names is left out.
        """
        kept, stride, last = list(self.kept), self.stride, self.last_step
        names = dict.fromkeys(name for sample in kept for name in sample.values)
        for sample in fresh:
            if sample.step <= last and kept:
                continue
            last = sample.step
            for name in sample.values:
                if len(names) < MOST_METRICS:
                    names.setdefault(name)
            known = {name: value for name, value in sample.values.items() if name in names}
            _put(kept, Sample(sample.step, known), stride)
            while len(kept) > most:
                stride *= 2
                kept = _bucketed(kept, stride)
        return Samples(stride=stride, kept=tuple(kept))

    def until(self, step: int) -> Samples:
        """Return these without what was measured after a step, which is taken again."""
        return Samples(stride=self.stride, kept=tuple(each for each in self.kept if each.step <= step))


def fault_of(samples: Iterable[Sample], known: Iterable[str] = ()) -> str:
    """Return what is wrong with samples that somebody sends; nothing if they can be kept."""
    names = set(known)
    for sample in samples:
        names |= sample.values.keys()
        if any(not 0 < len(name) <= MOST_NAME for name in sample.values):
            return f"the name of a metric has 1 to {MOST_NAME} characters"
        if wrong := [name for name, value in sample.values.items() if not isfinite(value)]:
            return f"{wrong[0]} is not a finite number"
    if len(names) > MOST_METRICS:
        return f"there are {len(names)} metrics, and {MOST_METRICS} at most are kept"
    return ""


def _put(kept: list[Sample], sample: Sample, stride: int) -> None:
    if kept and kept[-1].step // stride == sample.step // stride:
        sample = Sample(sample.step, {**kept.pop().values, **sample.values})
    kept.append(sample)


def _bucketed(samples: list[Sample], stride: int) -> list[Sample]:
    kept: list[Sample] = []
    for sample in samples:
        _put(kept, sample, stride)
    return kept
