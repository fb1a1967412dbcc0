"""One member of the fleet: a server or a worker, as a process that is restarted under its name.

Each life has its own log. A worker's log contains its runner id, which is new in every life: with it the
journal shows the jobs that a killed process had.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import select
import signal
import socket
from pathlib import Path

import msgspec

from interlock.testing import skewed_clock
from interlock_verification.chaos.system.zygote import ForkOrder, zygote

GONE_S = 120.0
"""Deadline for a process to end."""
SHOWN = 2_000
BELOW_OUTGOING = range(20_000, 32_000)
_SIGNS = ("listens at", '"to_state":"running"')
"""The log messages of a server and a worker that have started."""
_RUNNER = re.compile(r'"worker_id": ?"([^"]+)"')


class DoesNotEnd(Exception):
    """A process did not end although it had to."""


class MemberPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a member, for all its lives."""

    name: str
    arguments: tuple[str, ...]
    """Arguments of `interlock`."""
    folder: Path
    broken_rule: str = ""
    """The rule that it runs without."""
    skewed: bool = False
    """Whether its clock is an hour ahead in one life, and an hour behind in the next."""


class ProcessLife:
    """One process, from its start to its end."""

    def __init__(self, plan: MemberPlan, number: int) -> None:
        self.plan = plan
        self.log = plan.folder / f"{plan.name}.{number}.log"
        skew_s = skewed_clock.AN_HOUR_S * (1 if number % 2 else -1) if plan.skewed else 0
        order = ForkOrder(
            arguments=plan.arguments, folder=str(plan.folder), log=str(self.log), broken_rule=plan.broken_rule
        )
        self.pid = zygote(skew_s).fork(order)
        self._process = os.pidfd_open(self.pid)
        self._gone = self._up = False

    @property
    def runner_id(self) -> str:
        """The runner id of a worker, once it is logged; else empty."""
        found = _RUNNER.search(self.output())
        return found[1] if found else ""

    @property
    def is_up(self) -> bool:
        """Return whether it serves or works."""
        if not self._up:
            output = self.output()
            self._up = any(sign in output for sign in _SIGNS)
        return self._up

    def output(self) -> str:
        """Return its log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def send(self, what: signal.Signals) -> None:
        """Send a signal; ignore a process that has ended."""
        if not self.is_gone(0.0):
            signal.pidfd_send_signal(self._process, what)

    def kill(self) -> None:
        """Kill it with `kill -9`, and wait for its end."""
        self.send(signal.SIGKILL)
        self.gone()

    def gone(self) -> None:
        """Wait for its end."""
        if not self.is_gone(GONE_S):
            raise DoesNotEnd(f"{self.plan.name} has not ended:\n{self.output()[-SHOWN:]}")

    def is_gone(self, within_s: float) -> bool:
        """Return whether it has ended within the time."""
        if not self._gone and select.select([self._process], [], [], within_s)[0]:
            self._gone = True
            os.close(self._process)
        return self._gone


class ChaosMember:
    """A named member of the fleet, with its current process."""

    def __init__(self, plan: MemberPlan) -> None:
        self.plan = plan
        self._numbers = itertools.count(1)
        self.life = ProcessLife(plan, next(self._numbers))

    @property
    def name(self) -> str:
        """The name, the same in every life."""
        return self.plan.name

    def start_again(self) -> ProcessLife:
        """Start a new process under the same name; return the previous one."""
        before, self.life = self.life, ProcessLife(self.plan, next(self._numbers))
        return before


def free_port() -> int:
    """Return a free port outside of the range of outgoing connections."""
    for port in random.sample(BELOW_OUTGOING, len(BELOW_OUTGOING)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("There is no free port.")
