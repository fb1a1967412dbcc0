"""No test depends on how fast the machine is: no sleeping, no stopwatch, no limit of a few seconds.

A test waits for something to be true (`tests/waiting.py`) and causes what would take time (`tests/clocks.py`,
virtual time). Functions that are about time itself, and programs that a test runs as somebody's work, are
named in `about_time.py`.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from tests.sources import statements, tree_of
from tests.tidy.about_time import ABOUT_TIME

TESTS = Path(__file__).parents[1]
PACKAGES = {"tests": TESTS, "interlock": TESTS.parent / "src" / "interlock"}
LEAST_LIMIT_S = 60.0
"""A limit is there for a test that fails; a shorter one fails tests on a slow machine."""
FOR_EVER_S = 600.0
"""Who sleeps for so long does not let time pass, but is there until it is stopped."""

SLEEPS = frozenset({"sleep", "usleep"})
STOPWATCHES = frozenset(
    f"{name}{unit}"
    for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time")
    for unit in ("", "_ns")
)
KEYWORDS = frozenset({"timeout", "timeout_s", "within_s"})
LIMITS: Mapping[str, int | None] = {
    "timeout": 0,
    "wait": 0,
    "join": 0,
    "result": 0,
    "wait_for": 1,
    "communicate": 1,
    "select": 3,
    "get": None,
    "run": None,
    "until": None,
}
"""Calls that have a limit, and at which place it may stand without its name."""

_IN_TEXT = re.compile(
    r"\b(?:time|asyncio)\S{0,2}\.(?P<sleep>sleep)\((?P<seconds>[^()]*)(?P<end>[()]|$)"
    rf"|\btime\.(?P<watch>{'|'.join(sorted(STOPWATCHES))})\(\)"
)
"""The same in a program that stands in a string."""
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMED = (*_FUNCTION, ast.ClassDef, ast.Assign, ast.AnnAssign)
_COUNTS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

Owner: TypeAlias = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


class Race(NamedTuple):
    """Something that depends on the machine's speed."""

    line: int
    within: str
    """The function, or the constant, of the module that it is in."""
    what: str


def races(source: str) -> list[str]:
    """Return everything in a source text that depends on the machine's speed, one phrase each."""
    return [f"line {race.line}: {race.what}" for race in races_of(ast.parse(source))]


def races_of(tree: ast.Module) -> list[Race]:
    """Return the same of a parsed module."""
    return sorted(Reader(tree).races())


class Reader:
    """Reads a module, and knows what its names stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._imports = imports_of(tree)
        self._within: list[str] = []
        self._owners: list[Owner] = [tree]
        """The module, and the functions that are being read."""
        self._resolving: list[tuple[Owner, str]] = []
        self._found: set[Race] = set()

    def races(self) -> set[Race]:
        """Return everything that depends on the machine's speed."""
        self._read_inside(self._tree)
        return self._found

    def numbers(self, name: str) -> list[float]:
        """Return every number that a name of the module may stand for."""
        return self._values(ast.Name(id=name))

    def _read_inside(self, node: ast.AST) -> None:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.Constant | ast.JoinedStr):
                self._note(inner, self._of_text(inner))
            elif isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
                pass  # a docstring
            elif isinstance(inner, _NAMED):
                self._read_named(inner)
            elif not isinstance(inner, ast.Name | ast.expr_context):
                if isinstance(inner, ast.Call):
                    self._note(inner, self._of_call(inner))
                self._read_inside(inner)

    def _read_named(self, node: ast.stmt) -> None:
        name = name_of(node) if len(self._owners) == 1 else ""
        depth = len(self._within), len(self._owners)
        self._within += [name] if name else []
        self._owners += [node] if isinstance(node, _FUNCTION) else []
        self._read_inside(node)
        del self._within[depth[0] :], self._owners[depth[1] :]

    def _note(self, node: ast.expr, found: Iterator[str]) -> None:
        self._found |= {Race(node.lineno, ".".join(self._within), what) for what in found}

    def _of_call(self, call: ast.Call) -> Iterator[str]:
        name, module = self._called(call.func)
        if name in SLEEPS and not _harmless(self._values(call.args[0]) if call.args else []):
            yield f"{name}()"
        if not call.args and (name == "time" or (name in STOPWATCHES and module == "time")):
            yield f"{name}()"
        if name in LIMITS:
            place = LIMITS[name]
            given = [word.value for word in call.keywords if word.arg in KEYWORDS]
            given += [] if place is None else call.args[place : place + 1]
            short = [value for limit in given for value in self._values(limit) if 0 < value < LEAST_LIMIT_S]
            yield from (f"{name} with a limit of {value:g} s" for value in short[:1])

    def _of_text(self, node: ast.Constant | ast.JoinedStr) -> Iterator[str]:
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        for found in _IN_TEXT.finditer("".join(map(self._shown, parts))):
            if found["watch"]:
                yield f"a program with {found['watch']}()"
            elif found["end"] != ")" or not _harmless(_number(found["seconds"])):
                yield "a program with sleep()"

    def _shown(self, part: ast.expr) -> str:
        if isinstance(part, ast.FormattedValue):
            return "".join(map(str, self._values(part.value)[:1])) or "?"
        value = part.value if isinstance(part, ast.Constant) else ""
        return value if isinstance(value, str) else ""

    def _called(self, function: ast.expr) -> tuple[str, str]:
        """Return the name of what is called, and the module that it is from if that is known."""
        match function:
            case ast.Name(id=name):
                module, original = self._imports.get(name, ("", ""))
                return original or name, module
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                return name, self._imports.get(module, (module, ""))[0]
            case ast.Attribute(attr=name):
                return name, ""
        return "", ""

    def _values(self, node: ast.expr) -> list[float]:
        """Return every number that an expression may stand for, as far as it can be read."""
        match node:
            case ast.Constant(value=bool()):
                return []
            case ast.Constant(value=int() | float() as value):
                return [value]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return [-value for value in self._values(operand)]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _COUNTS:
                pairs = [(a, b) for a in self._values(left) for b in self._values(right)]
                return [_COUNTS[type(op)](a, b) for a, b in pairs if b or not isinstance(op, ast.Div)]
            case ast.IfExp(body=body, orelse=orelse):
                return self._values(body) + self._values(orelse)
            case ast.Call(func=ast.Name(id="pick"), args=args):
                return [value for each in args for value in self._values(each)]
            case ast.Name(id=name):
                return self._named(name)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in self._imports:
                return numbers_in(".".join(filter(None, self._imports[module])), name)
        return []

    def _named(self, name: str) -> list[float]:
        for owner in reversed(self._owners):
            given = constants_of(owner).get(name)
            if given is not None and (owner, name) not in self._resolving:
                self._resolving.append((owner, name))  # a name may be made of the one that it hides
                values = [value for each in given for value in self._values(each)]
                self._resolving.pop()
                return values
        return numbers_in(*self._imports[name]) if name in self._imports else []


def _harmless(seconds: Sequence[float]) -> bool:
    """Return whether a sleep gives way once, or lasts until it is ended."""
    return bool(seconds) and all(value == 0 or value >= FOR_EVER_S for value in seconds)


def _number(text: str) -> list[float]:
    try:
        return [float(text)]
    except ValueError:
        return []


def name_of(node: ast.AST) -> str:
    """Return the name that a statement gives, or nothing."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def imports_of(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """Return where the names come from that a module imports: a module, and a name in it or nothing."""
    found: dict[str, tuple[str, str]] = {}
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found |= {name.asname: (name.name, "") for name in node.names if name.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {name.asname or name.name: (node.module, name.name) for name in node.names}
    return found


@functools.cache
def constants_of(owner: Owner) -> dict[str, list[ast.expr]]:
    """Return what the names of a module, or of a function and its parameters, may stand for."""
    found: dict[str, list[ast.expr]] = {}
    if not isinstance(owner, ast.Module):
        places, keywords = owner.args.posonlyargs + owner.args.args, owner.args.kwonlyargs
        last = places[len(places) - len(owner.args.defaults) :]
        given = [*zip(last, owner.args.defaults, strict=True)]
        given += [(one, each) for one, each in zip(keywords, owner.args.kw_defaults, strict=True) if each]
        found |= {parameter.arg: [default] for parameter, default in given}
        found |= {parameter.arg: [] for parameter in places + keywords if parameter.arg not in found}
    for node in owner.body if isinstance(owner, ast.Module) else ast.walk(owner):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found.setdefault(name, []).append(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                found.setdefault(name, []).append(value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for each, value in zip(names, values, strict=False):
                    if isinstance(each, ast.Name):
                        found.setdefault(each.id, []).append(value)
    return found


@functools.cache
def numbers_in(module: str, name: str) -> list[float]:
    """Return what a constant of another module of ours stands for."""
    package, *inner = module.split(".")
    if package not in PACKAGES or not name:
        return []
    path = PACKAGES[package].joinpath(*inner)
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.exists():
        return []
    return Reader(tree_of(path)).numbers(name)


@functools.cache
def racing() -> dict[str, list[Race]]:
    """Return what is found in all tests, by file."""
    paths = sorted(path for path in TESTS.rglob("*.py") if path.name != Path(__file__).name)
    found = {str(path.relative_to(TESTS)): races_of(tree_of(path)) for path in paths}
    return {name: all_ for name, all_ in found.items() if all_}


IMPORTS = "import asyncio, select, time\nfrom time import perf_counter\n"


def test_no_test_sleeps_or_holds_a_stopwatch() -> None:
    found = [
        f"{name}, {race.within}, line {race.line}: {race.what}"
        for name, all_ in racing().items()
        for race in all_
        if race.within not in ABOUT_TIME.get(name, {})
    ]
    assert found == []


def test_every_exception_is_still_needed() -> None:
    needed = {(name, race.within) for name, all_ in racing().items() for race in all_}
    listed = {(name, within) for name, all_ in ABOUT_TIME.items() for within in all_}
    assert sorted(listed - needed) == []


@pytest.mark.parametrize(
    "snippet",
    [
        "await asyncio.sleep(0.1)",
        "time.sleep(pause_s)",
        "began = time.monotonic()",
        "assert perf_counter() - began < 3",
        "async with asyncio.timeout(5): ...",
        "await asyncio.wait_for(told.wait(), 20)",
        "process.communicate(timeout=10)",
        "thread.join(timeout=5.0)",
        "await job.result(timeout_s=0.1)",
    ],
)
def test_a_test_that_races_would_be_noticed(snippet: str) -> None:
    assert races(IMPORTS + snippet) != []


@pytest.mark.parametrize(
    "snippet",
    [
        "assert time.monotonic_ns() - began_ns < 10**9",
        "assert time.perf_counter_ns() - began_ns < 10**9",
        "assert time.process_time() - began_s < 1",
        "assert time.process_time_ns() - began_ns < 10**9",
        "assert time.thread_time() - began_s < 1",
        "assert time.time() - began_s < 1",
        "assert time.time_ns() - began_ns < 10**9",
        "assert loop.time() - began_s < 1",
        "assert asyncio.get_running_loop().time() - began_s < 1",
    ],
)
def test_every_clock_is_a_stopwatch(snippet: str) -> None:
    assert races(IMPORTS + snippet) != []


@pytest.mark.parametrize(
    "snippet",
    [
        "LAST_WORDS_S = 2.0\nawait asyncio.wait_for(reading, LAST_WORDS_S)",
        "LONGEST_S: float = 2.0\nthread.join(timeout=LONGEST_S)",
        "A_S = 2.0\nB_S = 3 * A_S + 1\nasyncio.timeout(B_S)",
        "FIRST_S, LAST_S = 1.0, 2.0\nasyncio.timeout(LAST_S)",
        "LONG_S = pick(5.0, 300.0)\nasyncio.timeout(LONG_S)",
        "asyncio.timeout(0.3 if quick else 60.0)",
        "def test_it() -> None:\n    at_once_s = 0.01\n    asyncio.timeout(at_once_s)",
        "def ended(within_s: float = 5.0) -> None:\n    asyncio.timeout(within_s)",
        "def ended(*, within_s: float = 5.0) -> None:\n    asyncio.timeout(within_s)",
        "from tests.waiting import LOOK_EVERY_S\nasyncio.timeout(LOOK_EVERY_S)",
        "from tests.waiting import LOOK_EVERY_S as SOON_S\nasyncio.timeout(2 * SOON_S)",
        "from tests import waiting\nasyncio.timeout(waiting.LOOK_EVERY_S)",
        "from interlock.worker.host import STANDSTILL_S\nasyncio.timeout(STANDSTILL_S)",
        "PAUSE_S = 0.1\ntime.sleep(PAUSE_S)",
    ],
)
def test_a_limit_is_found_by_the_constant_that_names_it(snippet: str) -> None:
    assert races(IMPORTS + snippet) != []


@pytest.mark.parametrize(
    "snippet",
    [
        "thread.join(5)",
        "process.wait(5)",
        "future.result(0.5)",
        "process.communicate(b'', 5)",
        "select.select([pipe], [], [], 5)",
        "await until(told.is_set, 'it is told', within_s=2)",
    ],
)
def test_a_limit_is_found_at_its_place(snippet: str) -> None:
    assert races(IMPORTS + snippet) != []


@pytest.mark.parametrize(
    "snippet",
    [
        "from time import sleep as pause\npause(1)",
        "from time import monotonic as now\nbegan_s = now()",
        "import time as clock\nbegan_ns = clock.perf_counter_ns()",
        "from asyncio import timeout as within\nwithin(5)",
    ],
)
def test_another_name_hides_nothing(snippet: str) -> None:
    assert races(snippet) != []


@pytest.mark.parametrize(
    "snippet",
    [
        "PROGRAM = 'import time; time.sleep(1)'",
        'PROGRAM = """\nasync def work():\n    await asyncio.sleep(0.02)\n"""',
        "run(f'import time; time.sleep({pause_s})')",
        "PAUSE_S = 2\nrun(f'import time; time.sleep({PAUSE_S})')",
        "run('time.sleep(float(argv[1]))')",
        "MODEL.replace('pass', '__import__(\"time\").sleep(0.01)')",
        "run('began = time.monotonic()')",
    ],
)
def test_a_program_in_a_string_is_read_as_well(snippet: str) -> None:
    assert races(IMPORTS + snippet) != []


def test_an_exception_is_that_of_one_function() -> None:
    source = """
import time

PROGRAM = "time.sleep(1)"

class Crew:
    async def until(self):
        time.sleep(1)

def look():
    def again():
        time.sleep(1)

time.sleep(1)
"""
    assert [race.within for race in races_of(ast.parse(source))] == ["PROGRAM", "Crew.until", "look", ""]


@pytest.mark.parametrize(
    "snippet",
    [
        "await asyncio.sleep(0)",
        "await asyncio.sleep(3_600)",
        "LONG_S = 3_600.0\ntime.sleep(LONG_S)",
        "async with asyncio.timeout(PATIENCE_S): ...",
        "async with asyncio.timeout(60): ...",
        "process.wait(timeout=PROGRAM_S)",
        "job = submit(work, timeout_s=0.5)",
        "clock.monotonic(3)",
        "clock.monotonic_ns()",
        "await until(told.is_set, 'it is told')",
        "from tests.waiting import PATIENCE_S\nthread.join(PATIENCE_S)",
        "PATIENCE_S = 2 * 60\nthread.join(PATIENCE_S)",
        "', '.join(names)",
        "PROGRAM = 'import time; time.sleep(3_600)'",
        "LONG_S = 3_600\nrun(f'import time; time.sleep({LONG_S})')",
        "def wait() -> None:\n    'It called time.sleep(1) before.'",
    ],
)
def test_waiting_with_patience_is_left_alone(snippet: str) -> None:
    assert races(IMPORTS + snippet) == []
