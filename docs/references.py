"""Make the reference pages of the public names, the command line, the configuration and the events.

Python names are read from their source (`ast`), not from what is imported: signatures are shown as they are
written, and the docstrings below fields, which Python itself does not keep, are there too.
"""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import click
import msgspec
import typer
from docs import transcripts

import interlock
import interlock.testing
from interlock.cli import project, project_ci
from interlock.cli.main import app
from interlock.lifecycles import MACHINES, durations
from interlock.machine import blueprint_of
from interlock.machine.blueprint import EventSheet
from interlock.machine.draw.markdown import GENERATED, code, markdown_table, prose
from interlock.systems.blobs import BlobSettings
from interlock.systems.orchestrator.failures import DEFAULT_RETRIES
from interlock.systems.orchestrator.settings import DeadLetterSettings
from interlock.systems.orchestrator.vault import Environment, SecretScope
from interlock.systems.quarantine import QuarantineSettings
from interlock.systems.retention import QueueRetention, RetentionSettings
from interlock.wire.limits import LimitSpec
from interlock.wire.schedules import ScheduleSpec

WIDTH = 100
SHOWN_DECORATORS = ("classmethod", "staticmethod", "contextmanager", "asynccontextmanager")
CONSTRUCTED = {"Interlock", "FlakyError", "FaultyStore", "JumpingClock", "Registry"}
"""Classes that users make themselves; the others are handed to them."""
INTERNAL = {
    "Context": "printed report_workloads take put_back finish_lines stop speech active quiet surround",
    "Flow": "made",
    "Parent": "relay_submit relay_children relay_wait relay_predecessors",
    "Registry": "surround",
    "Simulation": "executor_on",
    "SimulationContext": "completed_step latest receive must_pause paused done failed",
    "Task": "invoke executor_on prepare context_name wants_context",
}
"""Methods that the worker itself calls, by class."""

TEXTS = tomllib.loads(Path(__file__).with_name("reference_texts.toml").read_text(encoding="utf-8"))

EXAMPLES = tomllib.loads(Path(__file__).with_name("python_examples.toml").read_text(encoding="utf-8"))
"""Examples by module and name; tests/docs/test_python_examples.py runs them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def reference_pages() -> dict[str, str]:
    """Return the text of each page, by its path below docs/."""
    return {
        "reference/python-api.md": python_page(
            "Python API",
            "The public names. Everything else may change without notice. Synchronous programs use "
            "`interlock.sync`, whose methods are the same without `await`.\n\n"
            "In the examples, `il` is an open client with a worker (below `interlock.sync`, one without "
            "`await`), the names of `interlock` are imported, and these tasks are declared:\n\n"
            f"```py\n{EXAMPLES['prelude'].strip()}\n```",
            {
                "interlock": interlock.__all__,
                "interlock.client_resources": (
                    "RecordsClient",
                    "RunHandle",
                    "RunsClient",
                    "SimulationHandle",
                    "SimulationsClient",
                ),
                "interlock.sync": ("Interlock", "JobId", "Records", "Runs", "Simulations"),
            },
        ),
        "reference/testing-api.md": python_page(
            "Testing API",
            "Names for tests of your own: see [testing your jobs](../guides/testing-your-jobs.md).",
            {"interlock.testing": interlock.testing.__all__, "interlock.testing.at_work": ("at_work",)},
        ),
        **command_pages(),
        "reference/configuration.md": configuration_page(),
        "reference/events.md": events_page(),
    }


# Python


def python_page(title: str, opening: str, modules: Mapping[str, Sequence[str]]) -> str:
    """Return the page about the public names of some modules."""
    lines = [GENERATED, "", f"# {title}", "", opening]
    for name, public in modules.items():
        lines += ["", f"## {name}"]
        module = importlib.import_module(name)
        left = dict(EXAMPLES.get(name, {}))
        for each in sorted(public, key=lambda each: (not each[0].isupper(), each.lower())):
            lines += _described(getattr(module, each), left)
        if left:
            raise LookupError(f"docs/python_examples.toml has examples of no name of {name}: {sorted(left)}")
    return _page(lines)


def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))


def _definition(module: ModuleType, name: str) -> ast.ClassDef | Function:
    """Return the last definition of a name, which is the one after its overloads."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = [node for node in ast.walk(_tree(module)) if isinstance(node, kinds) and node.name == name]
    return found[-1]


def _described(found: Any, examples: dict[str, str]) -> Iterator[str]:
    """Yield the section of a name, and take its examples from those that are left."""
    node = _definition(importlib.import_module(found.__module__), found.__name__)
    yield from ("", f"### `{node.name}`", "")
    if isinstance(node, ast.ClassDef):
        yield from _class(found, node, examples)
        return
    yield from _source(_signature(node))
    yield from _docstring(node)
    yield from _example(node.name, examples)


def _example(name: str, examples: dict[str, str]) -> Iterator[str]:
    if text := examples.pop(name, ""):
        yield from ("", "Example:", "", *_source(text.strip().splitlines()))


def _class(found: type, node: ast.ClassDef, examples: dict[str, str]) -> Iterator[str]:
    bases = [ast.unparse(base) for base in node.bases]
    yield from _source([f"class {node.name}" + (f"({', '.join(bases)})" if bases else "")])
    yield from _docstring(node)
    yield from _example(node.name, examples)
    methods = list(_methods(found, node))
    rows = [*_fields(node), *(_property(method) for method in methods if _decorated(method, "property"))]
    if rows:
        yield from ("", *markdown_table(("attribute", "type", "default", "meaning"), rows))
    for method in methods:
        if not _decorated(method, "property"):
            constructor = method.name == "__init__"
            yield from ("", "#### Constructor" if constructor else f"#### `{node.name}.{method.name}`", "")
            yield from _source(_signature(method))
            yield from _docstring(method)
            yield from _example(f"{node.name}.{method.name}", examples)


def _property(node: Function) -> tuple[str, str, str, str]:
    returned = code(ast.unparse(node.returns)) if node.returns else ""
    return code(node.name), returned, "", prose(" ".join((ast.get_docstring(node) or "").split()))


def _decorated(node: Function, name: str) -> bool:
    return any(ast.unparse(decorator) == name for decorator in node.decorator_list)


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, str, str, str]]:
    """Yield the annotated fields of a class, each with the string that follows it."""
    body = [line for part in node.body for line in (part.orelse if isinstance(part, ast.If) else [part])]
    for field, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if field.target.id.startswith("_"):
            continue
        default = "" if field.value is None else code(ast.unparse(field.value))
        yield code(field.target.id), code(ast.unparse(field.annotation)), default, prose(_string(after))


def _string(node: ast.stmt | None) -> str:
    value = node.value if isinstance(node, ast.Expr) else None
    text = value.value if isinstance(value, ast.Constant) else None
    return " ".join(text.split()) if isinstance(text, str) else ""


def _methods(found: type, node: ast.ClassDef) -> Iterator[Function]:
    """Yield the methods that users call, also those of bases that have no entry of their own."""
    seen: set[str] = set()
    for one in (node, *_bases(found)):
        seen.update(INTERNAL.get(one.name, "").split())
        for method in one.body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and _is_shown(node, method, seen):
                seen.add(method.name)
                yield method


def _bases(found: type) -> Iterator[ast.ClassDef]:
    for base in found.__mro__[1:]:
        if base.__module__.startswith("interlock.") and base.__name__ not in interlock.__all__:
            definition = _definition(importlib.import_module(base.__module__), base.__name__)
            if isinstance(definition, ast.ClassDef):
                yield definition


def _is_shown(node: ast.ClassDef, method: Function, seen: set[str]) -> bool:
    if method.name == "__init__":
        return node.name in CONSTRUCTED and "__init__" not in seen
    private = method.name.startswith("_") or method.name in seen
    return (
        not private and not _decorated(method, "overload") and not _decorated(method, f"{method.name}.setter")
    )


def _signature(node: Function) -> Iterator[str]:
    """Yield the lines of a signature, a line for each parameter where it is long."""
    yield from (f"@{name}" for name in SHOWN_DECORATORS if _decorated(node, name))
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    parameters = list(_parameters(node.args))
    line = f"{word} {node.name}({', '.join(parameters)}){returns}"
    if len(line) <= WIDTH:
        yield line
        return
    yield from (f"{word} {node.name}(", *(f"    {each}," for each in parameters), f"){returns}")


def _parameters(given: ast.arguments) -> Iterator[str]:
    positional = [*given.posonlyargs, *given.args]
    blank: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults))
    defaults = [*blank, *given.defaults]
    for place, (argument, default) in enumerate(zip(positional, defaults, strict=True), start=1):
        yield _parameter(argument, default)
        if place == len(given.posonlyargs):
            yield "/"
    if given.vararg:
        yield f"*{_parameter(given.vararg, None)}"
    elif given.kwonlyargs:
        yield "*"
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(argument, default)
    if given.kwarg:
        yield f"**{_parameter(given.kwarg, None)}"


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    annotated = f"{argument.arg}: {ast.unparse(argument.annotation)}" if argument.annotation else argument.arg
    equals = " = " if argument.annotation else "="
    return annotated if default is None else f"{annotated}{equals}{ast.unparse(default)}"


def _source(lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    yield from ("```py", *lines, "```")


def _docstring(node: ast.ClassDef | Function) -> Iterator[str]:
    text = ast.get_docstring(node)
    if not text:
        return
    yield ""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            yield from ("```py", *dedent(paragraph).splitlines(), "```", "")
        else:
            yield from (*(line.replace("<", "&lt;") for line in paragraph.splitlines()), "")


# The command line


NOUNS = "reference/command-line"
"""The folder with a page for each noun."""


def command_pages() -> dict[str, str]:
    """Return the pages with the help of every command and a session with it: one page for each noun."""
    root: Any = typer.main.get_command(app)
    shown = {session.words: session.shown for session in transcripts.sessions()}
    nouns = {name: child for name, child in root.commands.items() if getattr(child, "commands", None)}
    lines = [GENERATED, "", "# Command line", "", TEXTS["chapters"]["command_line"].strip()]
    lines += ["", "## Nouns", ""]
    rows = (
        (f"[`interlock {name}`](command-line/{name}.md)", prose(child.help), code(*child.commands))
        for name, child in nouns.items()
    )
    lines += markdown_table(("commands", "meaning", "verbs"), rows)
    for name, child in {"": root, **root.commands}.items():
        if name not in nouns:
            lines += _command(tuple(name.split()), child, shown)
    pages = {f"{NOUNS}.md": _page(lines)}
    for name, child in nouns.items():
        lines = [GENERATED, "", f"# interlock {name}"]
        for words, each in _commands(child, (name,)):
            lines += _command(words, each, shown)
        pages[f"{NOUNS}/{name}.md"] = _page(lines)
    return pages


def verbs() -> list[str]:
    """Return the words of every command, without those that only have commands of their own."""
    root: Any = typer.main.get_command(app)
    found = (pair for name, child in root.commands.items() for pair in _commands(child, (name,)))
    return [" ".join(words) for words, each in found if not getattr(each, "commands", None)]


def _command(words: tuple[str, ...], command: Any, shown: Mapping[str, Sequence[str]]) -> Iterator[str]:
    whole = ("interlock", *words)
    help_text = command.get_help(_context(command, whole)).rstrip()
    yield from ("", f"## `{' '.join(whole)}`", "", "```text", *help_text.splitlines(), "```")
    if lines := shown.get(" ".join(words)):
        yield from ("", "```console", *lines, "```")


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _commands(child, (*words, name))


def _context(command: Any, words: tuple[str, ...]) -> click.Context:
    return click.Context(
        command,
        info_name=" ".join(words),
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )


# Configuration


def configuration_page() -> str:
    """Return the page about `interlock.toml` and the environment."""
    lines = [GENERATED, "", "# Configuration", "", TEXTS["chapters"]["opening"].strip()]
    for section, kind in sections().items():
        lines += ["", f"## `{section}`" if section else "## Top level", "", TEXTS["sections"][section], ""]
        known = [field for field in msgspec.structs.fields(kind) if section or not _is_section(field)]
        if extra := set(TEXTS["settings"][section]) - {field.encode_name for field in known}:
            raise LookupError(
                f"docs/reference_texts.toml describes no setting of {section!r}: {sorted(extra)}"
            )
        rows = [_setting(section, field) for field in known]
        lines += markdown_table(("setting", "default", "unit", "effect"), rows)
        if section == "[durations]":
            lines += _nesting()
        if section == "[retries.CLASS]":
            lines += _retry_defaults()
    lines += ["", "## Environment variables", "", TEXTS["chapters"]["environment"].strip(), ""]
    variables = TEXTS["environment"].items()
    rows = [(code(name), prose(said["by"]), prose(said["effect"])) for name, said in variables]
    lines += markdown_table(("variable", "read by", "effect"), rows)
    return _page(lines)


def sections() -> dict[str, type[msgspec.Struct]]:
    """Return the type of each section of `interlock.toml`, by how it is written there."""
    return {
        "": project.ProjectFile,
        "[worker]": project.WorkerSection,
        "[durations]": durations.Durations,
        "[retries.CLASS]": project.RetrySection,
        "[[failures]]": project.FailureSection,
        "[limits]": project.LimitsSection,
        "[limits.NAME]": LimitSpec,
        "[blobs]": BlobSettings,
        "[dead_letters]": DeadLetterSettings,
        "[retention]": RetentionSettings,
        "[retention.queues.NAME]": QueueRetention,
        "[quarantine]": QuarantineSettings,
        "[github]": project_ci.GithubSection,
        "[[triggers]]": project_ci.TriggerSection,
        "[[hooks]]": project_ci.HookSection,
        "[[reporters]]": project_ci.ReporterSection,
        "[secrets.NAME]": SecretScope,
        "[environments.NAME]": Environment,
        "[schedules.NAME]": ScheduleSpec,
    }


def _is_section(field: msgspec.structs.FieldInfo) -> bool:
    names = [name.strip("[]") for name in sections() if name]
    return any(field.encode_name in (name, name.partition(".")[0]) for name in names)


def _setting(section: str, field: msgspec.structs.FieldInfo) -> tuple[str, ...]:
    said = TEXTS["settings"].get(section, {}).get(field.encode_name)
    if said is None:
        raise LookupError(f"docs/reference_texts.toml has no text about {field.encode_name} in {section!r}")
    return code(field.encode_name), _default(field), said.get("unit", ""), prose(said["effect"])


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if default is None or default == "":
        return "none"
    return code(_toml(default))


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if value < 1e6 else f"{value:.0f}"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, Sequence):
        return f"[{', '.join(_toml(each) for each in value)}]"
    return str(value)


def _nesting() -> Iterator[str]:
    yield from ("", "### Durations nest", "", TEXTS["chapters"]["nesting"].strip(), "")
    for small, word, large in durations.NESTING:
        yield f"- `{small}` is {word} `{large}`"
    yield "- `lease_ttl_s` is more than twice `heartbeat_every_s`"


def _retry_defaults() -> Iterator[str]:
    yield from ("", "Defaults for each class:", "")
    rows = (
        (code(str(name)), str(rule.retries), f"{rule.first_pause_s:g} s", f"{rule.longest_pause_s:g} s")
        for name, rule in DEFAULT_RETRIES.items()
    )
    yield from markdown_table(("class", "retries", "first pause", "longest pause"), rows)


# Events


def events_page() -> str:
    """Return the page about the events of the machines, and how to follow them."""
    lines = [GENERATED, "", "# Events", "", TEXTS["chapters"]["events"].strip()]
    for machine in MACHINES.values():
        blueprint = blueprint_of(machine)
        name = blueprint.machine
        lines += ["", f"## {name}", "", f"[States and rows](../lifecycles/{name}.md)", ""]
        lines += markdown_table(
            ("event", "kind", "from", "carries", "meaning"), map(_event, blueprint.events)
        )
    return _page(lines)


def _event(event: EventSheet) -> tuple[str, ...]:
    carries = code(*event.payload) if event.payload else ""
    return code(event.name), event.kind, prose(event.by), carries, prose(event.doc)


def _page(lines: Sequence[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"
