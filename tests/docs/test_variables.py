"""The reference lists every environment variable that the source reads, whatever its name begins with."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from docs import references

SRC = Path(__file__).parents[2] / "src"
ENVIRONMENTS = ("os.environ", "environ", "self._environment", "environment", "ENVIRONMENT")
"""Expressions for the environment of this process, or for one that a test may pass instead."""
WORDS = ("environ", "getenv", "envvar", "ENVIRONMENT")
"""A module without these words reads no variable."""
UNKNOWN = {
    "interlock.cli.pager": "the first one of its constant that is set",
    "interlock.processes.credentials": "a loop over all variables of its prefix",
    "interlock.systems.orchestrator.vault": "INTERLOCK_SECRET_ and the name of a secret",
    "interlock.systems.runs.webhook_security": "named by a setting",
    "interlock.workloads": "the options of the agents' client, in a loop",
}
"""Modules with keys that are no constants, and what these are."""
OF_LIBRARIES = {
    "AWS_ACCESS_KEY_ID": "obstore",
    "AWS_SECRET_ACCESS_KEY": "obstore",
    "OTEL_EXPORTER_OTLP_HEADERS": "opentelemetry",
    "OTEL_SERVICE_NAME": "opentelemetry",
}
"""Variables on the page that a library reads."""


class Source:
    """A module: its constants, and the keys with which it reads the environment."""

    def __init__(self, text: str) -> None:
        self._tree = ast.parse(text)
        self._parents = {child: node for node in ast.walk(self._tree) for child in ast.iter_child_nodes(node)}
        self.constants = dict(self._assigned())
        imports = [node for node in ast.walk(self._tree) if isinstance(node, ast.ImportFrom)]
        self._imported = {
            each.asname or each.name: (found.module or "", each.name)
            for found in imports
            for each in found.names
        }

    def _assigned(self) -> Iterator[tuple[str, set[str]]]:
        for node in self._tree.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    yield name, _texts(value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    yield name, _texts(value)

    def reads(self) -> Iterator[set[str]]:
        """Yield for each key the variables that it may be; none if that is not known."""
        for key in self._keys():
            yield self._values(key)

    def _keys(self) -> Iterator[ast.expr]:
        for node in ast.walk(self._tree):
            match node:
                case ast.Subscript(value=place, slice=key, ctx=ast.Load()) if _is_environment(place):
                    yield key
                case ast.Call(func=ast.Attribute(value=place, attr="get" | "pop"), args=[key, *_]) if (
                    _is_environment(place)
                ):
                    yield key
                case ast.Call(func=ast.Attribute(attr="getenv"), args=[key, *_]):
                    yield key
                case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[place]) if (
                    _is_environment(place)
                ):
                    yield key
                case ast.keyword(arg="envvar", value=key):
                    yield key

    def _values(self, key: ast.expr) -> set[str]:
        if not isinstance(key, ast.Name):
            return _texts(key)
        for node in self._around(key):
            for loop in getattr(node, "generators", ()):
                if ast.unparse(loop.target) == key.id:
                    return self._values(loop.iter)
            if isinstance(node, ast.FunctionDef) and key.id in (
                names := [each.arg for each in node.args.args]
            ):
                given = self._given(node.name, names.index(key.id))
                return {text for each in given for text in self._values(each)}
        if key.id in self.constants:
            return self.constants[key.id]
        module, name = self._imported.get(key.id, ("", ""))
        return source(module).constants.get(name, set()) if _file(module).is_file() else set()

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self._parents:
            node = self._parents[node]
            yield node

    def _given(self, function: str, at: int) -> Iterator[ast.expr]:
        """Yield what the calls of a function here pass for one of its parameters."""
        for node in ast.walk(self._tree):
            match node:
                case ast.Call(func=ast.Name(id=name), args=found) if name == function and len(found) > at:
                    yield found[at]


def _is_environment(place: ast.expr) -> bool:
    return ast.unparse(place) in ENVIRONMENTS


def _texts(value: ast.expr) -> set[str]:
    """Return the text of a constant, or those of a tuple."""
    items = value.elts if isinstance(value, ast.Tuple) else [value]
    return {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}


def _file(module: str) -> Path:
    place = SRC.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@cache
def source(module: str) -> Source:
    """Return a module of ours."""
    return Source(_file(module).read_text("utf-8"))


@pytest.fixture(scope="module")
def found() -> dict[str, list[set[str]]]:
    """What each module reads: for each use of the environment the variables that may be meant."""
    paths = [path for path in SRC.rglob("*.py") if any(word in path.read_text("utf-8") for word in WORDS)]
    modules = [
        ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__") for path in paths
    ]
    return {module: list(source(module).reads()) for module in modules}


def described() -> set[str]:
    """Return the variables of the page, and those between processes of Interlock."""
    surroundings = {name for said in references.TEXTS["surroundings"] for name in said["variables"]}
    internal = {*references.TEXTS["internal"]["variables"]}
    return {*references.TEXTS["environment"], *surroundings, *internal}


def test_every_variable_that_the_source_reads_is_described(found: dict[str, list[set[str]]]) -> None:
    read = {name.removeprefix("_") for uses in found.values() for names in uses for name in names}
    assert {"INTERLOCK_URL", "NO_COLOR", "FORCE_HYPERLINK", "CI", "PAGER", "XDG_CONFIG_HOME"} <= read
    assert read - described() == set()
    others = {name for name in described() if not name.startswith("INTERLOCK_")}
    assert others - read == set(OF_LIBRARIES), "on the page, and read nowhere"


def test_keys_that_are_no_constants_are_known(found: dict[str, list[set[str]]]) -> None:
    assert {module for module, uses in found.items() if set() in uses} == set(UNKNOWN)


@pytest.mark.parametrize(
    "text",
    [
        'import os\nos.environ["SHOP_MOON"]',
        'import os\nos.environ.get("SHOP_MOON", "")',
        'import os\nos.getenv("SHOP_MOON")',
        'import os\n"SHOP_MOON" in os.environ',
        'import os\nMOON = "SHOP_MOON"\ndef read():\n    return os.environ.pop(MOON)',
        'import os\nMOONS = ("SHOP_MOON",)\n[os.environ[name] for name in MOONS if name in os.environ]',
        'import os\ndef read(name):\n    return os.environ.get(name)\nread("SHOP_MOON")',
        'typer.Option(envvar="SHOP_MOON")',
    ],
)
def test_a_use_of_the_environment_is_found_however_it_is_written(text: str) -> None:
    assert {name for names in Source(text).reads() for name in names} == {"SHOP_MOON"}


def test_the_page_has_every_variable_and_the_file_of_profiles() -> None:
    page = references.configuration_page()
    public = described() - set(references.TEXTS["internal"]["variables"])
    assert {name for name in public if f"`{name}`" not in page} == set()
    assert "`~/.config/interlock/profiles.toml`" in page


def test_libraries_that_read_variables_of_the_page_are_extras_of_ours() -> None:
    text = (SRC.parent / "pyproject.toml").read_text("utf-8")
    assert {library for library in OF_LIBRARIES.values() if f'"{library}' not in text} == set()
