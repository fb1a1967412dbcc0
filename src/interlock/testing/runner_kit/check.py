"""Playing the scenarios to a runner, and what came of it."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from interlock.testing.runner_kit.desk import Desk, Pace
from interlock.testing.runner_kit.http import Line
from interlock.testing.runner_kit.scenarios import SCENARIOS, Scenario
from interlock.testing.runner_kit.stage import Broken, Stage, Work

PULSE_S = 0.1
SIDE_BY_SIDE = 5
"""How many are played at once: a runner spends most of a scenario waiting."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be checked."""

    command: tuple[str, ...] = ()
    """How the runner is started, `{url}` for the address; with none it comes by itself."""
    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    work: Work = Work()
    pace: Pace = Pace()
    scenarios: tuple[Scenario, ...] = SCENARIOS


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one scenario."""

    scenario: str
    claim: str
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    skipped: str = ""
    took_s: float = 0.0
    last_words: str = ""
    """Of the runner, where there is a fault."""


async def check(asked: Check, tell: Callable[[Verdict], None]) -> list[Verdict]:
    """Play them all; each verdict is told as it comes."""
    room = asyncio.Semaphore(1 if asked.port or not asked.command else SIDE_BY_SIDE)

    async def play(scenario: Scenario) -> Verdict:
        async with room:
            verdict = await _play(scenario, asked)
        tell(verdict)
        return verdict

    return list(await asyncio.gather(*map(play, asked.scenarios)))


async def _play(scenario: Scenario, asked: Check) -> Verdict:
    if scenario.needs_process and not asked.command:
        why = "it needs a runner that the kit has started: give its command after --"
        return Verdict(scenario=scenario.name, claim=scenario.claim, skipped=why)
    began = time.monotonic()
    desk = Desk(asked.pace, asked.token)
    line = Line(desk.answer)
    with tempfile.TemporaryDirectory(prefix="interlock-check-") as folder:
        stage = Stage(desk, Path(folder), asked.work, asked.command)
        await line.open(asked.host, asked.port)
        broken: tuple[str, ...] = ()
        pulse = asyncio.create_task(_pulse(desk))
        try:
            await stage.start(line.url, {"INTERLOCK_TOKEN": asked.token})
            await scenario.play(stage)
        except Broken as error:
            broken = (f"{error}.",)
        finally:
            await stage.end()
            await line.close()
            pulse.cancel()
        faults = (*broken, *desk.faults)
        return Verdict(
            scenario=scenario.name,
            claim=scenario.claim,
            faults=faults,
            remarks=tuple(stage.remarks),
            took_s=time.monotonic() - began,
            last_words=stage.last_words if faults else "",
        )


async def _pulse(desk: Desk) -> None:
    while True:
        desk.clock.pulse()
        await asyncio.sleep(PULSE_S)


def a_token() -> str:
    """For a runner that wants one."""
    return f"il_check_{secrets.token_hex(12)}"


def named(names: Sequence[str]) -> tuple[Scenario, ...]:
    """The scenarios of these names, or all; raises KeyError for one that is not there."""
    known = {scenario.name: scenario for scenario in SCENARIOS}
    return tuple(known[name] for name in names) or SCENARIOS
