"""Components get what they need from their constructor, or learn of it as an event on the bus.

A component that assigns an attribute of another one's component wires it from outside: nothing in the class
that is changed says so, and until then it holds a value that is wrong.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.sources import tree_of

SRC = Path(__file__).parents[2] / "src" / "interlock"
DRAFTS = frozenset({"body", "pulse", "root"})
"""Attributes that hold data of a draft, which a decider changes before it becomes a commit."""
KEPT = {
    "agent/plugins/http.py: self._answer.status": "the answer is data, which its parser fills",
    "agent/server.py: gate.peers.port": "the port is known when the system has chosen it",
    "engine/committer.py: self.tally.largest": "a number that only grows",
    "server/connections.py: self._cycle.keep_alive": "a request under way is the last one of its connection",
    "server/endpoint.py: self._exchange.failure": "why an answer has failed, for the task that answers so",
    "server/sockets.py: parts.connections.most": "the limit of open files is known when sockets are opened",
    "store/postgres/store.py: self._connections.when_foreign": "what is foreign is known with the schema",
    "store/sqlite/threads.py: self._subscribers.notified_us": "a time that the writer leaves for its subscribers",
    "store/transactions.py: self._connection.row_factory": "a connection of users, put back afterwards",
    "store/transactions.py: self._connection.text_factory": "the same connection",
    "systems/runs/runs.py: self.sweeper.prompt": "a property that its owner passes on",
    "worker/cohorts.py: cohort.own.context": "the job of a cohort gets its context when it has its own",
    "worker/cohorts.py: self._executor.current": "what the executor runs, as long as it runs",
    "worker/components.py: self._child_jobs.loop": "there is no loop before the components are started",
    "worker/components.py: self._uploads.loop": "there is no loop before the components are started",
    "worker/components.py: self.beat.awaited": "the beat is made here, with a hook of the process",
    "worker/leases.py: self._beat.at": "the time of a beat, which a watchdog reads",
    "worker/process.py: self._components.beat.at": "the time of a beat, which a watchdog reads",
    "worker/watchdog.py: self._answer.at": "the time of an answer of the loop",
}
"""Assignments to an attribute of another component, with why each stays."""


def assigned_from_outside(folder: Path, files: Iterable[Path]) -> set[str]:
    """Return the assignments `a.b.c = …` of files, but for drafts."""
    return {
        f"{path.relative_to(folder).as_posix()}: {ast.unparse(target)}"
        for path in files
        for target in _targets(tree_of(path))
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Attribute)
        and target.value.attr not in DRAFTS
    }


def _targets(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what is assigned to; counters that only grow (`+=`) are no wiring."""
    for node in ast.walk(tree):
        open_ones = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            open_ones = [node.target]
        for target in open_ones:
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def test_no_component_is_wired_from_outside_without_a_reason() -> None:
    files = [path for path in SRC.rglob("*.py") if "testing" not in path.relative_to(SRC).parts]
    assert len(files) > 400
    assert assigned_from_outside(SRC, files) == KEPT.keys()


def test_wiring_from_outside_would_be_noticed(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(
        "def wire(runtime):\n"
        "    runtime.overview.health = 1\n"
        "    runtime.engine.committer, runtime.mine = 2, 3\n"
        "    runtime.engine.recalled: int = 4\n"
        "    runtime.tally.commits += 1\n"
        "    draft.body.reason = runtime.name = ''\n"
    )
    assert assigned_from_outside(tmp_path, [example]) == {
        "example.py: runtime.overview.health",
        "example.py: runtime.engine.committer",
        "example.py: runtime.engine.recalled",
    }
