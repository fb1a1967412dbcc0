"""What `interlock worker start` does: gather settings, load the tasks, and run."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from interlock.cli import connecting, project
from interlock.cli.loading import load_kinds
from interlock.errors import InvalidSettings
from interlock.processes import credentials
from interlock.processes.sandbox import SandboxSettings
from interlock.remote.addresses import is_server
from interlock.systems.embedded import EmbeddedOrchestrator
from interlock.systems.orchestrator.vault import FILE as SECRETS_FILE
from interlock.worker.entry import run_worker
from interlock.worker.port import OrchestratorPort
from interlock.worker.settings import WorkerSettings
from interlock.worker.signals import Shutdown, heeding_signals
from interlock.worker.tasks import Registry, load_tasks

MEGABYTE = 1024 * 1024


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was said on the command line; what was not, the project file may say."""

    module: str | None = None
    shell: bool = False
    """It runs steps in a shell and knows no tasks."""
    name: str | None = None
    queues: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    slots: int | None = None
    threads: int | None = None
    processes: int | None = None
    executor: str | None = None
    prefetch: int | None = None
    metrics_port: int | None = None
    log_level: str | None = None
    log_format: str | None = None
    job_log_level: str | None = None
    memory_limit_mb: int | None = None
    burst: bool = False
    isolate: str | None = None
    network: bool | None = None
    mounts: tuple[str, ...] = ()
    token: str | None = None
    """What a server lets it in with."""
    token_file: str | None = None
    ca: str | None = None
    """The file of certificates that vouch for the server."""


def start(store: str | None, asked: Asked) -> int:
    """Run a worker of this project; the answer is the exit code."""
    here = project.load(store)
    module = asked.module or here.worker.module
    if module is None and not asked.shell:
        raise InvalidSettings(
            "No task module given.",
            todo='Name one: interlock worker start shop.tasks, or write module = "shop.tasks" '
            f"below [worker] in {project.FILE}; or with --shell, for steps of workflows alone.",
        )
    settings = settings_for(here, asked)
    token = _token(asked)
    if token is not None:
        credentials.hold(credentials.TOKEN, token)
    credentials.hide_password(here.url)

    shutdown = Shutdown()
    with heeding_signals(shutdown):  # importing may take long, and a signal must not be lost meanwhile
        tasks = Registry() if module is None or asked.shell else load_tasks(module)
        return run_worker(settings, tasks, lambda: port_for(here, asked, token), shutdown)


def port_for(here: project.Project, asked: Asked, token: str | None) -> OrchestratorPort:
    """Where work comes from: a server, or a store."""
    return _server_port(here.url, token, asked) if is_server(here.url) else _store_port(here, asked)


def _store_port(here: project.Project, asked: Asked) -> OrchestratorPort:
    if not asked.burst:
        return EmbeddedOrchestrator(here.url, settings=here.settings, kinds=load_kinds(here.kinds))
    from interlock.cli.bursting import BurstOnStore

    port = BurstOnStore(here.url, settings=here.settings)
    port.go = _ask_to_go
    return port


def _server_port(url: str, token: str | None, asked: Asked) -> OrchestratorPort:
    from interlock.worker.http import HttpOrchestrator

    how: dict[str, Any] = {
        "names": lambda: secrets.token_hex(16),
        "token": token,
        "ca": asked.ca or connecting.ca(),
    }
    if not asked.burst:
        return HttpOrchestrator(url, **how)
    from interlock.cli.bursting import BurstThroughServer

    port = BurstThroughServer(url, wait_s=0.0, tell_under_way=True, **how)
    port.go = _ask_to_go
    return port


def _token(asked: Asked) -> str | None:
    """Return what a server lets the worker in with; a file goes before the environment."""
    if asked.token_file is None:
        return asked.token or connecting.token()
    try:
        text = sys.stdin.read() if asked.token_file == "-" else Path(asked.token_file).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(
            f"The token cannot be read from {asked.token_file}: {error}.",
            todo="Give a file with nothing but the token in it, or - to read it from standard input.",
            facts={"token_file": asked.token_file},
        ) from None
    return text.strip() or None


def settings_for(here: project.Project, asked: Asked) -> WorkerSettings:
    """The command line goes before the project file, and that before the defaults."""
    said = msgspec.structs.asdict(here.worker)
    said |= {name: value for name, value in msgspec.structs.asdict(asked).items() if value not in (None, ())}
    options = {
        "name": said["name"] or socket.gethostname(),
        "queues": said["queues"],
        "labels": said["labels"],
        "concurrency": said["slots"],
        "threads": said.get("threads"),
        "processes": said.get("processes"),
        "executor": said["executor"],
        "prefetch": said["prefetch"],
        "metrics_port": said["metrics_port"],
        "log_level": said["log_level"],
        "log_format": said.get("log_format"),
        "job_log_level": said["job_log_level"],
        "memory_limit_bytes": None if said["memory_limit_mb"] is None else said["memory_limit_mb"] * MEGABYTE,
        "max_result_bytes": here.settings.max_result_bytes,
        "durations": here.settings.durations,
        "sandbox": _sandbox(said, asked),
    }
    return WorkerSettings(**{name: value for name, value in options.items() if value not in (None, ())})


def _sandbox(said: Mapping[str, Any], asked: Asked) -> SandboxSettings:
    """Files with credentials are hidden from steps, whatever else they are shown."""
    hidden = (asked.token_file, os.environ.get(SECRETS_FILE))
    return SandboxSettings(
        kind=said["isolate"] or "none",
        network=said["network"] is not False,
        mounts=tuple(said["mounts"]),
        hidden=tuple(filter(None, hidden)),
    )


def _ask_to_go() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
