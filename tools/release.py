"""Prepare a release: set the version in every file that has it, and date the changelog.

    python tools/release.py 0.2.0

Reference pages and recorded answers get the version by `make docs sessions`. CONTRIBUTING.md has all steps.

Why: decision 0557.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = "pyproject.toml"
CHANGELOG = "CHANGELOG.md"
FILES = (
    PROJECT,
    "verification/pyproject.toml",
    "deploy/Containerfile",
    "deploy/compose.yaml",
    "deploy/kubernetes/server.yaml",
    "deploy/kubernetes/worker.yaml",
    "docs/coming-from/index.md",
    "docs/guides/running-in-production.md",
)
"""Files that name the version and are not generated."""
UNRELEASED = "## Unreleased\n"
_VERSION = re.compile(r"\d+\.\d+\.\d+")


class CannotRelease(Exception):
    """The version or the changelog does not fit; the message names the remedy."""


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    """Prepare the release; return the exit code."""
    try:
        old = prepare(root, *arguments)
    except (CannotRelease, TypeError) as error:
        usage = "Usage: python tools/release.py MAJOR.MINOR.PATCH"
        print(usage if isinstance(error, TypeError) else f"release: {error}", file=sys.stderr)
        return 2
    print(f"The version is {arguments[0]}; it was {old}. Next: make docs sessions")
    return 0


def prepare(root: Path, new: str) -> str:
    """Change all files, and return the version before."""
    project = tomllib.loads((root / PROJECT).read_text(encoding="utf-8"))
    old: str = project["project"]["version"]
    if not _VERSION.fullmatch(new) or _numbers(new) < _numbers(old):
        raise CannotRelease(f"{new} is no version after {old}.\n→ Give three numbers, such as 0.2.0.")
    changelog = (root / CHANGELOG).read_text(encoding="utf-8")
    before, unreleased, after = changelog.partition(UNRELEASED)
    if not unreleased or after.lstrip().startswith("## "):
        raise CannotRelease(f"{CHANGELOG} has nothing below {UNRELEASED.strip()!r}.\n→ Describe the changes.")
    texts = {name: (root / name).read_text(encoding="utf-8") for name in FILES}
    if missing := [name for name, text in texts.items() if not _named(old).search(text)]:
        raise CannotRelease(f"{', '.join(missing)} does not name {old}.\n→ Correct the version there.")
    for name, text in texts.items():
        (root / name).write_text(_named(old).sub(new, text), encoding="utf-8")
    heading = f"{UNRELEASED}\n## {new} - {datetime.now(UTC):%Y-%m-%d}\n"
    (root / CHANGELOG).write_text(f"{before}{heading}{after}", encoding="utf-8")
    return old


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _named(version: str) -> re.Pattern[str]:
    """Return a pattern for the version, and not for a part of another one."""
    return re.compile(rf"(?<![\d.]){re.escape(version)}(?!\.?\d)")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
