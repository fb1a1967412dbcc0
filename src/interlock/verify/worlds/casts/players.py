"""People who simulate: they start, pause, cancel, and see to it that what stands still goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from functools import partial

import msgspec

from interlock.errors import InterlockError
from interlock.lifecycles import simulation
from interlock.systems.runtime import Runtime
from interlock.verify.worlds.casts.requests import Errands, surely
from interlock.verify.worlds.judge_simulations import SimulationJudge
from interlock.verify.worlds.plan import HOUR_S, SimulationKind, World
from interlock.verify.worlds.stage import Process
from interlock.verify.worlds.storage import SharedStore, StoreLink
from interlock.wire.simulations import SimulationSpec, SimulationView


class Game(msgspec.Struct, frozen=True):
    """A simulation that somebody will want, and when; drawn before anything happens."""

    at_s: float
    number: int
    kind: SimulationKind
    spec: SimulationSpec
    seconds: float
    """How long it takes, undisturbed."""


def games(world: World, seed: int, until_s: float) -> Iterator[Game]:
    """Every simulation that people will start, in the order of time."""
    drawn = random.Random(f"{seed}/players")
    weights = [kind.weight for kind in world.simulations]
    per_s, number, at = world.arrivals.simulations_per_day / 24.0 / HOUR_S, 0, 0.0
    while per_s and world.simulations:
        at += drawn.expovariate(per_s)
        if at >= until_s:
            return
        number += 1
        (kind,) = drawn.choices(world.simulations, weights)
        steps, seconds = drawn.randint(*kind.steps), drawn.uniform(*kind.seconds)
        fails_at = drawn.randint(1, steps) if drawn.random() < kind.fails else 0
        arguments = {"number": number, "steps": steps, "seconds": seconds, "fails_at": fails_at}
        spec = SimulationSpec(
            task=kind.name,
            input=msgspec.Raw(msgspec.json.encode(arguments)),
            total_steps=steps,
            losses=kind.losses,
        )
        yield Game(at, number, kind, spec, steps * seconds)


class PlayerCast:
    """Everybody who simulates something."""

    def __init__(self, store: SharedStore, judge: SimulationJudge, until_s: float) -> None:
        self._store = store
        self._judge = judge
        self._until_s = until_s

    async def live(self, process: Process) -> None:
        """Start one after the other, and look after each."""
        stage = process.stage
        runtime = Runtime(StoreLink(process, self._store), stage.world.settings, process.host)
        errands = Errands(process)
        for game in games(stage.world, stage.seed, self._until_s):
            await asyncio.sleep(game.at_s - stage.schedule.now)
            errands.begin(Seat(process, runtime, self._judge).play(game))
        await asyncio.Event().wait()


class Seat:
    """Somebody with one simulation."""

    def __init__(self, process: Process, runtime: Runtime, judge: SimulationJudge) -> None:
        self._process = process
        self._simulations = runtime.simulations
        self._judge = judge
        self._saw = process.stage.watcher.saw
        self._requests = 0

    async def play(self, game: Game) -> None:
        """Start it, disturb it perhaps, and stay until it has ended."""
        drawn = random.Random(f"{self._process.stage.seed}/game/{game.number}")
        request_id = f"game{game.number}"
        made = await surely(
            self._process,
            lambda: self._simulations.create_run(game.spec, actor="players", request_id=request_id),
        )
        if made is None:
            return
        self._judge.acknowledged(game.number, made.run_id)
        if drawn.random() < game.kind.pauses:
            await asyncio.sleep(drawn.random() * 1.5 * game.seconds)
            await self._pause(made.run_id)
        if drawn.random() < game.kind.cancels:
            await asyncio.sleep(drawn.random() * 1.5 * game.seconds)
            await self._cancel(made.run_id)
        await self._see_it_through(made.run_id, drawn)

    async def _pause(self, run_id: str) -> None:
        try:
            if await surely(
                self._process, lambda: self._simulations.pause(run_id, request_id=self._request(run_id))
            ):
                self._saw("somebody pauses a simulation")
        except InterlockError:
            return  # it does not run

    async def _cancel(self, run_id: str) -> None:
        self._judge.asked.add(run_id)
        request_id = self._request(run_id)
        try:
            if await surely(self._process, lambda: self._simulations.cancel(run_id, request_id=request_id)):
                self._saw("somebody cancels a simulation")
        except InterlockError:
            return  # it has ended

    async def _see_it_through(self, run_id: str, drawn: random.Random) -> None:
        """Look now and then: what stands still, and is awaited nowhere, is resumed until it has ended."""
        every_s = 2 * self._process.stage.world.durations.simulation_silence_s
        while True:
            await asyncio.sleep(every_s * (0.5 + drawn.random()))
            try:
                view = await surely(self._process, lambda: self._simulations.get_state(run_id))
                if view is not None and view.status in simulation.ENDED:
                    return
                if view is None or not _stands(view):
                    continue
                resume = partial(self._simulations.resume, run_id, request_id=self._request(run_id))
                resumed = await surely(self._process, resume)
                if resumed is not None:
                    self._saw("somebody resumes a simulation")
            except InterlockError:
                continue  # somebody was faster; it will be looked at again

    def _request(self, run_id: str) -> str:
        self._requests += 1
        return f"{run_id}.{self._requests}"


def _stands(view: SimulationView) -> bool:
    return view.status in simulation.STANDING and not view.resuming
