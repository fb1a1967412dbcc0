"""A checker has to be seen to fail: each thing that keeps Interlock correct is taken out, and noticed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import pytest

from interlock.engine import recovery
from interlock.store.memory import MemoryStore
from interlock.store.records import Change, Commit, Committed, Conflict, Outcome, Record
from interlock.systems.orchestrator import joint_reports, orchestrator, runner_messages
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import AttemptBody, decode_body
from interlock.systems.orchestrator.orchestrator import Orchestrator
from interlock.systems.orchestrator.tokens import Token
from interlock.systems.runs import preparation
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.progress import JointProgress
from interlock.systems.runs.reconciler import RunReconciler
from interlock.systems.runtime import Runtime
from interlock.wire.runner import Message
from interlock_verification.worlds.episode import EpisodeResult, play
from interlock_verification.worlds.faults import Faults, faults_named
from interlock_verification.worlds.worlds import world_named


def first_failure(
    world: str, faults: str | Faults, *, hours: float = 1.0, first: int = 1, seeds: int = 6, but: str = ""
) -> EpisodeResult:
    """What the first seed that notices something has noticed; `first` is one that is known to do so soon.

    Seeds that notice `but` are passed over: a world that does not settle keeps_story little about the cause.
    """
    mix = faults_named(faults) if isinstance(faults, str) else faults
    for seed in range(first, first + seeds):
        played = play(world_named(world), mix, seed=seed, hours=hours)
        if played.broken is not None and played.broken.name != but:
            return played
    raise AssertionError(f"nobody has noticed anything in {seeds} episodes of {world} with {mix.name}")


def claims_broken(world: str, faults: str, *, hours: float = 1.0, first: int = 1, seeds: int = 6) -> set[str]:
    """What each of the seeds has noticed first; each of them has to notice something."""
    played = [
        play(world_named(world), faults_named(faults), seed=seed, hours=hours).broken
        for seed in range(first, first + seeds)
    ]
    assert None not in played
    return {broken.name for broken in played if broken is not None}


def claim_broken(world: str, faults: str | Faults, **more: Any) -> str:
    broken = first_failure(world, faults, **more).broken
    assert broken is not None
    return broken.name


def test_a_store_that_does_not_compare_versions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = MemoryStore._why_not

    def lenient(self: MemoryStore, commit: Commit, now: datetime) -> Outcome | None:
        outcome = judge(self, commit, now)
        return None if isinstance(outcome, Conflict) else outcome

    monkeypatch.setattr(MemoryStore, "_why_not", lenient)
    assert claim_broken("team", "network")


@pytest.mark.long
def test_a_store_that_compares_only_the_numbers_of_versions_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a fail-over that has lost writes the same number stands for something else."""
    judge = MemoryStore._why_not

    def by_number(self: MemoryStore, commit: Commit, now: datetime) -> Outcome | None:
        changes = tuple(msgspec.structs.replace(change, expected_at=None) for change in commit.changes)
        return judge(self, msgspec.structs.replace(commit, changes=changes), now)

    monkeypatch.setattr(MemoryStore, "_why_not", by_number)
    late = msgspec.structs.replace(
        faults_named("flapping"), late=0.2, late_s=(1.0, 15.0)
    )  # decided before, arrives after
    broken = claim_broken("forest", late, first=5, seeds=40, but="episode.settles")
    assert broken in ("step.tables_hold", "step.journal_replays", "episode.journal_replays")


def test_an_orchestrator_that_accepts_reports_of_any_runner_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The unfenced finish: what comes late is taken for what another runner has to say."""

    def newest(draft: JobAggregate, token: Token) -> AttemptBody | None:
        mine = [one for one in draft.body.attempts if one.shard == token.shard]
        return mine[-1] if mine else None

    def unfenced(record: Record | None, token: Token, message: Message, *rest: Any) -> Any:
        if record is not None and (one := newest_of(record, token)) and one.lease is not None:
            message = msgspec.structs.replace(message, runner_id=one.lease.data.runner_id)
        return hear(record, token, message, *rest)

    hear = runner_messages.decide_message
    monkeypatch.setattr(orchestrator, "decide_message", unfenced)
    monkeypatch.setattr(runner_messages, "_attempt_of", newest)
    monkeypatch.setattr(Token, "opens", lambda _self, _digest: True)
    assert "report.from_holder" in claims_broken("team", "network", first=3)


def newest_of(record: Record, token: Token) -> AttemptBody | None:
    mine = [one for one in decode_body(record.body).attempts if one.shard == token.shard]
    return mine[-1] if mine else None


def test_a_store_that_forgets_requests_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    commit_one = MemoryStore._commit_one

    def forgetful(self: MemoryStore, commit: Commit) -> Outcome:
        outcome = commit_one(self, commit)
        self._requests.clear()
        return outcome

    monkeypatch.setattr(MemoryStore, "_commit_one", forgetful)
    assert claim_broken("laptop", "store") in ("request.done_once", "client.same_answer")


def test_a_repeated_message_that_is_not_recognised_as_a_repeat_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner_messages, "_repeated", lambda *_: None)
    assert claim_broken("team", "network") == "report.repeated"


@pytest.mark.long
def test_a_sweep_that_does_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_self: Orchestrator, *, limit: int = 0) -> int:
        return limit * 0

    monkeypatch.setattr(Orchestrator, "sweep", nothing)
    assert claim_broken("laptop", "deaths") == "episode.settles"


@pytest.mark.long
def test_messages_that_are_never_delivered_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_self: Runtime) -> int:
        return 0

    monkeypatch.setattr(Runtime, "deliver", nothing)
    monkeypatch.setattr(Runtime, "_wake_trees", lambda _: None)
    assert claim_broken("laptop", "none") == "episode.settles"


@pytest.mark.long  # two other broken stores are noticed in make test
def test_a_commit_that_is_not_recognised_as_ones_own_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any) -> None:
        return None

    monkeypatch.setattr(recovery, "find_outcome", unknown)
    assert claim_broken("team", "store", first=2) == "request.done_once"


@pytest.mark.long
def test_a_keeper_that_does_not_listen_to_the_jobs_of_its_runs_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def deaf(_self: RunReconciler, *_: object, limit: int = 0) -> int:
        return limit * 0

    monkeypatch.setattr(RunReconciler, "apply_changes", deaf)
    monkeypatch.setattr(RunReconciler, "apply_messages", deaf)
    assert claim_broken("ci", "none", hours=0.5) == "episode.settles"


def test_a_run_that_starts_jobs_before_their_dependencies_have_succeeded_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RunAggregate, "_unmet", lambda *_: set())
    assert claim_broken("ci", "none") == "run.needs_first"


@pytest.mark.long
def test_a_run_that_takes_every_end_for_a_success_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lenient(self: RunAggregate, ended: list[int], after: str, *, unconfirmed: bool) -> None:
        self.body.left -= len(ended)
        self.body.required_left -= len(ended)

    monkeypatch.setattr(RunAggregate, "_count", lenient)
    assert claim_broken("ci", "none") == "run.success_is_earned"


@pytest.mark.long  # broken runs are noticed in make test
def test_a_run_that_deploys_before_its_approval_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preparation, "awaited", lambda *_: None)
    assert claim_broken("ci", "none") == "run.approved_first"


def test_runs_progress_in_the_commits_in_which_their_jobs_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else no world would notice the broken versions below."""
    outcomes: set[type] = set()

    def note(self: JointProgress, one: Any, ready: Any, outcome: Any, now: datetime) -> None:
        outcomes.add(type(outcome))
        noted(self, one, ready, outcome, now)

    noted = JointProgress._note
    monkeypatch.setattr(JointProgress, "_note", note)
    played = play(world_named("factory"), faults_named("none"), seed=1, hours=0.3)
    assert played.ok, played.broken
    assert {Committed, Conflict} <= outcomes


@pytest.mark.long  # as the next one, and it waits for the end of an episode
def test_a_run_that_is_not_committed_with_the_ends_of_its_jobs_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def alone(some: Sequence[Any], _: Sequence[Change]) -> Commit:
        return commit(some, ())

    commit = joint_reports._commit_of_run
    monkeypatch.setattr(joint_reports, "_commit_of_run", alone)
    assert claim_broken("factory", "none", hours=0.1) == "episode.settles"


def test_a_run_that_progresses_without_the_ends_of_its_jobs_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fewer(some: Sequence[Any], changes: Sequence[Change]) -> Commit:
        return commit(some[:1], changes)

    commit = joint_reports._commit_of_run
    monkeypatch.setattr(joint_reports, "_commit_of_run", fewer)
    assert claim_broken("factory", "none", hours=0.3) == "run.needs_first"
