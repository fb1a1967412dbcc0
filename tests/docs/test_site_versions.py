"""A folder of the site for each version, from the pages of its tag."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tools import site

CONFIG = """\
site_name: Example
use_directory_urls: false
site_dir: .site/main
theme:
  name: material
  font: false
extra:
  version:
    provider: mike
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a page that says which version it is of."""
    (tmp_path / "mkdocs.yml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "docs").mkdir()
    git(tmp_path, "init", "--quiet")
    for tag in ("v0.1.0", "v0.1.1", "v0.9.0", "v0.10.0", "nightly"):
        (tmp_path / "docs" / "index.md").write_text(f"# Version {tag}\n", encoding="utf-8")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message", tag)
        git(tmp_path, "tag", tag)
    (tmp_path / "docs" / "index.md").write_text("# Version of tomorrow\n", encoding="utf-8")
    return tmp_path


def git(folder: Path, *words: str) -> None:
    who = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "test@example.org")
    names = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "test")
    subprocess.run(["git", "-C", str(folder), *words], env={**os.environ, **who, **names}, check=True)


def page(project: Path, version: str) -> str:
    return (project / ".site" / version / "index.html").read_text(encoding="utf-8")


@pytest.mark.long
def test_every_minor_version_has_a_folder_with_the_pages_of_its_newest_tag(project: Path) -> None:
    assert site.main(project) == 0
    versions = json.loads((project / ".site" / "versions.json").read_text(encoding="utf-8"))
    assert [each["version"] for each in versions] == ["0.10", "0.9", "0.1", "main"]
    assert [each["version"] for each in versions if each["aliases"] == ["latest"]] == ["0.10"]
    assert "Version v0.1.1" in page(project, "0.1")
    assert "Version v0.10.0" in page(project, "0.10")
    assert "Version of tomorrow" in page(project, "main")
    assert '"provider":"mike"' in page(project, "main").replace(" ", ""), "the theme shows a selector"
    assert "url=0.10/index.html" in (project / ".site" / "index.html").read_text(encoding="utf-8")
    trees = subprocess.run(
        ["git", "-C", str(project), "worktree", "list"], capture_output=True, text=True, check=True
    )
    assert len(trees.stdout.splitlines()) == 1, "nothing is left behind"
    before = (project / ".site" / "0.9" / "index.html").stat().st_mtime_ns
    git(project, "tag", "v0.1.2")
    assert site.main(project) == 0
    assert (project / ".site" / "0.9" / "index.html").stat().st_mtime_ns == before, "a release is built once"
    assert "Version nightly" in page(project, "0.1"), "a new patch replaces the one before"


def test_without_a_release_the_site_leads_to_main(tmp_path: Path) -> None:
    site.write_entrance(tmp_path, [])
    assert "url=main/index.html" in (tmp_path / "index.html").read_text(encoding="utf-8")
    (only,) = json.loads((tmp_path / "versions.json").read_text(encoding="utf-8"))
    assert (only["version"], only["aliases"]) == ("main", ["latest"])
    assert site.releases_of(tmp_path) == {}
