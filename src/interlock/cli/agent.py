"""Run a fleet agent: read its settings, listen, and stop when asked to."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import typer

from interlock.agent.settings import AgentSettings
from interlock.cli import project
from interlock.errors import CannotLoad, InvalidSettings
from interlock.processes import early_signals
from interlock.worker.telemetry import Log, make_log

TOKEN = "INTERLOCK_AGENT_TOKEN"
NEEDED = ("grpc", "grpc_health", "grpc_reflection", "hdrh", "google.protobuf")


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line."""

    host: str
    port: int
    token_file: Path | None
    insecure: bool
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    workloads: tuple[str, ...]
    sample_every_s: float
    drain_s: float
    keepalive_s: float
    log_level: str
    log_format: str
    as_json: bool


def run_agent(options: AgentOptions) -> int:
    """Serve until stopped; return the exit code."""
    check_installed()
    _check_choice("log_level", options.log_level, ("debug", "info", "warning", "error"))
    _check_choice("log_format", options.log_format, ("auto", "json", "text"))
    sys.path.insert(0, str(Path.cwd()))  # lets workloads be imported from the current directory
    settings = AgentSettings(
        host=options.host,
        port=options.port,
        tokens=_tokens(options.token_file),
        insecure=options.insecure,
        certificate=str(options.tls_cert) if options.tls_cert else None,
        key=str(options.tls_key) if options.tls_key else None,
        client_ca=str(options.tls_client_ca) if options.tls_client_ca else None,
        workloads=options.workloads,
        sample_every_s=options.sample_every_s,
        drain_s=options.drain_s,
        keepalive_s=options.keepalive_s,
        durations=project.load(None).settings.durations,
    )
    log = make_log(options.log_level, options.log_format)
    asyncio.run(_serve(settings, log, as_json=options.as_json))
    return 0


def check_installed() -> None:
    """Raise an error if the libraries of a fleet are not installed."""
    missing = [name for name in NEEDED if not _is_there(name)]
    if missing:
        raise CannotLoad(
            f"A fleet needs libraries that are not installed: {', '.join(missing)}.",
            todo="Install them: pip install 'interlock[fleet]'.",
            facts={"missing": missing},
        )


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # raised for the package that contains it
        return False


async def _serve(settings: AgentSettings, log: Log, *, as_json: bool) -> None:
    from interlock.agent.server import serving

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    early_signals.has_begun()
    for number in early_signals.STOPPING:
        loop.add_signal_handler(number, stopping.set)
    async with serving(settings, log) as address:
        typer.echo(json.dumps({"address": address}) if as_json else f"The agent listens on {address}.")
        sys.stdout.flush()
        await stopping.wait()
    for number in early_signals.STOPPING:
        loop.remove_signal_handler(number)
    early_signals.has_stopped()


def _tokens(file: Path | None) -> tuple[str, ...]:
    given = os.environ.get(TOKEN, "").split()
    if file is None:
        return tuple(given)
    try:
        found = file.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(
            f"The tokens cannot be read: {error}.", todo="Check the path and its permissions."
        ) from None
    if not found:
        raise InvalidSettings(
            f"There is no token in {str(file)!r}.", todo="Write one into it: openssl rand -hex 32"
        )
    return (*given, *found)


def _check_choice(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InvalidSettings(f"{name} is {given!r}.", todo=f"Use one of: {', '.join(known)}.")
