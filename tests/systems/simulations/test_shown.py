"""What other tools read of simulations in Redis: the keys of the document, written with the commit."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from tests.systems.orchestrator.house import House
from tests.systems.simulations.worker import running, simulations

from interlock.testing.servers import RedisServer


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
