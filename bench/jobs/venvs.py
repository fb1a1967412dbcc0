"""A virtual environment for each peer, made from pinned requirements when it is first needed.

Their dependencies conflict with ours and with each other's. The requirements are what `uv pip compile`
made of the `.in` file beside them; an environment whose requirements have changed is made anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
VENVS = ROOT / ".bench" / "venvs"
REQUIREMENTS = Path(__file__).parent / "requirements"
_NOTED = "requirements.txt"


class NotInstalled(Exception):
    """A peer could not be installed; the sentence says why."""


def python_of(peer: str, venvs: Path = VENVS) -> Path:
    """The interpreter in which this peer can be imported."""
    wanted = REQUIREMENTS / f"{peer}.txt"
    folder = venvs / peer
    python, noted = folder / "bin" / "python", folder / _NOTED
    if python.is_file() and noted.is_file() and noted.read_bytes() == wanted.read_bytes():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _uv("venv", "--python", sys.executable, str(folder), what=peer)
    _uv("pip", "sync", "--python", str(python), str(wanted), what=peer)
    noted.write_bytes(wanted.read_bytes())
    return python


def version_of(peer: str) -> str:
    """The version that is compared with."""
    pins = dict(
        line.split(";")[0].strip().split("==")
        for line in (REQUIREMENTS / f"{peer}.txt").read_text(encoding="utf-8").splitlines()
    )
    return pins[peer]


def _uv(*words: str, what: str) -> None:
    local = ROOT / ".tools" / "bin" / "uv"
    uv = str(local) if local.is_file() else shutil.which("uv")
    if uv is None:
        raise NotInstalled(f"{what} could not be installed: there is no uv in PATH or .tools/bin.")
    quiet = {"UV_PYTHON_DOWNLOADS": "never", "UV_LINK_MODE": "copy"}
    done = subprocess.run(
        [uv, *words], env={**os.environ, **quiet}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotInstalled(f"{what} could not be installed: {' '.join(done.stderr.split())[-300:]}")
