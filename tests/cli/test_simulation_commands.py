"""`interlock simulation …`: the examples are run, and what people type is answered."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests import programs

from interlock.cli.main import main
from interlock.worker.tasks import DEFAULT

ROOT = Path(__file__).parents[2]


class Simulator:
    """A terminal in the folder of the project, with a database of its own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/simulations.db"
        self._capsys = capsys

    def cli(self, *words: str, code: int = 0) -> str:
        """Run one command in this process; return what it has answered."""
        forget()
        found = main(["simulation", *words])
        captured = self._capsys.readouterr()
        assert found == code, captured.out + captured.err
        return captured.out if not code else captured.err

    def run(self, *words: str) -> str:
        """Run one command as a process of its own."""
        environment = {**os.environ, "INTERLOCK_URL": self.url, "NO_COLOR": "1"}
        done = programs.run("simulation", *words, environment=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *words: str) -> Any:
        """The same for a program."""
        return json.loads(self.cli(*words, "--json"))


def forget() -> None:
    """Let a command import what it names, as a new process would."""
    DEFAULT._tasks.clear()
    for module in ("epidemic", "negotiation", "errands"):
        sys.modules.pop(module, None)


@pytest.fixture
def simulator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Simulator:
    simulator = Simulator(tmp_path, capsys)
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("INTERLOCK_URL", simulator.url)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(DEFAULT, "_tasks", {})  # other tests of this process declare tasks, too
    return simulator


def test_the_epidemic_runs_to_its_end_and_draws_its_curve(simulator: Simulator) -> None:
    plot = simulator.folder / "curve.svg"
    words = ("people=300", "days=40", "seed=3", f"plot={plot}")
    simulator.run("run", "examples/epidemic.py", *words, "--id", "flu")
    shown = simulator.json("show", "flu")
    view = shown["simulation"]
    assert (view["status"], view["current_step"], view["total_steps"]) == ("completed", 40, 40)
    assert view["result"]["dangers"] == view["danger_count"] > 0
    events = [each["event"] for each in shown["history"]]
    assert (events[0], events[-1], events.count("danger")) == ("created", "completed", view["danger_count"])
    lines = ET.parse(plot).getroot().findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [40, 40, 40]


GROWTH = """
from interlock import SimulationContext, simulation

@simulation(total_steps=5)
def growth(sim: SimulationContext):
    for step in sim.steps():
        sim.metrics(size=step * 2, **({"half": step / 2} if step > 2 else {}))
        yield None
    return "grown"
"""


def test_the_metrics_of_a_simulation_are_printed_step_by_step(simulator: Simulator) -> None:
    (simulator.folder / "growth.py").write_text(GROWTH)
    simulator.run("run", f"{simulator.folder}/growth.py", "--id", "growth-1")
    found = simulator.json("metrics", "growth-1")
    assert (found["run_id"], found["status"], len(found["steps"])) == ("growth-1", "completed", 5)
    assert set(found["series"]) == {"half", "size"}
    rows = [line.split("\t") for line in simulator.cli("metrics", "growth").splitlines()]
    assert [row[0] for row in rows] == list(map(str, found["steps"]))
    assert {len(row) for row in rows} == {3}
    last = simulator.cli("metrics", "growth-1", "--name", "size", "--last", "2").splitlines()
    assert [line.split("\t")[0] for line in last] == [row[0] for row in rows[-2:]]
    refused = simulator.cli("metrics", "growth-1", "--name", "width", code=2)
    assert "no metric width" in refused
    assert "size" in refused


@pytest.mark.long  # the epidemic runs in the same way
def test_simulation_run_executes_the_negotiation_example_with_the_settings_of_its_file(
    simulator: Simulator,
) -> None:
    output = simulator.run("run", "examples/negotiation.yml", "turns=80")
    assert '"agreed": true' in output
    (listed,) = simulator.json("list")["simulations"]
    assert (listed["scenario_name"], listed["priority"]) == ("A used boat", "high")
    assert listed["danger_count"] > 0


def test_started_simulations_are_listed_filtered_and_cancelled(simulator: Simulator) -> None:
    run_id = simulator.cli(
        "start", "examples/epidemic.py", "people=50", "--id", "flu-1", "--name", "Flu"
    ).strip()
    assert run_id == "flu-1"
    simulator.cli("start", "models.other", "x=1", "--unchecked", "--priority", "high")
    assert [line.split("\t")[1] for line in simulator.cli("list").splitlines()] == ["pending", "pending"]
    assert simulator.cli("list", "FLU", "--status", "pending").split("\t")[0] == "flu-1"
    assert simulator.json("list", "--priority", "high")["simulations"][0]["task"] == "models.other"
    refused = simulator.cli("pause", "flu", code=2)
    assert "pending" in refused
    assert "Traceback" not in refused
    assert simulator.cli("cancel", "flu").split() == ["flu-1", "cancelled"]
    assert simulator.cli("watch", "flu-1", code=4) == ""
    assert "3 simulations" not in simulator.cli("prune", "--older-than", "1d")
    missing = simulator.cli("show", "nothing", code=2)
    assert "There is no simulation nothing" in missing


def test_a_number_of_a_scenario_that_json_cannot_hold_is_refused(simulator: Simulator) -> None:
    scenario = simulator.folder / "endless.yml"
    scenario.write_text("simulation: models.other\narguments: {x: .inf}\n")
    stderr = simulator.cli("start", str(scenario), "--unchecked", code=2)
    assert "x is inf, which JSON cannot hold" in stderr
    assert simulator.json("list")["simulations"] == []


def test_old_runs_are_brought_in(simulator: Simulator) -> None:
    folder = simulator.folder / "results" / "old-1"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"status": "running", "current_step": 4}')
    expected = ["old-1", "imported", "it has no state: a resume starts with step 1"]
    assert simulator.cli("import", str(folder.parent)).strip().split("\t") == expected
    assert simulator.json("show", "old-1")["simulation"]["status"] == "interrupted"


def test_wrong_questions_are_answered(simulator: Simulator) -> None:
    (simulator.folder / "bad.yml").write_text("simulation: examples/epidemic.py\nargument: {}\n")
    assert "cannot be read" in simulator.cli("start", str(simulator.folder / "bad.yml"), code=2)
    assert "did you mean people" in simulator.cli("start", "examples/epidemic.py", "peeple=5", code=2)
    assert "no simulations" in simulator.cli("start", "tests/journeys/errands.py", code=2)


def test_simulation_start_prints_only_the_id_when_the_module_prints_on_import(simulator: Simulator) -> None:
    (simulator.folder / "errands.py").write_text(
        "from interlock import SimulationContext, simulation\n"
        'print("a module that talks")\n'
        "@simulation(total_steps=2)\n"
        "def errand(sim: SimulationContext): yield 1\n"
    )
    assert simulator.cli("start", str(simulator.folder / "errands.py"), "--id", "quiet") == "quiet\n"
