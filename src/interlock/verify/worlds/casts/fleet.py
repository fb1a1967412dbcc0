"""The fleet of a world: its agents, who drives them, who wants that, and who sets their clocks."""

from __future__ import annotations

from collections.abc import Iterator

from interlock.agent.execution import KILLED_S
from interlock.verify.worlds.casts.agents import AgentCast
from interlock.verify.worlds.casts.controllers import teach
from interlock.verify.worlds.casts.machines import set_clocks
from interlock.verify.worlds.casts.testers import TesterCast
from interlock.verify.worlds.judge import Judge
from interlock.verify.worlds.plan import Faults
from interlock.verify.worlds.stage import Cast, Stage
from interlock.verify.worlds.storage import SharedStore
from interlock.worker.tasks import Registry

TESTERS = "testers"


def fleet_of(
    stage: Stage, store: SharedStore, judge: Judge, registry: Registry, faults: Faults, until_s: float
) -> Iterator[tuple[str, Cast]]:
    """Who is there besides, and where; workers with this registry can drive."""
    fleet = judge.fleet
    fleet.call_in, fleet.skew = stage.schedule.call_in, faults.skew
    fleet.kill_s = stage.world.durations.abort_kill_s + KILLED_S
    teach(registry, fleet)
    agents = {name: AgentCast(fleet, stage.seed) for name in stage.world.fleet}
    set_clocks(stage, faults, agents, fleet, until_s - faults.quiet_at_end_s)
    yield from agents.items()
    yield TESTERS, TesterCast(store, judge, until_s)
