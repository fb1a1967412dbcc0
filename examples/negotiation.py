"""A negotiation in turns. The scenario file has the parties, their goals, their patience and the warnings.

    interlock simulation run examples/negotiation.yml

Every turn is a step. The parties speak one after the other: each names its price, moved a little toward
the other's by how patient it is. A speech that a rule of the scenario warns of is counted as a danger. Put
a call of a language model in place of `_speak`, and the rest stays as it is: a turn that was answered is
saved and never paid for twice, however often the worker dies.
"""

from __future__ import annotations

import random
from collections.abc import Generator

import msgspec

from interlock import SimulationContext, simulation


class Party(msgspec.Struct, frozen=True):
    """A participant."""

    name: str
    wants: float
    limit: float
    """Never further than this."""
    patience: float = 0.1
    """Part of the way to the other price in a turn: 0 for none, 1 for all of it."""
    temper: float = 0.0
    """How likely it is to lose it."""


class Rule(msgspec.Struct, frozen=True):
    """What alarms."""

    says: str
    danger: str


class Turn(msgspec.Struct, frozen=True):
    """A statement of a participant."""

    party: str
    price: float
    says: str


class Table(msgspec.Struct):
    """How far it has come."""

    prices: dict[str, float]
    turns: list[Turn] = []


@simulation
def negotiation(
    sim: SimulationContext,
    parties: list[Party],
    turns: int = 40,
    close: float = 1.0,
    rules: list[Rule] | None = None,
    seed: int = 1,
) -> Generator[Table, None, dict[str, object]]:
    """Take turns until the participants agree, or until all want to stop."""
    table = sim.restored(type=Table) or Table({party.name: party.wants for party in parties})
    for number in sim.steps(turns):
        party = parties[(number - 1) % len(parties)]
        turn = _speak(party, table, parties, random.Random(f"{seed}.{number}"))
        table.prices[party.name] = turn.price
        table.turns.append(turn)
        for rule in rules or ():
            if rule.says in turn.says:
                sim.danger(f"{party.name}: {rule.danger}")
        yield table
        if _apart(table) <= close:
            break
    agreed = _apart(table) <= close
    price = round(sum(table.prices.values()) / len(table.prices), 2)
    return {"agreed": agreed, "price": price if agreed else None, "turns": len(table.turns)}


def _speak(party: Party, table: Table, parties: list[Party], chance: random.Random) -> Turn:
    """Return the next turn of a party, from the prices on the table and chance alone."""
    others = [table.prices[other.name] for other in parties if other.name != party.name]
    own, middle = table.prices[party.name], sum(others) / len(others)
    if chance.random() < party.temper:
        return Turn(party.name, own, "This is an insult. I could walk away.")
    low, high = sorted((party.wants, party.limit))
    price = round(min(max(own + (middle - own) * party.patience, low), high), 2)
    return Turn(party.name, price, f"I could do {price:.2f}.")


def _apart(table: Table) -> float:
    return max(table.prices.values()) - min(table.prices.values())
