"""The audit trail of a decision: one entry per step, in the order in which it was taken."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from interlock.machine import STAY, Entry, Event, Machine, Moved, command, end, entries_of, on, state, walk


class Egg(StrEnum):
    RAW = "raw"
    BOILING = "boiling"
    EATEN = "eaten"


boil = command("boil", "Into the water.", by="cook")
stir = command("stir", "Turn it.", by="cook")
eat = command("eat", "Breakfast.", by="guest")

EGG = Machine[Egg, None](
    "egg",
    "A breakfast egg.",
    initial=Egg.RAW,
    states=(
        state(Egg.RAW, "Raw.", turn="cook"),
        state(Egg.BOILING, "In the water.", turn="guest"),
        end(Egg.EATEN, "Gone."),
    ),
    rows=(
        on(boil, Egg.RAW, Egg.BOILING, owner="cook", why="Hunger."),
        on(stir, Egg.BOILING, STAY, owner="cook", why="So that the yolk is in the middle."),
        on(eat, Egg.BOILING, Egg.EATEN, owner="guest", why="It is ready."),
        walk(eat, Egg.RAW, first=boil, why="Who has eaten it has boiled it."),
    ),
    stop=(eat,),
)
NOW = datetime(2026, 3, 1, 8, 30, tzinfo=UTC)


def moved(place: Egg, occurrence: Event) -> Moved[Egg, None]:
    decision = EGG.decide(place, None, occurrence)
    assert isinstance(decision, Moved)
    return decision


def test_a_move_creates_one_entry_with_its_owner_event_time_and_reason() -> None:
    assert entries_of(moved(Egg.RAW, boil), entity="egg-1", at=NOW, reason="guests", cause="hen-7") == (
        Entry(
            at=NOW,
            machine="egg",
            entity="egg-1",
            event="boil",
            source="raw",
            target="boiling",
            owner="cook",
            reason="guests",
            cause="hen-7",
        ),
    )


def test_a_walk_makes_one_entry_per_step_in_the_order_taken() -> None:
    entries = entries_of(moved(Egg.RAW, eat), entity="egg-1", at=NOW)
    assert [(e.event, e.source, e.target, e.owner) for e in entries] == [
        ("boil", "raw", "boiling", "cook"),
        ("eat", "boiling", "eaten", "guest"),
    ]
    assert {(e.at, e.entity, e.machine, e.reason, e.cause) for e in entries} == {
        (NOW, "egg-1", "egg", "", "")
    }


def test_an_event_that_changed_no_state_is_written_down_as_well() -> None:
    (entry,) = entries_of(moved(Egg.BOILING, stir), entity="egg-1", at=NOW)
    assert (entry.event, entry.source, entry.target) == ("stir", "boiling", "boiling")


def test_an_entry_survives_being_written_as_json_and_read_back() -> None:
    entries = entries_of(moved(Egg.RAW, eat), entity="egg-1", at=NOW, reason="guests")
    written = msgspec.json.encode(entries)
    assert msgspec.json.decode(written, type=tuple[Entry, ...]) == entries
