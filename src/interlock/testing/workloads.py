"""A workload of your own, tried without an agent: in the test's event loop, and counted as an agent would.

tried = await try_workload(Checkout, {"shop": "http://127.0.0.1:8000"}, max_operations=10)
assert tried.errors == 0
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from interlock.agent.load import PacedLoad
from interlock.agent.port import KindLocation, WorkloadType
from interlock.agent.protocol import Order
from interlock.agent.validation import RequestedWorkload, look_at
from interlock.lifecycles.durations import DEFAULTS

_DURATION_S, _LONG_S = 1.0, 600.0


class Tried(msgspec.Struct, frozen=True):
    """Result of a trial."""

    operations: int
    errors: int
    size: int
    """Bytes that its operations have moved."""
    error_samples: list[str]
    longest_ns: int
    """Duration of the slowest operation."""


async def try_workload(
    kind: WorkloadType,
    spec: Mapping[str, Any],
    *,
    duration_s: float | None = None,
    rate: float = 0.0,
    concurrency: int = 1,
    max_operations: int = 0,
) -> Tried:
    """Check the spec, prepare, run and clean up a workload.

    Raise `InvalidWorkload` as an agent would. It runs for one second by default; with `max_operations` until
    these are done, so that a test of their number does not depend on the speed of the machine.
    """
    if duration_s is None:
        duration_s = _LONG_S if max_operations else _DURATION_S
    request = RequestedWorkload(
        workload_id="tried",
        kind=kind.kind,
        spec=msgspec.json.encode(spec),
        duration_s=duration_s,
        rate=rate,
        concurrency=concurrency,
        max_operations=max_operations,
    )
    checked = look_at(request, {kind.kind: KindLocation("", kind)}, DEFAULTS, time.time_ns())
    load = PacedLoad(
        Order(
            home="",
            spec=checked.spec,
            start_at_ns=0,
            duration_s=checked.duration_s,
            rate=rate,
            concurrency=concurrency,
            max_operations=max_operations,
            sample_every_s=1.0,
            drain_s=1.0,
            path=[],
        )
    )
    workload = kind(msgspec.json.decode(checked.spec, type=kind.spec_type))
    try:
        await workload.prepare()
        load.begin()
        await workload.run(load)
    finally:
        await workload.cleanup()
    sample = load.counting.take(load.elapsed_ns)
    return Tried(
        sample.operations,
        sample.errors,
        sample.size,
        sample.error_samples,
        max(sample.counts, default=0),
    )
