"""States that differ only in names: workers are symmetric, and so are jobs with equal plans."""

from __future__ import annotations

from typing import Any, TypeAlias

from interlock_verification.models import budget
from interlock_verification.models.job_decisions import JobDecisions
from interlock_verification.models.job_values import (
    FIRST_COMMAND,
    Say,
    attempt_bit,
    read_hand,
    read_message,
)
from interlock_verification.models.plan import ModelPlan

StateTuple: TypeAlias = tuple[Any, ...]
"""A state of a world: small numbers, which are quick to hash."""


class CanonicalNames:
    """Maps states of the world of one plan to their canonical names."""

    def __init__(self, plan: ModelPlan, deciding: JobDecisions) -> None:
        self._deciding = deciding
        self._workers_alike = plan.workers == 2
        self._jobs_alike = len(plan.jobs) == 2 and plan.jobs[0] == plan.jobs[1]
        self._shapes: dict[int, int] = {}

    def canonical(self, state: StateTuple) -> StateTuple:
        """Return the state with canonical names."""
        state = self._forget(state)
        if self._jobs_alike:
            jobs = state[0]
            first, second = self._shape(jobs[0]), self._shape(jobs[1])
            if first > second:
                state = self._swap_jobs(state)
        if self._workers_alike and self._second_comes_first(state):
            state = self._swap_workers(state)
        orch = state[3]
        if len(orch) == 2 and _rank(orch[0]) > _rank(orch[1]):
            state = (*state[:3], (orch[1], orch[0]), state[4])
        return state

    def _forget(self, state: StateTuple) -> StateTuple:
        """Return the state without the names of some ended leases.

        No message can mention these leases.
        """
        jobs, hands, net, orch, spare = state
        named, forget = self._deciding.named_ends, self._deciding.forget
        for job, value in enumerate(jobs):
            if named[value]:
                after = forget(value, _known(job, hands, net, orch))
                if after != value:
                    jobs = (*jobs[:job], after, *jobs[job + 1 :])
        for place, one in enumerate(orch):
            if one is not None and named[one[2]]:
                after = forget(one[2], _known(one[1], hands, net, orch))
                orch = (*orch[:place], (*one[:2], after, *one[3:]), *orch[place + 1 :])
        return jobs, hands, net, orch, spare

    def _shape(self, value: int) -> int:
        """Return a value up to renaming of workers."""
        shape = self._shapes.get(value)
        if shape is None:
            other = self._deciding.rename(value, (1, 0)) if self._workers_alike else value
            shape = self._shapes[value] = min(value, other)
        return shape

    def _second_comes_first(self, state: StateTuple) -> bool:
        jobs, hands, net, orch, _ = state
        if hands[0] != hands[1]:
            return bool(hands[0] > hands[1])
        mine, other = _messages_of(0, net), _messages_of(1, net)
        if mine != other:
            return mine > other
        renamed = tuple([self._deciding.rename(value, (1, 0)) for value in jobs])
        if renamed != jobs:
            return bool(renamed < jobs)
        return _ops(orch, 1) < _ops(orch, 0)

    def _swap_workers(self, state: StateTuple) -> StateTuple:
        jobs, hands, net, orch, spare = state
        rename = self._deciding.rename
        return (
            tuple([rename(value, (1, 0)) for value in jobs]),
            (hands[1], hands[0]),
            tuple(sorted([_other_worker(code) for code in net])),
            tuple([None if one is None else self._pending_of_other(one) for one in orch]),
            spare,
        )

    def _pending_of_other(self, one: tuple[int, ...]) -> tuple[int, ...]:
        op, job, after, until, reply, freshness = one
        if op >= 0:
            op = _other_worker(op)
        elif op > -8:
            op = -3 - op  # the claims of worker 0 and 1 are -1 and -2
        reply = _other_worker(reply) if reply else 0
        return op, job, self._deciding.rename(after, (1, 0)), until, reply, freshness

    def _swap_jobs(self, state: StateTuple) -> StateTuple:
        jobs, hands, net, orch, spare = state
        return (
            (jobs[1], jobs[0]),
            tuple([_other_job_in_hand(hand) if hand else hand for hand in hands]),
            tuple(sorted([_other_job(code) for code in net])),
            tuple([None if one is None else _pending_about_other(one) for one in orch]),
            budget.swapped(spare, (1, 0)),
        )


def _known(job: int, hands: tuple[int, ...], net: tuple[int, ...], orch: tuple[Any, ...]) -> int:
    """Return the attempts of a job that a message can still mention, as bits."""
    known = 0
    for hand in hands:
        if hand:
            held = read_hand(hand)
            if held.job == job:
                known |= attempt_bit(held.shard, held.attempt)
    codes = net if not any(orch) else (*net, *(one[0] for one in orch if one is not None and one[0] >= 0))
    for code in codes:
        note = read_message(code)
        if note.job == job and note.say not in (Say.SUBMIT, Say.CANCEL):
            known |= attempt_bit(note.shard, note.attempt)
    return known


def _messages_of(worker: int, net: tuple[int, ...]) -> list[int]:
    """Return the messages from or to a worker, without its name."""
    return [code & ~(3 << 10) for code in net if code >> 10 & 3 == worker and not _is_command(code)]


def _is_command(code: int) -> bool:
    return FIRST_COMMAND <= code >> 12 < Say.GRANT


def _other_worker(code: int) -> int:
    return code if _is_command(code) else code ^ 1 << 10


def _other_job(code: int) -> int:
    return code ^ 1 << 8


def _other_job_in_hand(code: int) -> int:
    return code ^ 1 << 9


def _pending_about_other(one: tuple[int, ...]) -> tuple[int, ...]:
    op, job, after, until, reply, freshness = one
    return (
        (_other_job(op) if op >= 0 else op),
        1 - job,
        after,
        until,
        _other_job(reply) if reply else 0,
        freshness,
    )


def _ops(orch: tuple[Any, ...], worker: int) -> list[int]:
    return [one[0] for one in orch if one is not None and one[0] == -1 - worker]


def _rank(one: tuple[int, ...] | None) -> tuple[int, ...]:
    return () if one is None else one
