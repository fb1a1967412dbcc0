"""The machines of agents: who sets their clocks, and by how much."""

from __future__ import annotations

import random
from collections.abc import Mapping

from interlock.verify.worlds.casts.agents import AgentCast
from interlock.verify.worlds.judge_fleet import FleetJudge
from interlock.verify.worlds.plan import HOUR_S, Faults
from interlock.verify.worlds.stage import Stage

CLOCK_SET = "clock set"
STEPS_S = (0.05, 0.5, 2.0, 30.0, 3_600.0)
"""By how much a clock is set, to and fro."""


def set_clocks(
    stage: Stage, faults: Faults, casts: Mapping[str, AgentCast], judge: FleetJudge, until_s: float
) -> None:
    """Draw when somebody sets which clock; where clocks are right nobody does."""
    drawn = random.Random(f"{stage.seed}/clocks")
    per_s, number, at = stage.world.clocks_set_per_h / HOUR_S, 0, 0.0
    while per_s and faults.skew:
        at += drawn.expovariate(per_s)
        if at >= until_s:
            return
        number += 1
        agent, step_s = drawn.choice(list(casts)), drawn.choice(STEPS_S) * drawn.choice((-1, 1))
        if drawn.random() < (1.0 if faults.stormy(at) else faults.calm):
            stage.schedule.call_at(at, _set, stage, f"c{number}", agent, casts[agent], step_s, judge)


def _set(stage: Stage, name: str, agent: str, cast: AgentCast, step_s: float, judge: FleetJudge) -> None:
    if stage.fates.happens(name, CLOCK_SET):
        stage.watcher.tell(stage.schedule.now, f"the clock of {agent} is set by {step_s:+g} s  [{name}]")
        stage.watcher.heard(f"{name} {agent}".encode())
        cast.set_ns += round(step_s * 1e9)
        judge.clock_was_set(agent)
