"""A process with everything imported, which forks members of the fleet.

Starting one takes milliseconds, so that a process that is killed a thousand times spends its life at work and
not in imports. A host with a skewed clock has its own zygote, because the library that skews it has to be
loaded from the beginning. All processes die with their parent.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import signal
import subprocess
import sys
from importlib import import_module

import msgspec

from interlock.testing import skewed_clock
from interlock_verification.chaos.forks import PRELOADED, die_with_parent


class ForkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A request to fork a process that runs `interlock ARGUMENTS`."""

    arguments: tuple[str, ...]
    folder: str
    log: str
    broken_rule: str = ""
    """The rule that it runs without."""


class Zygote:
    """Forks members."""

    def __init__(self, skew_s: int) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
        wrong = skewed_clock.environment(skew_s) if skew_s else {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "interlock_verification.chaos.system.zygote"],
            env={**inherited, "PYTHONPATH": os.pathsep.join(map(str, sys.path)), **wrong},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def fork(self, order: ForkOrder) -> int:
        """Return the id of the forked process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """Close its input, which ends it, and wait."""
        self._process.communicate()


@functools.cache
def zygote(skew_s: int = 0) -> Zygote:
    """Return the zygote with this clock skew; start it on first use."""
    made = Zygote(skew_s)
    atexit.register(made.close)
    return made


def warm_up() -> None:
    """Start all zygotes in parallel, before any measurement."""
    for skew_s in (0, skewed_clock.AN_HOUR_S, -skewed_clock.AN_HOUR_S):
        zygote(skew_s)


def main() -> None:
    """Fork on request, until the input ends."""
    die_with_parent()
    for module in PRELOADED:
        import_module(module)
    gc.collect()
    gc.freeze()  # so that no child traverses the shared objects
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # killed children are not waited for
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=ForkOrder)
        pid = os.fork()
        if not pid:
            _become(order)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _become(order: ForkOrder) -> None:
    """Set up the child: its own log, no inherited files, and then the program."""
    from interlock_verification.chaos.system.program import run  # noqa: PLC0415 - violates layers, in a child process only

    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
            os.dup2(file, stream)
        os.chdir(order.folder)
        code = run(order.broken_rule, order.arguments)
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
