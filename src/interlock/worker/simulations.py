"""`@simulation` makes stepped work of a generator or of a step function.

    @simulation(total_steps=365)
    def epidemic(sim: SimulationContext, people: int = 1_000):
        town = sim.restored(type=Town) or Town.of(people)
        for day in sim.steps():
            town.live()
            if town.beds_are_full:
                sim.danger("no free beds")
            yield town                      # what the next step needs: it goes on from here elsewhere
        return town.summary()

Each `yield` ends a step. What is yielded is what a later execution gets from `restored`; a bare `yield`
saves that the step is done. It is paused, cancelled and given back there, and nowhere else. A step
function is the shorter form: it is given the state and gives the next one.

    @simulation(total_steps=100)
    def orbit(state: State | None, dt: float = 0.1) -> State: ...

Both may be async. A simulation is a task that workers find by its name; it is started with
`il.simulations.start(epidemic, people=500)` or `interlock simulation start`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

from interlock.errors import InvalidArguments
from interlock.wire.simulations import PRIORITIES, SimulationSpec
from interlock.worker.context import Context
from interlock.worker.functions import Executor, default_name, refused, written_function
from interlock.worker.simulation_context import SAVE_EVERY_S, SimulationContext
from interlock.worker.simulation_driver import drive, drive_async
from interlock.worker.tasks import DEFAULT, Registry, Task, names_around

P = ParamSpec("P")
R = TypeVar("R")

STATE = "state"
"""The first parameter of a step function."""


class Simulation(Task[P, R], Generic[P, R]):
    """Stepped work that workers know by a name."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        total_steps: int | None = None,
        priority: str = "normal",
        save_every_s: float = SAVE_EVERY_S,
        **options: Any,
    ) -> None:
        if priority not in PRIORITIES:
            raise refused(
                function, f"there is no priority {priority!r}", f"Use one of: {', '.join(PRIORITIES)}."
            )
        if options.get("executor") not in (None, "async", "thread"):
            raise refused(
                function,
                "a simulation runs beside its worker, in its loop or in a thread",
                "Leave the executor out.",
            )
        options.pop("executor", None)
        options.setdefault("name", default_name(written_function(function)))
        super().__init__(stepped(function, total_steps, save_every_s), **options)
        self.total_steps = total_steps
        self.priority = priority

    def __repr__(self) -> str:
        return f"<Simulation {self.name}{self.takes}>"

    def executor_on(self, default: Executor | None) -> Executor:  # noqa: ARG002 - it runs beside its worker
        """Where it runs: in the loop or in a thread, whatever the worker would prefer."""
        return self.executor

    def run(self, *args: Any, **kwargs: Any) -> SimulationSpec:
        """A simulation to start. The arguments are bound, checked and encoded here, not in the worker."""
        job = self.spec(*args, **kwargs)
        return SimulationSpec(
            task=job.task,
            input=job.input,
            queue=job.queue,
            labels=job.labels,
            losses=job.losses or 0,
            priority=self.priority,
            total_steps=self.total_steps,
        )


@overload
def simulation(function: Callable[P, R], /) -> Simulation[P, R]: ...


@overload
def simulation(
    *,
    name: str | None = None,
    total_steps: int | None = None,
    save_every_s: float = SAVE_EVERY_S,
    priority: str = "normal",
    queue: str = "default",
    labels: Sequence[str] = (),
    losses: int = 0,
    registry: Registry = DEFAULT,
) -> Callable[[Callable[P, R]], Simulation[P, R]]: ...


def simulation(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a simulation of a function and add it. Used bare or with options.

    `total_steps` where it is known; `save_every_s` is how often steps are saved at most, 0 for each of
    them; `priority` is low, normal or high; `name`, `queue`, `labels`, `losses` as for a task; `registry`
    where it is not to be added to the one of `@task`.
    """
    registry: Registry = options.pop("registry", DEFAULT)

    def decorate(function: Callable[..., Any]) -> Simulation[..., Any]:
        around = names_around(inspect.currentframe(), __file__)
        made: Simulation[..., Any] = Simulation(function, local_names=around, **options)
        registry.add(made)
        return made

    return decorate if function is None else decorate(function)


def stepped(function: Callable[..., Any], total_steps: int | None, save_every_s: float) -> Callable[..., Any]:
    """The function as a handler: it takes a context, drives the steps, and returns how it ended."""
    plain = function.__func__ if isinstance(function, staticmethod) else function
    if not inspect.isfunction(plain):
        raise refused(function, "it is not a function", "Decorate a generator or a step function.")
    start, is_async = _starter(plain)
    name, signature = _given_context(plain)

    def steps_of(sim: SimulationContext, kwargs: dict[str, Any]) -> Any:
        return start(sim, {**kwargs, name: sim} if name else kwargs)

    options = {"total_steps": total_steps, "save_every_s": save_every_s}
    handler: Callable[..., Any]
    if is_async:

        async def drives_async(*, ctx: Context, **kwargs: Any) -> Any:
            return await drive_async(ctx, lambda sim: steps_of(sim, kwargs), **options)

        handler = drives_async
    else:

        def drives(*, ctx: Context, **kwargs: Any) -> Any:
            return drive(ctx, lambda sim: steps_of(sim, kwargs), **options)

        handler = drives
    functools.update_wrapper(handler, plain)
    vars(handler)["__signature__"] = signature
    return handler


def _starter(plain: Callable[..., Any]) -> tuple[Callable[[SimulationContext, dict[str, Any]], Any], bool]:
    """How its steps are begun, and whether they are awaited."""
    if inspect.isgeneratorfunction(plain):
        return (lambda _, kwargs: plain(**kwargs)), False
    if inspect.isasyncgenfunction(plain):
        return (lambda _, kwargs: plain(**kwargs)), True
    parameters = list(inspect.signature(plain).parameters)
    if not parameters or parameters[0] != STATE:
        raise refused(
            plain,
            "it neither yields nor takes a state",
            f"Yield after each step, or let the first parameter be called {STATE} and return the next one.",
        )
    kind = _state_type(plain)
    if inspect.iscoroutinefunction(plain):
        return (lambda sim, kwargs: _each_async(plain, sim, kind, kwargs)), True
    return (lambda sim, kwargs: _each(plain, sim, kind, kwargs)), False


def _each(
    plain: Callable[..., Any], sim: SimulationContext, kind: Any, kwargs: dict[str, Any]
) -> Generator[Any, None, Any]:
    state = sim.restored(type=kind)
    for _ in sim.steps():
        state = plain(state, **kwargs)
        yield state
    return state


async def _each_async(
    plain: Callable[..., Any], sim: SimulationContext, kind: Any, kwargs: dict[str, Any]
) -> AsyncIterator[Any]:
    state = sim.restored(type=kind)
    for _ in sim.steps():
        state = await plain(state, **kwargs)
        yield state


def _state_type(plain: Callable[..., Any]) -> Any:
    """What a state is restored as: the type that the function says it takes."""
    try:
        return inspect.get_annotations(plain, eval_str=True).get(STATE, Any)
    except (NameError, SyntaxError, TypeError):
        return Any


def _given_context(plain: Callable[..., Any]) -> tuple[str, inspect.Signature]:
    """The parameter that takes the simulation's context, and what is left for the arguments of a job."""
    signature = inspect.signature(plain)
    found = [p.name for p in signature.parameters.values() if _is_context(p)]
    if len(found) > 1:
        raise refused(plain, f"it takes the simulation twice, as {found[0]} and {found[1]}", "Take it once.")
    is_step = not (inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain))
    left = [
        p.replace(kind=p.KEYWORD_ONLY) if p.kind is p.POSITIONAL_OR_KEYWORD else p
        for p in signature.parameters.values()
        if p.name not in found and not (is_step and p.name == STATE)
    ]
    if any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL) for p in left):
        raise refused(plain, "its arguments are given by name", "Take them by name.")
    context = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    parameters = sorted([*left, context], key=lambda p: p.kind)
    return (found[0] if found else ""), inspect.Signature(parameters)


def _is_context(parameter: inspect.Parameter) -> bool:
    kind = parameter.annotation
    if kind is SimulationContext or parameter.name == "sim":
        return True
    return isinstance(kind, str) and kind.rpartition(".")[2] == SimulationContext.__name__


def simulation_named(registry: Registry, name: str) -> Simulation[..., Any]:
    """The simulation of that name, for who is about to start it."""
    found = registry.get(name)
    if isinstance(found, Simulation):
        return found
    raise InvalidArguments(
        f"{name} is a task and no simulation.",
        todo="Submit it as a job, or decorate it with @simulation.",
        facts={"task": name},
    )
