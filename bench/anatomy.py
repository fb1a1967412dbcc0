"""Our own `decide`, taken apart: what of its time is the look-up, the call, and the answer.

Each part is called in the same loop; what the loop and an empty call cost is the first line, and
has to be taken off the others.
"""

from __future__ import annotations

from collections.abc import Callable

from bench.machines.contender import AT, ENTITY
from bench.machines.with_interlock import BARE, COUNTING, EVENT, Data
from bench.report import Line, Section
from bench.rounds import Pace, Prepare, Work, race
from bench.table import INITIAL, Attempt
from interlock.machine import Event, Moved, entries_of

_DATA = Data(ENTITY)
_EVENT = EVENT["enqueue"]
_CELLS: dict[Attempt, dict[type[Event], int]] = {
    name: {type(e): 1 for e in EVENT.values()} for name in Attempt
}


def run(pace: Pace) -> Section:
    """Measure the parts, then the whole."""
    moved = COUNTING.decide(INITIAL, _DATA, _EVENT)
    assert isinstance(moved, Moved)
    steps, state = moved.steps, moved.state
    parts: dict[str, Callable[[], object]] = {
        "an empty call": lambda: None,
        "the look-up": lambda: _CELLS[INITIAL][type(_EVENT)],
        "a Moved made": lambda: Moved(state, _DATA, steps),
        "decide": lambda: BARE.decide(INITIAL, _DATA, _EVENT),
        "decide, data changed": lambda: COUNTING.decide(INITIAL, _DATA, _EVENT),
        "entries_of": lambda: entries_of(moved, entity=ENTITY, at=AT),
    }
    figures = race({name: _repeated(part) for name, part in parts.items()}, pace)
    return Section("Kernel: the parts of a decision", "decide", (Line("one call", "µs", figures),))


def _repeated(part: Callable[[], object]) -> Prepare:
    def prepare(times: int) -> Work:
        def work() -> None:
            for _ in range(times):
                part()

        return work

    return prepare
