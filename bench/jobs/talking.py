"""The bench's side of the conversation with a contender; see `peers.adapter` for the other."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.jobs.contenders import US
from bench.jobs.peers.adapter import FOLDER, URL
from bench.jobs.venvs import ROOT, python_of
from bench.stores.bare.loop import Unexpected

LIMIT_S = 600.0
_READ = 65_536


class Conversation:
    """One contender's process, from its start to its end."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self._name = name
        self._log = folder / "contender.log"
        python = Path(sys.executable) if name == US else python_of(name)
        here = {URL: url, FOLDER: str(folder), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        with self._log.open("wb") as log:
            # Its workers are in its own group, so that nothing of it can stay behind.
            self._process = subprocess.Popen(
                [str(python), "-m", "bench.jobs.peers", name],
                cwd=ROOT,
                env={**os.environ, **here},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the process that answers; its children are the workers."""
        return self._process.pid

    def ask(self, what: str, *, limit_s: float = LIMIT_S, **about: Any) -> dict[str, Any]:
        """Its answer. Raises `Unexpected` when it says that it could not, or says nothing in time."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": what, **about}).encode() + b"\n")
            self._process.stdin.flush()
        line = self._line(limit_s)
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"no answer{self._last_words()}"}
        if "error" in answer:
            raise Unexpected(f"{self._name} could not {what}: {answer['error']}")
        return answer

    def end(self) -> None:
        """End it and whatever it has started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(15.0)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()

    def _line(self, limit_s: float) -> bytes:
        """What it writes up to the end of a line; it writes one, and only when asked."""
        assert self._process.stdout is not None
        text = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not text.endswith(b"\n") and selector.select(limit_s):
                some = os.read(self._process.stdout.fileno(), _READ)
                if not some:
                    break
                text += some
        return text if text.endswith(b"\n") else b""

    def _last_words(self) -> str:
        words = self._log.read_text(errors="replace")[-1_500:].strip()
        return f"; the end of its log is:\n{words}" if words else ""


@contextmanager
def talking(name: str, url: str, folder: Path) -> Iterator[Conversation]:
    """A contender that is ready to work with this database."""
    conversation = Conversation(name, url, folder)
    try:
        conversation.ask("prepare")
        yield conversation
        conversation.ask("close")
    finally:
        conversation.end()
