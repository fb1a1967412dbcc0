"""A deadline comes from a table, or from what a kind declares about its data, never from an assignment."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources import tree_of

SOURCE = Path(__file__).parents[2] / "src" / "interlock"
ENGINE = ("engine/aggregate.py", "engine/step_templates.py", "machine/cascade.py")
"""Where timers are started and stopped, as tables and kinds declare."""
KEPT = {
    "systems/fleet/workloads.py: def deadline_at": "its timers are the agent's; it waits for messages",
    "systems/orchestrator/aggregate.py: def deadline_at": "as in general, without generators, for every job",
    "systems/orchestrator/aggregate.py: self.body.timer_at": "stored beside the timers of its attempts",
    "systems/runs/aggregate.py: self.body.timer_at": "stored in the body",
}
"""What sets a deadline elsewhere, with why it stays."""
CHANGES = ("replace", "rewritten", "Change", "Batch", "setattr")


def deadlines_set(tree: ast.Module) -> Iterator[str]:
    """Yield what sets a timer or a deadline: assignments, keywords of changes, and overrides."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets):
                assigned = [part for each in targets for part in _parts(each)]
            case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                assigned = [*_parts(target)]
            case ast.ClassDef(body=body) if any("Aggregate" in ast.unparse(base) for base in node.bases):
                assigned = []
                yield from (
                    "def deadline_at"
                    for each in body
                    if isinstance(each, ast.FunctionDef) and each.name == "deadline_at"
                )
            case ast.Call(func=func) if ast.unparse(func).rpartition(".")[2] in CHANGES:
                assigned = []
                named = [each.arg for each in node.keywords]
                named += [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
                if {"timer_at", "deadline_at"}.intersection(named):
                    yield f"{ast.unparse(func)}(…)"
            case _:
                assigned = []
        for each in assigned:
            if isinstance(each, ast.Attribute) and each.attr in ("timer_at", "deadline_at"):
                yield ast.unparse(each)


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def test_no_module_sets_a_deadline_itself_without_a_reason() -> None:
    found = set()
    for path in SOURCE.rglob("*.py"):
        module = path.relative_to(SOURCE).as_posix()
        if module not in ENGINE and not module.startswith(("store/", "testing/")):
            found |= {f"{module}: {each}" for each in deadlines_set(tree_of(path))}
    assert found == KEPT.keys()


@pytest.mark.parametrize(
    ("snippet", "noticed"),
    [
        ("ticket.root.timer_at = at", "ticket.root.timer_at"),
        ("entity.root.timer_at = until = now", "entity.root.timer_at"),
        ("draft.root.timer_at -= unused", "draft.root.timer_at"),
        ("body.data, body.timer_at = data, at", "body.timer_at"),
        ("one.timer_at: datetime = now", "one.timer_at"),
        ("setattr(one, 'timer_at', now)", "setattr(…)"),
        ("rewritten(record, deadline_at=now)", "rewritten(…)"),
        ("msgspec.structs.replace(change, id='m', deadline_at=now)", "msgspec.structs.replace(…)"),
        ("class A(JobAggregate):\n    @property\n    def deadline_at(self): ...", "def deadline_at"),
    ],
)
def test_a_deadline_that_is_set_by_hand_would_be_noticed(snippet: str, noticed: str) -> None:
    assert list(deadlines_set(ast.parse(snippet))) == [noticed]


@pytest.mark.parametrize(
    "snippet",
    [
        "until = entity.root.timer_at",
        "JobView(deadline_at=record.deadline_at)",
        "postponed(record, now + TRY_AGAIN, note)",
        "class Told(msgspec.Struct):\n    deadline_at: datetime | None = None",
    ],
)
def test_a_deadline_that_is_read_or_shown_is_left_alone(snippet: str) -> None:
    assert list(deadlines_set(ast.parse(snippet))) == []
