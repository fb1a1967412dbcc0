"""The model checker: every state that can be reached, breadth first, and what is claimed of them.

A model says where it begins, which steps can be taken in a state, and what there is to see in it.
Breadth first means that the first state that breaks a claim is reached by as few steps as any; the
way there is found again from one number per state and told as a story.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from interlock.verify.claims import AIDED, Claim, Mode, bit, trigger_bit
from interlock.verify.reachability import Graph, stuck
from interlock.verify.seen import Seen

State: TypeAlias = Any
"""Anything that is hashed by its content: tuples of numbers are quickest."""

Step: TypeAlias = tuple[Any, State, int]
"""What is done (for the story), the state after it, and bits: what is seen on the way, and AIDED."""


class Model(Protocol):
    """A world that can be explored."""

    @property
    def name(self) -> str: ...

    @property
    def claims(self) -> Sequence[Claim]: ...

    def initial(self) -> State:
        """Where everything begins."""
        ...

    def steps(self, state: State) -> Iterable[Step]:
        """Everything that can happen next, always in the same order."""
        ...

    def canonical(self, state: State) -> State:
        """The one among states that differ in names only; the state itself where that is not known."""
        ...

    def look(self, state: State) -> int:
        """What there is to see, in the bits of the claims."""
        ...

    def tell(self, done: Any, before: State, after: State) -> list[str]:
        """A step in words: what happens, then the rows of the tables that are taken."""
        ...


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that does not hold, and the shortest story that shows it."""

    mode: Mode
    claim: str
    story: tuple[tuple[str, ...], ...] = ()
    choices: tuple[int, ...] = ()
    """Which of its steps each state of the story takes: enough to do it again."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an exploration."""

    model: str
    states: int
    edges: int
    depth: int
    complete: bool
    """Whether every state was looked at; if not, nothing is said about `eventually`."""
    claims: tuple[tuple[Mode, str], ...]
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether everything that was claimed holds."""
        return not self.violations


Progress: TypeAlias = Callable[[int, int, int], None]
"""Called now and then with states, edges and depth so far."""

_PROGRESS_EVERY = 4_096


def check(model: Model, *, most: int | None = None, progress: Progress | None = None) -> Report:
    """Explore a model until everything is known, a claim breaks, or `most` states were met."""
    exploration = Exploration(model, most=most, progress=progress)
    exploration.run()
    return exploration.report()


class Exploration:
    """One exploration as it goes."""

    def __init__(self, model: Model, *, most: int | None = None, progress: Progress | None = None) -> None:
        self.model = model
        self.seen = Seen()
        self.graph = Graph()
        self.edges = 0
        self.depth = 0
        self.complete = False
        self._most = most or 2**32 - 1
        self._progress = progress
        self._parents = array("I")
        self._witnessed = 0
        self._broken: tuple[int, int] | None = None
        self._sort_claims(model.claims)

    def run(self) -> None:
        """Level by level."""
        frontier = [self.model.initial()]
        self._meet(frontier[0], 0)
        while frontier and self._broken is None and self.seen.count < self._most:
            frontier = self._next_level(frontier)
            self.depth += bool(frontier)
        self.complete = not frontier

    def report(self) -> Report:
        """What is known now."""
        return Report(
            model=self.model.name,
            states=self.seen.count,
            edges=self.edges,
            depth=self.depth,
            complete=self.complete,
            claims=tuple((claim.mode, claim.claim) for claim in self.model.claims),
            violations=tuple(self._violations()),
        )

    def _sort_claims(self, claims: Sequence[Claim]) -> None:
        self._always = sum(bit(n) for n, claim in enumerate(claims) if claim.mode is Mode.ALWAYS)
        self._lasting = [n for n, claim in enumerate(claims) if claim.mode is Mode.EVENTUALLY]
        self._goals = [
            (bit(n), trigger_bit(n) if claims[n].conditional else 0, 1 << place)
            for place, n in enumerate(self._lasting)
        ]

    def _next_level(self, frontier: list[State]) -> list[State]:
        steps, canonical, number_of = self.model.steps, self.model.canonical, self.seen.number
        seen, graph, following = self.seen, self.graph, list[State]()
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

    def _meet(self, state: State, parent: int, *, known: bool = False) -> None:
        """A state is met for the first time."""
        number = self.seen.count - 1 if known else self.seen.number(hash(self.model.canonical(state)))
        self._parents.append(parent)
        bits = self.model.look(state)
        self._witnessed |= bits
        if bits & self._always and self._broken is None:
            self._broken = number, bits & self._always
        reached = asked = 0
        for goal, trigger, place in self._goals:
            if bits & goal:
                reached |= place
            if not trigger or bits & trigger:
                asked |= place
        self.graph.add(reached, asked)

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

    def _violation(self, claim: Claim, number: int) -> Violation:
        choices = self._way_to(number)
        return Violation(
            mode=claim.mode,
            claim=claim.claim,
            story=tuple(tuple(told) for told in retell(self.model, choices)),
            choices=tuple(choices),
        )

    def _way_to(self, number: int) -> list[int]:
        """The choices that lead there; states keep their own names on the way, so people stay the same."""
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
    """The story of these choices, one step after the other."""
    state, story = model.initial(), []
    for choice in choices:
        done, after, _ = list(model.steps(state))[choice]
        story.append(model.tell(done, state, after))
        state = after
    return story


def broken_at_the_end(model: Model, choices: Sequence[int]) -> list[str]:
    """Which claims of the kind `always` do not hold where these choices lead."""
    state = model.initial()
    for choice in choices:
        state = list(model.steps(state))[choice][1]
    bits = model.look(state)
    return [
        claim.claim
        for place, claim in enumerate(model.claims)
        if claim.mode is Mode.ALWAYS and bits & bit(place)
    ]
