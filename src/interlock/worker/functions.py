"""Functions that can be tasks: their names, their executors, and their arguments as JSON.

A task is a plain function, sync or async, that a worker finds by its name and calls once for each attempt.
Anything else is refused when it is decorated, with advice.

The parameters become a msgspec struct once, so that decoding, converting and validating are one pass.
Arguments are validated in the same way at submission and in the worker. A type may be declared after the
function that names it, so types are resolved when the function is decorated and again when they are first
needed.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import msgspec

from interlock.errors import CannotLoad, InvalidArguments
from interlock.text import nearest
from interlock.worker.codec import Decode, concrete, decode, decoder_of, decoding_error, encode, shortened
from interlock.worker.context import Context

Executor = Literal["async", "thread", "process"]
EXECUTORS: tuple[Executor, ...] = ("async", "thread", "process")


def plain_function(thing: object) -> Callable[..., Any]:
    """Return the decorated function; raise if it cannot be a task."""
    function = thing.__func__ if isinstance(thing, staticmethod) else thing
    if not inspect.isfunction(function):
        raise refused(thing, f"it is {_described(thing)}, not a function", _WRAP)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise refused(thing, "it yields, and a job has one result", _NO_YIELD)
    if not isinstance(thing, staticmethod) and _looks_like_a_method(function):
        raise refused(thing, "it is a method, and a worker has no object to call it on", _WRAP)
    return function


def default_name(function: Callable[..., Any]) -> str:
    """Return the name `module.qualname`.

    A worker that imports the module uses the same name.
    """
    if function.__name__ == "<lambda>":
        raise refused(
            function, "a lambda has no name", 'Give it one: task(name="shop.double")(lambda x: 2 * x).'
        )
    return f"{_module_of(function)}.{function.__qualname__}"


def executor_of(function: Callable[..., Any], wanted: str | None) -> Executor:
    """Return its executor.

    That is the loop for async functions, a thread for others, or a process if requested.
    """
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
    """Return the executor on a worker with a default.

    It is the default, or the usual one if that is impossible.
    """
    try:
        return executor_of(function, default)
    except CannotLoad:
        return executor_of(function, None)


def written_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the original function, inside of other decorators."""
    inner = inspect.unwrap(function)
    return inner if inspect.isfunction(inner) else function


def place_of(function: Callable[..., Any]) -> str:
    """Return the place of its definition, for an error."""
    code = written_function(function).__code__
    place = f"{Path(code.co_filename).name} line {code.co_firstlineno}"
    return f"{function.__module__}.{function.__qualname__} ({place})"


def refused(thing: object, why: str, todo: str) -> CannotLoad:
    """Return the error for a function that cannot be a task."""
    name = getattr(thing, "__qualname__", None) or repr(thing)
    return CannotLoad(f"Cannot make a task of {name}: {why}.", todo=todo, facts={"name": name, "cause": why})


_WRAP = "Write a function at the top of a module that does this work, and decorate that."
_NO_YIELD = "Return a list; report progress with ctx.progress, ctx.log or ctx.checkpoint."


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
    """Return whether the first parameter is that of a method.

    Its class does not exist yet.
    """
    inside_a_class = function.__qualname__.rpartition("<locals>.")[2] != function.__name__
    first = next(iter(inspect.signature(function).parameters), "")
    return inside_a_class and first in ("self", "cls")


def _module_of(function: Callable[..., Any]) -> str:
    """Return the importable module, also for the program that was started."""
    if function.__module__ != "__main__":
        return function.__module__
    names = written_function(function).__globals__
    spec, file = names.get("__spec__"), names.get("__file__")
    if spec is not None:  # python -m shop.tasks
        return str(spec.name)
    return Path(file).stem if file else "__main__"


MORE = "*"
"""The key of the arguments beyond the named ones, for a function that takes `*args`."""
_EMPTY = msgspec.Raw(b"{}")
_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_CONTEXT_IN_WORDS = re.compile(r"(\w+\.)*Context( \| None)?")


class Arguments:
    """The parameters of one function."""

    def __init__(self, function: Callable[..., Any], task_name: str, local_names: Mapping[str, Any]) -> None:
        self._function = function
        self._task_name = task_name
        self._types: dict[str, Any] = {}
        everything = inspect.signature(function).parameters.values()
        for parameter in everything:
            self._types[parameter.name] = self._look_up(parameter, local_names)
        self.context_name: str | None = self._find_context(everything)
        parameters = [parameter for parameter in everything if parameter.name != self.context_name]
        self._named = {p.name: p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        self._positional = tuple(name for name, p in self._named.items() if p.kind in _BY_POSITION)
        self._more = next((p for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        self._others = next((p for p in parameters if p.kind is p.VAR_KEYWORD), None)
        self._known_keys = (*self._named, *([MORE] if self._more else []))
        # Before *args, positional parameters must be passed by position.
        self._passed_by_position = tuple(
            name
            for name in self._positional
            if self._more or self._named[name].kind is Parameter.POSITIONAL_ONLY
        )
        self._without: dict[str, Decode] = {}
        """Decoders of the arguments without one of them, by its name."""
        self._needs_nothing = all(p.default is not p.empty for p in self._named.values())

    def encode(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], later: str = "") -> msgspec.Raw:
        """Encode the arguments of a call as the input of a job.

        The argument named `later` comes later.
        """
        if self._needs_nothing and not args and not kwargs and not later:
            return _EMPTY
        given = self._by_name(args, kwargs, later)
        raw = encode(given, "arguments")
        if later:
            self._check_without(later, given, raw)
        else:
            self.decode(raw)
        return raw

    def _check_without(self, later: str, given: Mapping[str, Any], raw: msgspec.Raw) -> None:
        """Check all arguments but one, which is the result of another job."""
        if later in given:
            raise self._unfit(f"{later} was given, and is to be the result of another job")
        if later not in self._named and self._others is None:
            raise self._unfit(f"it takes no {later}, which is to be the result of another job")
        check = self._without.get(later)
        if check is None:
            check = self._without[later] = decoder_of(self._struct(later))
        try:
            check(raw)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._unfit(self._what_is_wrong(raw, later) or decoding_error(error)) from error

    @property
    def first(self) -> str:
        """The name of the first parameter that can be given by position; empty if there is none."""
        return next(iter(self._positional), "")

    def decode(self, raw: msgspec.Raw | bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Decode the input of a job into positional and named arguments."""
        try:
            kwargs = msgspec.structs.asdict(self._decode(raw))
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._unfit(self._what_is_wrong(raw) or decoding_error(error)) from error
        args = tuple([kwargs.pop(name) for name in self._passed_by_position])
        if self._more is not None:
            args += kwargs.pop(self._more.name)
        if self._others is not None:
            kwargs.update(self._decode_others(raw, self._others))
        return args, kwargs

    def prepare(self) -> None:
        """Resolve every type, and check that it can come from JSON."""
        _ = self._decode
        if self._others is not None:
            self._type_of(self._others)

    @property
    def takes(self) -> str:
        """The signature of the function, for people."""
        parameters = [p for p in (*self._named.values(), self._more, self._others) if p is not None]
        kinds = [self._types[parameter.name] for parameter in parameters]
        shown = [
            parameter.replace(annotation=parameter.empty if kind in (None, Any) else kind)
            for parameter, kind in zip(parameters, kinds, strict=True)
        ]
        return str(inspect.Signature(sorted(shown, key=lambda parameter: parameter.kind)))

    def _by_name(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], later: str = "") -> dict[str, Any]:
        """Return arguments by name.

        Those by position go to the parameters besides `later`.
        """
        positional = self._positional if not later else tuple(n for n in self._positional if n != later)
        given = dict(zip(positional, args, strict=False))
        if len(args) > len(positional):
            if self._more is None:
                raise self._unfit(f"{len(args)} were given by position, and it takes {len(positional)}")
            given[MORE] = args[len(positional) :]
        if kwargs:
            twice = given.keys() & kwargs.keys()
            if twice:
                raise self._unfit(f"{min(twice)} was given twice, by position and by name")
            given.update(kwargs)
        return given

    @cached_property
    def _decode(self) -> Decode:
        return decoder_of(self._struct())

    def _struct(self, later: str = "") -> Any:
        """Return the arguments as a struct; the one named `later` may be missing."""
        members = [
            (name, self._type_of(p), None if name == later else _default(p))
            for name, p in self._named.items()
        ]
        if self._more is not None:
            kind: Any = tuple.__class_getitem__((self._type_of(self._more), ...))
            members.append((self._more.name, kind, msgspec.field(name=MORE, default=())))
        forbid = self._others is None
        return msgspec.defstruct("Arguments", members, kw_only=True, forbid_unknown_fields=forbid)

    def _decode_others(self, raw: msgspec.Raw | bytes, others: Parameter) -> dict[str, Any]:
        """Return the arguments of `**others`: all that are not parameters."""
        values: dict[str, msgspec.Raw] = decode(raw, dict[str, msgspec.Raw], "input")
        decode_one, decoded = decoder_of(self._type_of(others)), {}
        for name in values.keys() - set(self._known_keys):
            if name == self.context_name:
                raise self._unfit(f"{name} is given by the worker")
            try:
                decoded[name] = decode_one(values[name])
            except (msgspec.DecodeError, RecursionError) as error:
                raise self._unfit(decoding_error(error, at=name)) from error
        return decoded

    def _what_is_wrong(self, raw: msgspec.Raw | bytes, later: str = "") -> str:
        """Return the missing or unknown names; empty if the fault is in a value."""
        try:
            given = decoder_of(dict[str, msgspec.Raw])(raw)
        except RecursionError:
            return ""
        except msgspec.DecodeError:
            return f"they are not a JSON object of arguments by name but {shortened(raw) or 'nothing'}"
        given.setdefault(later, msgspec.Raw())
        missing = [name for name, p in self._named.items() if p.default is p.empty and name not in given]
        given.pop("", None)
        unknown = [name for name in given if name not in self._known_keys] if self._others is None else []
        faults = []
        if missing:
            faults.append(f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing")
        if unknown:  # report missing names first
            guess = nearest(unknown[0], missing) or nearest(unknown[0], self._known_keys)
            faults.append(f"it takes no {unknown[0]}" + (f", did you mean {guess}" if guess else ""))
        return "; ".join(faults)

    def _unfit(self, why: str) -> InvalidArguments:
        return InvalidArguments(
            f"The arguments do not fit {self._task_name}: {why}.",
            todo=f"It takes {self.takes}.",
            facts={"task": self._task_name, "cause": why},
        )

    def _find_context(self, parameters: typing.Iterable[Parameter]) -> str | None:
        found = [p for p in parameters if _is_context(p, self._types[p.name])]
        if not found:
            return None
        if len(found) > 1:
            raise self._refused(f"it takes the context twice, as {found[0].name} and {found[1].name}")
        takes_more = any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters)
        if found[0].kind is Parameter.POSITIONAL_ONLY or (
            takes_more and found[0].kind is Parameter.POSITIONAL_OR_KEYWORD
        ):
            raise self._refused(
                f"the context {found[0].name} cannot be given by name",
                todo=f"Put it last: def {self._function.__name__}(..., *, {found[0].name}).",
            )
        return found[0].name

    def _look_up(self, parameter: Parameter, local_names: Mapping[str, Any]) -> Any:
        """Return the type of an annotation; None while it is undefined."""
        if parameter.annotation is Parameter.empty:
            return Any
        inner = written_function(self._function)
        names = {kind.__name__: kind for kind in getattr(inner, "__type_params__", ())}
        annotated: Any = SimpleNamespace(__annotations__={"it": parameter.annotation})
        try:
            return typing.get_type_hints(annotated, inner.__globals__, {**local_names, **names}, True)["it"]
        except (NameError, AttributeError, SyntaxError, TypeError):
            return None

    def _type_of(self, parameter: Parameter) -> Any:
        kind = self._types[parameter.name]
        if kind is None:
            kind = self._types[parameter.name] = self._look_up(parameter, {})
        if kind is None:
            raise self._refused(
                f"the type {parameter.annotation} of {parameter.name} is not found when the program runs",
                todo="Import it outside of `if TYPE_CHECKING:`, or leave the annotation out.",
            )
        try:
            decoder_of(kind)
        except TypeError as error:
            raise self._refused(
                f"{parameter.name} cannot come from JSON: {error}",
                todo="Take text, numbers, lists, dicts, a dataclass, a msgspec struct or a pydantic model.",
            ) from error
        return concrete(kind)

    def _refused(self, why: str, *, todo: str = "Take it once.") -> CannotLoad:
        return CannotLoad(
            f"Cannot make a task of {self._task_name}: {why}.",
            todo=todo,
            facts={"name": self._task_name, "cause": why},
        )


def _is_context(parameter: Parameter, kind: Any) -> bool:
    if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        return False
    if parameter.name == "ctx":
        return True
    if kind is None:
        return _CONTEXT_IN_WORDS.fullmatch(str(parameter.annotation)) is not None
    return kind is Context or Context in typing.get_args(kind)


def _default(parameter: Parameter) -> Any:
    """Return the function's default object as the default of the struct."""
    if parameter.default is Parameter.empty:
        return msgspec.NODEFAULT
    return msgspec.field(default_factory=lambda: parameter.default)
