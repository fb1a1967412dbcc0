"""A task is still its function, can be submitted, and is found by its name."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import pytest

from interlock.errors import CannotLoad, InterlockError, InvalidArguments, UnknownTask
from interlock.wire.jobs import After, JobSpec, RetryRule
from interlock.wire.runner import Grant
from interlock.worker.context import Context
from interlock.worker.functions import EXECUTORS
from interlock.worker.tasks import DEFAULT, OPTIONS, Registry, Task, task

T = TypeVar("T")


@task
async def double(x: int) -> int:
    """Twice as much."""
    return 2 * x


@task(name="shop.triple", queue="sums", retries=2, labels=["big"], timeout_s=5)
def triple(x: int) -> int:
    return 3 * x


@pytest.fixture
def registry() -> Registry:
    return Registry()


def context() -> Context:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    grant = Grant(
        token="secret",
        job_id="j_1",
        task="shop.send",
        input=msgspec.Raw(b"{}"),
        fence=1,
        granted_at=now,
        expires_at=now,
        ttl_s=1.0,
        heartbeat_every_s=1.0,
        timeout_s=1.0,
    )
    return Context(grant, now=lambda: now)


async def test_a_task_is_still_called_like_its_function() -> None:
    assert await double(2) == 4
    assert triple(2) == 6


def test_a_task_has_the_name_docstring_and_signature_of_its_function() -> None:
    assert (double.__name__, double.__doc__) == ("double", "Twice as much.")
    assert str(inspect.signature(double)) == "(x: 'int') -> 'int'"
    assert repr(triple) == "<Task shop.triple(x: int)>"


def test_a_task_is_named_after_where_it_is() -> None:
    assert double.name == f"{__name__}.double"
    assert triple.name == "shop.triple"


def test_a_decorated_function_is_registered_in_the_default_registry() -> None:
    assert DEFAULT.get(f"{__name__}.double") is double
    assert DEFAULT.get("shop.triple") is triple


def test_a_job_to_submit_carries_the_arguments_and_the_options() -> None:
    spec = triple.spec(x=4)
    assert isinstance(spec, JobSpec)
    assert bytes(spec.input) == b'{"x":4}'
    assert (spec.task, spec.queue, spec.retries, spec.labels, spec.timeout_s) == (
        "shop.triple",
        "sums",
        2,
        ("big",),
        5,
    )
    assert (spec.priority, spec.worker_count, spec.description, spec.losses) == (0, 1, "", None)


def test_arguments_that_do_not_fit_are_refused_before_anything_is_submitted() -> None:
    with pytest.raises(InvalidArguments, match=r"do not fit shop\.triple: x: expected int, got str"):
        triple.spec("4")  # type: ignore[arg-type]


def test_other_options_make_another_task_and_leave_this_one_alone() -> None:
    slow = triple.options(queue="slow", delay_s=60, parent_job_id="j_1", retry={"user": {"retries": 3}})
    spec = slow.spec(1)
    assert (spec.queue, spec.delay_s, spec.parent_job_id, spec.retries) == ("slow", 60.0, "j_1", 2)
    assert spec.retry == {"user": RetryRule(retries=3)}
    assert triple.spec(1).queue == "sums"
    assert slow(2) == 6
    assert DEFAULT.get("shop.triple") is triple


def test_a_request_id_among_the_options_is_kept_by_further_options_and_is_part_of_no_job() -> None:
    once = triple.options(request_id="one").options(queue="slow")
    assert (once.request_id, once.template.queue, triple.request_id) == ("one", "slow", None)
    makers: tuple[Callable[[], object], ...] = (
        lambda: once.spec(1),
        lambda: once.partial_spec(After(jobs=("#0",), into="x"), (), {}),
        once.s(1).specs,
        (double.s(1) | once.s()).specs,
    )
    for make in makers:
        with pytest.raises(
            InvalidArguments, match=r"The task shop\.triple has the option request_id"
        ) as caught:
            make()
        assert "child_name" in caught.value.todo
    assert once.options(request_id=None).spec(1).queue == "slow"


def test_a_misspelt_request_id_among_the_options_is_guessed() -> None:
    wrong: dict[str, Any] = {"requestid": "a"}
    with pytest.raises(InvalidArguments, match="Did you mean request_id"):
        triple.options(**wrong)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"que": "a"}, "cannot have the option que. Did you mean queue?"),
        ({"input": b"{}"}, "cannot have the option input."),
        ({"executor": "thread"}, "cannot have the option executor."),
        ({"labels": "gpu"}, "do not fit: labels: expected array, got str."),
        ({"queue": None}, "do not fit: queue: expected str, got null."),
        ({"retries": "3"}, "do not fit: retries: expected int | null, got str."),
        (
            {"retry": {"user": {"retires": 3}}},
            "do not fit: retry[...]: object contains unknown field retires.",
        ),
    ],
)
def test_options_that_do_not_exist_or_do_not_fit_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        triple.options(**options)
    assert why in caught.value.sentence
    assert caught.value.todo


def test_options_are_refused_in_the_decorator_as_well(registry: Registry) -> None:
    wrong: dict[str, Any] = {"que": "a"}
    with pytest.raises(InvalidArguments) as caught:
        registry.task(**wrong)(triple.function)
    assert caught.value.allowed == OPTIONS
    assert len(registry) == 0


def test_async_functions_run_in_the_loop_and_others_in_a_thread(registry: Registry) -> None:
    @registry.task(executor="process")
    def heavy() -> None: ...

    @registry.task(executor="process")
    async def isolated() -> None: ...

    assert (double.executor, triple.executor) == ("async", "thread")
    assert (heavy.executor, isolated.executor) == ("process", "process")


def test_the_default_executor_of_a_worker_applies_only_to_tasks_that_support_it(registry: Registry) -> None:
    @registry.task(executor="async")
    async def stays() -> None: ...

    assert [double.executor_on(where) for where in (None, *EXECUTORS)] == [
        "async",
        "async",
        "async",
        "process",
    ]
    assert [triple.executor_on(where) for where in (None, *EXECUTORS)] == [
        "thread",
        "thread",
        "thread",
        "process",
    ]
    assert stays.executor_on("process") == "async"


def unwrapped(function: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Awaitable[T]:
        return function(*args, **kwargs)

    return wrapper


def test_a_wrapper_that_returns_a_coroutine_can_be_declared_async(registry: Registry) -> None:
    @registry.task(executor="async")
    @unwrapped
    async def fetch() -> None: ...

    assert fetch.executor == "async"


def test_the_context_is_filled_in_when_a_worker_calls(registry: Registry) -> None:
    @registry.task
    def handler(job: Context, x: int, *, y: str = "b") -> tuple[Context, int, str]:
        return job, x, y

    given = context()
    assert (handler.wants_context, handler.context_name) == (True, "job")
    assert (triple.wants_context, triple.context_name) == (False, None)
    assert handler.invoke(handler.spec(3).input, given) == (given, 3, "b")
    assert triple.invoke(triple.spec(3).input, given) == 9
    assert handler.takes == "(x: int, *, y: str = 'b')"


async def test_an_async_task_is_awaited_by_its_caller() -> None:
    assert await double.invoke(msgspec.Raw(b'{"x":4}'), context()) == 8


def test_a_call_without_an_argument_is_refused() -> None:
    with pytest.raises(InvalidArguments, match="x is missing"):
        _ = double.invoke(msgspec.Raw(b"{}"), context())


def test_a_type_that_is_local_to_a_test_is_found(registry: Registry) -> None:
    class Local(msgspec.Struct):
        n: int

    @registry.task
    def bare(x: Local) -> Local:
        return x

    @registry.task(name="with.options")
    def with_options(x: Local) -> Local:
        return x

    for made in (bare, with_options):
        assert made.invoke(made.spec(Local(1)).input, None) == Local(1)


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> Any:
    yield 1


class Service:
    def method(self) -> None: ...

    @classmethod
    def of_the_class(cls) -> None: ...

    @staticmethod
    def apart(x: int) -> int:
        return x + 1


class Callee:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("thing", "why"),
    [
        (generator, "generator: it yields, and a job has one result"),
        (async_generator, "async_generator: it yields, and a job has one result"),
        (Service, "Service: it is a class, not a function"),
        (Service.method, "Service.method: it is a method, and a worker has no object to call it on"),
        (Service().method, "Service.method: it is a method of an object, not a function"),
        (vars(Service)["of_the_class"], "Service.of_the_class: it is a class method, not a function"),
        (functools.partial(generator), "it is a partial, not a function"),
        (functools.lru_cache(triple.function), "it is a _lru_cache_wrapper, not a function"),
        (len, "len: it is a builtin_function_or_method, not a function"),
        (Callee(), "it is a Callee, not a function"),
        (triple, "triple: it is a Task, not a function"),
        (lambda x: x, "a lambda has no name"),
        (3, "3: it is an int, not a function"),
    ],
)
def test_an_object_that_cannot_be_a_task_is_refused_with_a_reason_when_it_is_decorated(
    registry: Registry, thing: Any, why: str
) -> None:
    with pytest.raises(CannotLoad) as caught:
        registry.task(thing)
    assert caught.value.sentence.startswith("Cannot make a task of ")
    assert why in caught.value.sentence
    assert caught.value.todo
    assert len(registry) == 0


def test_a_static_method_is_a_function(registry: Registry) -> None:
    class Shop:
        @registry.task(name="shop.outside")
        @staticmethod
        def outside(x: int) -> int:
            return x + 1

        @staticmethod
        @registry.task(name="shop.inside")
        def inside(x: int) -> int:
            return x + 2

    assert (Shop.outside(1), Shop.inside(1)) == (2, 3)
    assert registry.names() == ("shop.inside", "shop.outside")


def test_a_lambda_with_a_name_is_a_function(registry: Registry) -> None:
    increment = registry.task(name="shop.increment")(lambda x: x + 1)
    assert increment(1) == 2
    assert bytes(increment.spec(1).input) == b'{"x":1}'


@pytest.mark.parametrize("name", ["", "two words", "line\n", 3])
def test_a_name_that_is_none_is_refused(registry: Registry, name: Any) -> None:
    with pytest.raises(CannotLoad, match="is not a name"):
        registry.task(name=name)(triple.function)


@pytest.mark.parametrize(
    ("function", "executor", "why"),
    [
        (triple.function, "treads", "there is no executor 'treads', did you mean thread"),
        (triple.function, 5, "there is no executor 5"),
        (triple.function, "async", "it is not async, and would hold up the loop"),
        (double.function, "thread", "an async function does not run in a thread"),
    ],
)
def test_an_executor_that_does_not_suit_the_function_is_refused(
    registry: Registry, function: Callable[..., Any], executor: Any, why: str
) -> None:
    with pytest.raises(CannotLoad, match=why):
        registry.task(executor=executor)(function)


def test_a_task_that_is_not_known_is_answered_with_a_guess(registry: Registry) -> None:
    registry.add(triple)
    registry.add(double)
    with pytest.raises(UnknownTask) as caught:
        registry.get("shop.tripel")
    assert caught.value.sentence == "There is no task 'shop.tripel'. Did you mean shop.triple?"
    assert caught.value.allowed == registry.names()


def test_a_registry_without_tasks_has_no_advice(registry: Registry) -> None:
    with pytest.raises(UnknownTask) as caught:
        registry.get("shop.triple")
    assert (caught.value.sentence, caught.value.todo) == ("There is no task 'shop.triple'.", "")


def test_a_registry_is_walked_in_the_order_of_the_names(registry: Registry) -> None:
    registry.add(double)
    registry.add(triple)
    assert list(registry) == [triple, double]
    assert "shop.triple" in registry
    assert "shop.other" not in registry


def module_of(name: str, source: str) -> Iterator[types.ModuleType]:
    """A module that is executed anew each time, as a reload does."""
    module = types.ModuleType(name)
    while True:
        module.__spec__ = types.SimpleNamespace(name=name)  # type: ignore[assignment]
        exec(compile(source, f"{name}.py", "exec"), vars(module))
        yield module


def test_two_functions_of_one_name_are_refused(registry: Registry) -> None:
    registry.add(triple)
    with pytest.raises(CannotLoad) as caught:
        registry.task(name="shop.triple")(double.function)
    assert "Two functions want to be the task shop.triple" in caught.value.sentence
    assert ".triple (test_tasks.py line " in caught.value.sentence
    assert ".double (test_tasks.py line " in caught.value.sentence
    assert registry.get("shop.triple") is triple


def test_a_second_function_of_the_same_name_in_one_file_is_refused(registry: Registry) -> None:
    runs = module_of("twice", "def pay(x): ...\nfirst = pay\ndef pay(x, y): ...\n")
    module = next(runs)
    registry.task(module.first)
    with pytest.raises(
        CannotLoad, match=r"twice\.pay \(twice\.py line 1\) and twice\.pay \(twice\.py line 3\)"
    ):
        registry.task(module.pay)


def test_two_functions_behind_one_decorator_are_distinguished(registry: Registry) -> None:
    source = """
import functools
def kept(function):
    @functools.wraps(function)
    def wrapper(*args): ...
    return wrapper
@kept
def pay(x): ...
first = pay
@kept
def pay(x): ...
"""
    module = next(module_of("behind", source))
    registry.task(module.first)
    with pytest.raises(CannotLoad, match="Two functions"):
        registry.task(module.pay)


def test_the_same_function_of_a_reloaded_module_replaces_the_old_one(registry: Registry) -> None:
    runs = module_of("again", "\n" * 3 + "def pay(x): ...")
    old = registry.task(next(runs).pay)
    new = registry.task(next(runs).pay)
    assert old is not new
    assert registry.get("again.pay") is new


def test_the_program_that_was_started_is_called_by_its_file(registry: Registry) -> None:
    source = "def pay(x): ..."
    names: list[dict[str, Any]] = [
        {"__name__": "__main__", "__file__": "/srv/shop.py", "__spec__": None},
        {"__name__": "__main__", "__file__": "/srv/a.py", "__spec__": types.SimpleNamespace(name="shop.a")},
        {"__name__": "__main__"},
    ]
    for space in names:
        exec(source, space)
        registry.task(space["pay"])
    assert registry.names() == ("__main__.pay", "shop.a.pay", "shop.pay")


def test_decorating_any_object_that_is_not_a_function_raises_an_interlock_error(registry: Registry) -> None:
    things: list[Any] = [None, 1.5, "name", [], Task, sys, Registry()]
    for thing in things:
        with pytest.raises(InterlockError):
            registry.task(name="a")(thing)
