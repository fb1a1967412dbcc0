"""The graph of a run: its jobs, their needs and states, and the layer in which each is drawn.

A plan can have ten thousand jobs, too many boxes to read. Above a limit, the jobs of one matrix become one
node, with the number of jobs in each state; if that is not enough, successful jobs are left out first.

Each job is one layer to the right of the last one that it needs, ordered so that few lines cross. A line
that passes a layer has a place in it, like a job, so lines only run from one layer to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import msgspec

from interlock.lifecycles import job
from interlock.lifecycles.job import FAILED, JOB
from interlock.machine import Tone
from interlock.wire.runs import RunJobView, RunView

MOST_DRAWN = 60

MARKS: Mapping[str, str] = {
    "WAITING": "◌",
    job.PENDING: "○",
    job.RUNNING: "●",
    "STOPPING": "◍",
    job.COMPLETED: "✓",
    job.FAILED: "✗",
    job.CANCELED: "⊘",
    "SKIPPED": "↷",
}
"""The state of a job in one character; WAITING and STOPPING are positions in the run."""
TONES: Mapping[str, Tone] = {
    **{str(state): tone for state, tone in JOB.tones.items()},
    "WAITING": Tone.WAITING,
    "STOPPING": Tone.STOPPED,
}
"""The tone of each state of a job in its run."""
_WORST_FIRST = (job.FAILED, job.CANCELED, "STOPPING", job.RUNNING, job.PENDING, "WAITING", job.COMPLETED)


class Node(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job, or all jobs of one matrix."""

    name: str
    state: str
    needs: tuple[str, ...] = ()
    required: bool = True
    job_id: str = ""
    why: str = ""
    """Reason why it is in the plan, waits or was stopped."""
    awaits: str = ""
    """Answer that it waits for: `approval` or `signal`."""
    started_at: datetime | None = None
    completed_at: datetime | None = None
    stands_for: int = 1
    tally: dict[str, int] = {}


class RunGraph(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The jobs in the order of the plan; needs refer only to jobs of the graph."""

    nodes: tuple[Node, ...]
    left_out: int = 0
    """Number of jobs that are not among the nodes."""


def run_graph(view: RunView, *, most: int = MOST_DRAWN) -> RunGraph:
    """Return the graph of a run, small enough to be drawn."""
    nodes = [_node(job) for job in view.jobs]
    if len(nodes) > most:
        nodes = _gathered(nodes)
    kept = _kept(nodes, most)
    names = {node.name for node in kept}
    left_out = sum(node.stands_for for node in nodes) - sum(node.stands_for for node in kept)
    return RunGraph(nodes=tuple(_among(node, names) for node in kept), left_out=left_out)


def mark_of(node: Node) -> str:
    """Return the mark of a node."""
    return MARKS.get(node.state, "?")


def shown_name(node: Node) -> str:
    """Return its name; of a group also the number of jobs in each state."""
    if node.stands_for == 1:
        return node.name if node.required else f"{node.name} (optional)"
    tally = " ".join(f"{MARKS.get(state, '?')}{number}" for state, number in node.tally.items())
    return f"{node.name} ×{node.stands_for}  {tally}"  # noqa: RUF001 - times, not x


def drawn_needs(graph: RunGraph) -> dict[str, tuple[str, ...]]:
    """Return the needs of each node without the implied ones."""
    needs = {node.name: node.needs for node in graph.nodes}
    above: dict[str, frozenset[str]] = {}
    for name in in_order(needs):
        above[name] = frozenset(needs[name]).union(*(above[need] for need in needs[name]))
    return {
        name: tuple(need for need in wanted if not any(need in above[other] for other in wanted))
        for name, wanted in needs.items()
    }


def in_order(needs: Mapping[str, Sequence[str]]) -> Iterable[str]:
    """Yield each node after those that it needs."""
    left = dict(needs)
    while left:
        free = [name for name, wanted in left.items() if not any(need in left for need in wanted)]
        for name in free or list(left):
            del left[name]
            yield name


def _node(job: RunJobView) -> Node:
    failure = job.failure.error if job.failure is not None and job.state == FAILED else ""
    return Node(
        name=job.name,
        state=job.state,
        needs=job.needs,
        required=job.required,
        job_id=job.job_id,
        why=failure or job.reason or job.why,
        awaits="" if job.awaiting is None else "signal" if job.awaiting.question is None else "approval",
        started_at=job.started_at,
        completed_at=job.completed_at,
    )


def _gathered(nodes: Sequence[Node]) -> list[Node]:
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        groups.setdefault(_base(node.name), []).append(node)
    return [_one_of(name, group) for name, group in groups.items()]


def _one_of(name: str, group: Sequence[Node]) -> Node:
    if len(group) == 1:
        (alone,) = group
        needs = tuple(dict.fromkeys(_base(need) for need in alone.needs))
        return msgspec.structs.replace(alone, name=name, needs=needs)
    tally = Counter(node.state for node in group)
    starts = [node.started_at for node in group if node.started_at is not None]
    ends = [node.completed_at for node in group if node.completed_at is not None]
    return Node(
        name=name,
        state=next(state for state in (*_WORST_FIRST, *tally) if tally[state]),
        needs=tuple(
            dict.fromkeys(_base(need) for node in group for need in node.needs if _base(need) != name)
        ),
        required=any(node.required for node in group),
        started_at=min(starts, default=None),
        completed_at=max(ends) if len(ends) == len(group) else None,
        stands_for=len(group),
        tally={state: tally[state] for state in (*_WORST_FIRST, *tally) if tally[state]},
    )


def _base(name: str) -> str:
    """Return the matrix of a job: `test (3.12)` belongs to `test`."""
    return name.partition(" (")[0] if name.endswith(")") else name


def _kept(nodes: Sequence[Node], most: int) -> list[Node]:
    """Return the most important nodes, in the order of the plan.

    These have failed, run or wait.
    """
    rank = {state: place for place, state in enumerate(_WORST_FIRST)}
    ranked = sorted(range(len(nodes)), key=lambda place: (rank.get(nodes[place].state, -1), place))
    return [nodes[place] for place in sorted(ranked[:most])]


def _among(node: Node, names: set[str]) -> Node:
    return msgspec.structs.replace(node, needs=tuple(need for need in node.needs if need in names))


SWEEPS = 4


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a layer: a job, or a line on its way to one."""

    name: str
    """The job, or the source of the line."""
    passing: str = ""
    """The target of a line."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The spots of each layer from the top down, and the lines between neighbours."""

    layers: tuple[tuple[Spot, ...], ...]
    lines: tuple[tuple[Spot, Spot], ...]


def layers_of(graph: RunGraph) -> Layers:
    """Return the layers of the graph and the lines between them."""
    needs = drawn_needs(graph)
    depth: dict[str, int] = {}
    for name in in_order(needs):
        depth[name] = 1 + max((depth.get(need, -1) for need in needs[name]), default=-1)
    layers: list[list[Spot]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in graph.nodes:
        layers[depth[node.name]].append(Spot(node.name))
    lines = [line for name in needs for need in needs[name] for line in _line(need, name, depth, layers)]
    return Layers(tuple(map(tuple, _ordered(layers, lines))), tuple(lines))


def _line(
    source: str, target: str, depth: Mapping[str, int], layers: Sequence[list[Spot]]
) -> list[tuple[Spot, Spot]]:
    path = [Spot(source)]
    for layer in range(depth[source] + 1, depth[target]):
        passing = Spot(source, target)
        layers[layer].append(passing)
        path.append(passing)
    path.append(Spot(target))
    return list(pairwise(path))


def _ordered(layers: Sequence[list[Spot]], lines: Sequence[tuple[Spot, Spot]]) -> list[list[Spot]]:
    """Return the layers with fewer crossings.

    Each spot is near the median of its neighbours.
    """
    ordered = [list(layer) for layer in layers]
    for sweep in range(SWEEPS):
        forward = sweep % 2 == 0
        places = range(1, len(ordered)) if forward else range(len(ordered) - 2, -1, -1)
        for place in places:
            fixed = ordered[place - 1] if forward else ordered[place + 1]
            ordered[place] = _by_neighbours(ordered[place], fixed, lines, forward=forward)
    return ordered


def _by_neighbours(
    layer: Sequence[Spot], fixed: Sequence[Spot], lines: Sequence[tuple[Spot, Spot]], *, forward: bool
) -> list[Spot]:
    rows = {spot: row for row, spot in enumerate(fixed)}
    joined: dict[Spot, list[int]] = {spot: [] for spot in layer}
    for source, target in lines:
        mine, other = (target, source) if forward else (source, target)
        if mine in joined and other in rows:
            joined[mine].append(rows[other])
    wanted = {
        spot: sum(found) / len(found) if (found := joined[spot]) else float(row)
        for row, spot in enumerate(layer)
    }
    return sorted(layer, key=lambda spot: wanted[spot])
