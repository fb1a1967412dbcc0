"""The schema of workflow files: every key, the type of its value, and its description.

The reader, the JSON Schema for editors and the page docs/reference/workflow.md are made from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from yaml.nodes import MappingNode, Node

from interlock.systems.orchestrator.failures import RETRIED
from interlock.systems.runs.workflows.expressions import (
    COMPARING,
    FAMILIES,
    FUNCTIONS,
    NAMES,
    Scope,
)
from interlock.systems.runs.workflows.field_types import (
    AnyJson,
    DurationText,
    Either,
    Field,
    FieldType,
    Flag,
    If,
    ListOf,
    MapOf,
    NeededJob,
    Object,
    Pattern,
    PlainText,
    Schema,
    Several,
    TemplateText,
    WholeNumber,
    shape,
)
from interlock.systems.runs.workflows.model import (
    MOST_COMBINATIONS,
    NOWHERE,
    Combination,
    Concurrency,
    Defaults,
    Matrix,
    On,
    Trigger,
    WorkflowApproval,
    WorkflowArtifact,
    WorkflowCache,
    WorkflowFile,
    WorkflowInput,
    WorkflowJob,
    WorkflowRetry,
    WorkflowStep,
    combinations,
    useless,
)
from interlock.systems.runs.workflows.yaml_nodes import FileFaults, pairs, place_of
from interlock.wire.limits import MAX_NAME, MAX_SLOTS

NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
MOST_AXES = 20
_VALUE = PlainText("value of an axis")
_VALUES = ListOf(_VALUE, most=MOST_COMBINATIONS)
_ENTRIES = ListOf(MapOf(_VALUE, "an axis", NAME, most=MOST_AXES), most=MOST_COMBINATIONS)
_OTHERS = ("include", "exclude")


@dataclass(frozen=True, slots=True)
class Axes:
    """Axes with their values, `include` and `exclude`."""

    def read(self, node: Node, faults: FileFaults) -> Matrix:
        """Return the matrix; empty if it is invalid."""
        if not isinstance(node, MappingNode) or len(node.value) > MOST_AXES:
            faults.add(
                place_of(node), f"a matrix has at most {MOST_AXES} axes with values, not {shape(node)}"
            )
            return Matrix({})
        found: dict[str, Any] = {}
        before = len(faults.found)
        for key, value in pairs(node, faults):
            found[key.value] = (_ENTRIES if key.value in _OTHERS else _VALUES).read(value, faults)
        axes = {name: values for name, values in found.items() if name not in _OTHERS}
        matrix = Matrix(axes, found.get("include", ()), found.get("exclude", ()))
        if len(faults.found) == before:
            _check(matrix, node, faults)
        return matrix if len(faults.found) == before else Matrix(axes)

    def schema(self) -> Schema:
        """Return the schema: lists of values, `include` and `exclude`."""
        return {
            "type": "object",
            "properties": {name: _ENTRIES.schema() for name in _OTHERS},
            "propertyNames": {"pattern": f"^(?:{NAME})$"},
            "additionalProperties": _VALUES.schema(),
            "maxProperties": MOST_AXES,
        }


def _check(matrix: Matrix, node: MappingNode, faults: FileFaults) -> None:
    places = {key.value: place_of(value) for key, value in pairs(node, faults)}
    for name, values in matrix.axes.items():
        twice = [value for value in dict.fromkeys(values) if values.count(value) > 1]
        if twice:
            faults.add(places[name], f"{twice[0]!r} is there twice")
    if matrix.size > MOST_COMBINATIONS:
        many = f"{matrix.size:,} combinations, and {MOST_COMBINATIONS:,} is the most"
        faults.add(place_of(node), f"the matrix has {many}")
        return
    for entry in useless(matrix):
        faults.add(
            places["exclude"], f"{_combination_words(entry)} is no combination, so it excludes nothing"
        )
    made = combinations(matrix)
    if not made:
        faults.add(place_of(node), "no combination is left")
    names = [tuple(one.get(name, "") for name in matrix.names) for one in made]
    if len(set(names)) < len(names):
        faults.add(places.get("include", place_of(node)), "two combinations are the same")


def _combination_words(entry: Combination) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in entry.items()) + "}"


VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
MOST_JOBS = 1_000
MOST_STEPS = 200

_ENV = MapOf(TemplateText(Scope.EVERYTHING), "variable", VARIABLE)
_PATTERNS = Several(Pattern())
_PATHS = Field("paths", _PATTERNS, "Only if a matching path has changed.", "src/**")
_PUSH = Object(
    "push",
    Trigger,
    (
        Field("branches", _PATTERNS, "Only these branches. With `tags` alone: no branch.", "main"),
        Field("tags", _PATTERNS, "Only these tags. With `branches` alone: no tag.", "v*"),
        _PATHS,
    ),
    "Commits were pushed.",
)
_PULL_REQUEST = Object("pull_request", Trigger, (_PATHS,), "A pull request was opened or has changed.")
_MANUAL = Object("manual", Trigger, (), "The run was submitted by hand; this is always possible.")
_WEBHOOK = Object("webhook", Trigger, (_PATHS,), "A generic webhook, with any event.")
EVENTS = {"push": _PUSH, "pull_request": _PULL_REQUEST, "manual": _MANUAL, "webhook": _WEBHOOK}


def _on_events(names: tuple[str, ...]) -> On:
    triggers = {name: Trigger(place=NOWHERE) for name in names if name in EVENTS}
    return On(place=NOWHERE, **triggers)


ON = Object("on", On, tuple(Field(name, kind, kind.doc) for name, kind in EVENTS.items()))
INPUT = Object(
    "an input",
    WorkflowInput,
    (
        Field("description", PlainText(most=1_000), "Description of the input."),
        Field("default", PlainText(most=1_000), "Default value; otherwise empty."),
        Field("required", Flag(), "A request without it is refused."),
        Field("options", ListOf(PlainText()), "Allowed values.", "[staging, production]"),
    ),
)
CONCURRENCY = Object(
    "concurrency",
    Concurrency,
    (
        Field(
            "group",
            TemplateText(Scope.EVERYTHING, 200),
            "A newer run of the group supersedes older ones.",
            "release",
        ),
        Field("cancel", Flag(), "false: runs of the group run concurrently."),
    ),
)
RETRY = Object(
    "a retry rule",
    WorkflowRetry,
    (
        Field("retries", WholeNumber(0, 100), "Maximum number of retries.", "2", required=True),
        Field("first-pause", DurationText(), "Pause before the first retry.", "10s"),
        Field("factor", WholeNumber(1, 100), "Factor by which each pause is longer than the previous one."),
        Field("longest-pause", DurationText(), "Upper limit of a pause.", "5m"),
    ),
)
STEP = Object(
    "a step",
    WorkflowStep,
    (
        Field(
            "run",
            TemplateText(),
            "Shell command. Only `matrix.…` is replaced in it.",
            "make test",
            True,
        ),
        Field("name", TemplateText(most=200), "Name in the log; otherwise the first line of `run`."),
        Field("env", _ENV, "Variables of this step."),
        Field("workdir", TemplateText(most=1_000), "Working directory, relative to that of the job."),
        Field("timeout", DurationText(), "Timeout; the step then fails.", "5m"),
        Field("continue-on-error", Flag(), "Continue with the next step if it fails."),
    ),
)
ARTIFACT = Object(
    "an artifact",
    WorkflowArtifact,
    (
        Field("name", TemplateText(most=57), "Name of the artifact.", "coverage", required=True),
        Field(
            "path",
            Several(TemplateText(most=1_000)),
            "Files, relative to workdir; a folder, or several files, are stored as NAME.tar.gz.",
            "htmlcov",
            required=True,
        ),
    ),
)
CACHE = Object(
    "a cache",
    WorkflowCache,
    (
        Field(
            "key",
            TemplateText(most=100),
            "Key of the cache within the repository: letters, digits and `. _ : @ + / -`.",
            "pip-${{ matrix.python }}",
            required=True,
        ),
        Field(
            "files",
            Several(TemplateText(most=1_000)),
            "Patterns of files whose content is hashed into the key.",
            '"requirements*.txt"',
        ),
        Field(
            "path",
            Several(TemplateText(most=1_000)),
            "Files and folders, relative to workdir; files of the repository are not overwritten.",
            ".cache/pip",
            required=True,
        ),
        Field(
            "restore-keys",
            Several(TemplateText(most=100), 10),
            "Fallback: the newest cache whose key begins with one of these.",
            "pip-",
        ),
    ),
)
APPROVAL = Object(
    "an approval",
    WorkflowApproval,
    (
        Field("question", TemplateText(most=500), "Question to a person.", "Deploy?", required=True),
        Field(
            "approvers",
            Several(PlainText("approver", most=100), 20),
            "Names of the people allowed to answer (default: everyone with the role).",
            "[anna, bert]",
        ),
        Field("role", PlainText("role", one_of=("operator", "admin")), "Role of an approver.", "admin"),
        Field("timeout", DurationText(), "Time to wait; then the job is canceled (default 7d).", "24h"),
    ),
)


def _approval_of(question: Any) -> WorkflowApproval:
    return WorkflowApproval(place=NOWHERE, question=question)


_CLASSES = tuple(map(str, RETRIED))
_DEFAULTS = (
    Field("runs-on", Several(TemplateText(most=100)), "Labels that a runner must have.", "[linux, gpu]"),
    Field("queue", TemplateText(most=100), "Queue of the job.", "ci"),
    Field("priority", WholeNumber(-1_000, 1_000), "Larger numbers start first."),
    Field(
        "workdir",
        TemplateText(most=1_000),
        "Working directory of the steps, relative to the checkout.",
        "backend",
    ),
    Field("checkout", Flag(), "false: start in an empty folder, without the repository."),
    Field(
        "checkout-secret",
        PlainText("secret", VARIABLE),
        "Secret for fetching a private repository: `TOKEN` or `USER:PASSWORD`. Steps do not receive it.",
        "SHOP_TOKEN",
    ),
    Field("timeout", DurationText(), "Timeout of one attempt.", "15m"),
    Field("job-timeout", DurationText(), "Timeout of all attempts together.", "1h"),
    Field("retries", WholeNumber(0, 100), "Maximum number of retries after a failure or a timeout."),
    Field(
        "retry",
        MapOf(RETRY, "class of failure", NAME, keys=_CLASSES),
        f"Retries by failure class: {', '.join(_CLASSES)}.",
        "{infra: {retries: 3}}",
    ),
    Field("losses", WholeNumber(0, 100), "How often it may lose its runner (default 3)."),
    Field(
        "limits",
        Several(TemplateText(most=MAX_NAME)),
        "Declared limits that the job counts against. It waits until each has a free slot.",
        "[staging, vendor-x]",
    ),
    Field("weight", WholeNumber(1, MAX_SLOTS), "Number of slots of each limit that it takes (default 1)."),
)
DEFAULTS = Object("defaults", Defaults, _DEFAULTS)
JOB = Object(
    "a job",
    WorkflowJob,
    (
        Field(
            "needs",
            Several(NeededJob()),
            "Jobs that must succeed first. If one is left out of the plan, so is this one.",
            "[build]",
        ),
        Field(
            "after",
            Several(NeededJob()),
            "The same, but jobs that are left out of the plan are ignored.",
            "[lint]",
        ),
        Field("if", If(), "Condition; if it is false, the job is left out of the plan.", "branch == 'main'"),
        Field(
            "matrix",
            Axes(),
            "One job for each combination of values; see `include` and `exclude`.",
            '{python: ["3.11", "3.12"]}',
        ),
        Field("steps", ListOf(STEP, MOST_STEPS), "Shell commands, in order."),
        Field("task", PlainText("task", most=200), "Name of a Python task, instead of steps.", "shop.pack"),
        Field("input", AnyJson(), "Input of the task.", "{size: 3}"),
        Field("env", _ENV, "Variables of its steps."),
        Field("optional", Flag(), "The job may fail: the run and dependent jobs continue."),
        Field("shards", WholeNumber(1, 10), "Number of parallel shards; all must succeed."),
        Field(
            "secrets",
            Several(PlainText("secret", VARIABLE)),
            "Names of secrets, set as variables of its steps. Never given to runs from forks.",
            "[PYPI_TOKEN]",
        ),
        Field(
            "environment",
            PlainText("environment", NAME, most=100),
            "Environment that it deploys to; it can have secrets and require an approval. Not for forks.",
            "production",
        ),
        Field(
            "approval",
            Either(APPROVAL, TemplateText(most=500), _approval_of),
            "Question that a person has to approve before the job starts; a rejection cancels it.",
            '"Deploy to production?"',
        ),
        Field("artifacts", Several(ARTIFACT), "Files to keep when the job has ended, even if it failed."),
        Field(
            "cache",
            Several(CACHE, 10),
            "Files to restore in later jobs. Saved after successful steps; forks have separate caches.",
        ),
        *_DEFAULTS,
    ),
    exclusive=(("steps", "task"),),
)
WORKFLOW = Object(
    "a workflow",
    WorkflowFile,
    (
        Field("name", PlainText("name", most=100), "Name of its runs; otherwise the name of the file."),
        Field(
            "on",
            Either(ON, Several(PlainText("event", one_of=tuple(EVENTS))), _on_events),
            "Events that start it; otherwise all.",
            "[push, pull_request]",
        ),
        Field("inputs", MapOf(INPUT, "input", NAME), "Inputs for `interlock run submit --input`."),
        Field(
            "concurrency",
            Either(CONCURRENCY, Flag(), lambda yes: Concurrency(cancel=yes)),
            "Runs that a newer one supersedes; otherwise those of the same workflow and ref.",
            "false",
        ),
        Field("env", _ENV, "Variables of all steps."),
        Field("defaults", DEFAULTS, "Defaults of all jobs."),
        Field("timeout", DurationText(), "Timeout of the run.", "1h"),
        Field("fail-fast", Flag(), "false: other jobs continue if a required one fails."),
        Field("jobs", MapOf(JOB, "job", NAME, MOST_JOBS), "Jobs by name.", required=True),
    ),
)
OBJECTS: Mapping[str, Object] = {
    "workflow": WORKFLOW,
    "on.push": _PUSH,
    "on.pull_request": _PULL_REQUEST,
    "on.webhook": _WEBHOOK,
    "inputs.NAME": INPUT,
    "concurrency": CONCURRENCY,
    "defaults": DEFAULTS,
    "jobs.NAME": JOB,
    "jobs.NAME.steps": STEP,
    "jobs.NAME.retry.CLASS": RETRY,
    "jobs.NAME.approval": APPROVAL,
    "jobs.NAME.artifacts": ARTIFACT,
    "jobs.NAME.cache": CACHE,
}
"""The objects of the reference page, in its order."""


def workflow_schema() -> dict[str, Any]:
    """Return a JSON Schema of workflow files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Interlock workflow",
        "description": "A file .interlock/*.yml. Made from the table of its keys by `make docs`.",
        **WORKFLOW.schema(),
    }


def key_rows(described: Object) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, description and example of each key of an object."""
    for field in described.fields:
        yield field.name, _written(field), field.doc, field.example


def sections() -> Iterator[tuple[str, Object]]:
    """Yield the objects of a file, in the order of the reference page."""
    yield from OBJECTS.items()


def name_rows() -> Iterator[tuple[str, str]]:
    """Yield all elements of conditions with their descriptions."""
    yield from ((name, known.doc) for name, known in NAMES.items())
    yield from ((f"{family}.NAME", doc) for family, doc in FAMILIES.items())
    yield from ((f"{name}('PATTERN', …)", doc) for name, doc in FUNCTIONS.items())
    yield from ((sign, doc) for sign, (_, doc) in COMPARING.items())
    yield "and or not ( )", "As usual; `and` binds closer than `or`."


def _written(field: Field) -> str:
    required = ", required" if field.required else ""
    return f"{_kind_words(field.kind)}{required}"


_KIND_WORDS: dict[type[FieldType], str] = {
    PlainText: "text",
    TemplateText: "text",
    Flag: "true or false",
    WholeNumber: "number",
    DurationText: "90s, 15m, 2h",
    Pattern: "pattern",
    If: "condition",
    NeededJob: "name of a job",
    Axes: "axes",
}


def _kind_words(kind: FieldType) -> str:
    match kind:
        case Object():
            return "keys"
        case Several(kind=inner):
            return f"{_kind_words(inner)}, or a list"
        case ListOf():
            return "list"
        case MapOf():
            return "names with values"
        case Either(short=short):
            return f"{_kind_words(short)}, or keys"
        case AnyJson():
            return "anything"
        case _:
            return _KIND_WORDS[type(kind)]
