"""States are named in the tables: other modules compare with members of their enums, not with text."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path

from tests.sources import tree_of

from interlock.lifecycles import MACHINES
from interlock.systems.catalogue import CATALOGUE

SRC = Path(__file__).parents[2] / "src" / "interlock"
STATES = frozenset(
    name
    for name in (
        *(str(state) for machine in MACHINES.values() for state in machine.states),
        *(state for kind in CATALOGUE.values() for state in kind.states),
    )
    if name.isupper()  # names in small letters are words of sentences and settings as well
)
KEPT = {
    "api/runner.py": "an example in the OpenAPI document",
    "api/waits.py": "an example in the OpenAPI document",
    "cli/live.py": "the head of a run that is redrawn: its jobs, and positions in the run",
    "cli/nouns/run_watch.py": "positions of a job in its run",
    "cli/nouns/run_views.py": "the outcome that needs no word",
    "cli/nouns/webhooks.py": "an example payload of a webhook",
    "systems/runs/body.py": "positions of a job in its run: there is no machine of them",
    "systems/runs/graph.py": "positions of a job in its run: there is no machine of them",
    "testing/runner_server.py": "an orchestrator without the tables, to check runners against the protocol",
    "wire/workloads.py": "the quality of a result",
    "worker/waits.py": "answers on the wire: a worker does not know the tables of records",
}
"""Files that name states in text, with why."""


def named_in_text(files: Iterable[Path]) -> dict[Path, list[str]]:
    """Return the states that files name in text, unless a file declares a machine itself."""
    found = {}
    for path in files:
        code = path.read_text(encoding="utf-8")
        if "Machine[" in code and ("on(" in code and "rows=" in code):
            continue
        texts = [
            node.value
            for node in ast.walk(tree_of(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in STATES
        ]
        if texts:
            found[path] = sorted(texts)
    return found


def test_no_module_names_a_state_in_text_without_a_reason() -> None:
    assert len(STATES) > 30
    files = [path for path in SRC.rglob("*.py") if path.relative_to(SRC).parts[0] != "lifecycles"]
    assert len(files) > 400
    found = {path.relative_to(SRC).as_posix() for path in named_in_text(files)}
    assert found == KEPT.keys()


def test_a_state_in_text_would_be_noticed(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(
        'OVER = ("ENDED", "of it")\nif view.state == "RUNNING":\n    say("it is RUNNING", other="running")\n'
    )
    assert named_in_text([example]) == {example: ["ENDED", "RUNNING"]}
