"""What decides in production is what is verified: no entry point and no decider is left out.

An entry point is a method of a system that servers, clients, workers, the command line or the upkeep of a
runtime call. A decider is a function of the systems that makes a working copy of a record. The model checker
and short episodes of worlds are traced; what neither calls is listed with the tests that try it, which are
traced as well.
"""

from __future__ import annotations

import ast
import gc
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.effort import further
from tests.sources import statements, tree_of
from tests.verify import called_by_tests as called_by_tests_plugin
from tests.verify.called_by_tests import CALLED, Places
from tests.verify.explored_by import BY_TESTS, BY_WORLDS, QUICK_TEST, SEED, SHORT, SLOW, parts
from tests.verify.service_calls import Services, calls_in
from tests.waiting import PROGRAM_S

import interlock
import interlock.systems
from interlock.remote import interfaces
from interlock.server.parts import Parts
from interlock.store.records import Commit
from interlock.systems import runtime
from interlock.systems.orchestrator import grants, runner_messages, submission
from interlock.testing.model_checker import check
from interlock_verification import claims
from interlock_verification.environments import REDUCED, model_of
from interlock_verification.models import job_decisions
from interlock_verification.models.job_world import JobWorld
from interlock_verification.models.plan import ModelPlan
from interlock_verification.worlds.episode import play
from interlock_verification.worlds.faults import faults_named
from interlock_verification.worlds.worlds import world_named

pytestmark = pytest.mark.together("entry points")

ROOT = Path(__file__).parents[2]
SYSTEMS = Path(next(iter(interlock.systems.__path__)))
SOURCE = Path(interlock.__file__).parent
AGGREGATES = {"JobAggregate", "RunAggregate", "SimulationAggregate", "WorkerAggregate", "WorkloadAggregate"}
MAKERS = ("new", "of", "upsert", "fired", "step")
"""The methods of a `RecordKind` that make a working copy, or decide about a record."""
ASKING = (
    "server/**/*.py",
    "client*.py",
    "sync*.py",
    "cli/**/*.py",
    "worker/**/*.py",
    "systems/embedded.py",
    "systems/runtime.py",
)
"""Where production calls the systems."""

MOST = 150
"""How many states of each plan are explored: enough for every decider, and tracing is slow."""
ALONE = ModelPlan(name="alone", doc="", cancels=1, submits=True)


@pytest.fixture(scope="module", autouse=True)
def forget_trees() -> Iterator[None]:
    """Forget the parsed modules, which the garbage collector would traverse in all tests after these."""
    yield
    tree_of.cache_clear()


@cache
def deciders() -> dict[str, set[tuple[str, int]]]:
    """Return every function of the systems that makes a working copy of a record, by its name."""
    kinds = {name for path in SYSTEMS.rglob("*.py") for name in kinds_of(tree_of(path))}
    found: dict[str, set[tuple[str, int]]] = {}
    for path in sorted(SYSTEMS.rglob("*.py")):
        if path.name == "aggregate.py":
            continue
        for function in _functions(tree_of(path)):
            if any(_makes_copy(node, kinds) for node in _own_nodes(function)):
                name = f"{path.relative_to(SYSTEMS)}: {function.name}"
                first = min([function.lineno, *(each.lineno for each in function.decorator_list)])
                found.setdefault(name, set()).add((str(path), first))
    return found


def kinds_of(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the `RecordKind`s of a module, and of functions that return one."""
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=func))
            ) if ast.unparse(func).startswith("RecordKind"):
                yield name
            case ast.FunctionDef(name=name, returns=ast.expr() as made) if "RecordKind[" in ast.unparse(made):
                yield name


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in statements(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes of a function without those of functions inside it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from _own_nodes(node)


def _makes_copy(node: ast.AST, kinds: Collection[str]) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in AGGREGATES
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            return name in AGGREGATES or (name in kinds and method in MAKERS)
        case ast.Call(func=ast.Attribute(value=ast.Call(func=made), attr=method)):
            return ast.unparse(made).removesuffix(".lasting") in kinds and method in MAKERS
    return False


@cache
def entry_points() -> dict[str, set[tuple[str, int]]]:
    """Return the asynchronous methods of systems that production calls, by service and name."""
    called = {
        call for pattern in ASKING for path in SOURCE.glob(pattern) for call in calls_in(path, services())
    }
    return {call: {_place(_method(call))} for call in called}


def _method(call: str) -> Any:
    service, _, name = call.partition(".")
    return inspect.unwrap(getattr(services().classes[service], name))


@cache
def services() -> Services:
    """Return the systems that a runtime or a server has, and the interfaces of those that HTTP offers."""
    classes = dict(each for whole in (runtime.Runtime, Parts) for each in services_of(whole))
    offered = {
        each.fget.__annotations__["return"]: name
        for name, each in vars(interfaces.Services).items()
        if isinstance(each, property) and name in classes
    }
    return Services(classes, offered)


def services_of(whole: type) -> Iterator[tuple[str, type]]:
    """Yield the systems that an object has as attributes."""
    module = sys.modules[whole.__module__]
    for node in ast.walk(tree_of(Path(str(module.__file__)))):
        match node:
            case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=ast.Name(id=class_name)):
                service = getattr(module, class_name, None)
                if inspect.isclass(service) and service.__module__.startswith("interlock.systems"):
                    yield name, service


@contextmanager
def traced() -> Iterator[set[CodeType]]:
    """Collect the functions that are called inside."""
    seen: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    sys.settrace(note)  # and not `setprofile`, which is called for every return and every builtin as well
    try:
        yield seen
    finally:
        sys.settrace(None)


def places_of(seen: Collection[CodeType]) -> frozenset[tuple[str, int]]:
    return frozenset((code.co_filename, code.co_firstlineno) for code in seen)


@cache
def explored(*plans: ModelPlan) -> frozenset[tuple[str, int]]:
    """Return the functions that are called while the worlds of plans are explored."""
    with traced() as seen:
        for plan in plans:
            check(model_of(plan), most=MOST)
    return places_of(seen)


@cache
def played(world: str) -> frozenset[tuple[str, int]]:
    """Return the functions that are called in the episode of a world."""
    mix, hours = SHORT[world]
    with traced() as seen:
        result = play(world_named(world), faults_named(mix), seed=SEED, hours=hours)
    gc.collect()  # what is left of it must not end while something else is parsed
    assert result.ok, result.broken
    return places_of(seen)


EVERYTHING: Mapping[str, Callable[[], dict[str, set[tuple[str, int]]]]] = {
    "deciders": deciders,
    "entry points": entry_points,
}


@pytest.mark.parametrize("what", EVERYTHING)
def test_each_is_explored_by_the_model_checker_or_listed_with_what_tries_it(what: str) -> None:
    assert left_out(EVERYTHING[what]()) == [], "Explore these, or say what tries them."


def left_out(found: Mapping[str, set[tuple[str, int]]]) -> list[str]:
    """Return what the model checker does not call, and no list has."""
    called = explored(ALONE, *REDUCED)
    listed = {name for names in (*BY_WORLDS.values(), *BY_TESTS.values()) for name in names}
    return sorted({name for name, places in found.items() if not places <= called} - listed)


def test_an_entry_point_that_nothing_explores_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handler = tmp_path / "shearing.py"
    handler.write_text(
        "async def shear(call: Call) -> JobView:\n    return await _jobs(call).shear(1)\n"
        "def _jobs(call: Call) -> Jobs:\n    return call.parts.runtime.jobs\n"
    )

    async def shear(self: object, number: int) -> None: ...

    assert calls_in(handler, services()) == set()
    monkeypatch.setattr(services().classes["jobs"], "shear", shear, raising=False)
    assert calls_in(handler, services()) == {"jobs.shear"}
    assert left_out({**entry_points(), "jobs.shear": {_place(shear)}}) == ["jobs.shear"]


def test_every_listed_decider_and_entry_point_exists() -> None:
    found = deciders().keys() | entry_points().keys()
    listed = [name for names in (*BY_WORLDS.values(), *BY_TESTS.values()) for name in names]
    assert sorted(set(listed) - found) == [], "These are no deciders or entry points any more."
    assert len(set(listed)) == len(listed)
    assert [path for path in BY_TESTS if not (ROOT / "tests" / path).is_file()] == []


@pytest.mark.parametrize("world", [*(one for one in SHORT if one not in SLOW), *further(*SLOW)])
def test_a_decider_that_is_left_to_a_world_is_called_in_its_chapter(world: str) -> None:
    found = {**deciders(), **entry_points()}
    called = played(world)
    assert [name for name in BY_WORLDS[world] if not found[name] & called] == []


@pytest.mark.parametrize("paths", [(QUICK_TEST,), *further(*((part,) for part in parts()))])
def test_entry_points_that_are_left_to_the_tests_of_a_file_are_called_by_them(
    paths: Sequence[str], tmp_path: Path
) -> None:
    found = {**deciders(), **entry_points()}
    wanted = {path: {name: found[name] for name in BY_TESTS[path]} for path in paths}
    called = called_by_tests({path: set().union(*names.values()) for path, names in wanted.items()}, tmp_path)
    assert [
        (path, name)
        for path, names in wanted.items()
        for name, places in names.items()
        if not places & called[path]
    ] == []


@pytest.mark.long  # without the call that is missed, the tests of the file run to their end
def test_an_entry_point_that_the_tests_of_a_file_do_not_call_is_noticed(tmp_path: Path) -> None:
    wanted = entry_points()["tokens.rotate"] | entry_points()["runs.rerun"]
    assert called_by_tests({QUICK_TEST: wanted}, tmp_path) == {QUICK_TEST: entry_points()["tokens.rotate"]}


def called_by_tests(wanted: Mapping[str, Places], folder: Path) -> dict[str, Places]:
    """Run the tests of files in a process of its own; return which of the functions each file called."""
    tests = {path: str(ROOT / "tests" / path) for path in wanted}
    left = folder / "left.json"
    left.write_bytes(msgspec.json.encode({tests[path]: places for path, places in wanted.items()}))
    command = [sys.executable, "-m", "pytest", "-q", "-p", called_by_tests_plugin.__name__, *tests.values()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), CALLED: str(left)}
    environment.pop("INTERLOCK_TEST_ALL", None)  # `make test` runs what is named here
    ran = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=PROGRAM_S
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    missed = msgspec.json.decode(left.read_bytes(), type=dict[str, Places])
    return {path: places - missed[tests[path]] for path, places in wanted.items()}


PROBES = {
    "a helper": "async def f(call):\n    await _flocks(call).shear(1)\ndef _flocks(call) -> Flocks: ...",
    "a property": "class C:\n    @property\n    def _mine(self) -> FlocksApi: ...\n"
    "    async def f(self):\n        return await self._mine.shear(1)",
    "a variable": "async def f(call):\n    flocks = call.parts.runtime.flocks\n    await flocks.shear(1)",
    "a parameter": "async def f(given: Flocks):\n    do = partial(given.shear, 1)",
    "a literal name": "async def f(call):\n    await getattr(call.runtime.flocks, 'shear')(1)",
    "a name of a table": "def f(verb):\n    act = getattr(runtime.flocks, verb)\nf('shear'), f('x')",
    "a method that is passed on": "topics = {SHEAR: self.flocks.shear}",
}


@pytest.mark.parametrize("how", PROBES)
def test_a_new_entry_point_is_seen_however_it_is_called(how: str, tmp_path: Path) -> None:
    class Flocks:
        async def shear(self, number: int) -> None: ...

        def count(self) -> int: ...  # type: ignore[empty-body]

    module = tmp_path / "module.py"
    module.write_text(f"{PROBES[how]}\nflocks.count()\n")
    assert calls_in(module, Services({"flocks": Flocks}, {"FlocksApi": "flocks"})) == {"flocks.shear"}


def test_a_new_decider_would_be_noticed() -> None:
    declared = "SHOES: RecordKind[Shoe] = RecordKind(SHOE, Shoe)\ndef shoes() -> RecordKind[Shoe]: ..."
    kinds = set(kinds_of(ast.parse(declared)))
    assert kinds == {"SHOES", "shoes"}
    for code in (
        "SHOES.of(record, now)",
        "SHOES.lasting(worn_s=1).step(record, wear, now)",
        "shoes().step(record, wear, now)",
        "SimulationAggregate.new(a)",
        "WorkerAggregate(a, b)",
    ):
        assert any(_makes_copy(node, kinds) for node in ast.walk(ast.parse(code))), code
    assert not any(_makes_copy(node, kinds) for node in ast.walk(ast.parse("SHOES.body_of(record)")))


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
