"""The steps of a release, as CONTRIBUTING.md lists them: each command is run, or read by make."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.waiting import PROGRAM_S
from tools import dashboard, release

ROOT = Path(__file__).parents[2]
CHAPTER = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## How to release")[2]
STEPS = CHAPTER.partition("```sh\n")[2].partition("```")[0].splitlines()
NEW = "0.2.0"
GENERATED = {"web/openapi.json", "docs/http_examples.json", "requirements.lock", "web/package-lock.json"}
"""Files that get the version by `make docs sessions`, or whose numbers are those of others."""
FOLDERS_OF_OTHERS = ("tests/", "docs/sessions/", "docs/reference/", "bench/")
READ_ONLY = {"docs", "sessions", "check", "test-all", "test-pythons", "sbom", "site"}
"""Targets that take minutes or have tests of their own: make reads them, and runs nothing."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with what a release needs, the built dashboard, and a remote."""
    folder = tmp_path / "checkout"
    others = ("README.md", "LICENSE", ".gitignore", "Makefile", "requirements.lock", release.CHANGELOG)
    for name in (*others, *release.FILES, "tools/dashboard.py", "tools/release.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    made = shutil.ignore_patterns("__pycache__", "node_modules", "dist")
    for name in ("src", "web", "verification/src"):
        shutil.copytree(ROOT / name, folder / name, ignore=made)
    shutil.copy(ROOT / "verification/README.md", folder / "verification")
    assert (folder / dashboard.BUILT).is_dir(), "→ Run: make dashboard"
    (folder / ".venv").mkdir()
    for each in Path(sys.prefix).iterdir():
        (folder / ".venv" / each.name).symlink_to(each)
    (folder / ".tools").symlink_to(ROOT / ".tools")
    run("git", "init", "--quiet", "--bare", str(tmp_path / "origin"), cwd=tmp_path)
    for words in (
        "init --quiet --initial-branch main",
        "config user.name Someone",
        "config user.email someone@example.org",
        f"remote add origin {tmp_path / 'origin'}",
        "add --all",
        "commit --quiet --message Begin",
    ):
        run("git", *words.split(), cwd=folder)
    return folder


def run(*command: str, cwd: Path, **environment: str) -> str:
    """Return the output of a command that ends well."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "MAKE"))}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def package_index() -> Iterator[tuple[str, list[bytes]]]:
    """Serve an index that accepts uploads; yield its address and what was sent."""
    received: list[bytes] = []

    class Index(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the output of the tests free of requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", received
        finally:
            server.shutdown()
            thread.join()


def followed(step: str, folder: Path, index: str) -> None:
    """Run a step; of make, run what builds and uploads, and have the other targets read."""
    program, *words = shlex.split(step)
    if program != "make":
        run(program, *words, cwd=folder)
        return
    # What is set up and built here already: make would do it for this folder anew.
    there = ("--old-file=.venv/.ready", "--old-file=dashboard")
    for target in words:
        dry = ("--dry-run",) if target in READ_ONLY else ()
        settings = {"UV_PUBLISH_URL": index, "UV_PUBLISH_TOKEN": "a-token"}
        run("make", *there, *dry, target, cwd=folder, **settings)


@pytest.mark.long
def test_the_steps_of_a_release_lead_to_four_uploaded_packages_and_a_pushed_tag(
    checkout: Path, tmp_path: Path
) -> None:
    assert len(STEPS) == 8
    with package_index() as (index, received):
        for step in STEPS:
            followed(step, checkout, index)
    built = {path.name for path in (checkout / "dist").iterdir()}
    assert built == {
        f"{name}-{NEW}{end}"
        for name in ("interlock", "interlock_verification")
        for end in (".tar.gz", "-py3-none-any.whl")
    }
    assert len(received) == len(built)
    assert all(any(name.encode() in body for body in received) for name in built)
    assert "v0.2.0" in run("git", "tag", "--list", cwd=tmp_path / "origin")
    assert run("git", "log", "-1", "--format=%s", "main", cwd=tmp_path / "origin") == "Release 0.2.0\n"
    page = f"{dashboard.BUILT.removeprefix('src/')}/index.html"
    with zipfile.ZipFile(checkout / "dist" / f"interlock-{NEW}-py3-none-any.whl") as wheel:
        assert page in wheel.namelist()
    with tarfile.open(checkout / "dist" / f"interlock-{NEW}.tar.gz") as sdist:
        assert f"interlock-{NEW}/src/{page}" in sdist.getnames()


def test_a_release_sets_the_version_in_every_file_that_is_not_generated(checkout: Path) -> None:
    old = tomllib.loads((ROOT / release.PROJECT).read_text(encoding="utf-8"))["project"]["version"]
    listed = run("git", "ls-files", cwd=ROOT).splitlines()
    named = {
        name
        for name in listed
        if not name.startswith(FOLDERS_OF_OTHERS)
        and (ROOT / name).is_file()
        and re.search(rf"(?<![\d.]){re.escape(old)}(?!\.?\d)".encode(), (ROOT / name).read_bytes())
    }
    texts = {"CONTRIBUTING.md", release.CHANGELOG, "tools/release.py"}  # examples and history
    assert named - GENERATED - texts == {*release.FILES}
    assert release.main([NEW], checkout) == 0
    for name in release.FILES:
        text = (checkout / name).read_text(encoding="utf-8")
        assert old not in text
        assert NEW in text
    changelog = (checkout / release.CHANGELOG).read_text(encoding="utf-8")
    assert re.search(r"^## Unreleased\n\n## 0\.2\.0 - 20\d\d-\d\d-\d\d\n\n### ", changelog, re.MULTILINE)


@pytest.mark.parametrize("version", ["0.2", "v0.2.0", "0.0.9", "next"])
def test_a_version_that_is_none_or_is_older_changes_nothing(
    version: str, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main([version], checkout) == 2
    assert f"{version} is no version after 0.1.0." in capsys.readouterr().err
    assert run("git", "status", "--short", cwd=checkout) == ""


def test_a_changelog_without_changes_and_a_file_with_another_version_are_refused(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main([NEW], checkout) == 0
    assert release.main(["0.3.0"], checkout) == 2
    assert "CHANGELOG.md has nothing below '## Unreleased'." in capsys.readouterr().err
    run("git", "checkout", "--quiet", ".", cwd=checkout)
    (checkout / "deploy/compose.yaml").write_text("image: interlock:9\n")
    assert release.main([NEW], checkout) == 2
    assert "deploy/compose.yaml does not name 0.1.0." in capsys.readouterr().err
    assert release.main([], checkout) == 2
    assert "Usage: python tools/release.py" in capsys.readouterr().err
