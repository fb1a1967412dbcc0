"""Metrics of simulations: recorded by step, kept in a bounded number, and the same after a crash."""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise

import msgspec
import pytest
from tests.systems.orchestrator.house import House, release
from tests.systems.simulations.worker import begun, running, simulations

from interlock.client import Interlock
from interlock.errors import InvalidArguments, InvalidSimulation
from interlock.testing.at_work import at_work
from interlock.wire.simulations import MOST_METRICS, MOST_SAMPLES, Beat, Sample, Samples, SimulationMetrics
from interlock.worker.simulations import SimulationContext, simulation
from interlock.worker.tasks import Registry


def counted(first: int, last: int) -> tuple[Sample, ...]:
    return tuple(Sample(step, {"ill": float(step)}) for step in range(first, last + 1))


async def curve(house: House, run_id: str) -> list[tuple[int, float | None]]:
    found = await simulations(house).metrics(run_id)
    return list(zip(found.steps, found.series.get("ill", ()), strict=False))


async def test_samples_that_are_sent_again_are_stored_once(house: House) -> None:
    view, player = await running(house)
    orders = await player.beat(2, samples=counted(1, 2))
    assert orders.sampled == 2
    await player.beat(2, samples=counted(1, 2))
    await player.say(Beat(step=3, samples=counted(1, 3)))
    assert await curve(house, view.run_id) == [(1, 1.0), (2, 2.0), (3, 3.0)]


async def test_metrics_after_the_saved_step_are_dropped_and_recorded_again_by_the_next_worker(
    house: House,
) -> None:
    view, player = await running(house, losses=1)
    await player.beat(2, samples=counted(1, 2))
    await player.say(Beat(step=4, samples=counted(3, 4)))
    await house.heard(release(player.grant))
    other = await begun(house, "runner#2")
    assert await curve(house, view.run_id) == [(1, 1.0), (2, 2.0)]
    await other.beat(3, samples=(Sample(3, {"ill": 33.0}),))
    assert await curve(house, view.run_id) == [(1, 1.0), (2, 2.0), (3, 33.0)]
    saved = await simulations(house).get(view.run_id)
    assert (saved.saved_step, saved.saved_bytes) == (3, 1)
    assert saved.saved_at is not None


@pytest.mark.parametrize(
    ("sample", "word"),
    [
        (Sample(1, {"x" * 65: 1.0}), "characters"),
        (Sample(1, {"ill": float("inf")}), "finite"),
        (Sample(1, {f"m{n}": 1.0 for n in range(MOST_METRICS + 1)}), "at most are kept"),
    ],
)
async def test_metrics_that_cannot_be_kept_are_refused(house: House, sample: Sample, word: str) -> None:
    _, player = await running(house)
    with pytest.raises(InvalidSimulation, match=word):
        await player.beat(1, samples=(sample,))


def test_a_long_curve_is_thinned_evenly_and_keeps_its_end() -> None:
    samples = Samples()
    for step in range(1, 10_001):
        samples = samples.added([Sample(step, {"ill": float(step)})])
    steps = [each.step for each in samples.kept]
    assert MOST_SAMPLES / 2 <= len(steps) <= MOST_SAMPLES
    assert steps[-1] == 10_000
    gaps = {after - before for before, after in pairwise(steps[1:-1])}
    assert gaps == {samples.stride}


def test_there_are_never_more_metrics_than_can_be_shown() -> None:
    samples = Samples().added(Sample(step, {f"m{step}": 1.0}) for step in range(1, 100))
    assert len({name for each in samples.kept for name in each.values}) == MOST_METRICS


async def test_a_simulation_records_numeric_metrics_and_receives_an_error_for_other_values() -> None:
    registry = Registry()

    @simulation(registry=registry, total_steps=120)
    def growing(sim: SimulationContext, start: float) -> Generator[None, None, str]:
        refused = ""
        for step in sim.steps():
            sim.metrics(size=start + step)
            sim.metrics(half=step / 2)
            try:
                sim.metrics(word="long")  # type: ignore[arg-type]
            except InvalidArguments as error:
                refused = error.sentence
            yield None
        return refused

    async with at_work(registry) as il:
        made = await il.simulations.start(growing, start=1_000.0)
        await made.wait(timeout_s=60)
        found = await metrics_of(il, made.run_id)
        assert (found.status, found.steps[-1]) == ("completed", 120)
        assert (found.series["size"][-1], found.series["half"][-1]) == (1_120.0, 60.0)
        assert len(found.steps) > 10
        result = (await il.services.simulations.get(made.run_id)).result
        assert isinstance(result, msgspec.Raw)
        assert "The metric word has to be a number" in bytes(result).decode()


async def metrics_of(il: Interlock, run_id: str) -> SimulationMetrics:
    found: SimulationMetrics = await il.services.simulations.metrics(run_id)
    return found
