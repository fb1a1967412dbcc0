"""Requests of the reference of the HTTP API with their answers: docs/http_examples.json, and how it is shown.

They are recorded by `make sessions` (tools/http_examples.py) and sent again by tests.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

FILE = Path(__file__).with_name("http_examples.json")
SERVER = "http://localhost:8088"


class Example(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request of one operation, and its answer."""

    operation: str
    place: str
    """Where it was sent: how far along the job was there, or what had been done before."""
    method: str
    path: str
    status: int
    media: str
    headers: dict[str, str] = {}
    body: Any = None
    """The body of the request: JSON, or the text of a file."""
    answer: Any = None
    """The body of the answer, shortened: JSON or text."""


def read(path: Path = FILE) -> dict[str, Example]:
    """Return the recorded examples by operation."""
    if not path.is_file():
        return {}
    found = msgspec.json.decode(path.read_bytes(), type=list[Example])
    return {example.operation: example for example in found}


def written(examples: Iterable[Example]) -> str:
    """Return the text of the file."""
    return json.dumps(msgspec.to_builtins(list(examples)), ensure_ascii=False, indent=1) + "\n"


def shown(example: Example) -> Iterator[str]:
    """Yield the lines of a page about an example: a command of curl, and the answer."""
    yield from ("```sh", *_curl(example), "```", "")
    as_json = example.media in ("application/json", "application/problem+json")
    language = "json" if as_json else "text"
    text = as_text(example.answer) if as_json else str(example.answer)
    yield from (f"`{example.status}` `{example.media}`", "", f"```{language}", *text.splitlines(), "```")


def as_text(value: Any) -> str:
    """Return JSON as a page shows it."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def _curl(example: Example) -> Iterator[str]:
    json_body = example.body is not None and not isinstance(example.body, str)
    implied = "POST" if json_body else "GET"
    method = "" if example.method == implied else f" -X {example.method}"
    words = [f"curl{method} {shlex.quote(SERVER + example.path)}"]
    words += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in example.headers.items()]
    if json_body:
        words.append(f"--json {shlex.quote(json.dumps(example.body, ensure_ascii=False))}")
    elif example.body is not None:
        words.append(f"--data-binary {shlex.quote(example.body)}")
    if len(" ".join(words)) <= 100:
        yield " ".join(words)
    else:
        yield " \\\n  ".join(words)
