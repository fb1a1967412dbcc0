"""What can be submitted: a task and its arguments, a finished spec, or the name of a task."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from interlock.errors import InvalidArguments
from interlock.wire.jobs import JobSpec
from interlock.worker.codec import encode


@runtime_checkable
class Submittable(Protocol):
    """A task: it makes a spec of arguments, and checks them."""

    def spec(self, *args: Any, **kwargs: Any) -> JobSpec:
        """A job to submit."""
        ...


Work: TypeAlias = Submittable | JobSpec | str
"""A task and its arguments, a finished spec, or the name of a task that is defined elsewhere."""


def spec_of(work: Work, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JobSpec:
    """What is submitted, checked as far as it can be without a worker."""
    match work:
        case JobSpec() if not args and not kwargs:
            return with_json(work)
        case str() if not args:
            return JobSpec(task=work, input=encode(kwargs, "arguments"))
        case Submittable():
            return work.spec(*args, **kwargs)
    raise InvalidArguments(
        "A spec has its arguments already, and a task that is known only by name takes them by name.",
        todo="Pass the task itself, or only keyword arguments.",
        facts={"positional": len(args), "by_name": sorted(kwargs)},
    )


def with_json(spec: JobSpec) -> JobSpec:
    """Return the spec with its input as JSON; plain values are encoded."""
    given: object = spec.input
    if isinstance(given, msgspec.Raw):
        return spec
    return msgspec.structs.replace(spec, input=encode(given, "input"))
