"""`interlock simulation run` that is stopped: what it leaves can be resumed, and no process stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests import programs
from tests.waiting import until_so

from interlock import Interlock
from interlock.errors import InterlockError

MODEL = """
import asyncio
from pathlib import Path

from interlock import simulation


@simulation(total_steps=5, save_every_s=0)
async def slow(sim, gate: str):
    for step in sim.steps():
        while step > 2 and not Path(gate).exists():
            await asyncio.sleep(0.01)
        yield step
"""


DURATIONS = """
[durations]
shutdown_soft_s = 0.2  # what waits at the gate does not finish, and does not listen
shutdown_deadline_s = 8.0
abort_warning_s = 0.5
abort_kill_s = 1.0
cancel_deadline_s = 2.0  # nobody is left to say that the execution of a killed worker has stopped
"""


class Simulator:
    """A folder with a model and a database."""

    def __init__(self, folder: Path) -> None:
        self.model, self.gate, self.temporary = folder / "slow.py", folder / "gate", folder / "tmp"
        self.folder = folder
        self.model.write_text(MODEL)
        (folder / "interlock.toml").write_text(DURATIONS)
        self.temporary.mkdir()
        self.environment = {
            **os.environ,
            "INTERLOCK_URL": f"sqlite:///{folder}/simulations.db",
            "TMPDIR": str(self.temporary),
            "NO_COLOR": "1",
        }

    def start(self, *words: str) -> programs.Program:
        return programs.Program(
            "simulation", "run", str(self.model), *words, folder=self.folder, environment=self.environment
        )

    def cli(self, *words: str) -> str:
        done = programs.run(*words, folder=self.folder, environment=self.environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def view(self) -> dict[str, Any]:
        view: dict[str, Any] = json.loads(self.cli("simulation", "show", "flu", "--json"))["simulation"]
        return view

    def is_at(self, step: int, execution: int) -> bool:
        """Look into the store itself: to ask a program again and again would cost more than all the rest."""

        async def look() -> tuple[str, int, int]:
            async with Interlock(self.environment["INTERLOCK_URL"]) as il:
                view = await il.simulations.get("flu")
                return view.status, view.current_step or 0, view.execution

        try:
            return asyncio.run(look()) == ("running", step, execution)
        except InterlockError:
            return False  # it is not there yet

    def workers(self) -> list[int]:
        """The processes that execute the model."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                found += [int(entry.name)] if b"worker" in words and str(self.model).encode() in words else []
        return found


@pytest.fixture
def simulator(tmp_path: Path) -> Simulator:
    return Simulator(tmp_path)


@pytest.mark.long  # journeys/test_simulations.py kills and resumes
def test_a_stopped_or_killed_simulation_run_can_be_resumed_and_leaves_no_process_behind(
    simulator: Simulator,
) -> None:
    with simulator.start(f"gate={simulator.gate}", "--id", "flu") as stopped:
        until_so(lambda: simulator.is_at(2, 1), "the third step has begun")
        stopped.send_signal(signal.SIGINT)
        _, stderr = stopped.communicate()
    assert stopped.returncode == 130, stderr
    assert "`interlock simulation resume flu`" in stderr
    assert f"`interlock simulation run {simulator.model} --resume flu`" in stderr
    view = simulator.view()
    assert (view["status"], view.get("resuming", False), view["saved_step"]) == ("interrupted", False, 2)
    assert view["error"] == "`interlock simulation run` was stopped"
    assert simulator.workers() == []

    with simulator.start("--resume", "flu") as killed:
        until_so(lambda: simulator.is_at(2, 2), "it goes on here")
        killed.kill()
        until_so(lambda: simulator.workers() == [], "its worker has gone with it")
    assert list(simulator.temporary.iterdir()) == []
    resumed = json.loads(simulator.cli("simulation", "resume", "flu", "--json"))
    assert (resumed["resuming"], resumed.get("queue", "default")) == (True, "default")
    simulator.gate.touch()
    simulator.cli("worker", "start", str(simulator.model), "--burst")
    view = simulator.view()
    assert (view["status"], view["result"], view["execution"]) == ("completed", 5, 3)


def test_a_second_ctrl_c_kills_a_step_that_does_not_end(simulator: Simulator) -> None:
    simulator.model.write_text(MODEL.replace("await asyncio.sleep(0.01)", "__import__('time').sleep(0.01)"))
    (simulator.folder / "interlock.toml").write_text("")
    with simulator.start(f"gate={simulator.gate}", "--id", "flu") as stopped:
        until_so(lambda: simulator.is_at(2, 1), "the third step has begun")
        stopped.send_signal(signal.SIGINT)
        assert stopped.stderr is not None
        output = ""
        while "press Ctrl-C again" not in output:
            line = stopped.stderr.readline()
            assert line, output
            output += line
        stopped.send_signal(signal.SIGINT)
        _, rest = stopped.communicate()
    assert stopped.returncode == 130, rest
    assert "`interlock simulation resume flu`" in rest
    assert simulator.workers() == []
    view = simulator.view()
    assert (view["status"], view["saved_step"]) == ("interrupted", 2)


def test_a_simulation_that_cannot_start_is_reported_with_a_readable_error(simulator: Simulator) -> None:
    other = simulator.model.with_name("other.py")
    other.write_text(MODEL.replace("def slow", "def other"))
    simulator.cli("simulation", "start", str(other), f"gate={simulator.gate}", "--id", "flu")
    with simulator.start("--resume", "flu") as refused:
        _, stderr = refused.communicate()
    assert refused.returncode == 2
    assert "flu executes other.other, and" in stderr
    with simulator.start("people=5", "--resume", "flu") as refused:
        _, stderr = refused.communicate()
    assert "has its arguments already" in stderr
    # Its worker imports the model anew, and finds that it is broken by then.
    once = "import os\nif os.path.exists(__file__ + '.seen'): raise SystemExit('the model is broken')\n"
    simulator.model.write_text(f"{once}open(__file__ + '.seen', 'w').close()\n{MODEL}")
    with simulator.start(f"gate={simulator.gate}", "--id", "broken") as ended:
        _, stderr = ended.communicate()
    assert ended.returncode == 2, stderr
    assert "The worker of broken has ended by itself" in stderr
    assert "the model is broken" in stderr
    assert '{"' not in stderr, "no raw line of a log"
