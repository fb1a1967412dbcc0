"""Worker processes of a contender: started, held at the gate, let go, weighed and ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

STARTED_WITHIN_S = 60.0
_STOPPED_WITHIN_S = 10.0
_ROOT = Path(__file__).parents[3]


class WorkerFailed(Exception):
    """A worker process has ended, or has not begun; the end of its log says why."""


class Workers:
    """The worker processes of one turn."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._gate: socket.socket | None = None
        self._waiting: list[socket.socket] = []

    def open_for_waiting(self, gate: Path) -> None:
        """From now on workers can stop at the gate."""
        self._gate = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._gate.bind(str(gate))
        self._gate.listen()
        self._gate.settimeout(1.0)

    def start(self, commands: Sequence[Sequence[str]]) -> None:
        """Start them; they inherit the environment, in which everything is said."""
        for command in commands:
            with self._log(len(self._processes)).open("wb") as log:
                self._processes.append(
                    subprocess.Popen(
                        command,
                        cwd=_ROOT,
                        env={**os.environ, "PYTHONPATH": str(_ROOT)},
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                    )
                )

    def wait_at_the_gate(self) -> None:
        """Until each of them has stopped there, in its first job."""
        assert self._gate is not None
        latest = time.monotonic() + STARTED_WITHIN_S
        while len(self._waiting) < len(self._processes):
            self.check_alive()
            if time.monotonic() > latest:
                raise WorkerFailed(f"a worker has not begun a job in {STARTED_WITHIN_S:g} s{self._logs()}")
            with suppress(TimeoutError):
                self._waiting.append(self._gate.accept()[0])

    def go(self) -> None:
        """Open the gate."""
        for waiting in self._waiting:
            waiting.sendall(b"!")

    def check_alive(self) -> None:
        """Raise when one has ended although nobody has asked it to."""
        if any(process.poll() is not None for process in self._processes):
            raise WorkerFailed(f"a worker has ended{self._logs()}")

    def held_mb(self) -> float:
        """The resident memory of all of them together."""
        return sum(_resident_mb(pid) for process in self._processes for pid in tree_of(process.pid))

    def stop(self) -> None:
        """Ask them to end, and end them when they do not."""
        for waiting in (*self._waiting, *([self._gate] if self._gate else [])):
            waiting.close()
        everybody = [pid for process in self._processes for pid in tree_of(process.pid)]
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        latest = time.monotonic() + _STOPPED_WITHIN_S
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, latest - time.monotonic()))
        if any(process.poll() is None for process in self._processes):
            for pid in everybody:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for process in self._processes:
                process.wait()
        self._processes, self._waiting, self._gate = [], [], None

    def _log(self, place: int) -> Path:
        return self._folder / f"worker-{place}.log"

    def _logs(self) -> str:
        texts = [
            self._log(place).read_text(errors="replace")[-1500:] for place in range(len(self._processes))
        ]
        return ":\n" + "\n".join(texts)


def tree_of(pid: int) -> Iterator[int]:
    """A process and everything that it has started, as far as it is still there."""
    yield pid
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from tree_of(int(child))


def _resident_mb(pid: int) -> float:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0
