"""The spec of a workload: agents, load, coverage policy, thresholds, and the job that drives it.

A result that covers only some agents is PARTIAL, under any policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from interlock.errors import InvalidWorkload
from interlock.lifecycles.workload import Status
from interlock.systems.fleet.clocks import FARTHEST_S
from interlock.systems.orchestrator.failures import RETRIED
from interlock.wire.jobs import JobSpec, JobView, RetryRule
from interlock.wire.workloads import QUEUE, Coverage, Latencies, Policy, Threshold, Verdict, WorkloadSpec


def needed(policy: Policy, agents: int) -> int:
    """Return how many agents have to complete."""
    match policy:
        case Policy.ALL:
            return agents
        case Policy.MAJORITY:
            return agents // 2 + 1
        case Policy.BEST_EFFORT:
            return min(1, agents)


def covered(policy: Policy, finals: Iterable[Status | None]) -> Coverage:
    """Return the coverage, from the end of each agent; None if unknown."""
    ended = list(finals)
    completed = sum(final is Status.COMPLETED for final in ended)
    return Coverage(
        agents=len(ended),
        completed=completed,
        lost=len(ended) - completed,
        needed=needed(policy, len(ended)),
    )


def can_still_do(policy: Policy, agents: int, lost: int) -> bool:
    """Return whether the policy can still be met."""
    return agents - lost >= needed(policy, agents)


def verdict_of(coverage: Coverage, *, stopped: bool, flawed: bool = False) -> Verdict:
    """Return the verdict; a stop that came too late has no effect."""
    if coverage.agents and coverage.completed == coverage.agents:
        return Verdict.DEGRADED if flawed else Verdict.COMPLETE
    if stopped:
        return Verdict.ABORTED
    return Verdict.PARTIAL if coverage.completed >= coverage.needed else Verdict.FAILED


LATENCIES = ("mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
AT_MOST = (*LATENCIES, "error_share")
AT_LEAST = ("rate",)
NAMES = (*AT_MOST, *AT_LEAST)
"""Latencies in milliseconds, failed operations as a share of all, and operations per second."""
HIGHEST = 1e12


def judged(
    limits: Mapping[str, float], latencies: Latencies, *, rate: float, operations: int, errors: int
) -> Iterator[Threshold]:
    """Yield each threshold with its result."""
    values: dict[str, float | None] = {name: getattr(latencies, name) for name in LATENCIES}
    values["error_share"] = errors / operations if operations else None
    values["rate"] = rate
    for name, limit in limits.items():
        value, at_least = values[name], name in AT_LEAST
        passed = value is not None and (value >= limit if at_least else value <= limit)
        yield Threshold(name=name, limit=limit, passed=passed, value=value, at_least=at_least)


def faults_of(limits: Mapping[str, float]) -> Iterator[str]:
    """Yield the faults of thresholds."""
    for name, limit in limits.items():
        if name not in NAMES:
            yield f"there is no threshold {name[:40]!r}; there are {', '.join(NAMES)}"
        elif not 0 <= limit <= HIGHEST:
            yield f"the threshold {name} is {limit:g} and must be 0 to {HIGHEST:g}"


TASK = "interlock.workload"
"""The task of jobs that drive a fleet."""
PORT = 7167
MOST_AGENTS = 1_000
LONGEST_S = 3_600.0
MOST_OPERATIONS = 2**53
MOST_RATE = 1_000_000.0
NEVER_AGAIN = {str(each): RetryRule(retries=0) for each in RETRIED}
"""A load test must never restart automatically."""
DRIVE_S = LONGEST_S + 300.0
"""Timeout of the job that drives a workload."""


def checked(spec: WorkloadSpec) -> WorkloadSpec:
    """Return the spec, with the port of every agent.

    Raise an error with all faults.
    """
    agents = tuple(map(with_port, spec.agents))
    faults = [*_faults(spec), *_agent_faults(agents)]
    if faults:
        raise InvalidWorkload(
            "The workload cannot be run: " + "; ".join(faults) + ".",
            todo="Correct it; nothing was started.",
            facts={"faults": faults},
        )
    return msgspec.structs.replace(spec, agents=agents)


class _Input(msgspec.Struct):
    """The input of a job that drives a fleet."""

    workload: WorkloadSpec


def job_of(spec: WorkloadSpec, queue: str = QUEUE) -> JobSpec:
    """Return the job that drives a workload."""
    return JobSpec(
        task=TASK,
        queue=queue,
        description=spec.name,
        input=msgspec.Raw(msgspec.json.encode(_Input(spec))),
        retry=NEVER_AGAIN,
        losses=0,
        timeout_s=DRIVE_S,
    )


def spec_of(view: JobView) -> WorkloadSpec:
    """Return the spec in the input of a job that drives a workload.

    If it is unreadable, the spec has no kind.
    """
    try:
        return msgspec.json.decode(view.input, type=_Input).workload
    except msgspec.MsgspecError:
        return WorkloadSpec(kind="")


def with_port(agent: str) -> str:
    """Return HOST:PORT, with the default port of agents."""
    host, colon, port = agent.strip().rpartition(":")
    if colon and (port.isdecimal() or not port):
        return f"{host}:{port or PORT}"
    return f"{agent.strip()}:{PORT}"


def _faults(spec: WorkloadSpec) -> Iterator[str]:
    limits = (
        ("duration", spec.duration_s, 0.0, LONGEST_S),
        ("rate", spec.rate, 0.0, MOST_RATE),
        ("concurrency", spec.concurrency, 1, 10_000),
        ("operations", spec.operations, 0, MOST_OPERATIONS),
        ("lead", spec.lead_s, 0.0, FARTHEST_S),
        ("skew-limit", spec.skew_limit_s, 1e-6, FARTHEST_S),
        ("ready-within", spec.ready_within_s, 0.01, FARTHEST_S),
        ("lost-after", spec.lost_after_s, 1.0, FARTHEST_S),
    )
    for noun, value, least, most in limits:
        if not least <= value <= most:
            yield f"{noun} is {value:g} and must be {least:g} to {most:g}"
    if not spec.kind or len(spec.kind) > 100 or not spec.kind.isprintable():
        yield "kind has 1 to 100 printable characters"
    if len(spec.name) > 100 or not spec.name.isprintable():
        yield "name has at most 100 printable characters"
    yield from faults_of(spec.thresholds)


def _agent_faults(agents: Sequence[str]) -> Iterator[str]:
    if not 1 <= len(agents) <= MOST_AGENTS:
        yield f"there are {len(agents)} agents and must be 1 to {MOST_AGENTS:,}"
    twice = sorted({agent for agent in agents if agents.count(agent) > 1})
    if twice:
        yield f"{', '.join(twice)} is there twice"
    for agent in agents:
        host, _, port = agent.rpartition(":")
        if not host or len(agent) > 200 or not agent.isprintable() or not 0 < int(port) < 65_536:
            yield f"{agent!r} is not HOST:PORT"
