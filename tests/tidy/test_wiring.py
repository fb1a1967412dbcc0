"""Components get what they need from their constructor, or learn of it as an event on the bus.

A component that assigns an attribute of another one's component wires it from outside: nothing in the class
that is changed says so, and until then it holds a value that is wrong.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.sources import statements, tree_of

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
    "store/sqlite/threads.py: self._subscribers.notified_us": "a time that the writer leaves for them",
    "store/transactions.py: self._connection.row_factory": "a connection of users, put back afterwards",
    "store/transactions.py: self._connection.text_factory": "the same connection",
    "systems/runs/runs.py: self.sweeper.prompt": "a property that its owner passes on",
    "worker/cohorts.py: cohort.own.context": "the job of a cohort gets its context when it has its own",
    "worker/cohorts.py: self._executor.current": "what the executor runs, as long as it runs",
    "worker/components.py: self._child_jobs.loop": "there is no loop before the components are started",
    "worker/components.py: self._uploads.loop": "there is no loop before the components are started",
    "worker/leases.py: self.beat.at": "the time of a beat, which a watchdog reads",
    "worker/process.py: self._components.beat.at": "the time of a beat, which a watchdog reads",
    "worker/watchdog.py: self._answer.at": "the time of an answer of the loop",
}
"""Assignments to an attribute of another component, with why each stays."""
PROPERTIES = frozenset({"property", "cached_property", "getter", "setter"})


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
    for node in statements(tree):
        open_ones = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            open_ones = [node.target]
        for target in open_ones:
            yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def callbacks_assigned(folder: Path, files: Sequence[Path]) -> list[str]:
    """Return the assignments `name.attr = callback`, where `name` is neither `self` nor a class.

    A callback is a lambda, a partial, a function of the file, a method, or a field that is declared so.
    """
    methods, values = _methods_and_values(files)
    found = []
    for path in files:
        if not (assigned := [*_assigned_to_names(path)]):
            continue
        functions, own = _functions_of(path), set.difference(*_methods_and_values([path]))
        found += [
            f"{path.relative_to(folder).as_posix()}: {ast.unparse(target)}"
            for target, value in assigned
            if _is_callback(value, functions, own, methods - values)
        ]
    return found


def _assigned_to_names(path: Path) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """Yield the assignments `name.attr = value` of a file, but for those of `self` and of a class."""
    for node in statements(tree_of(path)):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            match target:
                case ast.Attribute(value=ast.Name(id=name)) if name not in ("self", "cls"):
                    yield target, node.value


def _is_callback(value: ast.expr, functions: set[str], own: set[str], methods: set[str]) -> bool:
    match value:
        case ast.Lambda():
            return True
        case ast.Call(func=called):
            return ast.unparse(called) in ("partial", "functools.partial")
        case ast.Name(id=name):
            return name in functions
        case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in own:
            return True
        case ast.Attribute(attr=name):
            return name in methods
    return False


def _functions_of(path: Path) -> set[str]:
    """Return the functions of a file whose names no variable or parameter has."""
    nodes = list(ast.walk(tree_of(path)))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    variables = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return functions - variables - {node.arg for node in nodes if isinstance(node, ast.arg)}


def _methods_and_values(files: Iterable[Path]) -> tuple[set[str], set[str]]:
    """Return the names of functions and of fields for one, and those of properties and of other fields."""
    methods: set[str] = set()
    values: set[str] = set()
    for path in files:
        for node in statements(tree_of(path)):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    names = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
                    (values if names & PROPERTIES else methods).add(name)
                case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)):
                    (methods if "Callable[" in ast.unparse(node.annotation) else values).add(name)
    return methods, values


def test_no_callback_is_assigned_from_outside() -> None:
    files = [path for path in SRC.rglob("*.py") if "testing" not in path.relative_to(SRC).parts]
    assert callbacks_assigned(SRC, files) == []


def test_a_callback_that_is_assigned_from_outside_would_be_noticed(tmp_path: Path) -> None:
    example, other = tmp_path / "example.py", tmp_path / "other.py"
    other.write_text("class B:\n    @property\n    def busy(self): ...\n")
    example.write_text(
        "class A:\n"
        "    size: int\n"
        "    hook: Callable[[], None]\n"
        "    def busy(self): ...\n"
        "    @property\n"
        "    def name(self): ...\n"
        "    def wire(self, beat, other):\n"
        "        self.hook = stop\n"
        "        beat.hook = lambda: True\n"
        "        beat.one = stop\n"
        "        beat.two = self.busy\n"
        "        beat.three = other.hook\n"
        "        beat.four = functools.partial(stop, 1)\n"
        "        beat.size, beat.title = other.size, self.name\n"
        "        beat.rest = other.size\n"
        "def stop(): ...\n"
    )
    names = ("hook", "one", "two", "three", "four")
    assert callbacks_assigned(tmp_path, [example, other]) == [f"example.py: beat.{name}" for name in names]


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
