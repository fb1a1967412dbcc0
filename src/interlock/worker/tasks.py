"""`@task` makes a function that can be submitted and that a worker can find.

    @task(queue="mail", retries=3)
    async def send(address: str, *, ctx: Context) -> None: ...

    await send("a@b.example", ctx=fake)   # still the function
    send.spec("a@b.example")              # a job to submit, its arguments validated

A worker is started with a module and executes every task that its import registered.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import FrameType, ModuleType
from typing import Any, Final, Generic, ParamSpec, TypeVar, Unpack, overload

import msgspec

from interlock.errors import CannotLoad, InvalidArguments, UnknownTask
from interlock.text import nearest
from interlock.wire.jobs import After, JobSpec, RetryRule, Unique
from interlock.wire.schedules import ScheduleSpec
from interlock.worker.codec import decoding_error, spec_of
from interlock.worker.composition import JobGroup, Signature, rule_of
from interlock.worker.context import Context
from interlock.worker.functions import (
    Arguments,
    Executor,
    default_name,
    executor_here,
    executor_of,
    place_of,
    plain_function,
    refused,
    written_function,
)
from interlock.worker.imports import cannot_load, import_named
from interlock.worker.limits import DeclaredLimit, limit_of_task
from interlock.worker.middleware import NO_MIDDLEWARE, Chain, Layer, layer_of
from interlock.worker.postponement import Duration, is_duration, seconds_of
from interlock.worker.schedules import DeclaredSchedule, ScheduleOptions, checked_name, schedule_spec
from interlock.worker.signatures import ContextByName, ContextFirst, J, JobOptions, Returns, UniqueBy

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
M = TypeVar("M")

START_WITHIN = "start_within"
OPTIONS = (*(name for name in JobSpec.__struct_fields__ if name not in ("task", "input")), START_WITHIN)
"""Options of a job besides the arguments."""
REQUEST_ID = "request_id"
"""The option of one submission, which no job spec has."""


class Task(Generic[P, R_co]):
    """A function that workers can run, with the options of its jobs."""

    __name__: str
    __qualname__: str

    def __init__(
        self,
        function: Callable[P, R_co],
        *,
        name: str | None = None,
        executor: str | None = None,
        memory_limit_mb: int | None = None,
        local_names: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        plain = plain_function(function)
        functools.update_wrapper(self, plain)
        self.function: Callable[P, R_co] = plain
        self.name: str = default_name(plain) if name is None else _checked_name(plain, name)
        self.executor: Executor = executor_of(plain, executor)
        self._names_executor = executor is not None
        self.memory_limit_bytes: int | None = _memory_limit(self.name, memory_limit_mb, self.executor)
        self.template: JobSpec = _template(self.name, {}, options)
        """The spec of every job of this task, without arguments."""
        self.request_id: str | None = None
        """Idempotency key of the submission, from `options(request_id=...)`."""
        self.module_run: Any | None = written_function(plain).__globals__.get("__spec__")
        """The execution of its module that defined it: a reload is another one."""
        self._arguments = Arguments(plain, self.name, local_names or {})
        self.wants_context: bool = self._arguments.context_name is not None
        """Whether a parameter is annotated `Context` or named `ctx`. It is not an argument of the job."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}{self._arguments.takes}>"

    @property
    def context_name(self) -> str | None:
        """The parameter that receives the context; None if there is none."""
        return self._arguments.context_name

    @property
    def takes(self) -> str:
        """Signature of the arguments of a job: `(x: int, y: str = 'a')`."""
        return self._arguments.takes

    @overload
    def spec(self: ContextFirst[Q], *args: Q.args, **kwargs: Q.kwargs) -> JobSpec: ...

    @overload
    def spec(self: ContextByName, *args: Any, **kwargs: Any) -> JobSpec: ...  # type: ignore[misc]

    @overload
    def spec(self, *args: P.args, **kwargs: P.kwargs) -> JobSpec: ...

    def spec(self, *args: Any, **kwargs: Any) -> JobSpec:
        """Return a job to submit.

        Arguments are checked and encoded here, not in the worker.
        """
        if self.request_id is not None:
            raise _without_request_id(self)
        after = self.template.after
        later = after.into if after is not None else ""
        return msgspec.structs.replace(self.template, input=self._arguments.encode(args, kwargs, later))

    @overload
    def s(self: Task[..., Returns[J]], *args: Any, **kwargs: Any) -> Signature[J]: ...

    @overload
    def s(self, *args: Any, **kwargs: Any) -> Signature[Any]: ...

    def s(self, *args: Any, **kwargs: Any) -> Signature[Any]:
        """Return a signature: the task with arguments.

        It is for `chain`, `group` and `chord`. After other jobs its first argument is their result, and those
        given here are the further ones. They are checked when the composition is submitted.
        """
        return Signature(self, args, kwargs)

    @overload
    def si(self: Task[..., Returns[J]], *args: Any, **kwargs: Any) -> Signature[J]: ...

    @overload
    def si(self, *args: Any, **kwargs: Any) -> Signature[Any]: ...

    def si(self, *args: Any, **kwargs: Any) -> Signature[Any]:
        """Return a signature that takes no result of other jobs.

        It has all of its arguments.
        """
        return Signature(self, args, kwargs, immutable=True)

    @overload
    def map(self: Task[..., Returns[J]], items: Iterable[Any], **kwargs: Any) -> JobGroup[J]: ...

    @overload
    def map(self, items: Iterable[Any], **kwargs: Any) -> JobGroup[Any]: ...

    def map(self, items: Iterable[Any], **kwargs: Any) -> JobGroup[Any]:
        """Return a group with a job for each item.

        The item is the first argument; `kwargs` are for all.
        """
        return JobGroup(tuple([self.si(item, **kwargs) for item in items]))

    @property
    def first_parameter(self) -> str:
        """The name of the parameter that comes first by position; empty if there is none."""
        return self._arguments.first

    def partial_spec(self, after: After, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobSpec:
        """Return a job that comes after others.

        Their result may be one of its arguments.
        """
        if self.request_id is not None:
            raise _without_request_id(self)
        given = self._arguments.encode(args, kwargs, after.into)
        return msgspec.structs.replace(self.template, input=given, after=after)

    def options(self, **overrides: Unpack[JobOptions]) -> Task[P, R_co]:
        """Return the task with other options.

        `start_within` and `not_after` take "10m" or a timedelta, and `not_after` also a time. `unique` takes
        a `Unique`, True for all arguments, the names of some of them, or a key as text. `after` takes jobs
        that have to succeed first, or `all_of(...)` or `any_of(...)`. `request_id` is the idempotency key of
        one submission: `il.submit(send.options(request_id="17"), "a@b.example")`.
        """
        other, given = copy.copy(self), dict[str, Any](overrides)
        other.request_id = given.pop(REQUEST_ID, self.request_id)
        known = msgspec.structs.asdict(self.template)
        other.template = _template(self.name, known, given, (*OPTIONS, REQUEST_ID))
        return other

    def invoke(self, raw: msgspec.Raw | bytes, context: Context | None) -> R_co:
        """Call the function with a job's input, and a context if it wants one."""
        args, kwargs = self._arguments.decode(raw)
        if self._arguments.context_name is not None:
            kwargs[self._arguments.context_name] = context
        function: Callable[..., R_co] = self.function
        return function(*args, **kwargs)

    def executor_on(self, default: Executor | None) -> Executor:
        """Return its executor: an explicit one, or this default."""
        if default is None or self._names_executor:
            return self.executor
        return executor_here(self.function, default)

    def prepare(self) -> None:
        """Check now, not with the first job, that every type can come from JSON."""
        self._arguments.prepare()


class Registry:
    """Tasks by their names."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}
        self.changes: int = 0
        """Number of times that a task was added or replaced."""
        self.schedules: dict[str, DeclaredSchedule] = {}
        """Schedules by name, which a worker with these tasks registers."""
        self.chain: Chain = NO_MIDDLEWARE
        """Middleware around the handlers of these tasks, in its order."""
        self.limits: dict[str, DeclaredLimit] = {}
        """Limits by name, which a worker with these tasks registers."""

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter([self._tasks[name] for name in self.names()])

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def names(self) -> tuple[str, ...]:
        """Return the names of all tasks, sorted."""
        return tuple(sorted(self._tasks))

    def get(self, name: str) -> Task[..., Any]:
        """Return the task of that name."""
        found = self._tasks.get(name)
        if found is None:
            raise UnknownTask(name, self.names())
        return found

    def add(self, task: Task[..., Any]) -> None:
        """Register a task; a task of a reloaded module replaces its older version."""
        known = self._tasks.get(task.name)
        if known is not None and not _is_the_same_again(known, task):
            raise CannotLoad(
                f"Two functions want to be the task {task.name}: "
                f"{place_of(known.function)} and {place_of(task.function)}.",
                todo='Give one of them a name of its own: @task(name="...").',
                facts={"name": task.name},
            )
        self._tasks[task.name] = task
        self.changes += 1

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        labels: Sequence[str] = (),
        retries: int | None = None,
        retry: Mapping[str, RetryRule] = {},
        timeout_s: float | None = None,
        job_timeout_s: float | None = None,
        losses: int | None = None,
        worker_count: int = 1,
        unique: UniqueBy | None = None,
        start_within: Duration | None = None,
        executor: Executor | None = None,
        memory_limit_mb: int | None = None,
        description: str = "",
        metadata: Mapping[str, str] = {},
        every: str | None = None,
        limit: int | None = None,
        limits: Sequence[str] = (),
        weight: int = 1,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        every: str | None = None,
        limit: int | None = None,
        **options: Any,
    ) -> Any:
        """Declare a function as a task. Used with or without options.

        `name` is its name for workers; `executor` is "async", "thread" or "process"; `memory_limit_mb` is the
        maximum address space of a separate process, in megabytes of 2**20 bytes; the rest are options of its
        submissions: queue, priority, labels, retries, retry, timeout_s, job_timeout_s, losses, worker_count,
        unique, start_within, description. With `every`, such as "15m", a schedule submits it.
        `limit` is the maximum number of its jobs that run at the same time; `limits` names limits that other
        tasks share, and `weight` is the number of slots of each limit that a job takes.
        """

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            made: Task[..., Any] = Task(
                function, local_names=names_around(inspect.currentframe(), __file__), **options
            )
            self.add(made)
            if limit is not None:
                name, declared = limit_of_task(made.name, limit)
                self.limits[name] = declared
            return made if every is None else self.schedule(every=every)(made)

        return decorate if function is None else decorate(function)

    def schedule(
        self,
        when: str = "",
        /,
        *,
        name: str = "",
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the name in jobs
        **how: Unpack[ScheduleOptions],
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Submit a task by a schedule.

        It is used above `@task`, or above a function that becomes a task. `when` is a cron expression or an
        interval; `input` are its arguments by name, `name` that of the schedule (otherwise that of the task).
        The rest is as in `schedule_spec`: cron, every, at, tz, start, end, exclude, jitter, catch_up,
        catch_up_limit, overlap.
        """

        def decorate(function: Callable[P, R]) -> Task[P, R]:
            made = function if isinstance(function, Task) else self.task(function)
            spec = schedule_spec(spec_of(made, (), dict(input or {})), when, **how)
            self._declare(checked_name(name or made.name), spec, made)
            return made

        return decorate

    def middleware(self, thing: M) -> M:
        """Put a middleware around all handlers of these tasks.

        It is inside of those that were declared before. It is a generator function, a class that is made
        without arguments, or an object: see `interlock.worker.middleware`. Its `submit` is also called where
        a client of this process submits.
        """
        self.chain = Chain((*self.chain.layers, layer_of(thing)))
        return thing

    def surround(self, layers: Sequence[Layer]) -> None:
        """Put middleware around all that there is so far."""
        self.chain = Chain((*layers, *self.chain.layers))

    def _declare(self, name: str, spec: ScheduleSpec, made: Task[..., Any]) -> None:
        known = self.schedules.get(name)
        if known is not None and known.spec.job.task != made.name:
            raise CannotLoad(
                f"Two tasks want the schedule {name}: {known.spec.job.task} and {made.name}.",
                todo='Give one of them another name: @schedule("...", name="...").',
                facts={"schedule": name},
            )
        self.schedules[name] = DeclaredSchedule(spec)


DEFAULT = Registry()
"""The default registry of `@task`, and of workers started with a module."""

task: Final = DEFAULT.task
schedule: Final = DEFAULT.schedule
middleware: Final = DEFAULT.middleware


def load_tasks(spec: str) -> Registry:
    """Load the tasks of a module, a registry or a file.

    `spec` is `package.module`, `package.module:registry` or `path/to/file.py`.
    """
    name, _, attribute = spec.partition(":")
    before = set(DEFAULT.names())
    module = import_named(name)
    registry = _registry_in(module, attribute, spec) if attribute else DEFAULT
    if not (_has_tasks(module, before) if registry is DEFAULT else len(registry)):
        raise _no_tasks(spec, module)
    for found in registry:
        found.prepare()
    return registry


def _registry_in(module: ModuleType, attribute: str, spec: str) -> Registry:
    found = getattr(module, attribute, None)
    if isinstance(found, Registry):
        return found
    known = [name for name, value in vars(module).items() if isinstance(value, Registry)]
    what = "not there" if found is None else f"of type {type(found).__name__}"
    raise cannot_load(
        spec,
        f"{attribute} should be a Registry and is {what}",
        f"Use one of: {', '.join(known)}."
        if known
        else f"Leave :{attribute} out, to use what @task has made.",
    )


def _has_tasks(module: ModuleType, before: set[str]) -> bool:
    """Return whether the module defines tasks, now or on an earlier import."""
    if any(isinstance(value, Task) and value.name in DEFAULT for value in vars(module).values()):
        return True
    inside = f"{module.__name__}."
    return any(
        task.name not in before or f"{task.function.__module__}.".startswith(inside) for task in DEFAULT
    )


def _no_tasks(spec: str, module: ModuleType) -> CannotLoad:
    known = [name for name, value in vars(module).items() if isinstance(value, Registry) and len(value)]
    todo = f"Start it as {module.__name__}:{known[0]}." if known else "Decorate a function in it with @task."
    return cannot_load(spec, "there are no tasks in it", todo)


def _template(
    name: str, known: Mapping[str, Any], options: Mapping[str, Any], allowed: Sequence[str] = OPTIONS
) -> JobSpec:
    """Return a job spec without arguments; raise for invalid options."""
    wrong = [option for option in options if option not in allowed]
    if wrong:
        guess = nearest(wrong[0], allowed)
        raise InvalidArguments(
            f"The task {name} cannot have the option {wrong[0]}."
            + (f" Did you mean {guess}?" if guess else ""),
            allowed=allowed,
            todo=f"Use some of: {', '.join(allowed)}.",
            facts={"task": name, "option": wrong[0]},
        )
    try:
        return msgspec.convert({**known, "task": name, **_plain(options)}, JobSpec)
    except msgspec.ValidationError as error:
        raise InvalidArguments(
            f"The options of the task {name} do not fit: {decoding_error(error)}.",
            todo="Labels are a list; times are seconds; retry maps a class of failure to a RetryRule.",
            facts={"task": name, "cause": decoding_error(error)},
        ) from error


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as a job spec has them."""
    plain = dict(options)
    if plain.get("after") is not None:
        plain["after"] = rule_of(plain["after"])
    if "unique" in plain:
        plain["unique"] = _unique(plain["unique"])
    until = plain.get("not_after")
    if isinstance(until, timedelta | int | float) or (isinstance(until, str) and is_duration(until)):
        plain[START_WITHIN] = plain.pop("not_after")
    if START_WITHIN in plain:
        wait = plain.pop(START_WITHIN)
        plain["start_within_s"] = None if wait is None else seconds_of(wait, "be started within")
    # Each of two that say the same replaces the other one of the task.
    for one, other, nothing in (("at", "delay_s", 0.0), ("not_after", "start_within_s", None)):
        if plain.get(one) is not None:
            plain.setdefault(other, nothing)
        elif plain.get(other):
            plain.setdefault(one, None)
    return plain


def _without_request_id(task: Task[..., Any]) -> InvalidArguments:
    """Return the error of a spec that would lose a request id."""
    return InvalidArguments(
        f"The task {task.name} has the option request_id, which is that of one submission by a client.",
        todo="Pass the task itself to il.submit. Elsewhere leave the option out: submit_many and compose "
        "take a request_id, and a child has a child_name.",
        facts={"task": task.name, "request_id": task.request_id},
    )


def _unique(rule: object) -> object:
    """Return a rule for unique jobs from its short forms."""
    match rule:
        case None | False:
            return None
        case True:
            return Unique()
        case str():
            return Unique(key=rule)
        case list() | tuple():
            return {"by": tuple(rule)}
        case _:
            return rule


def _memory_limit(name: str, megabytes: object, executor: Executor) -> int | None:
    if megabytes is None:
        return None
    if not isinstance(megabytes, int) or megabytes < 1:
        raise InvalidArguments(
            f"The task {name} cannot have memory_limit_mb={megabytes!r}.",
            todo="Give a whole number of megabytes, such as memory_limit_mb=512.",
            facts={"task": name, "option": "memory_limit_mb"},
        )
    if executor != "process":
        raise InvalidArguments(
            f'The task {name} can have memory_limit_mb only with executor="process".',
            todo="A handler in the event loop or in a thread shares the memory of the worker.",
            facts={"task": name, "executor": executor},
        )
    return megabytes * 1024 * 1024


def _checked_name(function: Callable[..., Any], name: object) -> str:
    if isinstance(name, str) and name and not any(letter.isspace() for letter in name):
        return name
    raise refused(function, f"{name!r} is not a name", 'Give text without spaces, such as "shop.send".')


def _is_the_same_again(known: Task[..., Any], new: Task[..., Any]) -> bool:
    """Return whether it is the same function of a reloaded module.

    A different function of the same name is not.
    """
    one, other = written_function(known.function), written_function(new.function)
    if (one.__module__, one.__qualname__) != (other.__module__, other.__qualname__):
        return False
    in_one_run = known.module_run is not None and known.module_run is new.module_run
    return not in_one_run or one.__code__.co_firstlineno == other.__code__.co_firstlineno


def names_around(frame: FrameType | None, ours: str) -> Mapping[str, Any]:
    """Return the local names where a task is decorated.

    Annotations may use them. Frames of `ours` are skipped.
    """
    while frame is not None and frame.f_code.co_filename == ours:
        frame = frame.f_back
    if frame is None or frame.f_locals is frame.f_globals:
        return {}
    return frame.f_locals
