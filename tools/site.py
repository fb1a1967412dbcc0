"""Build the documentation site with a folder for each version: `make site`, or `python tools/site.py`.

`main` is the working tree. Each tag `vMAJOR.MINOR.PATCH` is a release: the newest patch of each minor version
is built from its own pages with the tools that are installed, and kept. The theme shows the versions that
`versions.json` lists. Nothing is fetched from elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAIN = "main"
_TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
_BUILT_FROM = ".tag"
"""The file in the folder of a release that names its tag."""
_ENTRANCE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Interlock</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
</head>
<body><a href="{version}/index.html">Documentation of Interlock</a></body>
</html>
"""


def main(root: Path = ROOT) -> int:
    """Build what is missing, and say where it is."""
    site = root / ".site"
    for old in site.glob("*") if not (site / "versions.json").exists() else ():
        shutil.rmtree(old) if old.is_dir() else old.unlink()  # a site of before there were versions
    _build(root, site / MAIN)
    releases = releases_of(root)
    for version, tag in releases.items():
        _build_release(root, site / version, tag)
    write_entrance(site, list(releases))
    print(f"Open {site}/{MAIN}/index.html")
    print(f"With a choice of versions: python3 -m http.server --directory {site} 8000")
    return 0


def releases_of(root: Path) -> dict[str, str]:
    """Return the newest tag of each minor version, newest first."""
    listed = subprocess.run(
        ["git", "-C", str(root), "tag", "--list"], capture_output=True, text=True, check=False
    )
    found = [match for tag in listed.stdout.split() if (match := _TAG.fullmatch(tag))]
    newest: dict[str, str] = {}
    for match in sorted(found, key=lambda match: [-int(number) for number in match.groups()]):
        newest.setdefault(f"{match[1]}.{match[2]}", match[0])
    return newest


def write_entrance(site: Path, releases: list[str]) -> None:
    """Write the list of versions, and the page that leads to the newest release, or to main."""
    newest = releases[0] if releases else MAIN
    versions = [
        {"version": version, "title": version, "aliases": ["latest"] if version == newest else []}
        for version in (*releases, MAIN)
    ]
    (site / "versions.json").write_text(json.dumps(versions, indent=2) + "\n", encoding="utf-8")
    (site / "index.html").write_text(_ENTRANCE.format(version=newest), encoding="utf-8")


def _build_release(root: Path, target: Path, tag: str) -> None:
    built_from = target / _BUILT_FROM
    if built_from.is_file() and built_from.read_text(encoding="utf-8") == tag:
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(root), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), tag], check=True)
        try:
            if (tree / "mkdocs.yml").is_file():
                _build(tree, target)
                built_from.write_text(tag, encoding="utf-8")
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def _build(tree: Path, target: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(target)]
    subprocess.run(command, cwd=tree, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)


if __name__ == "__main__":
    sys.exit(main())
