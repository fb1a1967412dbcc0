"""Make the reference pages of the public names of Python.

Names are read from their source (`ast`), not from what is imported: signatures are shown as they are written,
and the docstrings below fields, which Python itself does not keep, are there too.
"""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from textwrap import dedent
from types import FunctionType, MethodType
from typing import NamedTuple

import interlock
import interlock.machine
import interlock.testing
from interlock.machine.draw.markdown import GENERATED, code, markdown_table, prose

WIDTH = 100
SHOWN_DECORATORS = ("classmethod", "staticmethod", "contextmanager", "asynccontextmanager")
CONSTRUCTED = {
    "Couplings",
    "FaultyStore",
    "FlakyError",
    "Interlock",
    "JumpingClock",
    "Machine",
    "ProgressTable",
    "Registry",
}
"""Classes that users make themselves; the others are handed to them."""
INTERNAL = {
    "Context": "printed report_workloads take put_back finish_lines stop simulation_channel active quiet"
    " surround",
    "Flow": "made",
    "ChildJobContext": "relay_submit relay_children relay_wait relay_predecessors",
    "Registry": "surround",
    "Simulation": "executor_on",
    "SimulationContext": "completed_step latest receive must_pause paused done failed",
    "Task": "invoke executor_on prepare context_name wants_context",
}
"""Methods that the worker itself calls, by class."""

EXAMPLES = tomllib.loads(Path(__file__).with_name("python_examples.toml").read_text(encoding="utf-8"))
"""Examples by module and name; tests/docs/test_python_examples.py runs them."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class PythonPage(NamedTuple):
    """A page, and the modules whose names it has."""

    title: str
    opening: str
    modules: Mapping[str, Sequence[str]]


PYTHON_PAGES = {
    "python-api": PythonPage(
        "Python API",
        "The public names; those that the pages of this section do not have may change without notice. This "
        "page has the names of `interlock`. The others are on pages of their own:\n\n"
        "- [Clients](python-api/clients.md): what `il.runs`, `il.batches`, `il.schedules`, `il.limits`, "
        "`il.approvals`, `il.dead_letters`, `il.simulations`, `il.records(…)` and `il.within(…)` can do\n"
        "- [Synchronous clients](python-api/sync.md): the same without `await`\n"
        "- [Lifecycles](python-api/machine.md): `interlock.machine`, to declare and check tables\n"
        "- [Integrations](python-api/integrations.md): notebooks, Django, and workloads of your own\n\n"
        "In the examples, `il` is an open client with a worker (below `interlock.sync`, one without "
        "`await`), the names of `interlock` are imported, and these tasks are declared:\n\n"
        f"```py\n{EXAMPLES['prelude'].strip()}\n```",
        {"interlock": interlock.__all__},
    ),
    "python-api/clients": PythonPage(
        "Clients",
        "Attributes of an open `Interlock`, and the types they return. Examples use the tasks of [the first "
        "page](../python-api.md).",
        {
            "interlock.client_controls": (
                "ApprovalsClient",
                "DeadLettersClient",
                "LimitsClient",
                "SchedulesClient",
            ),
            "interlock.client_batches": ("BatchHandle", "BatchesClient"),
            "interlock.client": ("CompositionHandle",),
            "interlock.client_resources": (
                "RecordsClient",
                "RunHandle",
                "RunsClient",
                "SimulationHandle",
                "SimulationsClient",
            ),
            "interlock.client_transactions": ("TransactionClient",),
        },
    ),
    "python-api/sync": PythonPage(
        "Synchronous clients",
        "For programs without `await`. Examples use the tasks of [the first page](../python-api.md).",
        {
            "interlock.sync": ("Interlock", "JobId", "Records", "Runs", "Simulations"),
            "interlock.sync_resources": (
                "DeadLetters",
                "Schedules",
                "SyncApprovals",
                "SyncBatches",
                "SyncLimits",
            ),
            "interlock.client": ("SyncComposition",),
            "interlock.client_transactions": ("SyncTransactionClient",),
        },
    ),
    "python-api/machine": PythonPage(
        "Lifecycles",
        "Names to declare [your own lifecycle](../../guides/your-own-lifecycle.md). "
        "In the examples these names are imported, and this machine is declared:\n\n"
        f"```py\n{EXAMPLES['interlock.machine']['prelude'].strip()}\n```",
        {"interlock.machine": interlock.machine.__all__},
    ),
    "python-api/integrations": PythonPage(
        "Integrations",
        "Progress in [notebooks](../../guides/notebooks.md), the client of a [Django "
        "project](../../guides/web-frameworks.md), the base of [your own "
        "workload](../../guides/your-own-workload.md), and the messages of [agents](../../guides/"
        "running-an-agent.md). Examples use the tasks of [the first "
        "page](../python-api.md).",
        {
            "interlock.notebook": ("ProgressRow", "ProgressTable", "Watchable", "watch"),
            "interlock.django": ("client", "jobs"),
            "interlock.agent.port": ("BlockingOperation", "Load", "Operation", "Workload"),
            "interlock.agent.messages": ("fleet", "services"),
        },
    ),
    "testing-api": PythonPage(
        "Testing API",
        "Names for tests of your own: see [testing your jobs](../guides/testing-your-jobs.md). In "
        "the examples all names of this page and of `interlock` are imported; `add` is the task of [the "
        "first page](python-api.md), and `TICKET` the machine of [lifecycles](python-api/machine.md).",
        {
            "interlock.testing": interlock.testing.__all__,
            "interlock.testing.agent_process": ("running_agent",),
            "interlock.testing.at_work": ("at_work",),
            "interlock.testing.lifecycles": ("Answer", "Lifecycle", "always", "must", "sometimes"),
            "interlock.testing.workloads": ("Tried", "try_workload"),
        },
    ),
}
"""The pages below docs/reference."""

PROMISED: dict[str, tuple[str, ...]] = {}
"""The public names of each module: what no page has is not promised."""
for _page_of_names in PYTHON_PAGES.values():
    for _module, _names in _page_of_names.modules.items():
        PROMISED[_module] = (*PROMISED.get(_module, ()), *_names)


def python_pages() -> dict[str, str]:
    """Return the text of each page, by its path below docs/."""
    left = {name: dict(EXAMPLES.get(name, {})) for name in PROMISED}
    for examples in left.values():
        examples.pop("prelude", None)
    pages = {f"reference/{name}.md": _python_page(page, left) for name, page in PYTHON_PAGES.items()}
    for name, examples in left.items():
        if examples:
            raise LookupError(
                f"docs/python_examples.toml has examples of no name of {name}: {sorted(examples)}"
            )
    return pages


def _python_page(page: PythonPage, examples: Mapping[str, dict[str, str]]) -> str:
    lines = [GENERATED, "", f"# {page.title}", "", page.opening]
    for name, public in page.modules.items():
        lines += ["", f"## {name}"]
        for each in sorted(public, key=lambda each: (not each[0].isupper(), each.lower())):
            lines += _described(name, each, examples[name])
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(Path(str(importlib.import_module(module).__file__)).read_text(encoding="utf-8"))


def _definition(module: str, name: str) -> ast.ClassDef | Function:
    """Return the last definition of a name, which is the one after its overloads."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = [node for node in ast.walk(_tree(module)) if isinstance(node, kinds) and node.name == name]
    return found[-1]


def _value(module: str, name: str) -> tuple[ast.Assign | ast.AnnAssign, str]:
    """Return the assignment of a constant or a type, where it is imported from, and the string below it."""
    body = _tree(module).body
    for line, after in zip(body, [*body[1:], None], strict=True):
        targets = [line.target] if isinstance(line, ast.AnnAssign) else getattr(line, "targets", ())
        if isinstance(line, ast.Assign | ast.AnnAssign) and [ast.unparse(each) for each in targets] == [name]:
            return line, _string(after)
        if isinstance(line, ast.ImportFrom) and name in [each.name for each in line.names]:
            return _value(str(line.module), name)
    raise LookupError(f"{module} has no {name}")


def _described(module: str, name: str, examples: dict[str, str]) -> Iterator[str]:
    """Yield the section of a name, and take its examples from those that are left."""
    yield from ("", f"### `{name}`", "")
    found = getattr(importlib.import_module(module), name)
    if not isinstance(found, type | FunctionType | MethodType):
        line, text = _value(module, name)
        yield from _source([ast.unparse(line)])
        yield from ("", text)
        yield from _example(name, examples)
        return
    node = _definition(found.__module__, found.__name__)
    if isinstance(node, ast.ClassDef) and isinstance(found, type):
        yield from _class(found, node, examples)
        return
    assert not isinstance(node, ast.ClassDef)
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
    if issubclass(found, Enum):
        yield from ("", *markdown_table(("member", "value", "meaning"), _members(node)))
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


def _members(node: ast.ClassDef) -> Iterator[tuple[str, str, str]]:
    """Yield the members of an enum, each with its value and the string that follows it."""
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(field, ast.Assign):
            yield code(ast.unparse(field.targets[0])), code(ast.unparse(field.value)), prose(_string(after))


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
            definition = _definition(base.__module__, base.__name__)
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
