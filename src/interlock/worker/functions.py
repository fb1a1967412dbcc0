"""Which functions can be tasks, what they are called and where they run.

A task is a function that a worker finds by its name and calls once for each attempt, so it must be
a plain function, sync or async. Everything else is refused when it is decorated, with what to do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from interlock.errors import CannotLoad
from interlock.suggestions import nearest

Executor = Literal["async", "thread", "process"]
EXECUTORS: tuple[Executor, ...] = ("async", "thread", "process")


def plain_function(thing: object) -> Callable[..., Any]:
    """The function that was decorated, or a refusal of what is none."""
    function = thing.__func__ if isinstance(thing, staticmethod) else thing
    if not inspect.isfunction(function):
        raise refused(thing, f"it is {_described(thing)}, not a function", _WRAP)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise refused(thing, "it yields, and a job has one result", _NO_YIELD)
    if not isinstance(thing, staticmethod) and _looks_like_a_method(function):
        raise refused(thing, "it is a method, and a worker has no object to call it on", _WRAP)
    return function


def default_name(function: Callable[..., Any]) -> str:
    """`module.qualname`, so that a worker that imports the module knows it by the same name."""
    if function.__name__ == "<lambda>":
        raise refused(
            function, "a lambda has no name", 'Give it one: task(name="shop.double")(lambda x: 2 * x).'
        )
    return f"{_module_of(function)}.{function.__qualname__}"


def executor_of(function: Callable[..., Any], wanted: str | None) -> Executor:
    """Where it runs: async functions in the loop, others in a thread, unless a process is wanted."""
    is_async = inspect.iscoroutinefunction(function)
    if wanted is None:
        return "async" if is_async else "thread"
    match = [executor for executor in EXECUTORS if executor == wanted]
    if not match:
        guess = nearest(str(wanted), EXECUTORS)
        hint = f", did you mean {guess}" if guess else ""
        raise refused(
            function, f"there is no executor {wanted!r}{hint}", f"Use one of: {', '.join(EXECUTORS)}."
        )
    if is_async and wanted == "thread":
        raise refused(function, "an async function does not run in a thread", 'Use "async" or "process".')
    if wanted == "async" and not inspect.iscoroutinefunction(written_function(function)):
        raise refused(function, "it is not async, and would hold up the loop", 'Use "thread" or "process".')
    return match[0]


def executor_here(function: Callable[..., Any], default: Executor) -> Executor:
    """Where one runs that does not say, on a worker with a default: there, or, where it cannot, as ever."""
    try:
        return executor_of(function, default)
    except CannotLoad:
        return executor_of(function, None)


def written_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as somebody wrote it, inside of what other decorators have put around it."""
    inner = inspect.unwrap(function)
    return inner if inspect.isfunction(inner) else function


def place_of(function: Callable[..., Any]) -> str:
    """Where it is written, for an error."""
    code = written_function(function).__code__
    place = f"{Path(code.co_filename).name} line {code.co_firstlineno}"
    return f"{function.__module__}.{function.__qualname__} ({place})"


def refused(thing: object, why: str, todo: str) -> CannotLoad:
    """The one way in which all of this is said."""
    name = getattr(thing, "__qualname__", None) or repr(thing)
    return CannotLoad(f"Cannot make a task of {name}: {why}.", todo=todo, facts={"name": name, "cause": why})


_WRAP = "Write a function at the top of a module that does what is needed, and decorate that."
_NO_YIELD = "Return a list; tell what is done so far with ctx.progress, ctx.log or ctx.checkpoint."


def _described(thing: object) -> str:
    if inspect.isclass(thing):
        return "a class"
    if isinstance(thing, classmethod):
        return "a class method"
    if inspect.ismethod(thing):
        return "a method of an object"
    kind = type(thing).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"


def _looks_like_a_method(function: Callable[..., Any]) -> bool:
    """At this moment its class does not exist yet: the name of its first parameter is all there is."""
    inside_a_class = function.__qualname__.rpartition("<locals>.")[2] != function.__name__
    first = next(iter(inspect.signature(function).parameters), "")
    return inside_a_class and first in ("self", "cls")


def _module_of(function: Callable[..., Any]) -> str:
    """The module as others import it, also when it is the program that was started."""
    if function.__module__ != "__main__":
        return function.__module__
    names = written_function(function).__globals__
    spec, file = names.get("__spec__"), names.get("__file__")
    if spec is not None:  # python -m shop.tasks
        return str(spec.name)
    return Path(file).stem if file else "__main__"
