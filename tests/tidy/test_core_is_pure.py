"""Time, ids, randomness and the network are ports: the kernel and the lifecycles take none of them.

What these packages decide is then a function of its arguments, and can be replayed and explored.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC, VERIFICATION = ROOT / "src", ROOT / "verification" / "src"
CORE = (SRC / "interlock" / "machine", SRC / "interlock" / "lifecycles")

SYSTEM = frozenset(
    {"time", "uuid", "random", "secrets", "os", "socket", "threading", "asyncio", "subprocess"}
)
BANNED_MODULES = SYSTEM | {
    "concurrent",
    "http",
    "importlib",
    "multiprocessing",
    "select",
    "selectors",
    "shutil",
    "signal",
    "sqlite3",
    "ssl",
    "tempfile",
    "urllib",
    "uuid_utils",
}
BANNED_CALLS = frozenset({"open", "input", "print", "exec", "eval", "compile", "__import__", "breakpoint"})
BANNED_CLOCKS = frozenset({"now", "utcnow", "today"})
BANNED_FILE_METHODS = frozenset({"open", "read_text", "write_text", "read_bytes", "write_bytes", "unlink"})


def impurities(source: str) -> list[str]:
    """Everything in a source text that reaches for the system, one sentence each."""
    return [f"line {line}: {what}" for line, what in sorted(_impurities(ast.parse(source)))]


def _impurities(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, f"import {n.name}") for n in names if _banned(n.name))
            case ast.ImportFrom(module=str(module), level=0) if _banned(module):
                yield node.lineno, f"from {module} import"
            case ast.Call(func=ast.Name(id=name)) if name in BANNED_CALLS:
                yield node.lineno, f"{name}()"
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attribute)) if name in SYSTEM:
                yield node.lineno, f"{name}.{attribute}()"
            case ast.Attribute(value=ast.Name(id="self"), attr="now"):
                pass  # the moment that somebody has decided at, handed in
            case ast.Attribute(attr=attribute) if attribute in BANNED_CLOCKS:
                yield node.lineno, f".{attribute}"
            case ast.Call(func=ast.Attribute(attr=attribute)) if attribute in BANNED_FILE_METHODS:
                yield node.lineno, f".{attribute}()"
            case _:
                pass


def _banned(module: str) -> bool:
    return module.partition(".")[0] in BANNED_MODULES


def core_files() -> list[Path]:
    return sorted(path for folder in CORE for path in folder.rglob("*.py"))


def test_the_core_takes_nothing_from_the_system() -> None:
    found = [
        f"{path.relative_to(SRC)}, {impurity}"
        for path in core_files()
        for impurity in impurities(path.read_text())
    ]
    assert found == []


def test_the_purity_check_includes_the_files_of_the_kernel() -> None:
    names = {str(path.relative_to(SRC)) for path in core_files()}
    assert {"interlock/machine/machine.py", "interlock/machine/cascade.py"} <= names


@pytest.mark.parametrize(
    "snippet",
    [
        "import time",
        "import time as clock",
        "import json, uuid",
        "from time import monotonic",
        "from random import choice as pick",
        "import secrets",
        "import os",
        "import os.path",
        "from os import environ",
        "import socket",
        "import threading",
        "import asyncio",
        "from asyncio import sleep",
        "import subprocess",
        "from concurrent.futures import ThreadPoolExecutor",
        "def later():\n    import time",
        "class A:\n    import random",
        "at = datetime.now()",
        "at = datetime.datetime.now(UTC)",
        "at = datetime.utcnow()",
        "day = date.today()",
        "read_clock = datetime.now",
        "text = open('file').read()",
        "with open('file') as file: ...",
        "text = Path('file').read_text()",
        "Path('file').write_bytes(b'')",
        "with path.open() as file: ...",
        "time.sleep(1)",
        "lambda: os.getpid()",
        "__import__('time')",
        "from importlib import import_module",
        "eval('1 + 1')",
        "print('hello')",
    ],
)
def test_reaching_for_the_system_would_be_noticed(snippet: str) -> None:
    assert impurities(snippet) != []


@pytest.mark.parametrize(
    "snippet",
    [
        "from datetime import datetime\ndef entry(at: datetime) -> None: ...",
        "from interlock.machine import timer\nlate = timer('late', 'Late.', by='clock')",
        "from .time import x",
        "open_ = command('open', 'Open it.', by='user')",
        "time = 3\nspan_s = time * 2",
        "selectors = 'a,b'\nparts = selectors.split(',')",
        "def now_and_then(data, event): return data",
    ],
)
def test_code_that_only_resembles_system_access_is_not_reported(snippet: str) -> None:
    assert impurities(snippet) == []


def test_no_module_uses_asyncio_wait_for() -> None:
    """Before Python 3.12 it can swallow a cancel; see decision 0131."""
    sources = sorted([*SRC.rglob("*.py"), *VERIFICATION.rglob("*.py")])
    using = [path.name for path in sources if "asyncio.wait_for(" in path.read_text(encoding="utf-8")]
    assert using == []
