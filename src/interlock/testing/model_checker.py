"""The model checker: explore every reachable state, breadth first, and check claims about them.

`always`, `sometimes` and `eventually` are the claims about a model. States are kept in twelve bytes
each.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

import msgspec

AIDED = 1
"""Bit of a step that is a choice or a fault: no `eventually` may depend on it."""

Looked: TypeAlias = Callable[[Any], bool]


class Mode(StrEnum):
    """Kind of a claim."""

    ALWAYS = "always"
    SOMETIMES = "sometimes"
    EVENTUALLY = "eventually"


@dataclass(frozen=True, slots=True)
class ModelClaim:
    """A claim. `holds` is None where the model itself computes it in `look`."""

    mode: Mode
    claim: str
    holds: Looked | None = None
    when: Looked | None = None
    conditional: bool = False
    """Whether an `eventually` applies only to the states that its second bit marks."""


def always(claim: str, holds: Looked | None = None) -> ModelClaim:
    """Claim that a predicate holds in every reachable state."""
    return ModelClaim(Mode.ALWAYS, claim, holds)


def sometimes(claim: str, holds: Looked | None = None) -> ModelClaim:
    """Claim that a predicate holds in at least one reachable state."""
    return ModelClaim(Mode.SOMETIMES, claim, holds)


def eventually(
    claim: str, holds: Looked | None = None, *, when: Looked | None = None, conditional: bool = False
) -> ModelClaim:
    """Claim that a predicate can come true from every state, or every `when`."""
    return ModelClaim(Mode.EVENTUALLY, claim, holds, when, conditional or when is not None)


def bit(place: int) -> int:
    """Return the first bit of the claim at this index.

    It means broken (always), seen (sometimes), or there (eventually).
    """
    return 2 << (2 * place)


def trigger_bit(place: int) -> int:
    """Return the second bit: the state marks the start of an `eventually`."""
    return 4 << (2 * place)


def look_with(claims: Sequence[ModelClaim]) -> Callable[[Any], int]:
    """Return a function that evaluates each claim for a state.

    It is for models without a quicker way.
    """
    conditions = [
        (bit(n), one.mode is not Mode.ALWAYS, one.holds) for n, one in enumerate(claims) if one.holds
    ]
    conditions += [(trigger_bit(n), True, one.when) for n, one in enumerate(claims) if one.when]

    def look(state: Any) -> int:
        seen = 0
        for its_bit, wanted, holds in conditions:
            if holds(state) is wanted:
                seen |= its_bit
        return seen

    return look


_FIRST_SIZE = 1 << 16
_ALL_64 = (1 << 64) - 1
_FOR_ZERO = 0x9E3779B97F4A7C15
"""Value for a hash of zero, because zero marks an empty slot."""


class Seen:
    """Map from the hash of a state to its number, in order of discovery."""

    __slots__ = ("_hashes", "_limit", "_mask", "_numbers", "count")

    def __init__(self) -> None:
        self.count: int = 0
        self._resize(_FIRST_SIZE)

    def number(self, hashed: int) -> int:
        """Return the number of a state.

        A new state has the number that `count` was before.
        """
        hashed = hashed & _ALL_64 or _FOR_ZERO
        hashes, mask = self._hashes, self._mask
        place = (hashed ^ hashed >> 29) & mask
        while found := hashes[place]:
            if found == hashed:
                return self._numbers[place]
            place = place + 1 & mask
        hashes[place] = hashed
        number = self._numbers[place] = self.count
        self.count = number + 1
        if number > self._limit:
            self._grow()
        return number

    def find(self, hashed: int) -> int | None:
        """Return the number of a known state; None for any other."""
        hashed = hashed & _ALL_64 or _FOR_ZERO
        place = (hashed ^ hashed >> 29) & self._mask
        while found := self._hashes[place]:
            if found == hashed:
                return self._numbers[place]
            place = place + 1 & self._mask
        return None

    def _resize(self, size: int) -> None:
        self._hashes = array("Q", bytes(8 * size))
        self._numbers = array("I", bytes(4 * size))
        self._mask = size - 1
        self._limit = size * 5 // 8

    def _grow(self) -> None:
        old, numbers = self._hashes, self._numbers
        self._resize(2 * len(old))
        hashes, kept, mask = self._hashes, self._numbers, self._mask
        for before, hashed in enumerate(old):
            if hashed:
                place = (hashed ^ hashed >> 29) & mask
                while hashes[place]:
                    place = place + 1 & mask
                hashes[place], kept[place] = hashed, numbers[before]


class Graph:
    """The states by number, the unaided steps between them, and the goals of each."""

    __slots__ = ("reached", "starts", "targets", "triggered")

    def __init__(self) -> None:
        self.starts: array[int] = array("Q")
        self.targets: array[int] = array("I")
        self.reached: bytearray = bytearray()
        self.triggered: bytearray = bytearray()

    def add(self, reached: int, triggered: int) -> None:
        """Add a state with the goals that hold in it.

        `triggered` has the goals that must be reachable from it.
        """
        self.reached.append(reached)
        self.triggered.append(triggered)

    def begin(self) -> None:
        """Start the list of steps of the next state."""
        self.starts.append(len(self.targets))

    def lead(self, number: int) -> None:
        """Add a step to this state."""
        self.targets.append(number)


def stuck(graph: Graph, goals: int) -> Iterator[tuple[int, int]]:
    """Yield each goal that cannot be reached from a state that needs it.

    The first such state comes with it.
    """
    everything = (1 << goals) - 1
    if not everything:
        return
    reached = _spread(graph, everything)
    for goal in range(goals):
        mine = 1 << goal
        for number, triggered in enumerate(graph.triggered):
            if triggered & mine and not reached[number] & mine:
                yield goal, number
                break


def _spread(graph: Graph, everything: int) -> bytearray:
    """Propagate the goals back along the steps until nothing changes."""
    reached, targets = bytearray(graph.reached), graph.targets
    starts = array("Q", graph.starts)
    starts.append(len(targets))
    open_ones = array("I", range(len(starts) - 2, -1, -1))
    changed = True
    while changed and open_ones:
        changed, left = False, array("I")
        for number in open_ones:
            mask = before = reached[number]
            for target in targets[starts[number] : starts[number + 1]]:
                mask |= reached[target]
                if mask == everything:
                    break
            if mask != before:
                reached[number] = mask
                changed = True
            if mask != everything:
                left.append(number)
        open_ones = left
    return reached


ModelState: TypeAlias = Any
"""Any value that is hashed by its content: tuples of numbers are quickest."""

ModelStep: TypeAlias = tuple[Any, ModelState, int]
"""The action (for the counterexample), the state after it, and bits: those of claims, and AIDED."""


class Model(Protocol):
    """A model that can be explored."""

    @property
    def name(self) -> str: ...

    @property
    def claims(self) -> Sequence[ModelClaim]: ...

    def initial(self) -> ModelState:
        """Return the initial state."""
        ...

    def steps(self, state: ModelState) -> Iterable[ModelStep]:
        """Return the possible steps, always in the same order."""
        ...

    def canonical(self, state: ModelState) -> ModelState:
        """Return the representative of states that differ in names only.

        If it is unknown, it is the state itself.
        """
        ...

    def look(self, state: ModelState) -> int:
        """Return the bits of the claims in a state."""
        ...

    def tell(self, done: Any, before: ModelState, after: ModelState) -> list[str]:
        """Return a step in words.

        That is the action, and then the rows of the tables that are taken.
        """
        ...


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that does not hold, and the shortest counterexample."""

    mode: Mode
    claim: str
    story: tuple[tuple[str, ...], ...] = ()
    choices: tuple[int, ...] = ()
    """Index of the step taken in each state of the counterexample, for a replay."""


class ExplorationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an exploration."""

    model: str
    states: int
    edges: int
    depth: int
    complete: bool
    """Whether every state was explored; if not, `eventually` was not checked."""
    claims: tuple[tuple[Mode, str], ...]
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether all claims hold."""
        return not self.violations


ShowProgress: TypeAlias = Callable[[int, int, int], None]
"""Callback with the number of states, edges and levels so far."""

_PROGRESS_EVERY = 4_096


def check(
    model: Model, *, most: int | None = None, progress: ShowProgress | None = None
) -> ExplorationReport:
    """Explore a model until it is complete or a claim fails.

    It also ends when `most` states were found.
    """
    exploration = Exploration(model, most=most, progress=progress)
    exploration.run()
    return exploration.report()


class Exploration:
    """An exploration in progress."""

    def __init__(
        self, model: Model, *, most: int | None = None, progress: ShowProgress | None = None
    ) -> None:
        self.model = model
        self.seen: Seen = Seen()
        self.graph: Graph = Graph()
        self.edges: int = 0
        self.depth: int = 0
        self.complete: bool = False
        self._most = most or 2**32 - 1
        self._progress = progress
        self._parents = array("I")
        self._witnessed = 0
        self._broken: tuple[int, int] | None = None
        self._sort_claims(model.claims)

    def run(self) -> None:
        """Explore level by level."""
        frontier = [self.model.initial()]
        self._meet(frontier[0], 0)
        while frontier and self._broken is None and self.seen.count < self._most:
            frontier = self._next_level(frontier)
            self.depth += bool(frontier)
        self.complete = not frontier

    def report(self) -> ExplorationReport:
        """Return the result so far."""
        return ExplorationReport(
            model=self.model.name,
            states=self.seen.count,
            edges=self.edges,
            depth=self.depth,
            complete=self.complete,
            claims=tuple((claim.mode, claim.claim) for claim in self.model.claims),
            violations=tuple(self._violations()),
        )

    def _sort_claims(self, claims: Sequence[ModelClaim]) -> None:
        self._always = sum(bit(n) for n, claim in enumerate(claims) if claim.mode is Mode.ALWAYS)
        self._lasting = [n for n, claim in enumerate(claims) if claim.mode is Mode.EVENTUALLY]
        self._goals = [
            (bit(n), trigger_bit(n) if claims[n].conditional else 0, 1 << place)
            for place, n in enumerate(self._lasting)
        ]

    def _next_level(self, frontier: list[ModelState]) -> list[ModelState]:
        steps, canonical, number_of = self.model.steps, self.model.canonical, self.seen.number
        seen, graph, following = self.seen, self.graph, list[ModelState]()
        first = seen.count - len(frontier)
        for place, state in enumerate(frontier):
            graph.begin()
            for _, found, bits in steps(state):
                self.edges += 1
                self._witnessed |= bits
                after = canonical(found)
                count = seen.count
                number = number_of(hash(after))
                if number == count:
                    self._meet(after, first + place, known=True)
                    following.append(after)
                if not bits & AIDED:
                    graph.lead(number)
            if self._broken is not None or seen.count >= self._most:
                return following
            if self._progress is not None and not place % _PROGRESS_EVERY:
                self._progress(seen.count, self.edges, self.depth)
        return following

    def _meet(self, state: ModelState, parent: int, *, known: bool = False) -> None:
        """Record a new state."""
        number = self.seen.count - 1 if known else self.seen.number(hash(self.model.canonical(state)))
        self._parents.append(parent)
        bits = self.model.look(state)
        self._witnessed |= bits
        if bits & self._always and self._broken is None:
            self._broken = number, bits & self._always
        reached = triggered = 0
        for goal, trigger, place in self._goals:
            if bits & goal:
                reached |= place
            if not trigger or bits & trigger:
                triggered |= place
        self.graph.add(reached, triggered)

    def _violations(self) -> Iterable[Violation]:
        if self._broken is not None:
            number, bits = self._broken
            for place, claim in enumerate(self.model.claims):
                if claim.mode is Mode.ALWAYS and bits & bit(place):
                    yield self._violation(claim, number)
            return
        if not self.complete:
            return
        for place, claim in enumerate(self.model.claims):
            if claim.mode is Mode.SOMETIMES and not self._witnessed & bit(place):
                yield Violation(mode=claim.mode, claim=claim.claim)
        for place, number in stuck(self.graph, len(self._lasting)):
            yield self._violation(self.model.claims[self._lasting[place]], number)

    def _violation(self, claim: ModelClaim, number: int) -> Violation:
        choices = self._way_to(number)
        return Violation(
            mode=claim.mode,
            claim=claim.claim,
            story=tuple(tuple(step) for step in retell(self.model, choices)),
            choices=tuple(choices),
        )

    def _way_to(self, number: int) -> list[int]:
        """Return the choices that lead to a state.

        Names are kept on the way, so that they stay the same.
        """
        chain = [number]
        while chain[-1]:
            chain.append(self._parents[chain[-1]])
        state, choices = self.model.initial(), []
        for wanted in reversed(chain[:-1]):
            for choice, (_, after, _) in enumerate(self.model.steps(state)):
                if self.seen.find(hash(self.model.canonical(after))) == wanted:
                    choices.append(choice)
                    state = after
                    break
        return choices


def retell(model: Model, choices: Sequence[int]) -> list[list[str]]:
    """Return the steps of these choices in words."""
    state, story = model.initial(), []
    for choice in choices:
        done, after, _ = list(model.steps(state))[choice]
        story.append(model.tell(done, state, after))
        state = after
    return story


def broken_at_the_end(model: Model, choices: Sequence[int]) -> list[str]:
    """Return the claims `always` that do not hold after these choices."""
    state = model.initial()
    for choice in choices:
        state = list(model.steps(state))[choice][1]
    bits = model.look(state)
    return [
        claim.claim
        for place, claim in enumerate(model.claims)
        if claim.mode is Mode.ALWAYS and bits & bit(place)
    ]
