"""Runs from before are brought in, by the table, and once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.systems.orchestrator.house import House
from tests.systems.orchestrator.test_every_store_alike import OpenHouse
from tests.systems.simulations.worker import begun, faults, simulations, taken

from interlock.errors import CannotLoad
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.wire.simulations import Begin

OLD: dict[str, dict[str, object]] = {
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


def write(folder: Path, runs: Mapping[str, object]) -> None:
    for name, content in runs.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "state.json").write_text(json.dumps(content))


async def test_imported_runs_keep_their_status_except_running_ones_which_become_interrupted(
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


async def test_a_repeated_import_adds_nothing_and_an_interrupted_run_can_be_resumed(
    house: House, tmp_path: Path
) -> None:
    write(tmp_path, {"lost": OLD["lost"]})
    await simulations(house).import_directory(tmp_path, task="flu")
    again = await simulations(house).import_directory(tmp_path, task="flu")
    assert (again.made, again.known) == ((), ("lost",))
    await simulations(house).resume("lost")
    assert (await (await begun(house)).beat(5)).go_on


async def test_an_import_reports_invalid_runs_and_still_imports_the_valid_ones(
    house: House, tmp_path: Path
) -> None:
    write(tmp_path, {"bad": {"status": "sleeping"}, "worse": [1]})
    write(tmp_path, {"good": {"status": "pending"}, "b d": OLD["broke"]})
    imported = await simulations(house).import_directory(tmp_path)
    assert imported.made == ("good",)
    assert sorted(Path(each).parent.name for each in imported.refused) == ["b d", "bad", "worse"]
    with pytest.raises(CannotLoad, match="There is no folder"):
        await simulations(house).import_directory(tmp_path / "nowhere")


async def test_an_imported_run_continues_at_its_step_with_the_state_of_its_snapshot(
    open_house: OpenHouse, tmp_path: Path
) -> None:
    house = await open_house(DEFAULT_SETTINGS)
    write(tmp_path, {
        "lost": {**OLD["lost"], "state": {"ill": [1, 2]}},
        "stood": {**OLD["stood"], "checkpoint": None, "last_heartbeat": "2024-01-03T10:01:30"},
    })  # fmt: skip
    manager = simulations(house)
    imported = await manager.import_directory(tmp_path, task="flu")
    assert (imported.made, imported.without_state) == (("lost", "stood"), ())
    views = [await manager.get(name) for name in imported.made]
    assert [(view.current_step, view.saved_step) for view in views] == [(4, 4), (5, 5)]
    assert views[0].error == "it was running when it was imported"
    assert str(views[1].last_heartbeat) == "2024-01-03 10:01:30+00:00"
    for name, step, state in (("lost", 4, b'{"ill": [1, 2]}'), ("stood", 5, b"null")):
        await manager.resume(name)
        player = await taken(house)
        orders = await player.say(Begin())
        assert (orders.go_on, orders.step, orders.checkpoint) == (True, step, msgspec.Raw(state))
        assert (await player.beat(step + 1)).go_on
    assert await faults(house) == []


async def test_an_imported_simulation_without_a_state_warns_that_a_resume_begins_with_step_1(
    house: House, tmp_path: Path
) -> None:
    write(tmp_path, {name: OLD[name] for name in ("done", "lost", "stood", "waits")})
    manager = simulations(house)
    imported = await manager.import_directory(tmp_path, task="flu")
    assert imported.without_state == ("lost", "stood"), "the others have no step to go on at"
    lost, stood = await manager.get("lost"), await manager.get("stood")
    again = "its snapshot has no state, so a resume begins with step 1"
    assert lost.error == f"it was running when it was imported; {again}"
    assert (stood.status, stood.saved_step, stood.trouble) == ("paused", 0, again)
    await manager.resume("lost")
    assert (await (await taken(house)).say(Begin())).step == 0


async def test_an_imported_run_that_was_cancelled_keeps_its_times(house: House, tmp_path: Path) -> None:
    times = {"created_at": 1_704_448_800, "started_at": 1_704_448_801.5, "completed_at": 1_704_449_400}
    write(tmp_path, {"stopped": {**OLD["stopped"], **times}})
    await simulations(house).import_directory(tmp_path)
    view = await simulations(house).get("stopped")
    found = (view.created_at, view.started_at, view.completed_at)
    assert [at and at.timestamp() for at in found] == list(times.values())
    assert view.status == "cancelled"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"created_at": 1e300}, "created_at"),
        ({"state": "x" * 300_000}, "at most"),
        ({"current_step": -1}, "current_step"),
    ],
)
async def test_a_snapshot_that_cannot_be_is_refused_with_the_reason(
    house: House, tmp_path: Path, wrong: dict[str, object], why: str
) -> None:
    write(tmp_path, {"lost": {**OLD["lost"], **wrong}})
    imported = await simulations(house).import_directory(tmp_path, task="flu")
    assert imported.made == ()
    (reason,) = imported.refused.values()
    assert why in reason
