"""`tests.programs`: a forked program is like the installed script, and does not outlive the tests."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

import pytest
from tests import programs
from tests.cli.conftest import DOOR
from tests.cli.shop import SCRIPT
from tests.programs import Program
from tests.waiting import PROGRAM_S, until_so

ROOT = Path(__file__).parents[2]
LOOKS_AROUND = """
import gc, json, logging, os, random, resource, signal, sys, threading, time, warnings
from interlock.worker.tasks import DEFAULT

def stream(it):
    return [it.name, it.encoding, it.errors, it.line_buffering, it.write_through, it.isatty(), it.mode]

def is_open(link):
    return os.path.exists(link) and ".so" not in os.readlink(link)  # libffi reads its own file later

found = {
    "argv": sys.argv,
    "path": sys.path,
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "signals": {str(each): str(signal.getsignal(each)).split(" at ")[0] for each in signal.valid_signals()},
    "blocked": sorted(map(str, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
    "open": [each for each in range(256) if is_open(f"/proc/self/fd/{each}")],
    "threads": [len(os.listdir("/proc/self/task")), str(threading.main_thread().name)],
    "collector": [gc.isenabled(), gc.get_threshold(), gc.get_debug()],
    "group": [os.getpgid(0), os.getsid(0)],
    "streams": [stream(sys.stdin), stream(sys.stdout), stream(sys.stderr)],
    "originals": [stream(sys.__stdin__), stream(sys.__stdout__), stream(sys.__stderr__)],
    "limits": [resource.getrlimit(resource.RLIMIT_NOFILE), os.nice(0), os.umask(0o022)],
    "logging": [str(logging.root.handlers), logging.root.level],
    "warnings": str(warnings.filters),
    "zone": time.tzname,
    "flags": str(sys.flags),
    "tasks": list(DEFAULT.names()),
    "random": random.random(),
}
with open(os.environ["FOUND"], "w") as file:
    json.dump(found, file)
"""
SLEEPS = "import sys, time; print('awake', flush=True); time.sleep(3_600)"
STARTS_ONE = f"""
import sys
from tests.programs import Program
running = Program("-c", {SLEEPS!r}, program=[sys.executable])
print(running.pid, running.stdout.readline(), flush=True)
running.wait()
"""


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    (folder / "probe.py").write_text(LOOKS_AROUND + DOOR, encoding="utf-8")
    return {**os.environ, "FOUND": str(folder / "found"), "PYTHONPATH": str(ROOT), "ONLY_HERE": "1"}


def found(environment: dict[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(Path(environment["FOUND"]).read_text())
    return answer


def test_a_forked_program_finds_itself_as_a_fresh_one_does(folder: Path, environment: dict[str, str]) -> None:
    words = ("machine", "show", "probe:DOOR")
    fresh = subprocess.run(
        [SCRIPT, *words],
        cwd=folder,
        env=environment,
        stdin=DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=PROGRAM_S,
    )
    expected = found(environment)
    forked = programs.run(*words, folder=folder, environment=environment)
    seen = found(environment)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        fresh.returncode, fresh.stdout, fresh.stderr,
    )  # fmt: skip
    assert expected.pop("random") != seen.pop("random")
    assert {name: seen[name] for name in seen if seen[name] != expected[name]} == {}


def test_two_forked_programs_do_not_draw_the_same_numbers(folder: Path, environment: dict[str, str]) -> None:
    drawn = set()
    for _ in range(2):
        programs.run("machine", "show", "probe:DOOR", folder=folder, environment=environment)
        drawn.add(found(environment)["random"])
    assert len(drawn) == 2


def test_a_variable_that_python_reads_at_start_takes_effect_in_a_forked_program(
    folder: Path, environment: dict[str, str]
) -> None:
    environment["PYTHONIOENCODING"] = "ascii"
    programs.run("machine", "show", "probe:DOOR", folder=folder, environment=environment)
    assert found(environment)["streams"][1][1] == "ascii"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_is_reported_as_its_end(number: signal.Signals) -> None:
    running = Program("-c", SLEEPS, program=[sys.executable])
    assert running.stdout is not None
    assert running.stdout.readline() == "awake\n"
    assert running.returncode is None
    running.send_signal(number)
    assert running.communicate() == ("", "")
    assert running.wait() == -number


async def test_an_event_loop_reads_its_lines_and_waits_for_its_end() -> None:
    running = Program("machine", "nothing", stdout=DEVNULL)
    lines = [line async for line in await running.reader(running.stderr)]
    assert lines[-1] == b"Error: No such command 'nothing'.\n"
    assert list(await asyncio.gather(running.ended(), running.ended())) == [2, 2]


def test_nothing_outlives_tests_that_are_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_ONE],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=PIPE,
        encoding="utf-8",
    ) as tests:
        assert tests.stdout is not None
        pid, awake = tests.stdout.readline().split()
        assert awake == "awake"
        tests.kill()
    until_so(lambda: not Path(f"/proc/{pid}").exists(), "what they have started is gone")
