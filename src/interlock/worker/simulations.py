"""`@simulation` makes stepped work of a generator or of a step function.

    @simulation(total_steps=365)
    def epidemic(sim: SimulationContext, people: int = 1_000):
        town = sim.restored(type=Town) or Town.of(people)
        for day in sim.steps():
            town.live()
            if town.beds_are_full:
                sim.danger("no free beds")
            yield town                      # the state for the next step, here or on another worker
        return town.summary()

Each `yield` ends a step. The yielded value is returned by `restored` in a later execution; a bare `yield`
saves only that the step is done. Pausing, cancelling and releasing happen only there. A step function is the
shorter form: it takes the state and returns the next one.

    @simulation(total_steps=100)
    def orbit(state: State | None, dt: float = 0.1) -> State: ...

Both may be async. A simulation is a task that workers find by its name; it is started with
`il.simulations.start(epidemic, people=500)` or `interlock simulation start`.

`SimulationContext` has the current step and the unreported data; it neither waits nor sends, so it is
the same for functions and coroutines. A step is saved when some time has passed since the last save: a
simulation with long steps is saved after each, one with thousands of steps a second is not slowed down.
`drive` and `drive_async` take the steps.

Why: decision 0219.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import aclosing, closing, suppress
from typing import Any, Generic, ParamSpec, TypeVar, overload

import msgspec

from interlock.errors import InvalidArguments, NotExecuted, StoreUnavailable, TooLarge
from interlock.wire.simulations import (
    MOST_METRICS,
    PRIORITIES,
    Beat,
    Begin,
    Completed,
    Danger,
    Failed,
    Paused,
    Sample,
    Samples,
    SimulationOrders,
    SimulationSpec,
    fault_of,
)
from interlock.worker.codec import decode, encode, spec_of
from interlock.worker.context import Context, TaskCancelled, cut
from interlock.worker.functions import Executor, default_name, refused, written_function
from interlock.worker.tasks import DEFAULT, Registry, Task, names_around

SAVE_EVERY_S = 0.2
MAX_STATE_BYTES = 262_144
MAX_TEXT_BYTES = 500
MOST_DANGERS = 1_000
MOST_UNSENT = 100
"""Maximum number of samples in one message; above it each sample covers several steps."""


class SimulationContext:
    """The context of a simulation: its steps, saved state, metrics and warnings."""

    def __init__(
        self,
        context: Context,
        orders: SimulationOrders,
        *,
        total_steps: int | None = None,
        save_every_s: float = SAVE_EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.context = context
        """Context of the job that executes it: log, artifacts, attempt."""
        self.run_id: str = orders.run_id
        self.step: int = orders.step
        """The last completed step; 0 before the first."""
        self.total_steps = orders.total_steps if orders.total_steps is not None else total_steps
        self._saved = orders.checkpoint
        self._save_every_s = save_every_s
        self._monotonic = monotonic
        self._saved_at = monotonic()
        self._lock = threading.Lock()
        self._dangers: list[Danger] = []
        self._danger_count = orders.danger_count
        self._samples = Samples()
        self._metrics: set[str] = set()
        self._pause = orders.pause
        self._taken = ""

    def __repr__(self) -> str:
        return f"<simulation {self.run_id}, step {self.step}>"

    @property
    def resumed(self) -> bool:
        """Whether steps were completed in an earlier execution."""
        return self.step > 0

    @property
    def danger_count(self) -> int:
        """Number of warnings so far."""
        return self._danger_count

    def restored(self, type: Any = Any) -> Any:  # noqa: A002 - read as a sentence: restored(type=Town)
        """Return the state after the last saved step; None at the beginning."""
        return decode(self._saved, type, "state") if isinstance(self._saved, msgspec.Raw) else None

    def steps(self, total: int | None = None) -> Iterator[int]:
        """Yield the numbers of the remaining steps, after the last completed one."""
        self.total_steps = self.total_steps if total is None else total
        number = self.step + 1
        while self.total_steps is None or number <= self.total_steps:
            yield number
            number += 1

    def danger(self, text: str) -> None:
        """Record a warning for the current step.

        It is counted and shown to followers.
        """
        with self._lock:
            self._danger_count += 1
            if len(self._dangers) < MOST_DANGERS:
                shown = cut(self.context.mask.text(str(text)), MAX_TEXT_BYTES)
                self._dangers.append(Danger(self._danger_count, self.step + 1, shown))

    def metrics(self, **values: float) -> None:
        """Record metrics of the current step; the dashboard shows them as curves."""
        measured = Sample(self.step + 1, {name: _number(name, value) for name, value in values.items()})
        with self._lock:
            self._metrics |= values.keys()
            if fault := fault_of([measured], self._metrics):
                raise InvalidArguments(
                    f"These metrics cannot be recorded: {fault}.",
                    todo=f"Record up to {MOST_METRICS} different finite numbers in a simulation.",
                    facts={"step": measured.step, "fault": fault},
                )
            last = self._samples.last_step
            known = self._samples if last < measured.step else self._samples.until(last - 1)
            before = self._samples.kept[-1].values if last == measured.step else {}
            fresh = Sample(measured.step, {**before, **measured.values})
            self._samples = known.added([fresh], MOST_UNSENT)

    def log(self, text: object, level: str = "info") -> None:
        """Write a line to the log of the job that executes it."""
        self.context.log(text, level)

    # ---- the runner's half ---------------------------------------------------------------------

    def completed_step(self, state: object) -> Beat | None:
        """Complete a step; return a message about it if one is due."""
        self.step += 1
        self.context.progress(self.step, self.total_steps)
        now = self._monotonic()
        if now < self._saved_at + self._save_every_s and not self.context.cancelled and not self._pause:
            return None
        self._saved_at = now
        return Beat(
            step=self.step,
            total_steps=self.total_steps,
            checkpoint=self._encoded(state),
            **self._unacknowledged(),
        )

    def latest(self) -> Beat:
        """Return a heartbeat from beside the steps, without state."""
        return Beat(step=self.step, total_steps=self.total_steps, **self._unacknowledged())

    def receive(self, orders: SimulationOrders) -> None:
        """Process the answer to a message or heartbeat."""
        self._forget_dangers(orders.danger_count)
        self._forget_samples(orders.sampled)
        if not orders.go_on:
            self._taken = orders.reason or "it is not executed here any more"
        self._pause = self._pause or orders.pause

    def must_pause(self) -> bool:
        """Return whether to pause now.

        Raise if another worker executes it, or the job has to stop.
        """
        if self._taken:
            raise not_executed(self.run_id, self._taken)
        if self._pause:
            return True
        if self.context.stop_reason is not None:
            raise TaskCancelled(self.context.stop_reason)
        return False

    def paused(self, state: object) -> Paused:
        """Return the message that it is paused after this step."""
        return Paused(
            step=self.step,
            total_steps=self.total_steps,
            checkpoint=self._encoded(state),
            **self._unacknowledged(),
        )

    def done(self, result: object) -> Completed:
        """Return the message that it has completed."""
        raw = self.context.mask.raw(encode(result, "result"))
        return Completed(
            step=self.step,
            total_steps=self.total_steps,
            result=_bounded("result", raw),
            **self._unacknowledged(),
        )

    def failed(self, error: BaseException) -> Failed:
        """Return the message that it has failed."""
        text = cut(self.context.mask.text(f"{type(error).__name__}: {error}"), MAX_TEXT_BYTES)
        return Failed(step=self.step, total_steps=self.total_steps, error=text, **self._unacknowledged())

    def _encoded(self, state: object) -> msgspec.Raw:
        return _bounded("state", self.context.mask.raw(encode(state, "state")))

    def _unacknowledged(self) -> dict[str, Any]:
        """Return the unacknowledged warnings and samples for a message."""
        with self._lock:
            done = tuple(each for each in self._samples.kept if each.step <= self.step)
            return {"dangers": tuple(self._dangers), "samples": done}

    def _forget_samples(self, sampled: int) -> None:
        with self._lock:
            later = tuple(each for each in self._samples.kept if each.step > sampled)
            if len(later) < len(self._samples.kept):
                self._samples = Samples(kept=later)

    def _forget_dangers(self, counted: int) -> None:
        with self._lock:
            self._dangers = [each for each in self._dangers if each.number > counted]


def _number(name: str, value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # numbers of numpy as well
    except (TypeError, ValueError):
        raise InvalidArguments(
            f"The metric {name} has to be a number, and is {str(value)[:60]!r}.",
            todo="Record numbers; write text with sim.log().",
            facts={"metric": name},
        ) from None


def not_executed(run_id: str, why: str) -> NotExecuted:
    """Return the error of a simulation that is not executed here."""
    return NotExecuted(
        f"The simulation {run_id or 'of this job'} is not executed here: {why}.",
        todo="Nothing; its worker continues after the last saved step.",
        facts={"run_id": run_id, "reason": why},
    )


def _bounded(noun: str, raw: msgspec.Raw) -> msgspec.Raw:
    size = memoryview(raw).nbytes
    if size > MAX_STATE_BYTES:
        raise TooLarge(
            f"The {noun} of the simulation has {size:,} bytes; at most {MAX_STATE_BYTES:,} are kept.",
            todo="Yield only the state that the next step needs, and store larger data as an artifact.",
            facts={"bytes": size, "limit": MAX_STATE_BYTES},
        )
    return raw


StepsOf = Callable[[SimulationContext], Any]


class SimulationResult(msgspec.Struct, frozen=True):
    """The result of the job that executed a simulation."""

    run_id: str
    status: str
    step: int


def drive(context: Context, steps_of: StepsOf, **options: Any) -> SimulationResult:
    """Execute a simulation with sync steps."""
    channel = context.simulation_channel()
    sim = _begun(context, channel.send(Begin()).result(), options)
    with channel.living(sim.latest, sim.receive):
        try:
            # Closed in any case: resources of a step are closed before the job counts as ended.
            with closing(steps_of(sim)) as steps:
                result = None
                while True:
                    try:
                        state = next(steps)
                    except StopIteration as end:
                        result = end.value
                        break
                    if (beat := sim.completed_step(state)) is not None:
                        with suppress(StoreUnavailable):
                            sim.receive(channel.send(beat).result())
                    if sim.must_pause():
                        return _ended(sim, channel.send(sim.paused(state)).result())
            last = sim.done(result)
        except (TaskCancelled, NotExecuted):
            raise
        except Exception as error:
            channel.send(sim.failed(error)).result()
            raise
    return _ended(sim, channel.send(last).result())


async def drive_async(context: Context, steps_of: StepsOf, **options: Any) -> SimulationResult:
    """Execute a simulation with async steps; return the last value."""
    channel = context.simulation_channel()
    orders = await asyncio.wrap_future(channel.send(Begin()))
    sim = _begun(context, orders, {**options, "monotonic": asyncio.get_running_loop().time})
    with channel.living(sim.latest, sim.receive):
        try:
            state = sim.restored()
            async with aclosing(steps_of(sim)) as steps:
                async for state in steps:
                    if (beat := sim.completed_step(state)) is not None:
                        with suppress(StoreUnavailable):
                            sim.receive(await asyncio.wrap_future(channel.send(beat)))
                    if sim.must_pause():
                        return _ended(sim, await asyncio.wrap_future(channel.send(sim.paused(state))))
            last = sim.done(state)
        except (TaskCancelled, NotExecuted, asyncio.CancelledError):
            raise
        except Exception as error:
            if isinstance(error.__context__, GeneratorExit):
                # The generator is discarded in the middle of a step, with its loop. Before 3.13 such a
                # generator still counts as running, and raises when it is closed.
                raise error.__context__ from None
            await asyncio.wrap_future(channel.send(sim.failed(error)))
            raise
    return _ended(sim, await asyncio.wrap_future(channel.send(last)))


def _begun(context: Context, orders: SimulationOrders, options: dict[str, Any]) -> SimulationContext:
    if not orders.go_on:
        raise not_executed(orders.run_id, orders.reason)
    sim = SimulationContext(context, orders, **options)
    context.progress(sim.step, sim.total_steps)
    return sim


def _ended(sim: SimulationContext, orders: SimulationOrders) -> SimulationResult:
    if not orders.go_on:
        raise not_executed(sim.run_id, orders.reason)
    return SimulationResult(sim.run_id, orders.status, sim.step)


P = ParamSpec("P")
R = TypeVar("R")

STATE = "state"
"""The first parameter of a step function."""


class Simulation(Task[P, R], Generic[P, R]):
    """A simulation: stepped work that workers know by its name."""

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
        """Return its executor: the loop or a thread, never a process."""
        return self.executor

    def run(self, *args: Any, **kwargs: Any) -> SimulationSpec:
        """Return a simulation to start.

        Arguments are checked and encoded here, not in the worker.
        """
        job = spec_of(self, args, kwargs)
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
    """Declare a function as a simulation. Used with or without options.

    `total_steps` if it is known; `save_every_s` is the minimum interval between saves, 0 to save each step;
    `priority` is low, normal or high; `name`, `queue`, `labels`, `losses` as for a task; `registry` to use
    another one than that of `@task`.
    """
    registry: Registry = options.pop("registry", DEFAULT)

    def decorate(function: Callable[..., Any]) -> Simulation[..., Any]:
        around = names_around(inspect.currentframe(), __file__)
        made: Simulation[..., Any] = Simulation(function, local_names=around, **options)
        registry.add(made)
        return made

    return decorate if function is None else decorate(function)


def stepped(function: Callable[..., Any], total_steps: int | None, save_every_s: float) -> Callable[..., Any]:
    """Return the function as a handler that drives its steps.

    It takes a context and returns the end of the simulation.
    """
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
    """Return a function that starts its steps, and whether they are async."""
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
    """Return the annotated type of the state parameter."""
    try:
        return inspect.get_annotations(plain, eval_str=True).get(STATE, Any)
    except (NameError, SyntaxError, TypeError):
        return Any


def _given_context(plain: Callable[..., Any]) -> tuple[str, inspect.Signature]:
    """Return the parameter of the context, and the other parameters."""
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
    """Return the simulation of that name; raise if it is a plain task."""
    found = registry.get(name)
    if isinstance(found, Simulation):
        return found
    raise InvalidArguments(
        f"{name} is a task and no simulation.",
        todo="Submit it as a job, or decorate it with @simulation.",
        facts={"task": name},
    )
