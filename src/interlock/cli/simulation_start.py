"""Start simulations from code or scenario files, and watch them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import typer
import yaml

from interlock.cli import output, watch
from interlock.cli.connection import actor, run_connected
from interlock.cli.job_submit import typed_arguments
from interlock.cli.output import print_line, print_struct
from interlock.cli.simulation_views import StepRate, status_text, steps_of, whole_id
from interlock.cli.watch import CANCELED, COMPLETED, FAILED, NOT_IN_TIME
from interlock.client_resources import is_settled
from interlock.errors import CannotLoad, InvalidArguments
from interlock.lifecycles.simulation import SimulationState
from interlock.remote.reach import Reach
from interlock.wire.simulations import SimulationSpec, SimulationView
from interlock.worker.codec import encode
from interlock.worker.simulations import Simulation, simulation_named
from interlock.worker.tasks import Registry, load_tasks

CONTINUES = "Stopped watching; the simulation continues."
SCENARIOS = (".yml", ".yaml", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """The command line."""

    what: str
    words: Sequence[str] = ()
    run_id: str = ""
    name: str = ""
    steps: int | None = None
    priority: str | None = None
    queue: str = ""
    unchecked: bool = False


class ScenarioFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario file."""

    simulation: str
    """A file or a module, as on the command line; files are relative to the current folder."""
    name: str = ""
    steps: int | None = None
    priority: str = ""
    arguments: dict[str, Any] = {}


class SimulationToStart(msgspec.Struct, frozen=True):
    """A simulation to start, and the module in which a worker finds it."""

    spec: SimulationSpec
    module: str = ""


def simulation_for(options: SimulationOptions) -> SimulationToStart:
    """Return the simulation to start; its arguments are checked if its code is here."""
    arguments = _arguments(options.words)
    scenario, path = ScenarioFile(simulation=options.what), ""
    if Path(options.what).suffix in SCENARIOS:
        path = options.what
        scenario = read_scenario(Path(path))
    given = {**scenario.arguments, **arguments}
    if options.unchecked:
        base = SimulationToStart(SimulationSpec(task=scenario.simulation, input=encode(given, "arguments")))
    else:
        module, simulation = load(scenario.simulation)
        base = SimulationToStart(simulation.run(**given), module)
    fields: dict[str, Any] = {
        "run_id": options.run_id,
        "scenario_path": path,
        "scenario_name": options.name or scenario.name,
        "total_steps": options.steps or scenario.steps,
        "priority": options.priority or scenario.priority,
        "queue": options.queue,
    }
    spec = msgspec.structs.replace(base.spec, **{name: value for name, value in fields.items() if value})
    return msgspec.structs.replace(base, spec=spec)


def simulation_in(what: str) -> str:
    """Return the file or module with a simulation, also where a scenario names it."""
    return read_scenario(Path(what)).simulation if Path(what).suffix in SCENARIOS else what


def read_scenario(path: Path) -> ScenarioFile:
    """Read a scenario file; it is data, and the code it names is loaded from here."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), ScenarioFile)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise CannotLoad(
            f"The scenario {path} cannot be read: {' '.join(str(error).split())}.",
            todo="It has `simulation:` (a file or a module) and `arguments:`; also name, steps, priority.",
            facts={"path": str(path)},
        ) from None


def load(what: str) -> tuple[str, Simulation[..., Any]]:
    """Load `models.py`, `models.py:flu`, `shop.models` or `shop.models:flu`; return the module and the
    simulation.
    """
    module, _, name = what.partition(":")
    registry = load_tasks(module)
    known = {each.name: each for each in registry if isinstance(each, Simulation)}
    stem = Path(module).stem if module.endswith(".py") else module
    inside = {full: each for full, each in known.items() if full.rpartition(".")[0].endswith(stem)} or known
    if name:
        return module, _named(registry, inside, name)
    if len(inside) == 1:
        return module, next(iter(inside.values()))
    raise CannotLoad(
        f"There are {len(inside) or 'no'} simulations in {module}.",
        allowed=inside,
        todo=f"Name one: {module}:{_short(inside)}." if inside else "Decorate a generator with @simulation.",
        facts={"module": module, "known": list(inside)},
    )


def _named(registry: Registry, inside: dict[str, Simulation[..., Any]], name: str) -> Simulation[..., Any]:
    fitting = [each for full, each in inside.items() if name in (full, full.rpartition(".")[2])]
    return fitting[0] if len(fitting) == 1 else simulation_named(registry, name)


def _short(inside: dict[str, Simulation[..., Any]]) -> str:
    return min(name.rpartition(".")[2] for name in inside)


def _arguments(words: Sequence[str]) -> dict[str, Any]:
    typed = typed_arguments(words) if words else {}
    given = msgspec.json.decode(typed) if isinstance(typed, bytes) else typed
    if not isinstance(given, dict):
        raise InvalidArguments("The arguments are a JSON object, by name.", todo="Write people=500.")
    return given


LOOK_EVERY_S = 0.5
"""Polling interval: steps are not in the journal, so they cause no notification."""
_CODES = {
    SimulationState.COMPLETED: COMPLETED,
    SimulationState.FAILED: FAILED,
    SimulationState.CANCELLED: CANCELED,
}


class SimulationScreen(Protocol):
    """A display for changes of a simulation."""

    def show(self, view: SimulationView, pace: StepRate) -> None:
        """Show the current simulation."""
        ...


def watch_simulation(store: str | None, text: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Follow a simulation; return the exit code."""

    async def work(port: Reach) -> int:
        return await follow(port, await whole_id(port, text), timeout_s, as_json=as_json)

    return watch.until_interrupted(store, work, CONTINUES)


async def follow(port: Reach, run_id: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Show the changes of a simulation until it stops; return the exit code."""
    pace, loop = StepRate(), asyncio.get_running_loop()
    with _screen(as_json=as_json) as screen:

        async def show(view: SimulationView) -> None:
            pace.note(loop.time(), view.current_step)
            screen.show(view, pace)

        late = f"Not ended in time: {run_id}."
        return await watch.follow_one(looks_at(port, run_id), show, exit_code, timeout_s, late)


def looks_at(port: Reach, run_id: str) -> AsyncGenerator[SimulationView, None]:
    """Yield the simulation whenever it may have changed, until it stops."""
    return watch.looks(port, lambda: port.here.simulations.get(run_id), is_settled, every_s=LOOK_EVERY_S)


def exit_code(view: SimulationView) -> int:
    """Return the exit code for the state of a simulation."""
    return _CODES.get(SimulationState(view.status), NOT_IN_TIME)


def _screen(*, as_json: bool) -> AbstractContextManager[SimulationScreen]:
    def live() -> AbstractContextManager[SimulationScreen]:
        from interlock.cli.live import LiveBar  # a pipe needs no rich

        return LiveBar()

    return watch.screen(as_json=as_json, json_lines=SimulationJsonLines, lines=SimulationLines, live=live)


class SimulationLines:
    """A line for each change, for a pipe."""

    def __init__(self) -> None:
        self._before: tuple[str, ...] = ()

    def show(self, view: SimulationView, pace: StepRate) -> None:
        """Print one line if the simulation has changed, and flush it."""
        now = (view.run_id, status_text(view), steps_of(view), str(view.danger_count))
        if now != self._before:
            self._before = now
            output.print_row((*now, pace.text(view), view.error or view.trouble))


class SimulationJsonLines:
    """A line of JSON for each change."""

    def __init__(self) -> None:
        self._before: SimulationView | None = None

    def show(self, view: SimulationView, pace: StepRate) -> None:
        """Print one line if the simulation has changed, and flush it."""
        if view != self._before:
            self._before = view
            print_line({"simulation": view, "rate": pace.rate, "left_s": pace.left_s(view)})


def start(
    store: str | None,
    options: SimulationOptions,
    request_id: str | None,
    *,
    wait: bool,
    timeout_s: float | None,
    as_json: bool,
) -> int:
    """Start a simulation, print its id, and follow it with `wait`; return the exit code."""
    spec = simulation_for(options).spec

    async def work(port: Reach) -> int:
        view = await port.here.simulations.create_run(spec, actor=actor(), request_id=request_id)
        if not as_json:
            print(view.run_id, flush=True)
        if wait:
            return await follow(port, view.run_id, timeout_s, as_json=as_json)
        if as_json:
            print_struct(view)
        return 0

    try:
        return run_connected(store, work)
    except KeyboardInterrupt:
        if wait:
            typer.echo(CONTINUES, err=True)
        raise
