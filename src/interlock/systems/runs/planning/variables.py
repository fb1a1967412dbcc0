"""What is known about a change: one table of names, for conditions, for texts and for the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from interlock.wire.runs import Source

VARIABLE = "INTERLOCK_"


@dataclass(frozen=True, slots=True)
class Known:
    """One evaluation, as a condition sees it. Every value is text; no is `false` or empty."""

    source: Source
    inputs: Mapping[str, str] = field(default_factory=dict)
    matrix: Mapping[str, str] = field(default_factory=dict)

    def value(self, name: str) -> str:
        """What a name stands for; a part of a matrix or an input that is not there is empty."""
        family, dot, key = name.partition(".")
        if dot:
            return (self.matrix if family == "matrix" else self.inputs).get(key, "")
        return NAMES[name].get(self.source)


@dataclass(frozen=True, slots=True)
class Name:
    """A name that a condition may use."""

    get: Callable[[Source], str]
    doc: str


def branch_of(source: Source) -> str:
    """The branch, without `refs/heads/`."""
    return source.ref.removeprefix("refs/heads/") if source.ref.startswith("refs/heads/") else ""


def tag_of(source: Source) -> str:
    """The tag, without `refs/tags/`."""
    return source.ref.removeprefix("refs/tags/") if source.ref.startswith("refs/tags/") else ""


def _number(source: Source) -> str:
    return "" if source.pull_request is None else str(source.pull_request)


NAMES: Mapping[str, Name] = {
    "event": Name(lambda source: source.event, "push, pull_request, manual, or what a webhook calls it."),
    "branch": Name(branch_of, "The branch of a push: `main`; otherwise empty."),
    "tag": Name(tag_of, "The tag of a push: `v1.2`; otherwise empty."),
    "ref": Name(lambda source: source.ref, "The whole name: `refs/heads/main`."),
    "sha": Name(lambda source: source.sha, "The commit."),
    "base_sha": Name(lambda source: source.base_sha, "The commit that it is compared with."),
    "repository": Name(lambda source: source.repository, "`owner/name`."),
    "pull_request": Name(_number, "The number of the pull request, or empty."),
    "from_fork": Name(lambda source: "true" if source.from_fork else "false", "true or false."),
    "actor": Name(lambda source: source.actor, "Who made the change, as the provider says."),
}
FAMILIES: Mapping[str, str] = {
    "inputs": "What was given with the request, by name.",
    "matrix": "The value of an axis in this job.",
}


def environment(known: Known) -> dict[str, str]:
    """The same for the steps, as variables: a shell takes them as text and never as commands."""
    named = {f"{VARIABLE}{name.upper()}": known.value(name) for name in NAMES}
    given = {f"{VARIABLE}INPUT_{_upper(name)}": value for name, value in known.inputs.items()}
    return {key: value for key, value in (named | given).items() if value}


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")
