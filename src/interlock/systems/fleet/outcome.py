"""Progress and result of a workload, for display and storage, without the measuring libraries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec

from interlock.systems.fleet.clocks import some, took
from interlock.systems.orchestrator.attachments import Chunk
from interlock.text import counted
from interlock.wire.workloads import Happened, Latencies, WorkloadResult, WorkloadSpec

if TYPE_CHECKING:
    from interlock.systems.fleet.results import MergedReports


LEVEL = "stats"
"""The log level of the figures of each second."""


class AgentProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The current state of one agent."""

    agent: str
    state: str
    """Its latest event; empty before it has accepted the workload."""
    rate: float = 0.0
    operations: int = 0
    errors: int = 0
    corrupt: bool = False


class WorkloadProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The current state of all agents."""

    elapsed_s: float
    duration_s: float
    running: int
    agents: int
    operations: int = 0
    errors: int = 0
    rate: float = 0.0
    """Operations in the newest second that all have reported."""
    latencies: Latencies = Latencies()
    """Latencies of that second."""
    backlog: int = 0
    """Operations that are due and have not begun."""
    silent: dict[str, float] = {}
    """Silent agents, with the seconds of silence."""
    members: tuple[AgentProgress, ...] = ()

    @property
    def sentence(self) -> str:
        """The progress in a line."""
        parts = [f"{self.running} of {counted(self.agents, 'agent')} running"]
        if self.operations:
            found = self.latencies
            parts = [
                f"{self.rate:,.0f} op/s",
                f"p50 {took(found.p50_ms)}",
                f"p99 {took(found.p99_ms)}",
                counted(self.errors, "error"),
                *([f"{self.backlog:,} waiting to begin"] if self.backlog else ()),
                *parts,
            ]
        if self.silent:
            parts.append(f"{some(tuple(self.silent))} silent for {max(self.silent.values()):.0f} s")
        return " · ".join(parts)


def progress_of(
    spec: WorkloadSpec,
    merged: MergedReports,
    states: Mapping[str, Happened | None],
    elapsed_s: float,
    silent: Mapping[str, float] = MappingProxyType({}),
) -> WorkloadProgress:
    """Return the progress from the reports so far, and the silent agents."""
    second = merged.latest(silent=silent.keys())
    parts = merged.parts.values()
    return WorkloadProgress(
        elapsed_s=round(elapsed_s, 3),
        duration_s=spec.duration_s,
        running=sum(state is Happened.RUNNING and name not in silent for name, state in states.items()),
        agents=len(states),
        operations=merged.operations,
        errors=merged.errors,
        rate=float(second.operations) if second else 0.0,
        latencies=second.latencies if second else Latencies(),
        backlog=merged.backlog,
        silent={agent: round(silent[agent], 1) for agent in silent},
        members=tuple(
            AgentProgress(
                agent=part.agent,
                state=str(states[part.agent] or ""),
                rate=round(part.rate, 1),
                operations=part.last.operations if part.last else 0,
                errors=part.last.errors if part.last else 0,
                corrupt=bool(part.fault),
            )
            for part in parts
        ),
    )


def line_of(live: WorkloadProgress) -> str:
    """Return the log line of a second, without its agents.

    There may be many.
    """
    return msgspec.json.encode(msgspec.structs.replace(live, members=())).decode()


def read_line(text: str) -> WorkloadProgress:
    """Decode a line of `line_of`."""
    return msgspec.json.decode(text, type=WorkloadProgress)


def progress_in(chunk: Chunk) -> Iterator[WorkloadProgress]:
    """Yield every second in some lines of a log."""
    for line in chunk.lines:
        if line.level == LEVEL:
            with suppress(msgspec.MsgspecError):
                yield read_line(line.text)


MOST_SECONDS_IN_A_RESULT = 600
"""Maximum seconds in the result of a job; longer ones are only in the files."""


def in_short(result: WorkloadResult) -> WorkloadResult:
    """Return the result for a job, without the seconds of a long workload.

    They are in the files.
    """
    if len(result.seconds) <= MOST_SECONDS_IN_A_RESULT:
        return result
    return msgspec.structs.replace(result, seconds=())
