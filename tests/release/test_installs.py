"""A released wheel and sdist work in an empty environment, by the README alone, on each Python we name.

`make test` tries the wheel on the Python that runs it. `make test-pythons` tries both on all of them: uv
fetches those that are missing, and a Python that cannot be had is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.waiting import PROGRAM_S
from tools import dashboard

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements.lock"
UV = ROOT / ".tools/bin/uv"
HERE = "{}.{}".format(*sys.version_info)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
NAMED = tuple(
    name.rpartition(" ")[2] for name in PROJECT["classifiers"] if name.startswith("Programming Language")
)
PYTHONS = os.environ.get("INTERLOCK_PYTHONS", HERE).split()
README = (ROOT / "README.md").read_text(encoding="utf-8")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Return the output of a program that ends well, in an environment without anything of this one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    kept.pop("INTERLOCK_URL", None)
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "tools/dashboard.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in ("src", "web"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules")
        )
    assert (folder / dashboard.BUILT).is_dir(), "→ Run: make dashboard"
    for target in ("wheel", "sdist"):
        run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", "dist", cwd=folder)
    return folder / "dist"


def environment_with(package: Path, version: str, folder: Path) -> Path:
    """Return the programs of a new environment with this package and the locked dependencies."""
    run(UV, "venv", "--python", version, folder, cwd=folder.parent)
    into = ("--python", folder / "bin/python", "--constraint", LOCK, "--build-constraint", LOCK)
    install = (UV, "pip", "install", *into, package)
    # `make` has fetched the dependencies for this Python, so they are in uv's cache unless it was emptied.
    if subprocess.run(
        [*install, "--offline"], capture_output=True, timeout=PROGRAM_S, check=False
    ).returncode:
        run(*install, cwd=folder.parent)
    return folder / "bin"


def blocks_of_readme() -> tuple[str, list[str]]:
    """Return the task of the README, and the commands that submit and run it."""
    start = README.index("## Run a job in three minutes")
    (task, *_), (commands, *_) = (
        re.findall(rf"```{language}\n(.*?)```", README[start:], re.DOTALL)
        for language in ("python", "console")
    )
    return task, [line.removeprefix("$ ") for line in commands.splitlines()]


def script_of_readme() -> str:
    """Return the blocks of the README to the first job, in order, as one shell script."""
    chapter = README.partition("## Run a job in three minutes")[2].partition("\n## ")[0]
    script = ["set -eu"]
    parts = re.split(r"```(\w+)\n(.*?)```", chapter, flags=re.DOTALL)
    for before, language, block in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
        if language in ("sh", "console"):
            script += [line.removeprefix("$ ") for line in block.splitlines()]
        elif saved := re.search(r"Save this as `([\w.]+)`", before):
            script.append(f"cat > {saved[1]} <<'END OF FILE'\n{block}END OF FILE")
        else:
            (first,) = re.findall(r"after `(from \w+ import \w+)`", before)
            script.append(f"python - <<'END OF FILE'\n{first}\n{block}END OF FILE")
    return "\n".join(script)


@pytest.mark.long  # pip builds the dashboard, for which npm fetches its packages
def test_the_readme_alone_leads_from_a_checkout_to_a_completed_job(tmp_path: Path) -> None:
    archive, checkout = tmp_path / "head.tar", tmp_path / "checkout"
    run("git", "archive", "--output", archive, "HEAD", cwd=ROOT)
    checkout.mkdir()
    run("tar", "--extract", "--file", archive, cwd=checkout)
    assert not (checkout / dashboard.BUILT).exists(), "nothing is prebuilt"
    script = script_of_readme()
    assert {"pip", "submit", "worker"} <= set(script.split())
    system = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if ".venv" not in part)
    output = run("bash", "-c", script, cwd=checkout, PATH=system)
    assert re.search(r"resize.*COMPLETED|COMPLETED.*resize", output), output
    assert output.splitlines()[-1] == "PENDING"
    added = run(checkout / ".venv/bin/pip", "install", "interlock[redis]", cwd=tmp_path)
    assert "already satisfied: interlock[redis]" in added
    run(checkout / ".venv/bin/python", "-c", "import redis", cwd=tmp_path)


def test_each_block_of_the_first_chapter_of_the_readme_is_followed() -> None:
    chapter = README.partition("## Run a job in three minutes")[2].partition("\n## ")[0]
    script = script_of_readme()
    assert chapter.count("```") == 2 * 4
    assert script.count("END OF FILE") == 2 * 2
    assert "cat > ticket.py" in script


def test_the_pages_name_what_the_build_of_the_dashboard_fetches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("README.md", "docs/index.md", "docs/tutorials/first-job.md"):
        page = (ROOT / name).read_text(encoding="utf-8")
        least = re.search(r"Node\.js from PyPI,? unless\s+the machine has (\d+)\.(\d+) or newer", page)
        assert least is not None, name
        assert (int(least[1]), int(least[2])) == dashboard._LEAST_NODE
    assert dashboard.NODE_WHEEL in PYPROJECT["dependency-groups"]["dev"], "the wheel is of that version"
    hook = dashboard.DashboardHook(str(tmp_path), {}, None, None, "", "wheel")  # type: ignore[arg-type]
    monkeypatch.setattr(dashboard, "_node_of_wheel", lambda: None)
    for version, asked in (("v22.17.0", [dashboard.NODE_WHEEL]), ("v22.18.0", [])):
        for name in ("node", "npm"):
            (tmp_path / name).write_text(f"#!/bin/sh\necho {version}\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        assert hook.dependencies() == asked


@pytest.mark.long  # `test_wheels.py` has what a wheel holds, and `test_extras.py` the least that it needs
@pytest.mark.parametrize("suffix", [".whl", ".tar.gz"])
@pytest.mark.parametrize("version", PYTHONS)
def test_the_first_job_of_the_readme_completes_in_an_empty_environment(
    released: Path, tmp_path: Path, version: str, suffix: str
) -> None:
    (package,) = released.glob(f"*{suffix}")
    programs = environment_with(package, version, tmp_path / "environment")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    found = run(programs / "python", "-c", "import sys; print(*sys.version_info[:2], sep='.')", cwd=folder)
    assert found.strip() == version
    assert run(programs / "interlock", "--version", cwd=folder).split() == ["interlock", PROJECT["version"]]
    task, commands = blocks_of_readme()
    (folder / "ticket.py").write_text(task, encoding="utf-8")
    for command in commands:
        _, *arguments = command.split()
        output = run(programs / "interlock", *arguments, cwd=folder)
    assert "COMPLETED" in output
    assert "resize" in output


def test_the_pythons_that_we_name_are_the_ones_that_are_tried() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"INTERLOCK_PYTHONS='{' '.join(NAMED)}'" in makefile
    assert PROJECT["requires-python"] == f">={NAMED[0]}"
