"""Environments explored one after the other, or on two processors side by side.

An exploration uses one processor, and several environments know nothing of each other; so the long
ones go to processes of their own, largest first, and what they report on the way is added up.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeAlias

import msgspec

from interlock.verify.claims import Mode
from interlock.verify.environments import model_of, plan_named
from interlock.verify.jobs.plan import Plan
from interlock.verify.model_checker import Report, Violation, broken_at_the_end, check, retell


class Explored(msgspec.Struct, frozen=True, kw_only=True):
    """An environment, and what came of it."""

    environment: str
    report: Report
    seconds: float
    expected: int | None = None
    """How many states it is known to have; None when nobody has counted, or not all were explored."""

    @property
    def ok(self) -> bool:
        """Whether every claim holds, and the count is the known one."""
        return self.report.ok and self.expected in (None, self.report.states)


Watch: TypeAlias = Callable[[str, int, int], None]
"""Told now and then: which environment, and how many states and edges of it so far."""


def explore(plan: Plan, *, most: int | None = None, watch: Watch | None = None) -> Explored:
    """One environment, here."""

    def progress(states: int, edges: int, _: int) -> None:
        if watch is not None:
            watch(plan.name, states, edges)

    begun = time.perf_counter()
    report = check(model_of(plan), most=most, progress=progress)
    seconds = time.perf_counter() - begun
    if watch is not None:
        watch(plan.name, report.states, report.edges)
    expected = plan.states if report.complete else None
    return Explored(environment=plan.name, report=report, seconds=seconds, expected=expected)


def replay(plan: Plan, choices: Sequence[int]) -> Violation:
    """The story of these choices once more, and what is broken at its end."""
    model = model_of(plan)
    story = tuple(tuple(told) for told in retell(model, choices))
    broken = broken_at_the_end(model, choices)
    claim = "; ".join(broken) or "nothing is broken here"
    return Violation(mode=Mode.ALWAYS, claim=claim, story=story, choices=tuple(choices))


def explore_side_by_side(
    plans: Sequence[Plan], *, lanes: int = 2, most: int | None = None, watch: Watch | None = None
) -> Iterator[Explored]:
    """Each environment in a process of its own, as many at a time as there are lanes."""
    waiting = sorted(plans, key=lambda plan: plan.states or 0, reverse=True)
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, BaseProcess] = {}
    try:
        while waiting or running:
            while waiting and len(running) < lanes:
                here, there = context.Pipe(duplex=False)
                name = waiting.pop(0).name
                child = context.Process(target=_explore_there, args=(name, most, there), name=name)
                child.start()
                there.close()
                running[here] = child
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                told = _receive(ready, running[ready])
                if isinstance(told, tuple) and watch is not None:
                    watch(*told)
                if not isinstance(told, tuple):
                    running.pop(ready).join()
                    ready.close()
                    yield told
    finally:
        for connection, left in running.items():
            left.terminate()
            left.join()
            connection.close()


def _receive(connection: Connection, child: BaseProcess) -> tuple[str, int, int] | Explored:
    try:
        told: tuple[str, int, int] | Explored = connection.recv()
    except EOFError:
        child.join()
        code = child.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        raise RuntimeError(f"the exploration of {child.name} {how}") from None
    return told


def _explore_there(name: str, most: int | None, to: Connection) -> None:
    """In a process of its own."""
    to.send(explore(plan_named(name), most=most, watch=lambda *told: to.send(told)))
    to.close()
