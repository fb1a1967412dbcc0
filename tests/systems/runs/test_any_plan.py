"""Whatever the plan, whoever fails and whoever looks after it when: it ends as a tiny oracle says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import pick
from tests.rerouting import reroute
from tests.systems.orchestrator.house import done, failed
from tests.systems.runs.site import Site, planned

from interlock.lifecycles.couplings import Recipient
from interlock.machine.cascade import order
from interlock.systems.orchestrator.notifications import JobChanged
from interlock.systems.runs.aggregate import RunAggregate
from interlock.wire.runner import Grant, Heard
from interlock.wire.runs import PlannedJob


class Case:
    """A plan, how its jobs would end, and in which order things happen."""

    def __init__(
        self, jobs: list[PlannedJob], failing: set[str], fail_fast: bool, order: list[int], cancel_after: int
    ) -> None:
        self.jobs = jobs
        self.failing = failing
        self.fail_fast = fail_fast
        self.order = order
        self.cancel_after = cancel_after

    def __repr__(self) -> str:
        drawn = ", ".join(f"{j.name}{'' if j.required else '?'}<-{''.join(j.needs)}" for j in self.jobs)
        return f"Case({drawn}; fail {self.failing}; {self.fail_fast=}; {self.order=}; {self.cancel_after=})"

    def ends(self) -> dict[str, str]:
        """The oracle: how each job ends when nothing is stopped but what cannot follow."""
        ends: dict[str, str] = {}
        required = {job.name: job.required for job in self.jobs}
        for job in self.jobs:
            stopped = any(required[name] and ends[name] != "COMPLETED" for name in job.needs)
            ends[job.name] = "CANCELED" if stopped else "FAILED" if job.name in self.failing else "COMPLETED"
        return ends

    @property
    def outcome(self) -> str:
        """Of the run: it succeeds when every required job does."""
        ends = self.ends()
        good = all(ends[job.name] == "COMPLETED" for job in self.jobs if job.required)
        return "SUCCESS" if good else "FAILED"


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Up to seven jobs, each of which needs some of those before it."""
    names = "abcdefg"[: draw(st.integers(0, 7))]
    jobs = [
        planned(
            name,
            *sorted(draw(st.sets(st.sampled_from(names[:place]), max_size=3)) if place else ()),
            required=draw(st.integers(0, 3)) > 0,
        )
        for place, name in enumerate(names)
    ]
    failing = draw(st.sets(st.sampled_from(names), max_size=3)) if names else set()
    order = draw(st.lists(st.integers(0, 6), max_size=14))
    cancel_after = draw(st.sampled_from([99, 99, 99, 0, 1, 3]))
    return Case(jobs, failing, draw(st.booleans()), order, cancel_after)


async def live(case: Case) -> None:
    """One life of a run, looked after by two keepers in turns; jobs end in an order that is drawn."""
    site = await Site().open()
    neighbour = await Site(site.settings, store=lambda: site.store, clock=site.clock).open()
    run_id = await site.begin(*case.jobs, fail_fast=case.fail_fast)
    needs = {job.name: job.needs for job in case.jobs}
    active: dict[str, Grant] = {}
    steps, is_canceled = 0, False
    while True:
        for name, grant in (await site.offered(run_id)).items():
            standing = await site.standing(run_id)
            for needed in needs[name]:
                job = next(each for each in case.jobs if each.name == needed)
                well = {"COMPLETED"} if job.required else {"COMPLETED", "FAILED", "CANCELED"}
                assert standing[needed] in well, "it began too early"
            active[name] = grant
        if not active:
            break
        if steps == case.cancel_after and (await site.look(run_id)).outcome is None:
            await site.runs.cancel(run_id)
            is_canceled = True
        pick = case.order[steps % len(case.order)] if case.order else 0
        some = sorted(active)[pick % len(active) :][: 1 + pick % 4]
        grants = {name: active.pop(name) for name in some}
        reports = [
            failed(grant, "compile") if name in case.failing else done(grant)
            for name, grant in grants.items()
        ]
        assert all(isinstance(answer, Heard) for answer in await site.port.report(reports))
        keepers: list[Any] = [site, neighbour] if pick % 2 else [neighbour, site]
        await asyncio.gather(*(keeper.recover() for keeper in keepers))
        steps += 1
    await judge(case, site, run_id, is_canceled)
    await site.close()


async def judge(case: Case, site: Site, run_id: str, is_canceled: bool) -> None:
    """As the oracle says; and the journal agrees with the records."""
    await site.recover(2)
    view = await site.look(run_id)
    assert view.state == "REPORTED"
    assert view.outcome == ("CANCELED" if is_canceled else case.outcome)
    standing = await site.standing(run_id)
    assert set(standing.values()) <= {"COMPLETED", "FAILED", "CANCELED"}, "everything comes to rest"
    if not is_canceled and (not case.fail_fast or case.outcome == "SUCCESS"):
        assert standing == case.ends()
    counted = {state: list(standing.values()).count(state) for state in set(standing.values())}
    assert view.tally == counted, "each word is counted once"
    assert (await site.path(run_id)).count("REPORTED") == 1
    assert await site.all_faults() == []


@settings(max_examples=pick(40, 120), deadline=None)
@given(cases())
def test_a_run_of_any_plan_ends_as_the_oracle_predicts(case: Case) -> None:
    asyncio.run(live(case))


DIAMOND = [planned("a"), planned("b", "a", required=False), planned("c", "a"), planned("d", "b", "c")]


def _at_once(draft: RunAggregate, needed: object) -> set[int]:
    return set()


def _never(draft: RunAggregate, *_: object) -> None:
    return None


def _counts_all(draft: RunAggregate, ended: list[int], after: str, *, unconfirmed: bool) -> None:
    draft.body.left -= len(ended)
    draft.body.required_left -= len(ended) if after == "C" else 0


def _loses_words(draft: RunAggregate, words: Iterable[JobChanged]) -> None:
    hear(draft, list(words)[:1])


hear = RunAggregate.apply_jobs


@pytest.mark.parametrize(
    ("rule", "broken", "case"),
    [
        ("_unmet", _at_once, Case(DIAMOND, set(), False, [0, 1, 2], 99)),
        ("_count", _counts_all, Case(DIAMOND, {"d"}, False, [0], 99)),
        ("_release_after", _never, Case(DIAMOND, set(), True, [0], 99)),
        ("_stop", _never, Case(DIAMOND, {"a"}, False, [0], 99)),
        ("apply_jobs", _loses_words, Case([*DIAMOND, planned("e", "a")], set(), True, [], 1)),
    ],
)
def test_a_broken_rule_is_seen(
    monkeypatch: pytest.MonkeyPatch, rule: str, broken: object, case: Case
) -> None:
    """The harness itself: with any of the rules broken, it does not pass."""
    asyncio.run(live(case))
    monkeypatch.setattr(RunAggregate, rule, broken)
    with pytest.raises(AssertionError):
        asyncio.run(live(case))


def test_the_oracle_check_fails_if_the_coupling_to_dependents_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reroute(monkeypatch, RunAggregate.wiring, Recipient.DEPENDENTS, order(lambda *_: None))
    with pytest.raises(AssertionError):
        asyncio.run(live(Case(DIAMOND, {"a"}, False, [0], 99)))
