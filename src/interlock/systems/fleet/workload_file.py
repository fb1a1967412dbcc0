"""Workload files: the workload of a fleet, in YAML. All faults are reported with line and column at once.

name: checkout kind: http with: {url: "http://127.0.0.1:8080/"} duration: 30s rate: 500 agents: [a.example,
b.example:7168]
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode

from interlock.errors import InvalidWorkload
from interlock.systems.fleet.clocks import FARTHEST_S
from interlock.systems.fleet.spec import (
    HIGHEST,
    LONGEST_S,
    MOST_AGENTS,
    MOST_OPERATIONS,
    MOST_RATE,
    NAMES,
    checked,
)
from interlock.systems.runs.workflows.field_types import (
    Field,
    MapOf,
    Object,
    PlainText,
    Schema,
    Several,
    WholeNumber,
    scalar_text,
    shape,
)
from interlock.systems.runs.workflows.yaml_nodes import (
    FLOAT,
    INT,
    FileFaults,
    FilePosition,
    compose,
    place_of,
    plain,
)
from interlock.text import read_duration
from interlock.wire.workloads import Policy, WorkloadSpec

PAGE = "docs/guides/fleet.md"


@dataclass(frozen=True, slots=True)
class NumberField:
    """A number with its limits."""

    least: float
    most: float

    def read(self, node: Node, faults: FileFaults) -> float:
        """Return the number."""
        if isinstance(node, ScalarNode) and node.tag in (INT, FLOAT) and len(node.value) < 40:
            number = float(node.value)
            if self.least <= number <= self.most:
                return number
        limits = f"{self.least:g} to {self.most:,.15g}"
        faults.add(place_of(node), f"this has to be a number from {limits}, not {shape(node)}")
        return self.least

    def schema(self) -> Schema:
        """Return the schema of a number."""
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class DurationField:
    """A duration that may be short: `50ms`, `30s`, `10m`, or a number of seconds."""

    least_s: float
    most_s: float

    def read(self, node: Node, faults: FileFaults) -> float:
        """Return the seconds."""
        text = (scalar_text(node, "a duration", faults) or "").strip()
        try:
            seconds = _seconds(text)
        except ValueError:
            faults.add(place_of(node), f"{text[:40]!r} is not a duration; write 50ms, 30s, 10m or 1h")
            return self.most_s
        if not self.least_s <= seconds <= self.most_s:
            faults.add(place_of(node), f"this has to be {self.least_s:g}s to {self.most_s:g}s, not {text}")
        return seconds

    def schema(self) -> Schema:
        """Return the schema: a number, or text with a unit."""
        return {"oneOf": [{"type": "number"}, {"type": "string", "pattern": r"^\d+(\.\d+)?(ms|[smhd])?$"}]}


@dataclass(frozen=True, slots=True)
class PluginInput:
    """The input of the plugin: any keys with any values."""

    def read(self, node: Node, faults: FileFaults) -> Any:
        """Return the value as JSON."""
        if not isinstance(node, MappingNode):
            faults.add(place_of(node), f"this has to be keys with values, not {shape(node)}")
            return {}
        return plain(node, faults)

    def schema(self) -> Schema:
        """Return the schema of an object."""
        return {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFile:
    """A parsed file."""

    place: FilePosition
    kind: str = ""
    name: str = ""
    with_: Any = None
    agents: tuple[str, ...] = ()
    duration: float = 10.0
    rate: float = 0.0
    concurrency: int = 1
    operations: int = 0
    policy: str = Policy.ALL
    lead: float = 2.0
    skew_limit: float = 0.1
    ready_within: float = 10.0
    lost_after: float = 20.0
    thresholds: Any = None


def _made(**values: Any) -> WorkloadFile:
    values["with_"] = values.pop("with", None)
    return WorkloadFile(**values)


WORKLOAD_FILE = Object(
    "a workload",
    _made,
    (
        Field("kind", PlainText("kind", most=100), "Kind of workload: command, python, http, sleep, "
              "or a plugin of the agents.", "http", required=True),
        Field("name", PlainText("name", most=100), "Its name (default: the name of the file).", "checkout"),
        Field("with", PluginInput(), "Spec of the plugin; see docs/guides/running-an-agent.md.", '{url: "http://…"}'),
        Field("agents", Several(PlainText("agent", most=200), MOST_AGENTS),
              "HOST or HOST:PORT of each agent; `--agents` takes precedence.", "[a.example, b.example:7168]"),
        Field("duration", DurationField(0.0, LONGEST_S),
              "How long operations are started; 0: until it ends by itself, at most an hour.", "30s"),
        Field("rate", NumberField(0.0, MOST_RATE),
              "Operations per second on each agent; 0: as many as possible.", "500"),
        Field("concurrency", WholeNumber(1, 10_000), "Concurrent operations on each agent.", "4"),
        Field("operations", WholeNumber(0, MOST_OPERATIONS),
              "Number of operations of each agent; 0: no limit.", "100"),
        Field("policy", PlainText("policy", one_of=tuple(str(each) for each in Policy)),
              "How many agents must complete: all, more than half, or any.", "majority"),
        Field("lead", DurationField(0.0, FARTHEST_S), "Time from the last READY to the common start.", "2s"),
        Field("skew-limit", DurationField(1e-6, FARTHEST_S),
              "Maximum time between the starts of two agents, by the known error of their clocks.", "50ms"),
        Field("ready-within", DurationField(0.01, FARTHEST_S),
              "How long an agent may take to be READY.", "10s"),
        Field("lost-after", DurationField(1.0, FARTHEST_S),
              "Ping timeout after which an agent is lost.", "20s"),
        Field("thresholds", MapOf(NumberField(0.0, HIGHEST), "threshold", "[a-z0-9_]+", keys=NAMES),
              "Thresholds for the result: p99_ms and other percentiles, error_share, rate.",
              "{p99_ms: 250, error_share: 0.01, rate: 900}"),
    ),
    elsewhere={
        "iterations": "operations",
        "stages": "the rate is constant; run several workloads one after the other",
        "url": "it belongs under with, for kind http",
        "users": "concurrency",
        "vus": "concurrency",
    },
)  # fmt: skip


def read_workload(text: str, file: str = "workload.yml", agents: Sequence[str] = ()) -> WorkloadSpec:
    """Parse a workload file; raise an error with all faults."""
    faults = FileFaults(file, page=PAGE, error=InvalidWorkload)
    node = compose(text, faults)
    if node is None:
        if not faults.found:
            faults.add(FilePosition(1, 1), "the file is empty")
        raise faults.refusal()
    found: WorkloadFile = WORKLOAD_FILE.read(node, faults)
    faults.refuse_if_any()
    return checked(
        WorkloadSpec(
            kind=found.kind,
            name=found.name or PurePath(file).stem,
            spec=found.with_ or {},
            agents=tuple(agents) or found.agents,
            duration_s=found.duration,
            rate=found.rate,
            concurrency=found.concurrency,
            operations=found.operations,
            policy=Policy(found.policy),
            lead_s=found.lead,
            skew_limit_s=found.skew_limit,
            ready_within_s=found.ready_within,
            lost_after_s=found.lost_after,
            thresholds=found.thresholds or {},
        )
    )


def _seconds(text: str) -> float:
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)(ms)?", text, re.ASCII):
        return float(match[1]) / (1_000 if match[2] else 1)
    return read_duration(text).total_seconds()
