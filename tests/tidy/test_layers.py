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
    "client_batches.py": "from interlock import client",
    "client_transactions.py": "from interlock import sync",
    "backoff.py": "from interlock import errors",
    "text.py": "from interlock import machine",
}
INSIDE_THE_KERNEL = {
    "machine/events.py": "from interlock.machine import table",
    "machine/check.py": "from interlock.machine import machine",
    "machine/machine.py": "from interlock.machine import blueprint",
    "machine/blueprint.py": "from interlock.machine import draw",
    "machine/couplings.py": "from interlock.machine import compare",
    "machine/compare.py": "from interlock.machine import cascade",
    "machine/cascade.py": "from interlock.machine import draw",
}
INSIDE_THE_SYSTEMS = {
    "systems/quarantine.py": "from interlock.systems import blobs",
    "systems/blobs.py": "from interlock.systems import blob_bucket",
    "systems/blob_bucket.py": "from interlock.systems import orchestrator",
    "systems/orchestrator/jobs.py": "def late():\n    from interlock.systems import supervisor",
    "systems/supervisor/workers.py": "from interlock.systems import schedules",
    "systems/schedules/fires.py": "from interlock.systems.runs import body",
    "systems/runs/views.py": "from interlock.systems import simulations",
    "systems/simulations/body.py": "from interlock.systems import fleet",
    "systems/fleet/spec.py": "from interlock.systems import catalogue",
    "systems/catalogue.py": "from interlock.systems import kinds",
    "systems/kinds.py": "from interlock.systems import settings",
    "systems/settings.py": "from interlock.systems import retention",
    "systems/retention.py": "from interlock.systems import overview",
    "systems/overview.py": "from interlock.systems import runtime",
    "systems/runtime.py": "from interlock.systems import embedded",
}
FROM_WORKERS_AND_AGENTS = {
    "worker/tasks.py": "from interlock import engine",
    "worker/codec.py": "import interlock.store",
    "worker/leases.py": "from interlock.systems import orchestrator",
    "agent/execution.py": "from interlock import engine",
    "agent/protocol.py": "import interlock.store",
    "agent/load.py": "def late():\n    from interlock.systems import fleet",
    "agent/server.py": "from interlock import worker",
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
        pytest.param(INSIDE_THE_SYSTEMS, id="systems", marks=pytest.mark.long),
        pytest.param(FROM_WORKERS_AND_AGENTS, id="workers-and-agents", marks=pytest.mark.long),
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


NEW_MODULES = ("new_module", "machine/new_module", "systems/new_module")


def test_a_module_without_a_layer_would_be_noticed(project: Path) -> None:
    for name in NEW_MODULES:
        (project / "src" / "interlock" / f"{name}.py").write_text('"""A module that no contract lists."""\n')
    result = lint(project)
    assert result.returncode != 0
    assert result.stdout.count("new_module") >= len(NEW_MODULES), result.stdout
    assert "3 broken" in result.stdout
