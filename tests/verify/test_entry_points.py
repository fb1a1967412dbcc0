"""What decides in production is what is verified: no decider of a job or a run is left out."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from msgspec.structs import replace
from tests.sources import statements

import interlock.systems
from interlock.store.records import Commit
from interlock.systems.orchestrator import grants, runner_messages, submission
from interlock.testing.model_checker import check
from interlock_verification import claims
from interlock_verification.environments import REDUCED, model_of
from interlock_verification.models import job_decisions
from interlock_verification.models.job_world import JobWorld
from interlock_verification.models.plan import ModelPlan

SYSTEMS = Path(next(iter(interlock.systems.__path__)))
AGGREGATES = {"JobAggregate", "RunAggregate"}

MOST = 150
"""How many states of each plan are explored: enough for every decider, and tracing is slow."""
ALONE = ModelPlan(name="alone", doc="", cancels=1, submits=True)

BY_WORLDS = {
    "supervisor/leases.py: _decide": "workers die in worlds; the model has leases that run out",
    "orchestrator/grants.py: _opened": "a claim that is sent again; worlds lose answers",
    "orchestrator/cancellation.py: outgrown": "a body that is too large; tests/systems/orchestrator",
    "orchestrator/uniqueness.py: _draft": "a job that is replaced or debounced; worlds with unique keys",
    "orchestrator/dependencies.py: _draft": "jobs that come after others; tests/systems/orchestrator",
    "orchestrator/followers.py: decide_follower": "jobs that come after others; tests/systems/orchestrator",
    "orchestrator/gates.py: adopted": "limits; worlds with vendors",
    "orchestrator/gates.py: _withdraw": "limits; worlds with vendors",
    "orchestrator/gates.py: _admit": "limits; worlds with vendors",
    "orchestrator/wait_records.py: _living": "signals and approvals; worlds with waits",
    "orchestrator/wait_records.py: decide_timeout": "waits that time out; worlds with waits",
    "orchestrator/trees.py: parents": "trees of jobs; worlds with families",
    "orchestrator/trees.py: decide": "trees of jobs; worlds with families",
    "orchestrator/tree_slots.py: _let_in": "trees of jobs; worlds with families",
    "orchestrator/tree_slots.py: _woken": "trees of jobs; worlds with families",
    "runs/runs.py: decide": "a run is submitted; worlds with runs",
    "runs/preparation.py: decide": "a plan that fails; worlds with runs",
    "runs/reconciler.py: _draft": "words of jobs, many at once; it calls `heard`, which is explored",
    "runs/reports/reporter.py: reported": "a run that is reported; worlds with runs",
    "runs/orders.py: decide_one": "orders of a run, many at once; it calls `decide_order`, which is explored",
}
"""Deciders that the model checker does not explore, and where they are tried."""


def deciders() -> dict[str, tuple[str, int]]:
    """Return every function of the systems that makes a working copy of a job or a run."""
    found: dict[str, tuple[str, int]] = {}
    for path in sorted(SYSTEMS.rglob("*.py")):
        if path.name == "aggregate.py":
            continue
        for function in _functions(ast.parse(path.read_text())):
            if any(map(_makes_aggregate, _own_nodes(function))):
                name = f"{path.relative_to(SYSTEMS)}: {function.name}"
                found[name] = str(path), function.lineno
    return found


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes of a function without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _own_nodes(node)


def _makes_aggregate(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name in AGGREGATES
    return False


def explored(*plans: ModelPlan) -> set[tuple[str, int]]:
    """Return the functions of the systems that are called while the worlds of plans are explored."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    sys.settrace(note)  # and not `setprofile`, which is called for every return and every builtin as well
    try:
        for plan in plans:
            check(model_of(plan), most=MOST)
    finally:
        sys.settrace(None)
    return {(code.co_filename, code.co_firstlineno) for code in seen}


def test_every_decider_is_explored_by_the_model_checker_or_listed_with_its_other_tests() -> None:
    called = explored(ALONE, *REDUCED)
    left_out = {name for name, place in deciders().items() if place not in called}
    assert sorted(left_out - BY_WORLDS.keys()) == [], "Explore these, or say who tries them."
    assert sorted(BY_WORLDS.keys() - deciders().keys()) == [], "These are no deciders any more."


def test_the_checker_explores_the_ways_of_batches() -> None:
    called = explored(ALONE)
    ways = (
        grants._offer_together,
        grants.foresee,
        runner_messages.decide_completions,
        submission.NewJobs.batch,
        submission.NewJobs.commit,
    )
    assert [way.__qualname__ for way in ways if _place(way) not in called] == []


def _place(function: Any) -> tuple[str, int]:
    return function.__code__.co_filename, function.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("whose", "name"),
    [
        (grants, "_offer_together"),
        (job_decisions, "foresee"),
        (job_decisions, "decide_completions"),
        (submission.NewJobs, "batch"),
        (submission.NewJobs, "commit"),
    ],
)
def test_a_batch_that_decides_otherwise_is_noticed(
    monkeypatch: pytest.MonkeyPatch, whose: Any, name: str
) -> None:
    """Each way of deciding for many is broken a little: it forgets what the priority is to be."""
    honest = getattr(whose, name)

    def broken(*given: Any, **words: Any) -> Any:
        decided = honest(*given, **words)
        return None if decided is None else _other(decided)

    monkeypatch.setattr(whose, name, broken)
    violation, *_ = check(JobWorld(ALONE), most=20_000).violations
    assert violation.claim == claims.BATCH_CLAIM


def _other(decided: Any) -> Any:
    if isinstance(decided, Commit):
        return replace(decided, changes=tuple(replace(change, priority=7) for change in decided.changes))
    return replace(decided, change=replace(decided.change, priority=7))
