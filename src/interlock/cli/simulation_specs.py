"""From what somebody typed to a simulation: a file, a module, or a scenario that names one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from interlock.cli.specs import typed_arguments
from interlock.errors import CannotLoad, InvalidArguments
from interlock.wire.simulations import SimulationSpec
from interlock.worker.codec import encode
from interlock.worker.simulations import Simulation, simulation_named
from interlock.worker.tasks import Registry, load_tasks

SCENARIOS = (".yml", ".yaml", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody wants to start."""

    what: str
    words: Sequence[str] = ()
    run_id: str = ""
    name: str = ""
    steps: int | None = None
    priority: str | None = None
    queue: str = ""
    unchecked: bool = False


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario file."""

    simulation: str
    """A file or a module, as on the command line; files are looked up from here."""
    name: str = ""
    steps: int | None = None
    priority: str = ""
    arguments: dict[str, Any] = {}


class Found(msgspec.Struct, frozen=True):
    """A simulation to start, and the module in which a worker finds it."""

    spec: SimulationSpec
    module: str = ""


def found(asked: Asked) -> Found:
    """The simulation, with its arguments checked as far as it is known here."""
    arguments = _arguments(asked.words)
    scenario, path = Scenario(simulation=asked.what), ""
    if Path(asked.what).suffix in SCENARIOS:
        path = asked.what
        scenario = read_scenario(Path(path))
    given = {**scenario.arguments, **arguments}
    if asked.unchecked:
        base = Found(SimulationSpec(task=scenario.simulation, input=encode(given, "arguments")))
    else:
        module, simulation = load(scenario.simulation)
        base = Found(simulation.run(**given), module)
    told: dict[str, Any] = {
        "run_id": asked.run_id,
        "scenario_path": path,
        "scenario_name": asked.name or scenario.name,
        "total_steps": asked.steps or scenario.steps,
        "priority": asked.priority or scenario.priority,
        "queue": asked.queue,
    }
    spec = msgspec.structs.replace(base.spec, **{name: value for name, value in told.items() if value})
    return msgspec.structs.replace(base, spec=spec)


def simulation_in(what: str) -> str:
    """Return the file or module with a simulation, also where a scenario names it."""
    return read_scenario(Path(what)).simulation if Path(what).suffix in SCENARIOS else what


def read_scenario(path: Path) -> Scenario:
    """What a scenario file says; it is data, and names code only where that is loaded from here."""
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), Scenario)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise CannotLoad(
            f"The scenario {path} cannot be read: {' '.join(str(error).split())}.",
            todo="It has `simulation:` (a file or a module) and `arguments:`; also name, steps, priority.",
            facts={"path": str(path)},
        ) from None


def load(what: str) -> tuple[str, Simulation[..., Any]]:
    """`models.py`, `models.py:flu`, `shop.models` or `shop.models:flu`: the module and the simulation."""
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
        todo=f"Say which: {module}:{_short(inside)}." if inside else "Decorate a generator with @simulation.",
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
