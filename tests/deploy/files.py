"""The files of deploy/, and what they are compared with: the command line, settings and endpoints."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
import yaml

from interlock.agent.execution import KILLED_S
from interlock.agent.server import GRACE_S
from interlock.api import server as operations
from interlock.cli.main import app
from interlock.lifecycles.durations import DEFAULTS
from interlock.server.settings import ServerSettings
from interlock.worker.pool import REPORTED_S, PoolSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GUIDE = ROOT / "docs" / "guides" / "running-in-production.md"

PATHS = {
    operation.request.removeprefix("GET ")
    for operation in (operations.HEALTHZ, operations.READYZ, operations.METRICS)
}
"""What probes may ask a server for."""
METRICS_PATH = operations.METRICS.request.removeprefix("GET ")

MARGIN_S = 5.0
"""A process gets this much longer than its own deadline: to close the store, and to exit."""
STOPS_S = {
    "server": ServerSettings().shutdown_s,
    "worker": DEFAULTS.shutdown_deadline_s,
    "supervisor": PoolSettings(name="workers").end_s + REPORTED_S,
    "agent": DEFAULTS.abort_kill_s + KILLED_S + GRACE_S,
}
"""How long each program may take to stop, by its first word."""


def folder_of(package: str) -> Path:
    """Return where a package is installed: schemas of other projects are read there, and not copied."""
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def schema_in(name: str) -> dict[str, Any]:
    """Return a schema that the package check-jsonschema has."""
    file = folder_of("check_jsonschema") / "builtin_schemas" / "vendor" / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a YAML file."""
    return [each for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each is not None]


def variables() -> set[str]:
    """Return the environment variables that users may set."""
    texts = tomllib.loads((ROOT / "docs" / "reference_texts.toml").read_text(encoding="utf-8"))
    return set(texts["environment"])


@cache
def _program() -> Any:
    return typer.main.get_command(app)


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """Parse a command line of `interlock` without running it; return the values of its options.

    Raises an error of the parser for an unknown command, option or value.
    """
    command, context, name, rest = _program(), None, "interlock", list(words)
    while True:
        context = command.make_context(name, rest, parent=context)
        if not hasattr(command, "resolve_command"):
            values: dict[str, Any] = context.params
            return values
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the words after `interlock` of each command line in a script, up to the end of the command."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        for at, word in enumerate(words):
            if word.rpartition("/")[2] == "interlock" and words[at + 1 : at + 2]:
                rest = words[at + 1 :]
                ends = [n for n, each in enumerate(rest) if each in ("|", "&&", ";", ">", "||", "&")]
                if rest[0] in _program().commands:
                    yield rest[: min(ends, default=len(rest))]
