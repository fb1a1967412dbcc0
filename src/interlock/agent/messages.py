"""A message of the outbox as it goes over the wire, with its histogram."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from hdrh.histogram import HdrHistogram

from interlock.agent.counters import LONGEST_NS
from interlock.agent.outbox import Message
from interlock.lifecycles.workload import Status
from interlock.wire.fleet import fleet_pb2 as wire

SIGNIFICANT_DIGITS = 3


def stats_of(workload_id: str, message: Message, at_unix_ns: int) -> wire.WorkloadStats:
    """The message for the controller, at this time by the agent's wall clock."""
    said, started, totals, since = message.said, message.started, message.totals, message.since
    return wire.WorkloadStats(
        workload_id=workload_id,
        sequence=message.sequence,
        status=wire.Status.ValueType(said.status),
        completed=said.completed,
        at_unix_ns=at_unix_ns,
        started_at_unix_ns=started.at_unix_ns if started is not None else 0,
        late_ns=started.late_ns if started is not None else 0,
        elapsed_ns=totals.elapsed_ns,
        operations=totals.operations,
        errors=totals.errors,
        bytes=totals.size,
        interval_ns=message.interval_ns,
        interval_operations=since.operations,
        interval_errors=since.errors,
        interval_bytes=since.size,
        histogram=encoded(since.counts),
        coalesced=since.samples,
        error=said.error or "",
        error_samples=since.error_samples,
        preparing=said.status is Status.RUNNING and started is None,
        backlog=totals.backlog,
    )


def encoded(counts: Mapping[int, int]) -> bytes:
    """Nanoseconds and how often they were counted, as a compressed V2 histogram; empty for nothing."""
    if not counts:
        return b""
    histogram = HdrHistogram(1, LONGEST_NS, SIGNIFICANT_DIGITS)
    for value, count in counts.items():
        histogram.record_value(value, count)
    # Without its wrapping in base64 the library would leave the header away as well.
    return base64.b64decode(histogram.encode())
