"""Signatures of handlers, for type checkers: the arguments of a job, and the type of its result.

A type checker can take the context off the parameters of a handler only where it is the first one. If it
comes later, it must be named `ctx` and arguments are checked when the program runs. A result is known to the
type checker if it comes back from JSON as the handler returned it; otherwise it is Any.

Why: decision 0419.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Never, ParamSpec, Protocol, TypeAlias, TypedDict, TypeVar

if TYPE_CHECKING:
    import typing_extensions

    from interlock.wire.jobs import After, IfFails, RetryRule, Unique
    from interlock.worker.context import Context
    from interlock.worker.postponement import Duration

    Result_co = typing_extensions.TypeVar("Result_co", covariant=True, default=Any)
else:
    Result_co = TypeVar("Result_co", covariant=True)  # has a default from Python 3.13 on

P = ParamSpec("P")
T_co = TypeVar("T_co", covariant=True)

AfterJobs: TypeAlias = "After | Sequence[str | HasId]"
"""Jobs that all have to succeed first, or a rule made with `all_of` or `any_of`."""
UniqueBy: TypeAlias = "Unique | bool | str | Sequence[str]"
"""A rule; True for all arguments, text for a key, or names of the arguments that make the key."""


class HasId(Protocol):
    """A submitted job: a handle or a view."""

    @property
    def id(self) -> str:
        """The id of the job."""


class JsonList(Protocol[T_co]):
    """A list of values of which each has a type in JSON. A tuple is none: it comes back as a list."""

    def __iter__(self) -> Iterator[T_co]: ...

    def reverse(self) -> None:
        """Reverse it: lists can do this, tuples and bytes cannot."""


Json: TypeAlias = "bool | int | float | str | JsonList[Json] | Mapping[str, Json] | None"
"""Values that come back from JSON with the type they had."""
J = TypeVar("J", bound=Json)
Returns: TypeAlias = Coroutine[Any, Any, J] | J
"""Results of a handler, async or not."""


class ContextFirst(Protocol[P]):
    """A handler with the context as its first parameter."""

    def __call__(self, ctx: Context, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class _AnyTask(Protocol):
    @property
    def takes(self) -> str: ...


class _Context0(_AnyTask, Protocol):
    def __call__(self, *, ctx: Context) -> Any: ...


class _Context1(_AnyTask, Protocol):
    def __call__(self, a: Never, /, *, ctx: Context) -> Any: ...


class _Context2(_AnyTask, Protocol):
    def __call__(self, a: Never, b: Never, /, *, ctx: Context) -> Any: ...


class _Context3(_AnyTask, Protocol):
    def __call__(self, a: Never, b: Never, c: Never, /, *, ctx: Context) -> Any: ...


class _Context4(_AnyTask, Protocol):
    def __call__(self, a: Never, b: Never, c: Never, d: Never, /, *, ctx: Context) -> Any: ...


class _Context5(_AnyTask, Protocol):
    def __call__(self, a: Never, b: Never, c: Never, d: Never, e: Never, /, *, ctx: Context) -> Any: ...


ContextByName: TypeAlias = _Context0 | _Context1 | _Context2 | _Context3 | _Context4 | _Context5
"""A handler with the context as a later parameter, `ctx`, after up to five that have no default.

There is no way to take a parameter by name off a signature, and so its arguments cannot be checked.
"""


class TaskWithTheseArguments(_AnyTask, Protocol):
    """The type that mypy names where arguments do not fit a task; no task has it.

    mypy reports the first overload that arguments of any type would fit. Without this one it would name all
    types of `ContextByName`; with it, it shows the signature of the task.
    """

    def __call__(self, *, arguments_of_this_call: object) -> Never: ...


class JobOptions(TypedDict, total=False):
    """Options of a submission, for `Task.options`: those of `JobSpec`, with short forms, and `request_id`."""

    queue: str
    priority: int
    labels: Sequence[str]
    worker_count: int
    parent_job_id: str | None
    if_fails: IfFails
    description: str
    delay_s: float
    at: datetime | str | None
    not_after: Duration | datetime | None
    start_within: Duration | None
    start_within_s: float | None
    unique: UniqueBy | None
    timeout_s: float | None
    job_timeout_s: float | None
    retries: int | None
    retry: Mapping[str, RetryRule | Mapping[str, Any]]
    losses: int | None
    secrets: Sequence[str]
    secrets_withheld: bool
    trace: Mapping[str, str]
    limits: Sequence[str]
    weight: int
    metadata: Mapping[str, str]
    after: AfterJobs | None
    request_id: str | None
