"""What is in the two wheels: users get Interlock, and nothing of how Interlock itself is verified."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.waiting import PROGRAM_S
from tools import dashboard

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "tools/dashboard.py")
FOR_DEVELOPERS = ("verif", "chaos", "mutation", "mutant", "survivors", "tests/")
OURS = {"interlock/cli/verify.py"}
"""The command that says which distribution to install."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources of both distributions, with empty files in place of the built dashboard."""
    folder = tmp_path_factory.mktemp("project")
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    made = shutil.ignore_patterns("__pycache__", "dashboard", "dist")
    for name in ("src", "verification"):
        shutil.copytree(ROOT / name, folder / name, ignore=made)
    for name in ("index.html", "assets/index.js", "assets/index.js.br", "assets/index.js.gz"):
        (folder / dashboard.BUILT / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / dashboard.BUILT / name).touch()
    (folder / dashboard.BUILT / dashboard.STAMP).write_text(dashboard.fingerprint(folder))
    return folder


def wheel_of(folder: Path) -> zipfile.ZipFile:
    """Build the wheel of a folder that has a pyproject.toml."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next((folder / "dist").glob("*.whl")))


def sources_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")}


def test_the_wheel_of_interlock_has_its_package_and_nothing_of_verification(project: Path) -> None:
    with wheel_of(project) as wheel:
        names = set(wheel.namelist())
    inside = {name for name in names if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in inside} == {"interlock"}
    assert {name for name in inside if name.endswith(".py")} == sources_of(project / "src")
    assert {name for name in inside if any(word in name for word in FOR_DEVELOPERS)} == OURS


def test_the_wheel_of_verification_has_its_package_its_table_its_help_and_its_command(project: Path) -> None:
    with wheel_of(project / "verification") as wheel:
        names = set(wheel.namelist())
        entry_points = next(name for name in names if name.endswith("entry_points.txt"))
        declared = wheel.read(entry_points).decode()
    inside = {name for name in names if ".dist-info/" not in name}
    assert {name for name in inside if name.endswith(".py")} == sources_of(project / "verification/src")
    assert {"interlock_verification/survivors.toml", "interlock_verification/help.txt"} <= inside
    assert declared.split() == ["[interlock.commands]", "verify", "=", "interlock_verification.cli:app"]
