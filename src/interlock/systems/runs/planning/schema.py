"""The table of workflow files: every key, how its value is written, and what it means.

Reading a file, the JSON Schema for editors and the page docs/reference/workflow.md all come from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from yaml.nodes import MappingNode, Node

from interlock.systems.orchestrator.failures import FailureClass
from interlock.systems.runs.planning.expressions import (
    COMPARING,
    FAMILIES,
    FUNCTIONS,
    NAMES,
    Scope,
)
from interlock.systems.runs.planning.field_types import (
    AnyJson,
    Duration,
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
from interlock.systems.runs.planning.model import (
    MOST_COMBINATIONS,
    NOWHERE,
    Combination,
    Concurrency,
    Defaults,
    Input,
    Matrix,
    On,
    Trigger,
    WorkflowArtifact,
    WorkflowCache,
    WorkflowFile,
    WorkflowJob,
    WorkflowRetry,
    WorkflowStep,
    combinations,
    useless,
)
from interlock.systems.runs.planning.yaml_nodes import FileFaults, pairs, place_of

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
        """The matrix; empty when it makes no sense."""
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
        """Lists of values, and the two keys that are different."""
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
_PATHS = Field("paths", _PATTERNS, "Only when a path that matches has changed.", "src/**")
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
_MANUAL = Object("manual", Trigger, (), "Somebody asked for it; this is always possible.")
_WEBHOOK = Object("webhook", Trigger, (_PATHS,), "A generic webhook, whatever it calls its event.")
EVENTS = {"push": _PUSH, "pull_request": _PULL_REQUEST, "manual": _MANUAL, "webhook": _WEBHOOK}


def _on_events(names: tuple[str, ...]) -> On:
    triggers = {name: Trigger(place=NOWHERE) for name in names if name in EVENTS}
    return On(place=NOWHERE, **triggers)


ON = Object("on", On, tuple(Field(name, kind, kind.doc) for name, kind in EVENTS.items()))
INPUT = Object(
    "an input",
    Input,
    (
        Field("description", PlainText(most=1_000), "What it is for."),
        Field("default", PlainText(most=1_000), "What it is when it is not given; otherwise empty."),
        Field("required", Flag(), "A request without it is refused."),
        Field("options", ListOf(PlainText()), "The only values it may have.", "[staging, production]"),
    ),
)
CONCURRENCY = Object(
    "concurrency",
    Concurrency,
    (
        Field(
            "group", TemplateText(Scope.EVERYTHING, 200), "Runs of one group supersede older ones.", "release"
        ),
        Field("cancel", Flag(), "false: runs go on beside each other."),
    ),
)
RETRY = Object(
    "a retry rule",
    WorkflowRetry,
    (
        Field("retries", WholeNumber(0, 100), "How often.", "2", required=True),
        Field("first-pause", Duration(), "How long to wait before the first retry.", "10s"),
        Field("factor", WholeNumber(1, 100), "Each pause is so many times as long as the one before."),
        Field("longest-pause", Duration(), "And never longer than this.", "5m"),
    ),
)
STEP = Object(
    "a step",
    WorkflowStep,
    (
        Field(
            "run",
            TemplateText(),
            "What the shell is given. Only `matrix.…` is replaced in it.",
            "make test",
            True,
        ),
        Field("name", TemplateText(most=200), "What the log calls it; otherwise the first line of `run`."),
        Field("env", _ENV, "Variables of this step."),
        Field("workdir", TemplateText(most=1_000), "Where it runs, from the job's workdir on."),
        Field("timeout", Duration(), "It is stopped after this, and has failed.", "5m"),
        Field("continue-on-error", Flag(), "The steps after it run although it has failed."),
    ),
)
ARTIFACT = Object(
    "an artifact",
    WorkflowArtifact,
    (
        Field("name", TemplateText(most=57), "What it is called.", "coverage", required=True),
        Field(
            "path",
            Several(TemplateText(most=1_000)),
            "Which files, from the workdir on; a folder, or several of them, is kept as NAME.tar.gz.",
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
            "What it is saved under, for later jobs of the repository: letters, digits and `. _ : @ + / -`.",
            "pip-${{ matrix.python }}",
            required=True,
        ),
        Field(
            "files",
            Several(TemplateText(most=1_000)),
            "Files whose content becomes part of the key, so that it changes when they do; patterns.",
            '"requirements*.txt"',
        ),
        Field(
            "path",
            Several(TemplateText(most=1_000)),
            "Which files and folders, from the workdir on; what the repository has there is left alone.",
            ".cache/pip",
            required=True,
        ),
        Field(
            "restore-keys",
            Several(TemplateText(most=100), 10),
            "Without a cache of the key: the newest whose key begins with one of these.",
            "pip-",
        ),
    ),
)
_CLASSES = tuple(str(one) for one in FailureClass if one is not FailureClass.LOST)
_DEFAULTS = (
    Field("runs-on", Several(TemplateText(most=100)), "Labels that a runner must have.", "[linux, gpu]"),
    Field("queue", TemplateText(most=100), "Which queue it waits in.", "ci"),
    Field("priority", WholeNumber(-1_000, 1_000), "Higher ones go first."),
    Field("workdir", TemplateText(most=1_000), "Where the steps run, from the checkout on.", "backend"),
    Field("checkout", Flag(), "false: the steps begin in an empty folder, without the repository."),
    Field(
        "checkout-secret",
        PlainText("secret", VARIABLE),
        "The secret to fetch a private repository with: `TOKEN` or `USER:PASSWORD`. No step sees it.",
        "SHOP_TOKEN",
    ),
    Field("timeout", Duration(), "One attempt is stopped after this.", "15m"),
    Field("job-timeout", Duration(), "All attempts together are stopped after this.", "1h"),
    Field("retries", WholeNumber(0, 100), "How often it is tried again when it failed or took too long."),
    Field(
        "retry",
        MapOf(RETRY, "class of failure", NAME, keys=_CLASSES),
        f"The same for each class of failure: {', '.join(_CLASSES)}.",
        "{infra: {retries: 3}}",
    ),
    Field("losses", WholeNumber(0, 100), "How often it may lose its runner; otherwise 3 times."),
)
DEFAULTS = Object("defaults", Defaults, _DEFAULTS)
JOB = Object(
    "a job",
    WorkflowJob,
    (
        Field(
            "needs",
            Several(NeededJob()),
            "Jobs that must have ended well before. When one is left out of the plan, so is this one.",
            "[build]",
        ),
        Field("after", Several(NeededJob()), "The same, for jobs that may be left out.", "[lint]"),
        Field("if", If(), "Left out of the plan unless this holds.", "branch == 'main'"),
        Field(
            "matrix",
            Axes(),
            "One job for each combination of the values of its axes; see `include` and `exclude`.",
            '{python: ["3.11", "3.12"]}',
        ),
        Field("steps", ListOf(STEP, MOST_STEPS), "Commands, one after the other."),
        Field(
            "task", PlainText("task", most=200), "Instead of steps: a Python task, by its name.", "shop.pack"
        ),
        Field("input", AnyJson(), "What the task is given.", "{size: 3}"),
        Field("env", _ENV, "Variables of its steps."),
        Field("optional", Flag(), "It may fail: the run and what needs it go on."),
        Field("shards", WholeNumber(1, 10), "So many of it run side by side, and all must succeed."),
        Field(
            "secrets",
            Several(PlainText("secret", VARIABLE)),
            "Names of secrets that its steps find as variables. Never given to runs from forks.",
            "[PYPI_TOKEN]",
        ),
        Field(
            "environment",
            PlainText("environment", NAME, most=100),
            "What it deploys to: it may have secrets of its own, and need an approval. Not for forks.",
            "production",
        ),
        Field("artifacts", Several(ARTIFACT), "Files that are kept when it has ended, also when it failed."),
        Field(
            "cache",
            Several(CACHE, 10),
            "Files that are there again in later jobs. Saved when the steps went well; forks have their own.",
        ),
        *_DEFAULTS,
    ),
    exclusive=(("steps", "task"),),
)
WORKFLOW = Object(
    "a workflow",
    WorkflowFile,
    (
        Field(
            "name", PlainText("name", most=100), "What its runs are called; otherwise the name of the file."
        ),
        Field(
            "on",
            Either(ON, Several(PlainText("event", one_of=tuple(EVENTS))), _on_events),
            "Which events start it; otherwise all of them.",
            "[push, pull_request]",
        ),
        Field(
            "inputs", MapOf(INPUT, "input", NAME), "What can be given with `interlock run submit --input`."
        ),
        Field(
            "concurrency",
            Either(CONCURRENCY, Flag(), lambda yes: Concurrency(cancel=yes)),
            "Which runs a newer one supersedes; otherwise those of the same workflow and ref.",
            "false",
        ),
        Field("env", _ENV, "Variables of all steps."),
        Field("defaults", DEFAULTS, "What a job has when it does not say otherwise."),
        Field("timeout", Duration(), "The run is stopped after this.", "1h"),
        Field("fail-fast", Flag(), "false: the other jobs go on when a required one has failed."),
        Field("jobs", MapOf(JOB, "job", NAME, MOST_JOBS), "The jobs, by their names.", required=True),
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
    "jobs.NAME.artifacts": ARTIFACT,
    "jobs.NAME.cache": CACHE,
}
"""For the reference page, in the order in which it tells them."""


def workflow_schema() -> dict[str, Any]:
    """A JSON Schema of workflow files."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Interlock workflow",
        "description": "A file .interlock/*.yml. Made from the table of its keys by `make docs`.",
        **WORKFLOW.schema(),
    }


def key_rows(described: Object) -> Iterator[tuple[str, str, str, str]]:
    """Each key of an object: its name, how its value is written, what it means, an example."""
    for field in described.fields:
        yield field.name, _written(field), field.doc, field.example


def sections() -> Iterator[tuple[str, Object]]:
    """The objects of a file, in the order in which they are told."""
    yield from OBJECTS.items()


def name_rows() -> Iterator[tuple[str, str]]:
    """Everything that a condition may use, and what it means."""
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
    Duration: "90s, 15m, 2h",
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
