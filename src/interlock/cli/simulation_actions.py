"""Start, watch, pause, resume and cancel simulations."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import typer
import yaml

from interlock.cli import output
from interlock.cli.connection import actor, ask
from interlock.cli.job_actions import typed_arguments
from interlock.cli.job_watch import Trouble
from interlock.cli.journal import CANCELED, COMPLETED, FAILED, NOT_IN_TIME, wait_for_wakeup
from interlock.cli.output import lasting, print_line, print_struct
from interlock.cli.simulation_views import steps_of, told_status, whole_id
from interlock.client_resources import stands
from interlock.errors import CannotLoad, InvalidArguments, StoreUnavailable
from interlock.lifecycles.simulation import SimulationState
from interlock.remote.interfaces import Reach
from interlock.systems.orchestrator.waiters import waker
from interlock.wire.simulations import SimulationSpec, SimulationView
from interlock.worker.codec import encode
from interlock.worker.simulations import Simulation, simulation_named
from interlock.worker.tasks import Registry, load_tasks

SCENARIOS = (".yml", ".yaml", ".json")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
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


def found(asked: SimulationOptions) -> Found:
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


LOOK_EVERY_S = 0.5
"""Steps are no news of the journal, so nobody calls for them."""
LEAST_PAUSE_S = 0.1
SWEEP_EVERY_S = 1.0
MEASURED = 20
"""Over how many looks the rate is measured."""
_CODES = {
    SimulationState.COMPLETED: COMPLETED,
    SimulationState.FAILED: FAILED,
    SimulationState.CANCELLED: CANCELED,
}


class Pace:
    """How fast a simulation goes, and when it will be done if it goes on like this."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=MEASURED)

    def note(self, at_s: float, step: int) -> None:
        """It has come to this step."""
        if self._seen and step < self._seen[-1][1]:
            self._seen.clear()
        self._seen.append((at_s, step))

    @property
    def rate(self) -> float | None:
        """Steps in a second; None where that is not known."""
        if len(self._seen) < 2:
            return None
        (began, first), (last, step) = self._seen[0], self._seen[-1]
        return (step - first) / (last - began) if last > began and step > first else None

    def left_s(self, view: SimulationView) -> float | None:
        """How many seconds are left; None where that is not known."""
        if self.rate is None or not view.total_steps or view.status != SimulationState.RUNNING:
            return None
        return max(view.total_steps - view.current_step, 0) / self.rate

    def told(self, view: SimulationView) -> str:
        """Both, for people."""
        rate = f"{self.rate:.1f}/s" if self.rate is not None else ""
        left = self.left_s(view)
        return " ".join(filter(None, (rate, f"{lasting(left)} left" if left is not None else "")))


class Screen(Protocol):
    """Where news is shown."""

    def show(self, view: SimulationView, pace: Pace) -> None:
        """Show how it is now."""
        ...


def watch(store: str | None, text: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Follow a simulation; the answer is the exit code."""

    async def work(port: Reach) -> int:
        run_id = await whole_id(port.here.simulations, text)
        return await follow(port, run_id, timeout_s, as_json=as_json)

    try:
        return ask(store, work)
    except KeyboardInterrupt:
        typer.echo("Stopped watching; the simulation goes on.", err=True)
        raise


async def follow(port: Reach, run_id: str, timeout_s: float | None, *, as_json: bool) -> int:
    """Show what happens to a simulation until it stands; the answer is the exit code."""
    last: SimulationView | None = None
    pace, loop = Pace(), asyncio.get_running_loop()
    with _screen(as_json=as_json) as screen:
        try:
            async with asyncio.timeout(timeout_s), aclosing(looks_at(port, run_id)) as looks:
                async for view in looks:
                    pace.note(loop.time(), view.current_step)
                    screen.show(view, pace)
                    last = view
        except TimeoutError:
            typer.echo(f"Not ended in time: {run_id}.", err=True)
            return NOT_IN_TIME
    return exit_code(last)


def exit_code(view: SimulationView | None) -> int:
    """What the end of a simulation means to a shell."""
    return NOT_IN_TIME if view is None else _CODES.get(SimulationState(view.status), NOT_IN_TIME)


async def looks_at(port: Reach, run_id: str) -> AsyncGenerator[SimulationView, None]:
    """The simulation whenever it may have changed, until it stands; who is away is waited for."""
    called, trouble = asyncio.Event(), Trouble()
    stop = port.here.store.subscribe(waker(called))
    loop, swept_at = asyncio.get_running_loop(), float("-inf")
    try:
        while True:
            called.clear()
            try:
                view = await port.here.simulations.get(run_id)
                yield view
                if stands(view):
                    return
                if loop.time() - swept_at >= SWEEP_EVERY_S:
                    await port.recover()
                    swept_at = loop.time()
            except StoreUnavailable as error:
                trouble(error)
            await wait_for_wakeup(called, LOOK_EVERY_S)
            await asyncio.sleep(LEAST_PAUSE_S)
    finally:
        stop()


def _screen(*, as_json: bool) -> AbstractContextManager[Screen]:
    if as_json:
        return nullcontext(JsonLines())
    if not output.on_terminal():
        return nullcontext(Lines())
    from interlock.cli.live import LiveBar  # a pipe need not wait for rich

    return LiveBar()


class Lines:
    """A line for each change, for a pipe."""

    def __init__(self) -> None:
        self._before: tuple[str, ...] = ()

    def show(self, view: SimulationView, pace: Pace) -> None:
        """One line, there at once."""
        now = (view.run_id, told_status(view), steps_of(view), str(view.danger_count))
        if now != self._before:
            self._before = now
            output.print_row((*now, pace.told(view), view.error or view.trouble))


class JsonLines:
    """A line of JSON for each change."""

    def __init__(self) -> None:
        self._before: SimulationView | None = None

    def show(self, view: SimulationView, pace: Pace) -> None:
        """One line, there at once."""
        if view != self._before:
            self._before = view
            print_line({"simulation": view, "rate": pace.rate, "left_s": pace.left_s(view)})


def start(
    store: str | None,
    asked: SimulationOptions,
    request_id: str | None,
    *,
    wait: bool,
    patience_s: float | None,
    as_json: bool,
) -> int:
    """Start it, say which, and follow it if somebody wants that; the answer is the exit code."""
    spec = found(asked).spec

    async def work(port: Reach) -> int:
        view = await port.here.simulations.create_run(spec, actor=actor(), request_id=request_id)
        if not as_json:
            print(view.run_id, flush=True)
        if wait:
            return await follow(port, view.run_id, patience_s, as_json=as_json)
        if as_json:
            print_struct(view)
        return 0

    try:
        return ask(store, work)
    except KeyboardInterrupt:
        if wait:
            typer.echo("Stopped watching; the simulation goes on.", err=True)
        raise


def act(
    store: str | None,
    verb: str,
    text: str,
    reason: str,
    request_id: str | None,
    *,
    as_json: bool,
    **more: str,
) -> None:
    """Do it, and show how the simulation stands then."""

    async def work(port: Reach) -> SimulationView:
        simulations = port.here.simulations
        run_id = await whole_id(simulations, text)
        await port.recover()  # word that its worker is gone may not have been delivered
        does: Callable[..., Awaitable[SimulationView]] = getattr(simulations, verb)
        return await does(run_id, reason=reason, actor=actor(), request_id=request_id, **more)

    view = ask(store, work)
    if as_json:
        print_struct(view)
    else:
        print(f"{view.run_id}\t{told_status(view)}")
