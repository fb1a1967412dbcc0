"""Command `simulation start`: start simulations from code or scenario files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import typer
import yaml

from interlock.cli.connection import actor, run_connected
from interlock.cli.nouns.job_submit import typed_arguments
from interlock.cli.output import print_struct
from interlock.errors import CannotLoad, InvalidArguments
from interlock.remote.service_connection import ServiceConnection
from interlock.wire.simulations import SimulationSpec
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
    """Return the simulation to start, checked if its code is here."""
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
    """Return the file or module of a simulation, also from a scenario."""
    return read_scenario(Path(what)).simulation if Path(what).suffix in SCENARIOS else what


def read_scenario(path: Path) -> ScenarioFile:
    """Read a scenario file.

    It is data, and the code it names is loaded from here.
    """
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), ScenarioFile)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise CannotLoad(
            f"The scenario {path} cannot be read: {' '.join(str(error).split())}.",
            todo="It has `simulation:` (a file or a module) and `arguments:`; also name, steps, priority.",
            facts={"path": str(path)},
        ) from None


def load(what: str) -> tuple[str, Simulation[..., Any]]:
    """Load a simulation; return its module and the simulation.

    `what` is `models.py`, `models.py:flu`, `shop.models` or `shop.models:flu`.
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


def start(
    store: str | None,
    options: SimulationOptions,
    request_id: str | None,
    *,
    follow: Callable[..., Awaitable[int]] | None,
    timeout_s: float | None,
    as_json: bool,
) -> int:
    """Start a simulation, print its id, and `follow` it; return the exit code."""
    spec = simulation_for(options).spec

    async def work(port: ServiceConnection) -> int:
        view = await port.services.simulations.create_run(spec, actor=actor(), request_id=request_id)
        if not as_json:
            print(view.run_id, flush=True)
        if follow is not None:
            return await follow(port, view.run_id, timeout_s, as_json=as_json)
        if as_json:
            print_struct(view)
        return 0

    try:
        return run_connected(store, work)
    except KeyboardInterrupt:
        if follow is not None:
            typer.echo(CONTINUES, err=True)
        raise
