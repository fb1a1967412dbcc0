"""Runs from before are brought in, by the table, and once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.systems.orchestrator.house import House
from tests.systems.simulations.worker import begun, faults, simulations

from interlock.errors import CannotLoad

OLD = {
    "done": {"status": "completed", "current_step": 9, "total_steps": 9, "danger_count": 2,
             "created_at": "2024-01-01T10:00:00", "started_at": "2024-01-01T10:01:00",
             "completed_at": "2024-01-01T11:00:00", "scenario_path": "s/a.yaml", "scenario_name": "A"},
    "lost": {"status": "running", "current_step": 4, "worker_id": "rq:1", "priority": "high",
             "created_at": "2024-01-02T10:00:00Z", "started_at": "2024-01-02T10:01:00Z"},
    "stood": {"status": "paused", "current_step": 5, "created_at": "2024-01-03T10:00:00Z",
              "started_at": "2024-01-03T10:01:00Z", "paused_at": "2024-01-03T10:02:00Z", "more": [1]},
    "broke": {"status": "failed", "error": "no model", "created_at": "2024-01-04T10:00:00Z"},
    "stopped": {"status": "canceled", "created_at": "2024-01-05T10:00:00Z",
                "started_at": "2024-01-05T10:00:01Z", "current_step": 1},
    "never": {"status": "cancelled", "created_at": "2024-01-06T10:00:00Z"},
    "waits": {"status": "pending"},
}  # fmt: skip


def write(folder: Path, runs: dict[str, object]) -> None:
    for name, content in runs.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "state.json").write_text(json.dumps(content))


async def test_old_runs_come_in_as_they_were_and_those_that_ran_are_interrupted(
    house: House, tmp_path: Path
) -> None:
    write(tmp_path, OLD)
    manager = simulations(house)
    imported = await manager.import_directory(tmp_path, task="flu")
    assert imported.made == ("done", "lost", "stood", "broke", "stopped", "never", "waits")
    assert imported.refused == {}
    found = {name: await manager.get(name) for name in OLD}
    assert {name: view.status for name, view in found.items()} == {
        "done": "completed", "lost": "interrupted", "stood": "paused", "broke": "failed",
        "stopped": "cancelled", "never": "cancelled", "waits": "pending",
    }  # fmt: skip
    done = found["done"]
    assert (done.current_step, done.danger_count, done.scenario_name) == (9, 2, "A")
    assert (done.created_at.isoformat(), str(done.completed_at)) == (
        "2024-01-01T10:00:00+00:00", "2024-01-01 11:00:00+00:00",
    )  # fmt: skip
    assert (found["lost"].priority, found["broke"].error) == ("high", "no model")
    assert await faults(house) == []


async def test_an_import_can_be_repeated_and_what_was_lost_resumed(house: House, tmp_path: Path) -> None:
    write(tmp_path, {"lost": OLD["lost"]})
    await simulations(house).import_directory(tmp_path, task="flu")
    again = await simulations(house).import_directory(tmp_path, task="flu")
    assert (again.made, again.known) == ((), ("lost",))
    await simulations(house).resume("lost")
    assert (await (await begun(house)).beat(5)).go_on


async def test_what_cannot_be_read_is_told_and_holds_up_nothing(house: House, tmp_path: Path) -> None:
    write(tmp_path, {"bad": {"status": "sleeping"}, "worse": [1]})
    write(tmp_path, {"good": {"status": "pending"}, "b d": OLD["broke"]})
    imported = await simulations(house).import_directory(tmp_path)
    assert imported.made == ("good",)
    assert sorted(Path(each).parent.name for each in imported.refused) == ["b d", "bad", "worse"]
    with pytest.raises(CannotLoad, match="There is no folder"):
        await simulations(house).import_directory(tmp_path / "nowhere")
