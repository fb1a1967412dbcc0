"""Imports point one way, also between the two distributions. The rules are the contracts in pyproject.toml.

Each way of breaking them is tried on a copy of the package, so that a contract that would let
something through (or is misspelled, and checks nothing) does not stay unnoticed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "verification/src")
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint(project: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts of a project against the package in its src."""
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--no-logo", "--config", str(project / "pyproject.toml")],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(project / source) for source in SOURCES),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the packages and their contracts, which a test may break."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ignored = shutil.ignore_patterns("__pycache__")
    for source in SOURCES:
        shutil.copytree(ROOT / source, tmp_path / source, ignore=ignored)
    return tmp_path


def test_imports_point_one_way() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


def test_an_unmodified_copy_of_the_package_passes_the_import_contracts(project: Path) -> None:
    result = lint(project)
    assert result.returncode == 0, result.stdout + result.stderr


BETWEEN_PACKAGES = {
    "errors/__init__.py": "import interlock.machine",
    "machine/table.py": "from interlock import lifecycles",
    "machine/machine.py": "import interlock.cli",
    "lifecycles/__init__.py": "def late():\n    import interlock.cli",
    "agent/state.py": "from interlock import systems",
    "processes/groups.py": "import interlock.worker",
    "cli/verify.py": "def soon():\n    import interlock_verification.cli",
    "testing/lifecycles.py": "from interlock_verification import environments",
}
INSIDE_THE_KERNEL = {
    "machine/events.py": "from interlock.machine import table",
    "machine/check.py": "from interlock.machine import machine",
    "machine/machine.py": "from interlock.machine import blueprint",
    "machine/blueprint.py": "from interlock.machine import draw",
    "machine/compare.py": "from interlock.machine import couplings",
}
FROM_THE_SYSTEM = {
    "machine/events.py": "import time",
    "machine/decision.py": "from uuid import uuid4",
    "machine/cascade.py": "import random",
    "machine/table.py": "import secrets",
    "machine/couplings.py": "import socket",
    "machine/draw/__init__.py": "import asyncio",
    "machine/compare.py": "import threading",
    "machine/blueprint.py": "import subprocess",
    "machine/check.py": "import os.path",
    "lifecycles/__init__.py": "import time",
}


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(BETWEEN_PACKAGES, id="packages"),
        pytest.param(INSIDE_THE_KERNEL, id="kernel", marks=pytest.mark.long),
        pytest.param(FROM_THE_SYSTEM, id="system", marks=pytest.mark.long),
    ],
)
def test_every_import_against_the_layers_would_be_noticed(project: Path, broken: dict[str, str]) -> None:
    places = {}
    for module, line in broken.items():
        path = project / "src" / "interlock" / module
        text = f"{path.read_text(encoding='utf-8')}\n{line}\n"
        path.write_text(text, encoding="utf-8")
        name = f"interlock.{module.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"
        places[name] = len(text.splitlines())
    result = lint(project)
    assert result.returncode != 0
    for name, number in places.items():
        reported = re.search(rf"{re.escape(name)} -> \S+ \(l\.(?:\d+, l\.)*{number}\b", result.stdout)
        assert reported, f"{name} line {number} is not reported:\n{result.stdout}{result.stderr}"
