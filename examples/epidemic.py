"""An epidemic in a small town, person by person, with a curve at the end.

    interlock simulation run examples/epidemic.py people=2000 days=120 plot=epidemic.svg

Every person lives in a runtime and meets a few others each day. An ill person may infect them; after
some days they are well again. Each day is a step: it yields the whole state that the next day needs, so the
town can be paused, can survive its worker on another one, and comes to the same end. When there are more
ill people than beds, the simulation warns of it.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from pathlib import Path

import msgspec

from interlock import SimulationContext, simulation

WELL, RECOVERED = 0, -1
"""Any other number is that of the days for which the person is still ill."""


class Town(msgspec.Struct):
    """All people, and the counts so far."""

    people: list[int]
    curve: list[tuple[int, int, int]] = []
    """For each day: how many were well, ill and recovered."""

    @property
    def ill(self) -> int:
        """How many are ill now."""
        return sum(each > 0 for each in self.people)


@simulation
def epidemic(
    sim: SimulationContext,
    people: int = 1_000,
    days: int = 100,
    meetings: int = 8,
    contagion: float = 0.035,
    illness: int = 9,
    beds: int = 0,
    seed: int = 1,
    plot: str = "",
) -> Generator[Town, None, dict[str, object]]:
    """Live day after day, until the last one."""
    town = sim.restored(type=Town) or _founded(people, illness, seed)
    beds = beds or people // 10
    for day in sim.steps(days):
        _live(town, random.Random(f"{seed}.{day}"), meetings, contagion, illness)
        if town.ill > beds:
            sim.danger(f"{town.ill} people are ill, and there are {beds} beds")
        yield town
    if plot:
        Path(plot).write_text(drawn(town.curve), encoding="utf-8")
        sim.log(f"the curve is in {plot}")
    peak_day, (_, peak, _) = max(enumerate(town.curve, 1), key=lambda pair: pair[1][1])
    spared = town.curve[-1][0]
    return {"peak": peak, "peak_day": peak_day, "spared": spared, "dangers": sim.danger_count}


def _founded(people: int, illness: int, seed: int) -> Town:
    """A healthy town, but for a handful."""
    town = Town([WELL] * people)
    for unlucky in random.Random(seed).sample(range(people), max(people // 200, 1)):
        town.people[unlucky] = illness
    return town


def _live(town: Town, chance: random.Random, meetings: int, contagion: float, illness: int) -> None:
    """Play one day: each ill person meets some others, and then the night passes."""
    number = len(town.people)
    caught = {
        other
        for each in town.people
        if each > 0
        for other in (chance.randrange(number) for _ in range(meetings))
        if town.people[other] == WELL and chance.random() < contagion
    }
    for place, each in enumerate(town.people):
        if each > 0:
            town.people[place] = each - 1 or RECOVERED
    for place in caught:
        town.people[place] = illness
    ill = town.ill
    well = sum(each == WELL for each in town.people)
    town.curve.append((well, ill, number - well - ill))


def drawn(curve: list[tuple[int, int, int]], width: int = 720, height: int = 320) -> str:
    """The three curves as a picture."""
    people = sum(curve[0]) if curve else 1
    across = width / max(len(curve) - 1, 1)
    lines = []
    for which, (name, colour) in enumerate(
        (("well", "#3b82a0"), ("ill", "#c2410c"), ("recovered", "#4d7c0f"))
    ):
        points = " ".join(
            f"{day * across:.1f},{height - height * counts[which] / people:.1f}"
            for day, counts in enumerate(curve)
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines.append(f'<text x="8" y="{18 + 16 * which}" fill="{colour}" font-size="13">{name}</text>')
    frame = f'<rect width="{width}" height="{height}" fill="white" stroke="#d4d4d4"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
        f"{frame}{''.join(lines)}</svg>\n"
    )
