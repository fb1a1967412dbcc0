"""Transitions and heartbeats by many at once, beside a bare script that compares a version and sets.

The bare loop reads the JSON of a run, changes it here, and sets it by a script if its version is still
the same: no journal, no index, no second record, no shown keys. Both do it for as many runs side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from time import perf_counter

import msgspec
from redis.asyncio import Redis

from bench.report import Line, Section
from bench.rounds import Figure, Pace
from interlock.store.redis import RedisStore
from interlock.systems.catalogue import CATALOGUE
from interlock.systems.runtime import Runtime
from interlock.systems.settings import DEFAULT_SETTINGS
from interlock.testing.servers import redis_server
from interlock.wire.simulations import SimulationSpec

AT_ONCE, EACH, ROUNDS = 64, 20, 5
AIM = 0.5
OURS, BARE = "interlock", "bare Lua"
SETTINGS = {"auto-aof-rewrite-percentage": "0"}

_SET = """
local found = redis.call('GET', KEYS[1])
if not found or cjson.decode(found).version ~= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
"""
_BEAT = """
local found = redis.call('GET', KEYS[1])
if not found then return 0 end
local state = cjson.decode(found)
if state.status ~= 'running' or state.worker_id ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2], 'PX', 30000)
return 1
"""

Turn = Callable[[], Awaitable[None]]


def run(_: Pace) -> Section:
    """Both, in turns."""
    with redis_server(append_only="always", settings=SETTINGS) as server:
        measured = asyncio.run(_race(server.url))
    lines = tuple(Line(f"{what} by {AT_ONCE} at once", "µs", figures) for what, figures in measured.items())
    return Section(
        "Simulations on Redis: what one needs, by the clock",
        BARE,
        lines=lines,
        missed=tuple(
            f"{line.measure}: {1 / line.ratio(OURS, BARE):.2f} of the bare loop's; at least {AIM:g}."
            for line in lines
            if line.ratio(OURS, BARE) > 1 / AIM
        ),
    )


async def _race(url: str) -> dict[str, dict[str, Figure]]:
    store = RedisStore(url, CATALOGUE)
    await store.open()
    house, bare = Runtime(store, DEFAULT_SETTINGS), Redis.from_url(url, max_connections=AT_ONCE)
    try:
        ours, theirs = await _ours(house), await _bare(bare)
        return {
            "a transition": await _turns({OURS: ours[0], BARE: theirs[0]}),
            "a heartbeat": await _turns({OURS: ours[1], BARE: theirs[1]}),
        }
    finally:
        await bare.aclose()
        await house.close()


async def _turns(contenders: dict[str, Turn]) -> dict[str, Figure]:
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in contenders.values():
        await turn()  # once before it counts
    for _ in range(ROUNDS):
        for name, turn in contenders.items():
            began = perf_counter()
            await turn()
            taken[name].append((perf_counter() - began) * 1e6 / (AT_ONCE * EACH))
    return {name: Figure(tuple(each)) for name, each in taken.items()}


async def _ours(house: Runtime) -> tuple[Turn, Turn]:
    manager = house.simulations
    spec = SimulationSpec(scenario_name="bench")
    made = [(await manager.create_run(spec)).run_id for _ in range(2 * AT_ONCE)]
    runs, others = made[:AT_ONCE], made[AT_ONCE:]

    async def move(run_id: str) -> None:
        for number in range(EACH):
            target = "interrupted" if number % 2 else "running"
            await manager.transition(run_id, target, worker_id="w")

    async def beat(run_id: str) -> None:
        for number in range(EACH):
            await manager.heartbeat(run_id, "w", number)

    for run_id in others:
        await manager.transition(run_id, "running", worker_id="w")
    return partial(_for_each, move, runs), partial(_for_each, beat, others)


async def _bare(redis: Redis) -> tuple[Turn, Turn]:
    set_it, beat_it = redis.register_script(_SET), redis.register_script(_BEAT)
    runs = [f"bare:{number}" for number in range(AT_ONCE)]
    for key in runs:
        await redis.set(key, msgspec.json.encode({"status": "running", "worker_id": "w", "version": 1}))

    async def move(key: str) -> None:
        for number in range(EACH):
            state = msgspec.json.decode(await redis.get(key) or b"")
            status = "interrupted" if number % 2 else "running"
            state |= {"status": status, "version": state["version"] + 1}
            await set_it(keys=[key], args=[state["version"] - 1, msgspec.json.encode(state)])

    async def beat(key: str) -> None:
        for _ in range(EACH):
            await beat_it(keys=[key, f"{key}:heartbeat"], args=["w", "now"])

    return partial(_for_each, move, runs), partial(_for_each, beat, runs)


async def _for_each(do: Callable[[str], Awaitable[None]], names: list[str]) -> None:
    await asyncio.gather(*map(do, names))
