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

ROOT = Path(__file__).parents[2]
SYSTEMS = Path(next(iter(interlock.systems.__path__)))
SOURCE = Path(interlock.__file__).parent
AGGREGATES = {"JobAggregate", "RunAggregate", "SimulationAggregate", "WorkerAggregate", "WorkloadAggregate"}
MAKERS = ("new", "of", "upsert", "fired")
"""The methods of a `RecordKind` that make a working copy."""
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

SHORT = {
    "ci": ("network", 0.5),
    "lab": ("everything", 0.4),
    "shift": ("everything", 0.6),
    "fleet": ("deaths", 0.3),
    "forest": ("everything", 0.3),
    "keys": ("everything", 0.2),
    "vendors": ("network", 0.5),
    "post": ("everything", 0.2),
}
"""The episodes that are traced: the world, its faults and its hours."""
SLOW = ("ci", "fleet", "lab", "post", "shift", "vendors")
"""Each takes five seconds and more; `make test-all` traces them."""
SEED = 7

BY_WORLDS: Mapping[str, Collection[str]] = {
    "ci": (
        "runs/orders.py: decide_one",
        "runs/reconciler.py: _draft",
        "runs/reports/reporter.py: reported",
        "runs/runs.py: decide",
        "orchestrator/uniqueness.py: changes",
        "runs.approve",
        "runs.cancel",
        "runs.keep",
        "runs.outline",
        "runs.submit",
        "runs.view",
    ),
    "lab": (
        "simulations/manager.py: decide",
        "simulations/reconciler.py: _draft",
        "simulations.cancel",
        "simulations.create_run",
        "simulations.get",
        "simulations.get_state",
        "simulations.pause",
        "simulations.receive",
        "simulations.resume",
    ),
    "shift": (
        "supervisor/workers.py: decide",
        "workers.beat",
        "workers.end_leases",
        "workers.find",
        "workers.get",
        "workers.namesakes",
        "workers.notify",
        "workers.orders",
        "workers.pause",
        "workers.register",
        "workers.resume",
        "workers.terminate",
    ),
    "fleet": (
        "fleet/workloads.py: _written_off",
        "fleet/workloads.py: decide",
        "workloads.apply_under",
    ),
    "forest": (
        "orchestrator/grants.py: _opened",
        "orchestrator/tree_slots.py: _let_in",
        "orchestrator/tree_slots.py: _woken",
        "orchestrator/trees.py: parents",
        "jobs.count",
        "jobs.explain",
        "jobs.views",
        "trees.children",
        "trees.submit",
        "waiting.ended",
    ),
    "keys": ("orchestrator/uniqueness.py: _draft", "jobs.cancel", "jobs.retry"),
    "vendors": (
        "orchestrator/gates.py: _admit",
        "orchestrator/gates.py: _serve",
        "orchestrator/gates.py: _withdraw",
        "orchestrator/gates.py: change",
        "orchestrator/gates.py: new_ticket",
        "limits.keep",
        "stops.close",
        "waiting.close",
        "runs.close",
        # What every world calls all the time.
        "followers.keep",
        "jobs.get",
        "jobs.submit",
        "jobs.submit_jobs",
        "jobs.submit_many",
        "limits.keep_now_and_then",
        "limits.look",
        "orchestrator.claim",
        "orchestrator.claim_all",
        "orchestrator.report",
        "orchestrator.sweep",
        "quarantine.keep",
        "quarantine.sweep",
        "queues.look",
        "queues.paused",
        "records.sweep",
        "schedules.sweep",
        "simulations.sweep",
        "trees.keep",
        "unique_keys.free",
        "waits.sweep",
        "workers.sweep",
        "workloads.sweep",
    ),
    "post": (
        "orchestrator/wait_records.py: _living",
        "orchestrator/wait_records.py: _opened",
        "orchestrator/wait_records.py: decide_signal",
        "orchestrator/wait_records.py: decide_timeout",
        "orchestrator/wait_records.py: new_wait",
        "waits.close",
        "waits.signal",
        "waits.wait",
    ),
}
"""What the model checker does not explore, and a world calls: each was called in its episode."""

BY_TESTS: Mapping[str, Collection[str]] = {
    "cli/test_holding_workers.py": ("workers.history",),
    "server/test_administration.py": (
        "sessions.list",
        "sessions.revoke",
    ),
    "server/test_artifacts.py": ("artifacts.keep",),
    "server/test_kinds.py": (
        "records.create",
        "records.explain",
        "records.find",
        "records.get",
        "records.history",
        "records.kinds",
        "records.learn",
        "records.send",
    ),
    "server/test_overview.py": (
        "figures.counted_until",
        "figures.read",
        "figures.recent",
        "jobs.under_way",
        "overview.take",
    ),
    "server/test_quarantine.py": (
        "quarantine.lift",
        "quarantine.list",
    ),
    "server/test_queues.py": (
        "queues.pause",
        "queues.resume",
    ),
    "server/test_sessions.py": (
        "check.principal_of",
        "check.store_uses",
        "sessions.close",
        "sessions.open",
        "sessions.principal_of",
        "sessions.sweep",
    ),
    "server/test_webhooks.py": (
        "triggers.generic",
        "triggers.github",
    ),
    "server/test_workers.py": (
        "workers.drain",
        "workers.start",
    ),
    "server/test_workloads.py": ("workloads.get",),
    "systems/access/test_rotating.py": (
        "tokens.any",
        "tokens.get",
        "tokens.rotate",
    ),
    "systems/access/test_sessions.py": (
        "access/authentication.py: _moved",
        "access/authentication.py: decide",
    ),
    "systems/access/test_tokens.py": (
        "access/tokens.py: _moved",
        "access/tokens.py: decide",
        "tokens.create",
        "tokens.list",
        "tokens.revoke",
        "tokens.sweep",
    ),
    "systems/figures/test_counting.py": (
        "figures.backlog",
        "figures.is_complete",
        "figures.round",
        "figures.sweep",
        "figures/figures.py: _change",
        "figures/figures.py: _forgotten",
        "queues.list",
    ),
    "systems/fleet/test_workloads.py": ("workloads.find",),
    "systems/limits/test_slots.py": (
        "limits.declare",
        "limits.delete",
        "limits.get",
        "limits.keys",
        "limits.list",
        "limits.page",
        "limits.set",
        "orchestrator/gates.py: adopted",
        "orchestrator/limits.py: decide",
    ),
    "systems/orchestrator/test_approvals.py": (
        "jobs.history",
        "orchestrator/wait_records.py: decide_close",
        "orchestrator/wait_records.py: decide_reply",
        "waits.approve",
        "waits.find",
        "waits.get",
        "waits.reject",
    ),
    "systems/orchestrator/test_artifacts.py": (
        "artifacts.find",
        "artifacts.list",
        "artifacts.opened",
    ),
    "systems/orchestrator/test_batches_of_jobs.py": (
        "batches.add",
        "batches.cancel",
        "batches.create",
        "batches.get",
        "batches.jobs",
        "batches.page",
        "batches.stop",
        "orchestrator/batches.py: decide",
        "orchestrator/batches.py: decide_ends",
    ),
    "systems/orchestrator/test_claiming_again.py": ("orchestrator.take_back",),
    "systems/orchestrator/test_dead_letters.py": (
        "dead_letters.act",
        "dead_letters.alert",
        "dead_letters.discard",
        "dead_letters.find",
        "dead_letters.get",
        "dead_letters.retry",
        "orchestrator/dead_letters.py: _handled",
    ),
    "systems/orchestrator/test_dependencies.py": (
        "followers.predecessors",
        "orchestrator/dependencies.py: _draft",
        "orchestrator/followers.py: decide_follower",
    ),
    "systems/orchestrator/test_growing.py": (
        "jobs.get_many",
        "orchestrator/cancellation.py: outgrown",
    ),
    "systems/orchestrator/test_quarantine.py": ("quarantine.py: _moved",),
    "systems/orchestrator/test_queue_pause.py": ("orchestrator/queues.py: _moved",),
    "systems/orchestrator/test_starting_in_time.py": ("jobs.now",),
    "systems/orchestrator/test_tree_histories.py": (
        "jobs.find",
        "orchestrator/trees.py: decide",
    ),
    "systems/orchestrator/test_tree_names.py": ("jobs.tree",),
    "systems/orchestrator/test_unique_jobs.py": ("orchestrator/uniqueness.py: freed",),
    "systems/runs/analysing/test_findings.py": ("runs.flaky",),
    "systems/runs/analysing/test_history.py": (
        "runs/job_history.py: forget_history",
        "runs/job_history.py: with_outcome",
    ),
    "systems/runs/caching/test_caches.py": (
        "caches.open",
        "caches.tidy",
    ),
    "systems/runs/reports/test_webhooks_out.py": (
        "runs.reports",
        "runs/reports/delivery.py: _created",
        "runs/reports/delivery.py: overdue",
    ),
    "systems/runs/test_comparing_runs.py": ("runs.compare",),
    "systems/runs/test_doing_again.py": (
        "runs.preview",
        "runs.rerun",
    ),
    "systems/runs/test_explaining_runs.py": ("runs.explain",),
    "systems/runs/test_forks.py": ("runs.decline",),
    "systems/runs/test_reporting_runs.py": ("runs.report_again",),
    "systems/runs/test_submitting_runs.py": (
        "runs.find",
        "runs.history",
        "runs.jobs",
        "runs/preparation.py: decide",
    ),
    "systems/schedules/test_firing.py": (
        "schedules.backfill",
        "schedules.create",
        "schedules.delete",
        "schedules.find",
        "schedules.get",
        "schedules.history",
        "schedules.next",
        "schedules.pause",
        "schedules.put",
        "schedules.resume",
        "schedules.run",
        "schedules/fires.py: decide_due",
        "schedules/fires.py: new_schedule",
        "schedules/schedules.py: _edited",
        "schedules/schedules.py: decide",
    ),
    "systems/simulations/test_executions.py": (
        "simulations.end_execution",
        "simulations.lost",
    ),
    "systems/simulations/test_importing.py": ("simulations.import_directory",),
    "systems/simulations/test_manager.py": ("simulations.prune",),
    "systems/simulations/test_metrics.py": ("simulations.metrics",),
    "systems/simulations/test_programs.py": (
        "simulations.check_stale_runs",
        "simulations.heartbeat",
        "simulations.history",
        "simulations.list_runs",
        "simulations.transition",
        "simulations/state_files.py: decide",
    ),
    "systems/supervisor/test_tasks_and_pools.py": (
        "workers.pools",
        "workers.tasks",
    ),
    "systems/supervisor/test_workers.py": (
        "supervisor/leases.py: _decide",
        "workers.died",
        "workers.leave",
        "workers.takes",
    ),
    "worker/test_caches.py": ("caches.keep",),
}
"""What neither explores, and the tests that try it."""
QUICK_TEST = "systems/access/test_rotating.py"
"""Its tests are traced in `make test`, the other ones in `make test-all`."""
AT_ONCE = 8
"""Number of files whose tests are traced by one process."""


def _parts() -> Iterator[tuple[str, ...]]:
    paths = sorted(BY_TESTS)
    return (tuple(paths[start : start + AT_ONCE]) for start in range(0, len(paths), AT_ONCE))


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
    """Yield the names of the `RecordKind`s of a module."""
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=func))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=func))
            ) if ast.unparse(func).startswith("RecordKind"):
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
    return False


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


@pytest.mark.parametrize("paths", [(QUICK_TEST,), *further(*((part,) for part in _parts()))])
def test_what_is_left_to_tests_is_called_by_the_tests_of_that_file(
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
    kinds = set(kinds_of(ast.parse("SHOES: RecordKind[Shoe] = RecordKind(SHOE, Shoe)")))
    assert kinds == {"SHOES"}
    for code in ("SHOES.of(record, now)", "SimulationAggregate.new(a)", "WorkerAggregate(a, b)"):
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
