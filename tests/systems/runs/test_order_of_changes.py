"""A run gives way to one of a later change, in whatever order their events arrive."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.systems.runs.site import Site, plan, planned
from tests.systems.runs.triggers.deliveries import HERE, pull_request, push
from tests.systems.runs.workflows.test_repositories import CI_FILE, Repository

from interlock.engine.clock import StoreClock
from interlock.systems.runs.body import ChangeTime
from interlock.systems.runs.trigger_events import Evaluation, Rule, TriggerSettings
from interlock.systems.runs.triggers import IdempotentSubmitter, Triggers
from interlock.systems.runs.webhook_security import Secret, github_signature
from interlock.systems.runs.workflows.git import Repositories, WorkflowPlanner
from interlock.wire.runs import RunSpec, RunView, Source

SECRET = Secret(b"the secret of github")
RULE = Rule(run=Evaluation(workflow="ci", definition="jobs: {test: {steps: [{run: make}]}}"))
A, B, C, D = (letter * 40 for letter in "abcd")


class Hub:
    """GitHub, which delivers events in whatever order."""

    def __init__(self, site: Site) -> None:
        self.site = site
        here = site.port.services
        here.runs.preparation.planners["workflow"] = WorkflowPlanner()
        settings = TriggerSettings(github_secrets=(SECRET,), rules=(RULE,))
        self._triggers = Triggers(IdempotentSubmitter(here.runs), settings, StoreClock(here.store))

    async def deliver(self, event: str, payload: dict[str, Any]) -> str:
        body = msgspec.json.encode(payload)
        headers = {"x-github-event": event, "x-hub-signature-256": github_signature(SECRET, body)}
        receipt = await self._triggers.github(headers, body)
        await self.site.recover()
        return receipt.run_id

    async def push(self, before: str, after: str, at: float | None = None, **fields: Any) -> str:
        """A push, some seconds before now."""
        pushed = {} if at is None else {"pushed_at": int(self.site.clock().timestamp() - at)}
        commit = {"id": after, "message": "a change"}
        return await self.deliver(
            "push",
            push(before=before, after=after, head_commit=commit, repository={**HERE, **pushed}, **fields),
        )

    async def look(self, run_id: str) -> RunView:
        return await self.site.look(run_id)


@pytest.fixture
def hub(site: Site) -> Hub:
    """Which knows the site."""
    return Hub(site)


@pytest.mark.parametrize("timed", [True, False])
async def test_a_late_push_never_cancels_the_run_of_its_successor(hub: Hub, timed: bool) -> None:
    newer = await hub.push(B, C, 10 if timed else None)
    late = await hub.push(A, B, 20 if timed else None)
    assert (await hub.look(newer)).state == "QUEUED"
    view = await hub.look(late)
    assert (view.outcome, view.reason, view.superseded_by) == ("CANCELED", "superseded", newer)
    following = await hub.push(C, D, 5 if timed else None)
    assert (await hub.look(newer)).superseded_by == following, "in the usual order all is as it was"
    assert await hub.site.all_faults() == []


async def test_a_late_push_does_nothing_after_its_successor_has_ended(hub: Hub) -> None:
    newer = await hub.push(B, C, 10)
    await hub.site.finish(newer)
    late = await hub.push(A, B, 20)
    view = await hub.look(late)
    assert (view.outcome, view.superseded_by) == ("CANCELED", newer)
    assert await hub.site.claim(limit=10) == [], "an old commit is not deployed over a new one"


async def test_going_back_to_an_old_commit_is_a_later_change(hub: Hub) -> None:
    """The ref goes from B to C, and is forced back to B."""
    first, second = await hub.push(A, B, 30), await hub.push(B, C, 20)
    back = await hub.push(C, B, 10, forced=True)
    assert [(await hub.look(each)).superseded_by for each in (first, second)] == [second, back]
    assert (await hub.look(back)).state == "QUEUED"


async def test_pushes_of_one_second_are_ordered_by_their_commits(hub: Hub) -> None:
    newer = await hub.push(B, C, 10)
    late = await hub.push(A, B, 10)
    assert (await hub.look(late)).superseded_by == newer
    assert (await hub.look(newer)).state == "QUEUED"


async def test_events_of_a_pull_request_are_ordered_by_its_time(hub: Hub) -> None:
    def event(sha: str, at: str) -> dict[str, Any]:
        payload = pull_request(before=A)
        head = {**payload["pull_request"]["head"], "sha": sha}
        return {**payload, "pull_request": {**payload["pull_request"], "head": head, "updated_at": at}}

    newer = await hub.deliver("pull_request", event(C, "2020-01-01T00:00:10Z"))
    late = await hub.deliver("pull_request", event(B, "2020-01-01T00:00:05Z"))
    assert (await hub.look(late)).superseded_by == newer
    assert (await hub.look(newer)).state == "QUEUED"


async def test_a_push_with_an_unreadable_time_still_starts_a_run(hub: Hub) -> None:
    times: list[Any] = ["yesterday", -(10**30), [], True, 1e300, {"at": 1}]
    for odd in times:
        assert await hub.deliver("push", push(after=C, repository={**HERE, "pushed_at": odd}))


async def test_doing_an_old_run_again_supersedes_nothing_newer_and_continues(hub: Hub) -> None:
    old = await hub.push(A, B, 30)
    await hub.site.finish(old)
    newer = await hub.push(B, C, 20)
    again = (await hub.site.runs.rerun(old)).id
    await hub.site.recover()
    assert (await hub.look(newer)).state == "QUEUED"
    assert (await hub.look(again)).state == "QUEUED", "somebody has asked for it"
    once_more = (await hub.site.runs.rerun(old)).id
    await hub.site.recover()
    assert (await hub.look(again)).superseded_by == once_more, "the same again takes its place"
    following = await hub.push(C, D, 10)
    assert {(await hub.look(each)).superseded_by for each in (newer, once_more)} == {following}


async def test_a_rerun_of_a_submitted_run_does_not_supersede_a_newer_run(site: Site) -> None:
    main = Source(ref="refs/heads/main")
    old = await site.begin(planned("a"), workflow="ci", source=main)
    await site.finish(old)
    site.clock.jump("1s")
    newer = await site.begin(planned("a"), workflow="ci", source=main)
    site.clock.jump("1s")
    again = await site.runs.rerun(old)
    await site.recover()
    assert [(await site.look(each)).state for each in (newer, again.id)] == ["QUEUED", "QUEUED"]


async def test_a_submitted_run_supersedes_an_earlier_push_whose_clock_is_ahead(hub: Hub) -> None:
    pushed = await hub.push(B, C, -30)  # by a clock that is ahead
    source = Source(repository="acme/shop", ref="refs/heads/main", sha=B)
    submitted = await hub.site.begin(planned("a"), workflow="ci", source=source)
    assert (await hub.look(pushed)).superseded_by == submitted


async def test_the_history_of_the_repository_decides_where_events_do_not(site: Site, tmp_path: Path) -> None:
    """Between B and D there were pushes of which nothing was heard, and no event has a time."""
    repository = Repository(tmp_path / "shop")
    commits = [
        repository.commit(**{CI_FILE: "jobs: {test: {steps: [{run: make}]}}", "a": str(nth)})
        for nth in range(3)
    ]
    mirrors = Repositories({"acme/shop": str(repository.folder)}, tmp_path / "mirrors")
    site.runs.preparation.planners["workflow"] = WorkflowPlanner(mirrors)

    async def evaluated(sha: str) -> str:
        source = Source(repository="acme/shop", ref="refs/heads/main", sha=sha, event="webhook")
        view = await site.runs.submit(RunSpec(workflow="ci", planner="workflow", source=source))
        await site.recover()
        return view.id

    newer, late = await evaluated(commits[2]), await evaluated(commits[0])
    assert (await site.look(late)).superseded_by == newer
    assert (await site.look(newer)).state == "QUEUED"


async def test_exactly_one_of_three_runs_with_a_cyclic_order_continues(site: Site) -> None:
    """C before the one that was asked for, that before B, by arrival; and B before C, by their commits."""
    for _ in range(5):
        specs = [
            (RunSpec(plan=plan(planned("a")), workflow="ci", source=source), happened)
            for source, happened in (
                (Source(ref="refs/heads/main", sha=C, event="push"), ChangeTime(before=B)),
                (Source(ref="refs/heads/main", sha=D), None),
                (Source(ref="refs/heads/main", sha=B, event="push"), ChangeTime(before=A)),
            )
        ]
        runs = []
        for spec, happened in specs:
            runs.append((await site.runs.submit(spec, happened=happened)).id)
            site.clock.jump(timedelta(seconds=1))
        await asyncio.gather(*(site.runs.preparation.prepare(each) for each in runs))
        await site.recover()
        states = [(await site.look(each)).outcome for each in runs]
        assert states.count(None) == 1, states
        await site.runs.cancel(runs[states.index(None)])
        await site.recover()
    assert await site.all_faults() == []
