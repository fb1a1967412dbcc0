"""The checker itself, on models small enough to count by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from interlock.testing.model_checker import (
    AIDED,
    Mode,
    ModelClaim,
    Seen,
    always,
    broken_at_the_end,
    check,
    eventually,
    look_with,
    retell,
    sometimes,
)


@dataclass
class Toy:
    """A model made of a function from a state to named steps."""

    start: Any
    moves: Callable[[Any], list[tuple[str, Any]]]
    claims: Sequence[ModelClaim] = ()
    same: Callable[[Any], Any] = field(default=lambda state: state)
    name: str = "toy"

    def initial(self) -> Any:
        return self.start

    def steps(self, state: Any) -> list[tuple[Any, Any, int]]:
        return [
            (label, after, AIDED if label.startswith("somebody") else 0) for label, after in self.moves(state)
        ]

    def canonical(self, state: Any) -> Any:
        return self.same(state)

    def look(self, state: Any) -> int:
        return look_with(self.claims)(state)

    def tell(self, done: Any, before: Any, after: Any) -> list[str]:
        return [f"{done}: {before} → {after}"]


def jugs(state: tuple[int, int]) -> list[tuple[str, tuple[int, int]]]:
    """A jug of three and one of five litres."""
    a, b = state
    pour_ab, pour_ba = min(a, 5 - b), min(b, 3 - a)
    return [
        ("fill 3", (3, b)),
        ("fill 5", (a, 5)),
        ("empty 3", (0, b)),
        ("empty 5", (a, 0)),
        ("3 into 5", (a - pour_ab, b + pour_ab)),
        ("5 into 3", (a + pour_ba, b - pour_ba)),
    ]


def test_every_state_is_met_once_and_counted() -> None:
    report = check(Toy((0, 0), jugs))
    assert (report.states, report.complete, report.ok) == (16, True, True)
    assert report.edges == 16 * 6


def test_a_violation_is_shown_by_the_shortest_story() -> None:
    report = check(Toy((0, 0), jugs, [always("nobody measures four litres", lambda s: 4 not in s)]))
    (violation,) = report.violations
    assert violation.claim == "nobody measures four litres"
    assert [step[0].partition(":")[0] for step in violation.story] == [
        "fill 5",
        "5 into 3",
        "empty 3",
        "5 into 3",
        "fill 5",
        "5 into 3",
    ]


def test_a_story_replays_from_its_choices() -> None:
    model = Toy((0, 0), jugs, [always("nobody measures four litres", lambda s: 4 not in s)])
    (violation,) = check(model).violations
    assert tuple(tuple(step) for step in retell(model, violation.choices)) == violation.story
    assert broken_at_the_end(model, violation.choices) == ["nobody measures four litres"]
    assert broken_at_the_end(model, violation.choices[:-1]) == []


def test_a_claim_that_the_initial_state_breaks_is_a_violation_with_an_empty_story() -> None:
    (violation,) = check(Toy((0, 0), jugs, [always("there is water", lambda s: s != (0, 0))])).violations
    assert (violation.story, violation.choices) == ((), ())


def test_a_sometimes_claim_that_never_holds_is_a_violation_with_an_empty_story() -> None:
    seen, unseen = sometimes("four", lambda s: 4 in s), sometimes("six", lambda s: 6 in s)
    (violation,) = check(Toy((0, 0), jugs, [seen, unseen])).violations
    assert (violation.mode, violation.claim, violation.story) == (Mode.SOMETIMES, "six", ())


def ratchet(state: int) -> list[tuple[str, int]]:
    """0 → 1 → 2 → 3, a trap at 7, and somebody who can help out of it."""
    ways = {0: [("on", 1)], 1: [("on", 2), ("slip", 7)], 2: [("on", 3)], 3: [], 7: [("somebody helps", 3)]}
    return ways[state]


def test_a_state_that_cannot_reach_the_goal_is_reported_with_the_path_to_it() -> None:
    (violation,) = check(Toy(0, ratchet, [eventually("three is reached", lambda s: s == 3)])).violations
    assert violation.mode is Mode.EVENTUALLY
    assert [step[0] for step in violation.story] == ["on: 0 → 1", "slip: 1 → 7"]


def test_a_goal_is_required_only_in_states_where_its_condition_holds() -> None:
    claim = eventually("three is reached", lambda s: s == 3, when=lambda s: s != 7)
    assert check(Toy(0, ratchet, [claim])).ok


def test_a_goal_is_reached_round_a_circle() -> None:
    """States that only lead back are settled by a later round, not by the first."""

    def circle(state: int) -> list[tuple[str, int]]:
        return [("on", (state + 1) % 10), *([("out", 99)] if state == 0 else [])] if state != 99 else []

    assert check(Toy(5, circle, [eventually("out", lambda s: s == 99)])).ok


def test_states_that_differ_in_names_only_are_met_once_and_the_story_keeps_the_names() -> None:
    def two(state: tuple[int, int]) -> list[tuple[str, tuple[int, int]]]:
        a, b = state
        return [("left", (a + 1, b)), ("right", (a, b + 1))] if a + b < 4 else []

    claims = [always("nobody gets to three", lambda s: max(s) < 3)]
    plain = check(Toy((0, 0), two))
    folded = check(Toy((0, 0), two, same=lambda s: tuple(sorted(s))))
    assert (plain.states, folded.states) == (15, 9)
    (violation,) = check(Toy((0, 0), two, claims, same=lambda s: tuple(sorted(s)))).violations
    assert len({step[0].partition(":")[0] for step in violation.story}) == 1


def test_an_exploration_that_reaches_its_limit_is_incomplete_and_reports_no_violations() -> None:
    counter = Toy(
        0, lambda n: [("on", n + 1)], [eventually("never", lambda _: False), sometimes("no", lambda _: False)]
    )
    report = check(counter, most=1_000)
    assert (report.complete, report.ok) == (False, True)
    assert report.states == 1_000


def test_the_checker_reports_its_progress_while_it_explores() -> None:
    reports: list[tuple[int, int, int]] = []
    check(Toy((0, 0), jugs), progress=lambda *so_far: reports.append(so_far))
    assert reports == sorted(reports)
    assert reports


@pytest.mark.parametrize("many", [10, 100_000])
def test_states_are_numbered_in_the_order_in_which_they_are_met(many: int) -> None:
    seen = Seen()
    hashes = [hash((number, "x".__len__(), number % 7)) for number in range(many)]
    assert [seen.number(hashed) for hashed in hashes] == list(range(many))
    assert [seen.number(hashed) for hashed in hashes] == list(range(many))
    assert seen.find(hashes[many // 2]) == many // 2
    assert seen.find(12345) is None


def test_a_hash_of_zero_is_a_hash_like_any_other() -> None:
    seen = Seen()
    assert [seen.number(0), seen.number(5), seen.number(0)] == [0, 1, 0]


@pytest.mark.long  # a property of Python
def test_hashes_of_tuples_of_small_numbers_do_not_collide() -> None:
    """States are tuples of tuples of small numbers, and known by their hash alone."""
    numbers = count()
    states = {
        ((a, b), (c, d), (e,), f)
        for a in range(12)
        for b in range(12)
        for c in range(0, 4_000, 400)
        for d in range(0, 4_000, 400)
        for e in range(0, 40_000, 4_000)
        for f in range(3)
        if next(numbers) >= 0
    }
    assert len({hash(state) for state in states}) == len(states)
