"""What other tools read of simulations in Redis: the keys of the document, written with the commit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import msgspec
import pytest
from tests.systems.orchestrator.house import House
from tests.systems.simulations.worker import begun, running, simulations

from interlock.systems.orchestrator.notifications import ExecutionLost
from interlock.testing.servers import RedisServer
from interlock.wire.simulations import Danger, SimulationSpec


@pytest.fixture
async def on_redis(redis: RedisServer) -> AsyncIterator[House]:
    """A house whose store is Redis."""
    house = await House(url=redis.url).open(asking=False)
    yield house
    await house.close()
    redis.run("FLUSHALL")


@pytest.mark.parametrize(("option", "prefix"), [("", "{interlock}"), ("&shown=apart", "apart")])
async def test_the_keys_of_the_document_follow_the_simulation(
    redis: RedisServer, option: str, prefix: str
) -> None:
    house = await House(url=f"{redis.url}{option}").open(asking=False)

    def get(name: str) -> str:
        return str(redis.run("GET", f"{prefix}:run:flu:{name}") or "")

    view, player = await running(house, run_id="flu", priority="high")
    state = json.loads(get("state"))
    assert (state["status"], state["version"], state["priority"]) == ("running", 2, "high")
    assert state["worker_id"] == view.worker_id
    assert set(state) == {
        "run_id", "status", "scenario_path", "scenario_name", "current_step", "total_steps", "created_at",
        "started_at", "paused_at", "completed_at", "worker_id", "last_heartbeat", "priority", "error",
        "danger_count", "version",
    }  # fmt: skip
    first = get("heartbeat")
    await player.beat(3)
    assert get("heartbeat") > first
    assert 0 < int(str(redis.run("PTTL", f"{prefix}:run:flu:heartbeat"))) <= 30_000
    assert redis.run("ZRANGE", f"{prefix}:runs:index", "0", "-1") == ["flu"]
    score = float(str(redis.run("ZSCORE", f"{prefix}:runs:index", "flu")))
    assert score == pytest.approx(view.created_at.timestamp(), abs=1)
    # Somebody has put nonsense under our keys: the commit stands all the same.
    redis.run("DEL", f"{prefix}:runs:index")
    redis.run("SET", f"{prefix}:runs:index", "nonsense")
    await player.complete()
    state = json.loads(get("state"))
    assert (state["status"], state["current_step"]) == ("completed", 10)
    assert get("heartbeat") == ""
    redis.run("DEL", f"{prefix}:runs:index")
    assert (await simulations(house).prune(timedelta(0))).records == 1
    assert get("state") == ""
    await house.close()
    redis.run("FLUSHALL")


async def test_the_state_object_follows_every_heartbeat(on_redis: House, redis: RedisServer) -> None:
    house = on_redis

    def state() -> dict[str, object]:
        return dict(json.loads(str(redis.run("GET", "{interlock}:run:flu:state"))))

    name = 'a "current_step": 5, "total_steps":7} of {"x":1}'
    view, player = await running(house, run_id="flu", total_steps=None, scenario_name=name)
    before = state()
    dangers = (Danger(1, 3, "no free beds"), Danger(2, 3, "none at all"))
    await player.beat(7, total_steps=9_007_199_254_740_991, dangers=dangers)
    seen, now = state(), await simulations(house).get("flu")
    reported = {"current_step": 7, "total_steps": 9_007_199_254_740_991, "danger_count": 2}
    assert {field: seen[field] for field in reported} == reported
    assert datetime.fromisoformat(str(seen["last_heartbeat"])) == now.last_heartbeat
    unchanged = set(before) - {*reported, "last_heartbeat"}
    assert {field: seen[field] for field in unchanged} == {field: before[field] for field in unchanged}
    assert seen["scenario_name"] == name
    await simulations(house).pause("flu")
    assert state() == {**seen, "version": view.version + 1}, "a request leaves the step as it is"
    await simulations(house).lost(msgspec.json.encode(ExecutionLost("flu", 1, 1, True, "given back")))
    gone = state()
    assert {field: gone[field] for field in reported} == reported
    assert (gone["status"], gone["error"]) == ("interrupted", (await simulations(house).get("flu")).error)
    assert str(gone["error"]).startswith("given back; a pause was requested")
    # Another tool has put nonsense under the key: the heartbeat counts all the same.
    await simulations(house).resume("flu")
    redis.run("DEL", "{interlock}:run:flu:state")
    redis.run("RPUSH", "{interlock}:run:flu:state", "nonsense")
    assert (await (await begun(house)).beat(8)).go_on


async def test_a_manually_driven_simulation_is_shown_in_redis_with_its_last_step(
    on_redis: House, redis: RedisServer
) -> None:
    house = on_redis
    manager = simulations(house)
    await manager.create_run(SimulationSpec(run_id="hand"))
    await manager.transition("hand", "running", worker_id="me")
    await manager.heartbeat("hand", "me", 3)
    await manager.transition("hand", "completed", worker_id="me", step=5)
    state = json.loads(str(redis.run("GET", "{interlock}:run:hand:state")))
    assert (state["status"], state["current_step"]) == ("completed", 5)
