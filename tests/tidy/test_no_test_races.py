"""No test depends on how fast the machine is: no sleeping, no stopwatch, no limit of a few seconds.

A test waits for something to be true (`tests/waiting.py`) and causes what would take time (`tests/clocks.py`,
virtual time). The files below are about time itself, or are programs that a test runs as somebody's work.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LEAST_LIMIT_S = 60.0
"""A limit is there for a test that fails; a shorter one fails tests on a slow machine."""

SLEEPS = frozenset({"sleep", "usleep"})
STOPWATCHES = frozenset({"monotonic", "perf_counter", "process_time"})
LIMITS = frozenset(
    {"timeout", "timeout_at", "wait_for", "communicate", "wait", "join", "result", "get", "run"}
)
KEYWORDS = frozenset({"timeout", "timeout_s", "within_s"})
VIRTUAL = "its time is virtual and passes at once"
HANDLER = "a program that a test runs as somebody's work"
ABOUT_TIME = {
    "agent/test_state.py": VIRTUAL,
    "agent/test_load.py": VIRTUAL,
    "agent/test_outbox.py": VIRTUAL,
    "agent/workloads/odd.py": HANDLER,
    "couplings/world.py": VIRTUAL,
    "fixtures/stores/make.py": "a program that is no test, and waits for another one",
    "fixtures/stores/shop.py": HANDLER,
    "journeys/courses.py": HANDLER,
    "journeys/errands.py": HANDLER,
    "journeys/test_standing_still.py": "processes stand still for real, and are judged only afterwards",
    "journeys_http/test_runs_both_ways.py": "a wait that has to be in vain",
    "server/test_deadlines.py": VIRTUAL,
    "store/postgres/test_waking.py": "how often may be told depends on the time that has passed",
    "systems/fleet/loads/gated.py": HANDLER,
    "systems/fleet/loads/waiting.py": HANDLER,
    "systems/fleet/test_driving.py": "how far a clock has drifted depends on the time that has passed",
    "systems/fleet/test_lines.py": VIRTUAL,
    "testing/test_clocks.py": VIRTUAL,
    "testing/test_in_memory.py": VIRTUAL,
    "testing/test_pytest_plugin.py": VIRTUAL,
    "verify/test_broken_fleets.py": VIRTUAL,
    "verify/test_worlds_network.py": VIRTUAL,
    "verify/test_worlds_wires.py": VIRTUAL,
    "waiting.py": "the one place that waits",
    "worker/process_tasks.py": HANDLER,
    "worker/test_cohorts_and_single_tasks.py": VIRTUAL,
    "worker/test_standing_still.py": "it compares two clocks",
}
"""Files that are about time itself, each with its reason."""


def races(source: str) -> list[str]:
    """Return everything in a source text that depends on the machine's speed, one phrase each."""
    return [f"line {line}: {what}" for line, what in sorted(set(_races(ast.parse(source))))]


def _races(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _name(node.func)
        if name in SLEEPS and not _is_number(node.args[:1], 0, 0):
            yield node.lineno, f"{name}()"
        if name in STOPWATCHES and not node.args:
            yield node.lineno, f"{name}()"
        if name in LIMITS and (short := list(_short_limits(name, node))):
            yield node.lineno, f"{name} with a limit of {short[0]:g} s"


def _short_limits(name: str, call: ast.Call) -> Iterator[float]:
    given = [word.value for word in call.keywords if word.arg in KEYWORDS]
    given += {"timeout": call.args[:1], "wait_for": call.args[1:2]}.get(name, [])
    for value in given:
        if _is_number([value], 0, LEAST_LIMIT_S - 0.001) and isinstance(value, ast.Constant):
            yield float(str(value.value))


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _is_number(values: list[ast.expr], least: float, most: float) -> bool:
    return any(
        isinstance(value, ast.Constant)
        and isinstance(value.value, int | float)
        and least <= value.value <= most
        for value in values
    )


@functools.cache
def racing_files() -> dict[str, list[str]]:
    paths = sorted(path for path in TESTS.rglob("*.py") if path.name != Path(__file__).name)
    found = {str(path.relative_to(TESTS)): races(path.read_text(encoding="utf-8")) for path in paths}
    return {name: what for name, what in found.items() if what}


def test_no_test_sleeps_or_holds_a_stopwatch() -> None:
    found = [
        f"{name}, {what}" for name, all_ in racing_files().items() for what in all_ if name not in ABOUT_TIME
    ]
    assert found == []


def test_every_exception_is_still_needed() -> None:
    assert sorted(set(ABOUT_TIME) - set(racing_files())) == []


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
    assert races(snippet) != []


@pytest.mark.parametrize(
    "snippet",
    [
        "await asyncio.sleep(0)",
        "async with asyncio.timeout(PATIENCE_S): ...",
        "async with asyncio.timeout(60): ...",
        "process.wait(timeout=PROGRAM_S)",
        "job = submit(work, timeout_s=0.5)",
        "clock.monotonic(3)",
        "await until(told.is_set, 'it is told')",
    ],
)
def test_waiting_with_patience_is_left_alone(snippet: str) -> None:
    assert races(snippet) == []
