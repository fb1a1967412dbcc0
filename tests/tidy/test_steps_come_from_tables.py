"""A line of the journal is made from a step that a table has decided, in one place of the engine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sources import tree_of

SOURCE = Path(__file__).parents[2] / "src" / "interlock"
OF_A_STEP = ("event", "source", "target", "owner")
AGGREGATE = "engine/aggregate.py"
MADE_BY = {
    "StepLine": {
        AGGREGATE: "makes the lines of all steps that tables decide",
        "remote/history.py": "reads a line that a server has sent",
    },
    "Change": {
        AGGREGATE: "makes the change of a record from its machines",
    },
}
"""Which modules make a line or a change themselves, and why."""
DECIDED = {"state", "body", "ready_at", "deadline_at", "note", "expected"}
"""Columns of a change that follow from a decision; others say which record it is about."""
OF_A_RECORD = {"version", "created_at", "updated_at"}
"""Columns that only a record has."""
REWRITTEN_BY = {
    AGGREGATE: "empties a column in states in which records are not claimed",
    "engine/step_templates.py": "makes the changes of records that differ in nothing that decides",
    "engine/unit_of_work.py": "puts the id of a commit into notes",
    "systems/orchestrator/shapes.py": "puts the id of a run, or that of any run, into a body",
    "systems/orchestrator/uniqueness.py": "a new key has no time and no note: others differ in id and body",
}
"""Which modules change what was decided in a change, and why."""


def spelled_out(source: Path, code: str) -> Iterator[str]:
    """Where a `StepLine` gets its event, states or owner from elsewhere than from one step."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("StepLine"):
            given = [ast.unparse(each).removeprefix("str(").removesuffix(")") for each in node.args[2:6]]
            step = given[0].rpartition(".")[0] if given else ""
            if not step or given != [f"{step}.{name}" for name in OF_A_STEP]:
                yield f"{source.name}:{node.lineno}: {ast.unparse(node)}"


def test_no_line_of_the_journal_is_spelled_out_by_hand() -> None:
    found = [
        line
        for path in sorted(SOURCE.rglob("*.py"))
        if "testing" not in path.parts and "StepLine(" in (code := path.read_text(encoding="utf-8"))
        for line in spelled_out(path, code)
    ]
    assert found == []


def makers(name: str) -> set[str]:
    """The modules that make what `name` of the store's records is, apart from the stores and their tests."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        module = path.relative_to(SOURCE).as_posix()
        if module.startswith(("store/", "testing/")):
            continue
        code = path.read_text(encoding="utf-8")
        if f"{name}(" in code and makes(name, ast.parse(code)):
            found.add(module)
    return found


def makes(name: str, tree: ast.Module) -> bool:
    imported = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "interlock.store.records"
        and any(each.name == name for each in node.names)
        for node in ast.walk(tree)
    )
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return imported and any(isinstance(func, ast.Name) and func.id == name for func in called)


def rewrites(tree: ast.Module) -> Iterator[str]:
    """Where a copy of a change differs in what follows from a decision, in a module that handles changes."""
    handles = any(
        isinstance(node, ast.ImportFrom)
        and node.module == "interlock.store.records"
        and any(each.name in ("Change", "Commit") for each in node.names)
        for node in ast.walk(tree)
    )
    for node in ast.walk(tree) if handles else ():
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "replace":
            named = {each.arg for each in node.keywords}
            if named & DECIDED and not named & OF_A_RECORD:
                yield ast.unparse(node)


def test_systems_leave_what_was_decided_in_a_change_as_it_is() -> None:
    found = {
        path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if any(rewrites(tree_of(path)))
    }
    assert {each for each in found if not each.startswith(("store/", "testing/"))} == REWRITTEN_BY.keys()


@pytest.mark.parametrize(
    ("call", "noticed"),
    [
        ("replace(like, id=name, deadline_at=until)", True),
        ("msgspec.structs.replace(change, state=SENDING)", True),
        ("msgspec.structs.replace(like, id=job_id, given=given)", False),
        ("replace(common, id=one.id, expected_at=one.updated_at)", False),
        ("replace(record, version=record.version + 1, state=SENDING)", False),
    ],
)
def test_a_decision_that_is_changed_by_hand_would_be_noticed(call: str, noticed: bool) -> None:
    tree = ast.parse(f"from interlock.store.records import Change\n{call}")
    assert bool(list(rewrites(tree))) is noticed


@pytest.mark.parametrize("name", list(MADE_BY))
def test_systems_leave_lines_and_changes_to_the_aggregate(name: str) -> None:
    assert makers(name) == MADE_BY[name].keys()


@pytest.mark.parametrize(
    "snippet",
    [
        'StepLine("log", "", keep.name, OPEN, KEPT, "orchestrator")',
        'StepLine(LOG.name, "", step.event, OPEN, step.target, step.owner)',
        'StepLine(LOG.name, "", step.event, step.source, other.target, step.owner)',
        'records.StepLine("log", "", owner="orchestrator")',
    ],
)
def test_a_line_that_is_spelled_out_would_be_noticed(snippet: str) -> None:
    assert list(spelled_out(Path("a.py"), snippet)) == [f"a.py:1: {ast.unparse(ast.parse(snippet))}"]


@pytest.mark.parametrize(
    "snippet",
    [
        'StepLine(LOG.name, "", step.event, step.source, step.target, step.owner, step.moves)',
        'StepLine(LOG.name, "", each.event, str(each.source), str(each.target), str(each.owner))',
    ],
)
def test_a_line_that_is_made_from_a_step_is_left_alone(snippet: str) -> None:
    assert list(spelled_out(Path("a.py"), snippet)) == []
