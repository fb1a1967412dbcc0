"""What holds for every sound machine: tables are made at random and held against a naive reading.

`read_naively` says once more, in the plainest words there are, what a table means. The kernel works
the same out ahead of time and in functions; on every table and every question both must agree.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from interlock.machine import (
    STAY,
    Decision,
    Event,
    Machine,
    Moved,
    Refusal,
    Refused,
    Row,
    command,
    end,
    ignore,
    message,
    on,
    refuse,
    rest,
    state,
    walk,
)
from interlock.machine.table import Act


class Spot(StrEnum):
    A = "a"
    B = "b"
    C = "c"
    D = "d"
    E = "e"


Data = tuple[int, ...]
Answer = tuple[Spot, Data, tuple[object, ...]] | tuple[Refusal, tuple[str, ...]]

advance = command("advance", "One further.", by="driver")
halt = command("halt", "Stop.", by="driver")
report = message("report", "Something is reported.", by="world")
alarm = message("alarm", "Something is wrong.", by="world")
jump = message("jump", "Something skipped a step.", by="world")
choose = command("choose", "Somebody chooses.", by="driver")
EVENTS = (advance, halt, report, alarm, jump, choose)


def is_long(data: Data, _: Event) -> bool:
    """There is much of it."""
    return len(data) > 2


def is_even(data: Data, _: Event) -> bool:
    """It adds up to an even number."""
    return sum(data) % 2 == 0


def is_positive(data: Data, _: Event) -> bool:
    """It adds up to something."""
    return sum(data) > 0


def grow(data: Data, _: Event) -> Data:
    return (*data, 1)


def shrink(data: Data, _: Event) -> Data:
    return data[1:]


def tell_size(data: Data, _: Event) -> object:
    return len(data)


def tell_sum(data: Data, occurrence: Event) -> object:
    return (occurrence.name, sum(data))


BACKBONE: tuple[Row[Spot, Data], ...] = (
    on(advance, Spot.A, Spot.B, owner="driver", why="On.", then=grow, emits=tell_size),
    on(advance, Spot.B, Spot.C, owner="driver", why="On."),
    on(advance, Spot.C, Spot.D, owner="driver", why="On."),
    on(advance, Spot.D, Spot.E, owner="driver", why="On."),
    on(halt, (Spot.A, Spot.B, Spot.C, Spot.D), Spot.E, owner="driver", why="Enough."),
)


Guard = Callable[[Data, Event], bool]
Rows = st.SearchStrategy[list[Row[Spot, Data]]]

# Strategies are made once: to make and validate them for each example takes most of the time.
GUARDS = st.lists(st.sets(st.sampled_from([is_long, is_even, is_positive])), min_size=1, max_size=3)
TARGETS = st.sampled_from([*Spot, STAY])
CONSEQUENCES = st.sampled_from([None, grow, shrink])
BOOLEANS = st.booleans()
EMITTED = st.lists(st.sampled_from([tell_size, tell_sum]), max_size=2).map(tuple)


@functools.cache
def orders_of(guards: tuple[Guard, ...]) -> st.SearchStrategy[list[Guard]]:
    return st.permutations(guards)


@st.composite
def spoken_rows(draw: st.DrawFn, occurrence: Event, spot: Spot) -> list[Row[Spot, Data]]:
    """One to three rows for one pair, none of them shadowed by an earlier one."""
    wanted = draw(GUARDS)
    rows: list[Row[Spot, Data]] = []
    for guards in wanted:
        if any(set(earlier.when) <= guards for earlier in rows):
            continue
        rows.append(
            on(
                occurrence,
                spot,
                draw(TARGETS),
                owner="driver",
                why="It was drawn.",
                when=tuple(draw(orders_of(tuple(sorted(guards, key=lambda guard: guard.__name__))))),
                then=draw(CONSEQUENCES),
                emits=draw(EMITTED),
                leaves_terminal=spot is Spot.E,
            )
        )
    return rows


def silent_row(occurrence: Event, spot: Spot) -> Rows:
    words = st.sampled_from([ignore, refuse])
    return words.map(lambda word: [word(occurrence, spot, why="It was drawn.")])


def choices_for(*, with_exits: bool) -> list[Rows]:
    """Return what may stand around the backbone, pair by pair."""
    choices: list[Rows] = []
    for occurrence in (report, alarm):
        for spot in Spot:
            silent = silent_row(occurrence, spot)
            choices.append(
                silent | spoken_rows(occurrence, spot) if with_exits or spot is not Spot.E else silent
            )
    choices += [
        st.just([]) | silent_row(choose, spot) | spoken_rows(choose, spot)
        for spot in (Spot.A, Spot.B, Spot.C, Spot.D)
    ]
    choices.append(spoken_rows(jump, Spot.B))
    return choices + [silent_row(jump, spot) for spot in (Spot.C, Spot.D, Spot.E)]


CHOICES = {with_exits: st.tuples(*choices_for(with_exits=with_exits)) for with_exits in (True, False)}


@st.composite
def sound_machines(draw: st.DrawFn, *, with_exits: bool = True) -> Machine[Spot, Data]:
    """A backbone that keeps the table sound, and around it whatever was drawn."""
    rows = [*BACKBONE, walk(jump, Spot.A, first=advance, why="It was skipped.")]
    for drawn in draw(CHOICES[with_exits]):
        rows += drawn
    at_home = draw(BOOLEANS)
    return Machine(
        "drawn",
        "A machine that was drawn at random.",
        initial=Spot.A,
        states=(
            *(state(spot, "On the way.", turn="driver") for spot in (Spot.A, Spot.B, Spot.C)),
            rest(Spot.D, "At home.") if at_home else state(Spot.D, "Nearly.", turn="driver"),
            end(Spot.E, "Over."),
        ),
        rows=rows,
        stop=(halt,),
    )


def read_naively(machine: Machine[Spot, Data], spot: Spot, data: Data, occurrence: Event) -> Answer:
    rows = [row for row in machine.table.rows if row.event is type(occurrence) and spot in row.sources]
    if rows and rows[0].act is Act.IGNORE:
        return Refusal.IGNORED, ()
    if not rows or rows[0].act is Act.REFUSE:
        targets = {row.target for row in machine.table.rows if row.event is type(occurrence)}
        if targets - {None} == {spot}:
            return Refusal.ALREADY_THERE, ()
        return Refusal.TERMINAL if spot in machine.terminal else Refusal.NOT_ALLOWED, ()
    held: list[str] = []
    for row in rows:
        failing = [guard.__name__ for guard in row.when if not guard(data, occurrence)]
        if not failing:
            return _take_naively(machine, row, spot, data, occurrence)
        held += [name for name in failing[:1] if name not in held]
    return Refusal.GUARD, tuple(held)


def _take_naively(
    machine: Machine[Spot, Data], row: Row[Spot, Data], spot: Spot, data: Data, occurrence: Event
) -> Answer:
    if row.first is None:
        after = row.then(data, occurrence) if row.then else data
        return row.target or spot, after, tuple(emit(after, occurrence) for emit in row.emits)
    before = read_naively(machine, spot, data, row.first)
    assert len(before) == 3
    then = read_naively(machine, before[0], before[1], occurrence)
    return then if len(then) == 2 else (then[0], then[1], before[2] + then[2])


def _answer(decision: Decision[Spot, Data]) -> Answer:
    if isinstance(decision, Refused):
        return decision.kind, decision.guards
    return decision.state, decision.data, decision.effects


spots = st.sampled_from(Spot)
events = st.sampled_from(EVENTS)
data_of_any_size = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@given(sound_machines(), data_of_any_size)
def test_the_kernel_decides_every_event_as_a_naive_reading_of_the_table_does(
    machine: Machine[Spot, Data], data: Data
) -> None:
    for spot in machine.states:
        for occurrence in EVENTS:
            if type(occurrence) in machine.events:
                naive = read_naively(machine, spot, data, occurrence)
                assert _answer(machine.decide(spot, data, occurrence)) == naive


@given(sound_machines(), spots, data_of_any_size)
def test_deciding_twice_gives_the_same_answer_and_never_raises(
    machine: Machine[Spot, Data], spot: Spot, data: Data
) -> None:
    for known in machine.events:
        occurrence = known()
        assert machine.decide(spot, data, occurrence) == machine.decide(spot, data, occurrence)


@given(sound_machines(), spots, data_of_any_size)
def test_the_steps_of_a_decision_are_a_path_from_the_old_state_to_the_new(
    machine: Machine[Spot, Data], spot: Spot, data: Data
) -> None:
    for known in machine.events:
        decision = machine.decide(spot, data, known())
        if isinstance(decision, Moved):
            assert decision.steps
            stations = [spot, *(step.target for step in decision.steps)]
            assert [step.source for step in decision.steps] == stations[:-1]
            assert decision.state == stations[-1]
        else:
            assert (decision.machine, decision.asked) == ("drawn", known.name)


@given(sound_machines(), spots)
def test_a_state_accepts_exactly_the_events_with_a_row_that_neither_ignores_nor_refuses(
    machine: Machine[Spot, Data], spot: Spot
) -> None:
    by_the_table = {
        row.event.name for row in machine.table.rows if spot in row.sources and not row.act.silent
    }
    assert set(machine.accepts(spot)) == by_the_table


@given(sound_machines(with_exits=False), st.lists(events, max_size=30))
def test_a_terminal_state_without_declared_exits_absorbs(
    machine: Machine[Spot, Data], history: list[Event]
) -> None:
    spot, data, ended = machine.initial, (), False
    for occurrence in history:
        if type(occurrence) not in machine.events:
            continue
        decision: Decision[Spot, Any] = machine.decide(spot, data, occurrence)
        if isinstance(decision, Moved):
            assert not ended, f"{occurrence} moved a machine that had ended"
            spot, data = decision.state, decision.data
        ended = ended or spot in machine.terminal


@given(sound_machines())
def test_the_same_table_declared_twice_answers_alike(machine: Machine[Spot, Data]) -> None:
    table = machine.table
    twin = Machine[Spot, Data](
        table.name, table.doc, initial=table.initial, states=table.states, rows=table.rows, stop=table.stop
    )
    for spot in machine.states:
        for known in machine.events:
            assert machine.decide(spot, (1,), known()) == twin.decide(spot, (1,), known())
