"""A signal is heeded at every moment of a program: while it imports, while it runs, and while it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.effort import pick
from tests.journeys.test_a_worker_is_asked_to_go import container
from tests.waiting import PROGRAM_S, until_so

STUCK = "import time, pathlib\npathlib.Path('importing').touch()\ntime.sleep(600)\n"
"""In the place of a library that the command line imports."""
TASKS = "from interlock import task\n\n@task\ndef nothing() -> None: ...\n"


@contextmanager
def importing(folder: Path, *words: str, within: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """The program, in the middle of its imports."""
    (folder / "typer.py").write_text(STUCK)
    process = subprocess.Popen(
        [*within, sys.executable, "-m", "interlock", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until_so((folder / "importing").exists, "it imports")
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("words", "number", "code"),
    [
        ("worker start tasks.py", signal.SIGTERM, 0),
        ("worker start tasks.py", signal.SIGINT, 130),
        ("--ca ca.pem server", signal.SIGTERM, 0),
        ("job list", signal.SIGINT, 130),
        ("job list", signal.SIGTERM, 143),
    ],
)
def test_a_program_that_receives_a_signal_while_it_imports_exits_at_once_without_output(
    tmp_path: Path, words: str, number: signal.Signals, code: int
) -> None:
    with importing(tmp_path, *words.split()) as process:
        process.send_signal(number)
        output = process.communicate(timeout=PROGRAM_S)
    assert (process.returncode, output) == (code, ("", ""))


def test_the_first_process_of_a_container_handles_a_signal_while_it_imports(tmp_path: Path) -> None:
    """It has no default handlers: the signal was lost, and the worker went on."""
    within = container()
    if not within:
        pytest.xfail("This machine forbids namespaces.")
    with importing(tmp_path, "worker", "start", "tasks.py", within=within) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        os.kill(int(children.read_text().split()[0]), signal.SIGTERM)
        assert process.wait(PROGRAM_S) == 0


@pytest.mark.parametrize(
    "words",
    ["worker start tasks.py", *pick([], ["supervisor tasks.py --workers 1", "server --port 0"])],
)
def test_signals_without_end_do_not_change_how_a_program_ends(tmp_path: Path, words: str) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    log = tmp_path / "log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "interlock", *words.split()],
            cwd=tmp_path,
            stdout=written,
            stderr=written,
        )
    try:
        until_so(lambda: b"backing_off" in log.read_bytes() or b"http://" in log.read_bytes(), "it runs")

        def goes_although_it_is_asked_again() -> bool:
            for _ in range(20):
                process.send_signal(signal.SIGTERM)
            return process.poll() is not None

        until_so(goes_although_it_is_asked_again, "it has ended")
        assert process.returncode == 0, log.read_text()[-2_000:]
    finally:
        process.kill()
        process.wait()
