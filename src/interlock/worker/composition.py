"""Put jobs together: which job comes after which, and chains, groups and chords of them.

    first = await il.submit(fetch, url)
    await il.submit(store.options(after=[first]))
    await il.submit(report.options(after=any_of(first, other, on="end")))

    work = chain(fetch.s(url), group(count.s(), index.s()), report.s())
    handle = await il.compose(work)

A composition is a value: a list of jobs in which each names the earlier ones that it comes after. It is
submitted as one request, so it exists as a whole or not at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, overload

from interlock.errors import InvalidArguments
from interlock.wire.jobs import MAX_AFTER, After, AfterEnd, AfterNeed, AfterPolicy, JobSpec

if TYPE_CHECKING:
    from interlock.worker.signatures import AfterJobs, HasId

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


def all_of(
    *jobs: str | HasId,
    on: AfterEnd = "success",
    otherwise: AfterPolicy = "cancel",
    into: str = "",
) -> After:
    """Let a job wait for all of these jobs.

    For example `task.options(after=all_of(a, b))`.

    `on` is "success", or "end" for an end of any kind. `otherwise` applies if it waits in vain: "cancel", or
    "skip" so that jobs after it continue. `into` is the argument that gets the result of one job, or the
    list of the results of several.
    """
    return _rule(jobs, "all", on, otherwise, into)


def any_of(
    *jobs: str | HasId,
    on: AfterEnd = "success",
    otherwise: AfterPolicy = "cancel",
    into: str = "",
) -> After:
    """Let a job wait for the first of these jobs.

    The parameters are those of `all_of`. `into` is the argument that gets the result of that first job.
    """
    return _rule(jobs, "any", on, otherwise, into)


def _rule(
    jobs: Iterable[str | HasId], need: AfterNeed, on: AfterEnd, otherwise: AfterPolicy, into: str
) -> After:
    ids = tuple([each if isinstance(each, str) else each.id for each in jobs])
    return After(jobs=ids, need=need, on=on, otherwise=otherwise, into=into)


def rule_of(after: AfterJobs) -> After:
    """Return the rule for jobs that have to succeed first.

    A rule is returned as it is.
    """
    if isinstance(after, After):
        return after
    if isinstance(after, str) or not isinstance(after, Sequence):
        raise InvalidArguments(
            "after takes a list of jobs.",
            todo="Write after=[job], or after=any_of(job, other).",
            facts={"option": "after"},
        )
    return all_of(*after)


# Compositions


class Ends(NamedTuple):
    """The jobs with which a part of a composition ends, by their places in the list."""

    places: tuple[int, ...]
    listed: bool = False
    """Whether their results are a list, also of one."""


class Composable(ABC, Generic[R_co]):
    """A signature, chain or group. `Composable[int]` has a result of that type."""

    @abstractmethod
    def add_to(self, specs: list[JobSpec], before: Ends | None) -> Ends:
        """Append the jobs after `before`; return the jobs at the end."""

    def __or__(self, other: Composable[R]) -> JobChain[R]:
        """Return a chain of both: `fetch.s(url) | count.s()`."""
        return JobChain((*_links(self), *_links(other)))

    def specs(self) -> list[JobSpec]:
        """Return the jobs to submit, each after those that it names.

        `#0` is the first one.
        """
        return self.plan()[0]

    def plan(self) -> tuple[list[JobSpec], Ends]:
        """Return the jobs to submit, and the places of those that have the result."""
        specs: list[JobSpec] = []
        ends = self.add_to(specs, None)
        return specs, ends


class Partial(Protocol):
    """A task, as far as a signature needs it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def template(self) -> JobSpec:
        """The spec of its jobs, without arguments."""
        ...

    def partial_spec(self, after: After, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobSpec:
        """Return a job that comes after others.

        An argument may be their result.
        """
        ...

    def spec(self, *args: Any, **kwargs: Any) -> JobSpec:
        """Return a job with all of its arguments."""
        ...

    @property
    def first_parameter(self) -> str:
        """The name of the parameter that comes first by position; empty if there is none."""
        ...


class Signature(Composable[R_co]):
    """A task with arguments, to be put together with others; made by `task.s(…)` and `task.si(…)`."""

    __slots__ = ("_args", "_immutable", "_kwargs", "_task")

    def __init__(
        self, task: Partial, args: tuple[Any, ...], kwargs: dict[str, Any], *, immutable: bool = False
    ) -> None:
        self._task, self._args, self._kwargs = task, args, kwargs
        self._immutable = immutable

    def __repr__(self) -> str:
        return f"<signature of {self._task.name}>"

    def spec(self) -> JobSpec:
        """Return the job as it is submitted alone."""
        return self._task.spec(*self._args, **self._kwargs)

    def add_to(self, specs: list[JobSpec], before: Ends | None) -> Ends:
        """Append the job; its first argument is the result of those before it."""
        if before is None:
            specs.append(self.spec())
            return Ends((len(specs) - 1,))
        if self._task.template.after is not None:
            raise InvalidArguments(
                f"{self._task.name} has the option after, and comes after other jobs of the composition.",
                todo="Leave the option out, or put the task at the beginning.",
                facts={"task": self._task.name},
            )
        if len(before.places) > MAX_AFTER:
            raise InvalidArguments(
                f"A job comes after at most {MAX_AFTER} others, not {len(before.places)}.",
                todo="Make the group smaller, or several groups with a task that combines each.",
                facts={"task": self._task.name, "jobs": len(before.places), "limit": MAX_AFTER},
            )
        into = "" if self._immutable else self._taking()
        rule = After(
            jobs=tuple([f"#{place}" for place in before.places]),
            into=into,
            listed=bool(into) and before.listed,
        )
        specs.append(self._task.partial_spec(rule, self._args, self._kwargs))
        return Ends((len(specs) - 1,))

    def _taking(self) -> str:
        first = self._task.first_parameter
        if not first:
            raise InvalidArguments(
                f"{self._task.name} takes no argument by position that could be the result before it.",
                todo=f"Write {self._task.name.rpartition('.')[2]}.si(…), which takes no result.",
                facts={"task": self._task.name},
            )
        return first


class JobChain(Composable[R_co]):
    """Parts one after the other; the result of each is the first argument of the next."""

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[Composable[Any], ...]) -> None:
        self._parts = parts

    def __repr__(self) -> str:
        return f"<chain of {len(self._parts)}>"

    def __iter__(self) -> Iterator[Composable[Any]]:
        return iter(self._parts)

    def add_to(self, specs: list[JobSpec], before: Ends | None) -> Ends:
        """Append the parts, each after the one before it."""
        for part in self._parts:
            before = part.add_to(specs, before)
        if before is None:
            raise _empty("chain")
        return before


class JobGroup(Composable[list[R]]):
    """Parts side by side; their results are a list, in their order."""

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[Composable[R], ...]) -> None:
        self._parts = parts

    def __repr__(self) -> str:
        return f"<group of {len(self._parts)}>"

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Composable[R]]:
        return iter(self._parts)

    def add_to(self, specs: list[JobSpec], before: Ends | None) -> Ends:
        """Append the parts, each after what comes before the group."""
        places: list[int] = []
        for part in self._parts:
            ends = part.add_to(specs, before)
            if ends.listed:
                raise InvalidArguments(
                    "A part of a group ends with a group, so its result would be a list within the list.",
                    todo="Put its parts into the outer group, or let a task combine the inner one.",
                )
            places += ends.places
        if not places:
            raise _empty("group")
        return Ends(tuple(places), listed=True)


def _links(part: Composable[Any]) -> tuple[Composable[Any], ...]:
    return tuple(part) if isinstance(part, JobChain) else (part,)


def _empty(noun: str) -> InvalidArguments:
    return InvalidArguments(f"The {noun} is empty.", todo="Give it at least one signature: task.s(…).")


@overload
def chain(last: Composable[R], /) -> JobChain[R]: ...
@overload
def chain(a: Composable[Any], last: Composable[R], /) -> JobChain[R]: ...
@overload
def chain(a: Composable[Any], b: Composable[Any], last: Composable[R], /) -> JobChain[R]: ...
@overload
def chain(
    a: Composable[Any], b: Composable[Any], c: Composable[Any], last: Composable[R], /
) -> JobChain[R]: ...
@overload
def chain(*parts: Composable[Any]) -> JobChain[Any]: ...
def chain(*parts: Composable[Any]) -> JobChain[Any]:
    """Put parts one after the other.

    For example `chain(fetch.s(url), count.s(), report.si())`. The result of each part is the first argument
    of the next one, unless that is made with `si`. If one does not succeed, those after it are canceled.
    """
    return JobChain(tuple([link for part in parts for link in _links(part)]))


def group(*parts: Composable[R] | Iterable[Composable[R]]) -> JobGroup[R]:
    """Put parts side by side; the result is a list.

    For example `group(price.s(item) for item in items)`.
    """
    found: list[Composable[R]] = []
    for part in parts:
        found += (part,) if isinstance(part, Composable) else part
    return JobGroup(tuple(found))


def chord(header: JobGroup[Any] | Iterable[Composable[Any]], body: Composable[R]) -> JobChain[R]:
    """Let a job combine the results of a group.

    For example `chord((price.s(item) for item in items), total.s())`. Its first argument is the list of the
    results. It is canceled if one of the group does not succeed.
    """
    return JobChain((header if isinstance(header, JobGroup) else group(header), *_links(body)))
