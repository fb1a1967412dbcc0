"""One member of the fleet: a server or a worker, as a process that is started again under its name.

Each life has a log of its own. A worker's log tells its runner id, which is new in every life: that is
how the journal can be asked what a killed process had in its hands.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import msgspec

from chaos.forks import FORKS
from chaos.system import program, skewed

ROOT = Path(__file__).parents[2]
GONE_S = 60.0
"""A process that is not gone by then will not go."""
SHOWN = 2_000
_RUNNER = re.compile(r'"worker_id": ?"([^"]+)"')


class DoesNotEnd(Exception):
    """A process lives on although it was told to go."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a member is, in each of its lives."""

    name: str
    arguments: tuple[str, ...]
    """Of `interlock`."""
    folder: Path
    way: str = ""
    """The rule that it is run without."""
    skewed: bool = False
    """Its clock is an hour ahead in one life, and an hour behind in the next."""


class Life:
    """One process, from its start to its end."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan = plan
        self.log = plan.folder / f"{plan.name}.{number}.log"
        self.frozen = False
        skew_s = skewed.AN_HOUR_S * (1 if number % 2 else -1)
        self._forked = None if plan.skewed else _forked(plan, self.log)
        self._started = _started(plan, self.log, skew_s) if plan.skewed else None

    @property
    def pid(self) -> int:
        """The process to signal."""
        pid = self._forked.pid if self._forked is not None else self._process.pid
        assert pid is not None
        return pid

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        assert self._started is not None
        return self._started

    @property
    def exit_code(self) -> int | None:
        """None while it lives."""
        return self._forked.exitcode if self._forked is not None else self._process.poll()

    @property
    def runner_id(self) -> str:
        """Of a worker, once it has said so; else empty."""
        found = _RUNNER.search(self.words())
        return found[1] if found else ""

    def words(self) -> str:
        """What it has written."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def send(self, what: signal.Signals) -> None:
        """A signal; one that is gone already does not mind."""
        if self.exit_code is None:
            os.kill(self.pid, what)

    def kill(self) -> None:
        """`kill -9`; come back when it is gone."""
        self.send(signal.SIGKILL)
        self.gone()

    def gone(self, within_s: float = GONE_S) -> int:
        """Wait for its end; its exit code."""
        if self._forked is not None:
            self._forked.join(within_s)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):  # told below
                self._process.wait(within_s)
        code = self.exit_code
        if code is None:
            raise DoesNotEnd(f"{self.plan.name} has not ended:\n{self.words()[-SHOWN:]}")
        return code


class Member:
    """Whoever has a name in the fleet, with a process of this life."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._numbers = itertools.count(1)
        self.life = Life(plan, next(self._numbers))

    @property
    def name(self) -> str:
        """The same in every life."""
        return self.plan.name

    def start_again(self) -> Life:
        """A new process under the same name; the one that it replaces is handed over."""
        before, self.life = self.life, Life(self.plan, next(self._numbers))
        return before


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _environment() -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    return {**inherited, "PYTHONPATH": str(ROOT)}


def _forked(plan: Plan, log: Path) -> ForkServerProcess:
    process = FORKS.Process(
        target=program.run_forked,
        args=(plan.way, plan.arguments, str(plan.folder), str(log), _environment()),
        daemon=True,
    )
    process.start()
    return process


def _started(plan: Plan, log: Path, skew_s: int) -> subprocess.Popen[bytes]:
    command: Sequence[str] = (sys.executable, "-m", "chaos.system.program", plan.way, *plan.arguments)
    with log.open("ab") as words:
        return subprocess.Popen(
            command,
            cwd=plan.folder,
            env={**_environment(), **skewed.environment(skew_s)},
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
        )
