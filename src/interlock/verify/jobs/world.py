"""Jobs, workers, a network, orchestrators and a clock: what can happen next.

A state is five tuples of small numbers: the value of each job, what each worker knows, what is on its
way (in no order), what each orchestrator has decided and not committed, and how many faults are left.
A message that is lost is one that is never delivered, so nothing has to be done to lose it. What is
said under a lease that has ended is answered at once: it is refused now as at any later time, and the
answer may still take as long as it likes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from interlock.verify.claims import Claim, always, bit, eventually, sometimes, trigger_bit
from interlock.verify.jobs import judge, spares, symmetry
from interlock.verify.jobs.actors import Working
from interlock.verify.jobs.codes import IDLE, Say, read_hand, read_note, write_note
from interlock.verify.jobs.decisions import ABSENT, Deciding
from interlock.verify.jobs.orchestrators import Done
from interlock.verify.jobs.plan import Plan
from interlock.verify.jobs.stories import tell

State: TypeAlias = tuple[Any, ...]

SETTLES = "every job settles, and nobody holds a lease on it"
CANCEL_SETTLES = "every cancel settles"
RECLAIMED = "every expired lease is reclaimed"


def claims_of(plan: Plan) -> list[Claim]:
    """Everything that is claimed of the jobs of a plan."""
    held = [*judge.VALUE_CLAIMS, *judge.STEP_CLAIMS, judge.STORE_CLAIM, judge.BATCH_CLAIM]
    held += [judge.GIVEN_ONCE, judge.ASKED_FOR, judge.DONE_ONCE, judge.IN_TIME]
    return [
        *(always(claim) for claim in held),
        eventually(SETTLES),
        eventually(CANCEL_SETTLES, conditional=True),
        eventually(RECLAIMED, conditional=True),
        *(sometimes(claim) for claim in plan.shows),
    ]


class JobWorld(Working):
    """The model of a plan."""

    def __init__(self, plan: Plan, places: dict[str, int] | None = None) -> None:
        self.name = plan.name
        self.claims: Sequence[Claim] = claims_of(plan)
        self.places = places or {claim.claim: place for place, claim in enumerate(self.claims)}
        super().__init__(plan, Deciding(plan, self.places))
        self._given_once = bit(self.places[judge.GIVEN_ONCE])
        self._asked_for = bit(self.places[judge.ASKED_FOR])
        self._settled, self._done_stopping = bit(self.places[SETTLES]), bit(self.places[CANCEL_SETTLES])
        self._reclaimed = bit(self.places[RECLAIMED])
        self._stopping, self._due = (
            trigger_bit(self.places[CANCEL_SETTLES]),
            trigger_bit(self.places[RECLAIMED]),
        )
        self.names = symmetry.Naming(self)

    # Where it begins, and what is seen

    def initial(self) -> State:
        """Nobody has begun; the jobs are there, or about to be submitted."""
        plan, numbers = self.plan, range(len(self.plan.jobs))
        jobs = tuple(ABSENT if plan.submits else self._first[number].after for number in numbers)
        net = tuple(write_note(Say.SUBMIT, 0, number) for number in numbers) if plan.submits else ()
        return jobs, (IDLE,) * plan.workers, net, (None,) * plan.orchestrators, spares.first(plan)

    def first(self, number: int) -> int:
        """The value of a job that was just submitted."""
        return self._first[number].after

    def canonical(self, state: State) -> State:
        """The same with the names of workers and jobs put in order."""
        return state if len(state) == 1 else self.names.canonical(state)

    def look(self, state: State) -> int:
        """What is to be seen, mostly what is known of each job's value."""
        if len(state) == 1:
            broken: int = state[0]
            return broken
        jobs, hands, net, _, spare = state
        known, seen, unsettled, stopping, due = self.deciding, 0, False, False, False
        for number, value in enumerate(jobs):
            seen |= known.bits[value]
            unsettled |= known.unsettled[value]
            stopping |= known.stopping[value]
            due |= known.due[value]
            if known.by_cancel[value] and not spare & spares.asked(number):
                seen |= self._asked_for
        if self._given_twice(hands, net):
            seen |= self._given_once
        seen |= 0 if unsettled else self._settled
        seen |= self._stopping if stopping else self._done_stopping
        return seen | self._on_the_way | (self._due if due else self._reclaimed)

    def _given_twice(self, hands: tuple[int, ...], net: tuple[int, ...]) -> bool:
        if len(hands) < 2:
            return False
        given: dict[tuple[int, int, int], int] = {}
        held = [(read_hand(hand), worker) for worker, hand in enumerate(hands) if hand]
        holders = [((hand.job, hand.shard, hand.attempt), worker) for hand, worker in held]
        for code in net:
            note = read_note(code)
            if note.say is Say.GRANT:
                holders.append(((note.job, note.shard, note.attempt), note.worker))
        return any(given.setdefault(token, worker) != worker for token, worker in holders)

    def tell(self, done: Done, before: State, after: State) -> list[str]:
        """A step in words."""
        return tell(done, before, after)
