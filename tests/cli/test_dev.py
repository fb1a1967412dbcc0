"""`interlock dev`: a server and a worker with one command, which follows the code as it is written."""

from __future__ import annotations

import io
import os
import queue
import re
import signal
import socket
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest
from tests.programs import Program
from tests.waiting import PATIENCE_S, until_so

from interlock.cli.dev import TaskSource
from interlock.cli.main import main
from interlock.processes.groups import descendants

TASKS = """
from interlock.worker.tasks import task

@task
def add(x: int, *, y: int, z: int = 1) -> int:
    return x + y + z

@task
def wait() -> None:
    import pathlib, time
    pathlib.Path("began").touch()
    time.sleep(3_600)
"""
LONG = """
# A worker that is asked to go waits for its task for far longer than a test waits for anything.
[durations]
heartbeat_every_s = 1
sweep_every_s = 0.5
shutdown_soft_s = 500
shutdown_deadline_s = 600
lease_ttl_s = 900
worker_silence_s = 900
"""


class Dev:
    """The command as a process, and what it says, line by line."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.folder = folder
        output, write_end = os.pipe()
        self.process = Program(
            *("dev", "--port", "0", *arguments),
            folder=folder,
            environment={**os.environ, "INTERLOCK_URL": "", "NO_COLOR": "1", **environment},
            stdout=write_end,
            stderr=write_end,
        )
        os.close(write_end)
        self._output = os.fdopen(output, encoding="utf-8")
        self._lines: queue.Queue[str] = queue.Queue()
        self.said: list[str] = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        self.url = re.findall(r"http://\S+", self.until("Interlock listens at"))[0]

    def _read(self) -> None:
        for line in self._output:
            self._lines.put(line)
        self._lines.put("")

    def until(self, words: str) -> str:
        """The next line with these words."""
        with suppress(queue.Empty):
            while line := self._lines.get(timeout=PATIENCE_S):
                self.said.append(line)
                if words in line:
                    return line
        raise AssertionError(f"It did not say {words!r}. Its last lines:\n{''.join(self.said[-20:])}")

    def result_of(self, task: str, **arguments: int) -> object:
        """What comes of a job."""
        with self.client() as client:
            job_id = client.post("/api/jobs", json={"task": task, "input": arguments}).json()["id"]
            seen: dict[str, object] = {}

            def completed() -> bool:
                seen.update(client.get(f"/api/jobs/{job_id}").json())
                return seen["state"] == "COMPLETED"

            until_so(completed, f"{job_id} is completed", story=lambda: "".join(self.said[-20:]))
            return seen["result"]

    def client(self) -> httpx2.Client:
        """Speaks to its server."""
        return httpx2.Client(base_url=self.url, trust_env=False, verify=False, timeout=PATIENCE_S)

    def write(self, text: str) -> None:
        """Change the code, as an editor does: at once."""
        (self.folder / "new").write_text(text)
        (self.folder / "new").rename(self.folder / "shop_tasks.py")

    def end(self, *numbers: signal.Signals) -> int:
        """Send it these signals; its exit code."""
        for number in numbers:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self.close()
        return code

    @property
    def silent(self) -> bool:
        """Nobody is left who could say anything: neither it nor what it has started."""
        return not self._reading.is_alive()

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.returncode is None:
            for pid in descendants(self.process.pid):
                os.kill(pid, signal.SIGKILL)
            self.process.kill()
        self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        self._output.close()


Start = Callable[..., Dev]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts it in a project with a few tasks."""
    (tmp_path / "shop_tasks.py").write_text(TASKS)
    (tmp_path / "interlock.toml").write_text(LONG)
    started: list[Dev] = []

    def begin(*arguments: str, **environment: str) -> Dev:
        started.append(Dev(tmp_path, *arguments, **environment))
        return started[-1]

    yield begin
    for each in started:
        each.close()


def test_one_command_serves_works_follows_the_code_and_ends_with_ctrl_c(start: Start) -> None:
    dev = start("shop_tasks")
    dev.until("first ")
    output = "".join(dev.said)
    assert f"data    {dev.folder}/interlock.db" in output
    assert "it is kept when this ends" in output
    assert f"shop_tasks, restarted when a .py file in {dev.folder} changes" in output
    assert f"interlock submit shop_tasks:add x=... y=... --server {dev.url}" in output
    assert dev.result_of("shop_tasks.add", x=1, y=2) == 4

    dev.write(TASKS.replace("x + y + z", "x + y + z + 100"))
    dev.until("shop_tasks.py changed: restarting the worker.")
    assert dev.result_of("shop_tasks.add", x=1, y=2) == 104

    dev.write("import nothing_like_this\n")
    dev.until("No module named 'nothing_like_this'")
    dev.until("The worker could not start; restarting it when a file changes.")
    dev.write(TASKS)
    dev.until("restarting the worker.")
    assert dev.result_of("shop_tasks.add", x=1, y=2) == 4
    assert "".join(dev.said).count("could not start") == 1

    (worker,) = descendants(dev.process.pid)
    assert dev.end(signal.SIGINT) == 0
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert "Traceback" not in "".join(dev.said)


def test_the_open_option_opens_the_dashboard_in_a_browser(start: Start, tmp_path: Path) -> None:
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
    browser.chmod(0o755)
    dev = start("--open", BROWSER=str(browser))
    until_so(opened.exists, "the browser was started", story=lambda: "".join(dev.said[-20:]))
    assert opened.read_text() == f"{dev.url}/\n"
    assert dev.end(signal.SIGINT) == 0


def test_the_open_option_without_a_browser_prints_the_dashboard_url_and_keeps_serving(
    start: Start, tmp_path: Path
) -> None:
    nowhere = {"PATH": str(tmp_path), "BROWSER": "", "DISPLAY": "", "WAYLAND_DISPLAY": ""}
    dev = start("--open", **nowhere)
    dev.until(f"No browser could be opened. The dashboard is at {dev.url}/")
    with dev.client() as client:
        assert client.get("/healthz").status_code == 200
    assert dev.end(signal.SIGINT) == 0
    assert "Traceback" not in "".join(dev.said)


def test_the_worker_does_not_outlive_a_command_that_was_killed(start: Start) -> None:
    dev = start("shop_tasks")
    assert dev.result_of("shop_tasks.add", x=1, y=2) == 4
    assert dev.end(signal.SIGKILL) == -signal.SIGKILL
    assert dev.silent


def test_a_second_sigterm_ends_dev_without_waiting_for_the_running_task(start: Start) -> None:
    dev = start("shop_tasks")
    with (
        dev.client() as client,
        client.stream("GET", "/api/events?kind=job") as events,
    ):
        client.post("/api/jobs", json={"task": "shop_tasks.wait"})
        assert any('"to":"RUNNING"' in line for line in events.iter_lines())
    dev.process.send_signal(signal.SIGTERM)
    while True:  # until the door is shut, so that the first one was heard
        try:
            socket.create_connection(
                ("127.0.0.1", int(dev.url.rpartition(":")[2])), timeout=PATIENCE_S
            ).close()
        except ConnectionError:
            break
    assert dev.end(signal.SIGTERM) == 0, "it does not wait for the task, which nobody would live to see"


def test_without_tasks_there_is_a_server_and_a_hint(start: Start) -> None:
    dev = start()
    dev.until("worker  none: interlock dev shop.tasks")
    with dev.client() as client:
        assert client.get("/readyz").status_code == 200
    assert descendants(dev.process.pid) == []
    assert dev.end(signal.SIGTERM) == 0


def test_existing_jobs_are_kept_until_a_confirmed_reset(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INTERLOCK_URL", "")
    assert main(["submit", "a.b", "--unchecked"]) == 0
    first = start()
    assert len(jobs_of(first)) == 1
    assert main(["dev", "--reset", "--yes", "--port", "0"]) == 2
    assert "is in use" in capsys.readouterr().err
    assert first.end(signal.SIGTERM) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert main(["dev", "--reset", "--port", "0"]) == 1
    assert "with its 1 job and their history?" in capsys.readouterr().out
    assert main(["job", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    second = start("--reset", "--yes")
    assert jobs_of(second) == []
    assert second.end(signal.SIGTERM) == 0


def jobs_of(dev: Dev) -> list[object]:
    with dev.client() as client:
        found: list[object] = client.get("/api/jobs").json()["jobs"]
        return found


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("sqlite:///other.db", "is not a database of Interlock"),
        ("sqlite:///text.db", "is not a database of Interlock"),
        ("redis://localhost:1/0", "Only a SQLite database can be emptied"),
        ("http://localhost:1", "is a server"),
    ],
)
def test_dev_reset_refuses_a_store_that_is_not_a_sqlite_database_of_interlock(
    tmp_path: Path,
    store: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE precious (thing TEXT)")
    other.close()
    (tmp_path / "text.db").write_text("a letter" * 1_000)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["dev", "--reset", "--yes", "--port", "0", "--store", store]) == 2
    assert words in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


# Which files


def test_of_a_package_all_of_it_is_watched_but_nothing_that_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("shop/__init__.py", "shop/mail/__init__.py", "shop/mail/tasks.py", "shop/prices.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for name in ("shop/.tools/x.py", "shop/env/x.py", "shop/__pycache__/x.py", "other.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "shop/env/pyvenv.cfg").touch()
    for spelled in ("shop.mail.tasks", "shop/mail/tasks.py", "shop.mail.tasks:registry"):
        source = TaskSource(spelled)
        assert source.folder == tmp_path / "shop"
        names = sorted(Path(name).relative_to(source.folder).as_posix() for name in source.times())
        assert names == ["__init__.py", "mail/__init__.py", "mail/tasks.py", "prices.py"]
        assert source.example == "shop.mail.tasks:TASK"
    assert TaskSource("nowhere.to.be.found").folder == tmp_path
