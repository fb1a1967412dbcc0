"""The Containerfile is built, and its image serves, is healthy and stops, as the user that it names.

Buildah comes out of Debian's packages where it is missing. There may be no registry, so the image is built
on a small Debian (`debootstrap`) with the Python of its packages (3.11), in place of the `python:…-slim` that
the Containerfile names and no test uses; every instruction is carried out. Needs root, for mounts that only
these programs see.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.debian import unpacked
from tests.waiting import PROGRAM_S
from tools import dashboard

ROOT = Path(__file__).parents[2]
BASE = "localhost/python:debian"
IMAGE = "localhost/interlock:built"
RELEASE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = "python3,python3-venv,python3-pip,python-is-python3,ca-certificates"
CERTIFICATES = "/etc/ssl/certs:/etc/ssl/certs:ro"
"""What this machine trusts, for downloads during the build."""

LIFE = f"""
import json, os, subprocess, sys
start, check = json.loads(sys.argv[1])
server = subprocess.Popen(start, stdout=sys.stderr)
try:
    while server.poll() is None and subprocess.run(check, stderr=subprocess.DEVNULL).returncode:
        pass  # each look starts an interpreter
    if server.poll() is None:
        server.terminate()
    print(json.dumps([os.getuid(), os.getgid(), os.getcwd(), server.wait({PROGRAM_S})]))
finally:
    server.kill()
"""
"""Start the server, wait until it is healthy, and stop it."""

LOOPBACK = """
import fcntl, socket, struct
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
fcntl.ioctl(socket.socket(), SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
"""
"""Give a new network namespace a loopback address that answers."""


class Buildah:
    """Buildah with images in a folder of its own, and with its packages laid over /usr and /etc."""

    def __init__(self, folder: Path) -> None:
        layers = unpacked("buildah")
        self._over = "".join(
            f"mount -t overlay overlay -o lowerdir={layers / name}:/{name} /{name} && "
            for name in ("usr", "etc")
            if (layers / name).exists()  # none, where Buildah is installed
        )
        storage = folder / "storage.conf"
        storage.write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/images"\nrunroot = "{folder}/run"\n', "utf-8"
        )
        self._environment = {
            **os.environ,
            "CONTAINERS_STORAGE_CONF": str(storage),
            "BUILDAH_ISOLATION": "chroot",
        }

    def __call__(self, *words: str | Path, alone: bool = False) -> str:
        """Return what a command prints; `alone` is in a network without anything but itself."""
        script = f"{self._over}exec buildah {shlex.join(map(str, words))}"
        if not alone:
            return output("unshare", "--mount", "sh", "-c", script, environment=self._environment)
        script = f"{shlex.join([sys.executable, '-c', LOOPBACK])} && {script}"
        return output("unshare", "--mount", "--net", "sh", "-c", script, environment=self._environment)


def output(*command: str | Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert done.returncode == 0, f"{shlex.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def import_base(buildah: Buildah, folder: Path) -> None:
    """Make the image that stands for the base of the Containerfile."""
    unpacked_program = unpacked("debootstrap") / "usr/sbin/debootstrap"
    program = unpacked_program if unpacked_program.exists() else Path("/usr/sbin/debootstrap")
    what = ("--variant=minbase", f"--include={PACKAGES}", RELEASE, folder / "debian", MIRROR)
    place = {"DEBOOTSTRAP_DIR": str(program.parents[1] / "share/debootstrap")}
    output(program, *what, environment={**os.environ, **place})
    container = buildah("from", "scratch").strip()
    buildah("add", "-q", container, folder / "debian", "/")
    buildah("commit", "-q", container, BASE)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """Build the image as the guide does."""
    if os.geteuid() != 0:
        pytest.skip("Buildah and debootstrap are run as root here")
    assert (ROOT / dashboard.BUILT).is_dir(), "→ Run: make dashboard"
    folder = tmp_path_factory.mktemp("buildah")
    program = Buildah(folder)
    import_base(program, folder)
    here = ("--layers=false", "--network", "host", "--volume", CERTIFICATES, "--build-arg", f"BASE={BASE}")
    guide = ("--format", "docker", "-f", ROOT / "deploy/Containerfile", "-t", IMAGE)
    program("build", *here, *guide, ROOT)
    yield program
    shutil.rmtree(folder)  # two gigabytes


@pytest.mark.long
def test_the_built_image_serves_is_healthy_and_stops_as_its_user(buildah: Buildah) -> None:
    config: dict[str, Any] = json.loads(buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]
    kind, *check = config["Healthcheck"]["Test"]
    assert kind == "CMD"
    orders = json.dumps([[*config["Entrypoint"], *config["Cmd"]], check])
    container = buildah("from", IMAGE).strip()
    life = buildah("run", "--network", "host", container, "--", "python", "-c", LIFE, orders, alone=True)
    user, group, folder, code = json.loads(life)
    assert f"{user}:{group}" == config["User"]
    assert (folder, code) == (config["WorkingDir"], 0)


@pytest.mark.long
def test_the_built_image_has_the_drivers_and_nothing_of_its_build(buildah: Buildah) -> None:
    container = buildah("from", IMAGE).strip()
    buildah("run", container, "--", "python", "-c", "import asyncpg, redis, interlock")
    find = "ls -d /source /wheels /root/.cache /root/.npm 2>/dev/null || true"
    assert buildah("run", container, "--", "sh", "-c", find) == ""
