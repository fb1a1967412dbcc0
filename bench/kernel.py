"""The kernel beside `transitions` and `python-statemachine`, on one table of twelve states.

Before anything is timed, every contender has to answer every pair of state and event as the table
says, and to leave the same audit trail; otherwise the figures would compare different things.
"""

from __future__ import annotations

from bench.machines.contender import Contender
from bench.machines.with_interlock import Interlock
from bench.machines.with_statemachine import PythonStateMachine
from bench.machines.with_transitions import Transitions, TransitionsShared
from bench.report import Line, Section
from bench.rounds import Pace, race, weigh
from bench.table import EVENTS, HAPPY_PATH, TARGETS, Attempt

US = Interlock()
CONTENDERS: tuple[Contender, ...] = (US, Transitions(), TransitionsShared(), PythonStateMachine())

AIMS = {"transitions": 10.0, "transitions shared": 10.0, "python-statemachine": 100.0}
"""How many times faster than each of the others a transition of ours has to be."""


class NotComparable(Exception):
    """Two contenders do not do the same thing, so comparing their speed would mean nothing."""


def run(pace: Pace) -> Section:
    """Check that all contenders agree, then measure them."""
    for contender in CONTENDERS:
        _agree(contender)
    steps = len(HAPPY_PATH)
    bare = race({c.name: c.bare for c in CONTENDERS}, pace, operations=steps)
    audited = race({c.name: c.audited for c in CONTENDERS}, pace, operations=steps)
    refusals = race({c.name: c.refusals for c in CONTENDERS}, pace)
    creations = race({c.name: c.creations for c in CONTENDERS}, pace)
    weights = weigh({c.name: c.creations for c in CONTENDERS}, pace)
    held = (Line("a transition", "µs", bare), Line("with data and audit", "µs", audited))
    return Section(
        "Kernel: one table of 12 states",
        US.name,
        lines=(
            *held,
            Line("a refusal", "µs", refusals),
            Line("a record made", "µs", creations),
            Line("its size", "bytes", weights),
        ),
        notes=("A record of ours is a state and its data; there is no machine object to make for it.",),
        missed=tuple(sentence for line in held for sentence in _missed(line)),
    )


def _agree(contender: Contender) -> None:
    for state in Attempt:
        for event in EVENTS:
            expected, got = TARGETS.get((state, event)), contender.answer(state.value, event)
            if expected != got:
                raise NotComparable(
                    f"{contender.name} answers {event} in {state} with {got or 'a refusal'}, "
                    f"the table says {expected or 'a refusal'}."
                )
    for path in (HAPPY_PATH, ("enqueue", "lease", "cancel", "cancel_ack")):
        expected_trail, got_trail = US.trail(path), contender.trail(path)
        if expected_trail != got_trail:
            raise NotComparable(
                f"{contender.name} ends the walk {' '.join(path)} with {got_trail}, "
                f"{US.name} with {expected_trail}."
            )


def _missed(line: Line) -> list[str]:
    return [
        f"{line.measure} should cost {contender} at least {aim:g} times what it costs us, "
        f"and costs it {line.ratio(contender, US.name):.1f} times as much."
        for contender, aim in AIMS.items()
        if line.ratio(contender, US.name) < aim
    ]
