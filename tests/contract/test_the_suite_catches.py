"""A suite that cannot fail proves nothing: each rule of the contract is broken once, and it is noticed."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from interlock.errors import UnknownKind
from interlock.store.catalogue import Catalogue
from interlock.store.contract import Decide
from interlock.store.memory import MemoryStore
from interlock.store.records import (
    Change,
    Claim,
    Commit,
    Committed,
    Conflict,
    Count,
    Feed,
    Illegal,
    Key,
    Outcome,
    Page,
    Pruned,
    Query,
    Record,
    Recorded,
    Work,
    one_by_one,
)
from interlock.testing.store_contract import Traits, suite_for
from interlock.testing.store_contract.fixtures import MemoryOpener

SUITE = suite_for(Traits())


class NoVersionCheck(MemoryStore):
    """The last one to write wins."""

    def _why_not(self, commit: Commit, now: datetime) -> Outcome | None:
        found = {change.key: self._records.get(change.key) for change in commit.changes}
        changes = tuple(
            msgspec.structs.replace(
                change, expected=record.version if (record := found[change.key]) else 0, expected_at=None
            )
            for change in commit.changes
        )
        return super()._why_not(msgspec.structs.replace(commit, changes=changes), now)


class NumberIsEnough(MemoryStore):
    """A version is known by its number, whenever it was written."""

    def _why_not(self, commit: Commit, now: datetime) -> Outcome | None:
        changes = tuple(msgspec.structs.replace(change, expected_at=None) for change in commit.changes)
        return super()._why_not(msgspec.structs.replace(commit, changes=changes), now)


class NoRequestCheck(MemoryStore):
    """Whoever repeats does it again."""

    def _why_not(self, commit: Commit, now: datetime) -> Outcome | None:
        return super()._why_not(msgspec.structs.replace(commit, request=None), now)


class FingerprintIgnored(MemoryStore):
    """An id is enough, whatever was asked for."""

    def _why_not(self, commit: Commit, now: datetime) -> Outcome | None:
        if commit.request and (known := self._requests.get(commit.request.id)):
            request = msgspec.structs.replace(commit.request, fingerprint=known.fingerprint)
            commit = msgspec.structs.replace(commit, request=request)
        return super()._why_not(commit, now)


class RequestsForEver(MemoryStore):
    """Only a sweep would forget a request, and there is none."""

    async def recall(self, request_id: str) -> Recorded | None:
        return self._requests.get(request_id)


class NotAfterIgnored(MemoryStore):
    """A lease that has run out is as good as any."""

    def _why_not(self, commit: Commit, now: datetime) -> Outcome | None:
        return super()._why_not(msgspec.structs.replace(commit, not_after=None), now)


class TableIgnored(MemoryStore):
    """What has ended can live again."""

    def _why_not(self, commit: Commit, now: datetime) -> Outcome | None:
        changes = [
            msgspec.structs.replace(change, state=record.state)
            for change in commit.changes
            if (record := self._records.get(change.key))
        ]
        created = [change for change in commit.changes if change.key not in self._records]
        return super()._why_not(msgspec.structs.replace(commit, changes=(*changes, *created)), now)


class HalfACommit(MemoryStore):
    """What was written before the conflict stays."""

    def _commit_one(self, commit: Commit) -> Outcome:
        for change in commit.changes:
            outcome = super()._commit_one(Commit(changes=(change,)))
            if not isinstance(outcome, Committed):
                return outcome
        return super()._commit_one(msgspec.structs.replace(commit, changes=()))


class NeighboursSuffer(MemoryStore):
    """One bad commit fails its whole batch."""

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        singles = one_by_one(commits)
        for commit in singles:
            refusal = self._why_not(commit, self._now())
            if isinstance(refusal, Conflict):
                return [refusal] * len(singles)
        return await super().commit(commits)


class GivenRewritten(MemoryStore):
    """A change without given data forgets them."""

    def _write(self, change: Change, now: datetime) -> None:
        super()._write(change, now)
        self._put(change.key, msgspec.structs.replace(self._records[change.key], given=change.given or b""))


class ResultForgotten(MemoryStore):
    """A change without a result forgets the one that is there."""

    def _write(self, change: Change, now: datetime) -> None:
        super()._write(change, now)
        self._put(change.key, msgspec.structs.replace(self._records[change.key], result=change.result or b""))


class BatchAllOrNothing(MemoryStore):
    """One record that somebody has changed keeps a whole batch from becoming true."""

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        for item in commits:
            refusals = [self._why_not(each, self._now()) for each in one_by_one([item])]
            failed = [refusal for refusal in refusals if refusal is not None]
            if len(refusals) > 1 and failed:
                return [failed[0] if refusal is None else refusal for refusal in refusals]
        return await super().commit(commits)


class BatchesLast(MemoryStore):
    """Batches are written after the commits that come behind them."""

    async def commit(self, commits: Sequence[Work]) -> list[Outcome]:
        ordered = sorted(commits, key=lambda item: not isinstance(item, Commit))
        return await super().commit(ordered)


class ClaimNotExclusive(MemoryStore):
    """Two can take the same record before either has written."""

    async def _decided(self, taken: Sequence[Record], now: datetime, decide: Decide) -> list[Outcome]:
        if not taken:
            return []
        commits = one_by_one(decide(taken, now))
        await asyncio.sleep(0)
        for change in (change for commit in commits for change in commit.changes):
            self._write(change, now)
        return [Committed(now)] * len(commits)


class ClaimKept(MemoryStore):
    """What was given out is not given out again, even if nothing came of it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.given: set[Key] = set()

    async def _decided(self, taken: Sequence[Record], now: datetime, decide: Decide) -> list[Outcome]:
        fresh = [record for record in taken if record.key not in self.given]
        self.given |= {record.key for record in fresh}
        return await super()._decided(fresh, now, decide)


class PriorityIgnored(MemoryStore):
    """First come, first served."""

    def _write(self, change: Change, now: datetime) -> None:
        super()._write(msgspec.structs.replace(change, priority=0), now)


class LabelsIgnored(MemoryStore):
    """Anybody may take anything."""

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        return await super().claim(msgspec.structs.replace(claim, labels=("a", "b", "c", "z")), decide)


class HandlersIgnored(MemoryStore):
    """A claimer is given what it cannot execute."""

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        return await super().claim(msgspec.structs.replace(claim, handlers=None), decide)


class GuardIgnored(MemoryStore):
    """A claimer is given work whatever its own record says."""

    async def claim(self, claim: Claim, decide: Decide) -> list[Outcome]:
        return await super().claim(msgspec.structs.replace(claim, guard=None), decide)


class DelayIgnored(MemoryStore):
    """Later is now."""

    def _write(self, change: Change, now: datetime) -> None:
        ready_at = None if change.ready_at is None else min(change.ready_at, now)
        super()._write(msgspec.structs.replace(change, ready_at=ready_at), now)


class SweepsTwice(MemoryStore):
    """A deadline never goes away."""

    async def due(self, kinds: Sequence[str], limit: int, decide: Decide) -> list[Outcome]:
        before = dict(self._timed)
        outcomes = await super().due(kinds, limit, decide)
        for key, record in before.items():
            kept = msgspec.structs.replace(self._records[key], deadline_at=record.deadline_at)
            self._put(key, kept)
        return outcomes


class FeedOutOfOrder(MemoryStore):
    """Entries are numbered when they are made, and seen in another order."""

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        feed = await super().feed(after, limit=limit)
        return Feed(tuple(sorted(feed.entries, key=lambda entry: entry.id)), feed.cursor, feed.gap)


class FeedThatSkips(MemoryStore):
    """A cursor that points behind what was handed out."""

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        feed = await super().feed(after, limit=limit)
        ahead = str(min(int(feed.cursor or 0) + 1, self._sequence))
        return Feed(feed.entries, ahead, feed.gap)


class GapHidden(MemoryStore):
    """Who has missed something is not told."""

    async def feed(self, after: str = "", *, limit: int = 1_000) -> Feed:
        feed = await super().feed(after, limit=limit)
        return Feed(feed.entries, feed.cursor)


class PrunesTheLiving(MemoryStore):
    """Everything of that kind goes, whatever its state."""

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        pruned = await super().prune(kind=kind, states=states, older_than=older_than, limit=limit)
        for key in [key for key in self._records if key.kind == kind]:
            self._put(key, None)
        return pruned


class PrunesWithoutBound(MemoryStore):
    """One batch takes all."""

    async def prune(
        self, *, kind: str, states: Sequence[str], older_than: timedelta, limit: int = 1_000
    ) -> Pruned:
        return await super().prune(kind=kind, states=states, older_than=older_than, limit=limit * 1_000)


class PrunesEveryQueue(MemoryStore):
    """The age of one queue is that of all."""

    async def prune_by_queue(self, *, queues: Mapping[str, timedelta], **words: Any) -> Pruned:
        words["older_than"] = min(queues.values(), default=words["older_than"])
        return await super().prune_by_queue(queues=queues, **words)


class FilterAfterPaging(MemoryStore):
    """A page is cut first and filtered then."""

    async def find(self, query: Query) -> Page:
        page = await super().find(msgspec.structs.replace(query, states=()))
        records = tuple(r for r in page.records if not query.states or r.state in query.states)
        return Page(records, page.cursor)


class CountUncapped(MemoryStore):
    """Counts to the end, however far that is."""

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        return await super().count(query, cap=cap * 1_000, within=within)


class CountsWhatItHasSeen(MemoryStore):
    """Looks at so many only, and says that there are no more."""

    async def count(self, query: Query, *, cap: int = 10_000, within: int | None = None) -> Count:
        found = await super().count(query, cap=cap, within=within)
        return found if within is None else Count(found.number, capped=False)


class OwnClock(MemoryStore):
    """Takes the client's word for what time it is."""

    def _write(self, change: Change, now: datetime) -> None:
        super()._write(change, change.ready_at or now)


class Deaf(MemoryStore):
    """Wakes only the first who asked, and never stops doing so."""

    def subscribe(self, wake: Any) -> Any:
        super().subscribe(wake)
        return lambda: None


class RefusalsUnwritten(MemoryStore):
    """What was refused leaves no trace."""

    def _commit_one(self, commit: Commit) -> Outcome:
        return super()._commit_one(msgspec.structs.replace(commit, refusals=()))


class LearnsNamesOnly(MemoryStore):
    """The tables of what it has learned are not enforced."""

    async def learn(self, kinds: Catalogue) -> None:
        self._lax = set(kinds) - set(self._catalogue)
        await super().learn(kinds)

    def _why_not(self, commit: Commit, now: datetime) -> Outcome | None:
        found = super()._why_not(commit, now)
        return None if isinstance(found, Illegal) and found.key.kind in self._lax else found


class ForgetsWhatItKnew(MemoryStore):
    """What it learns replaces what it knew."""

    async def learn(self, kinds: Catalogue) -> None:
        self._catalogue = dict(kinds)


CAUGHT_BY: dict[type[MemoryStore], tuple[str, ...]] = {
    NoVersionCheck: (
        "test_a_late_write_under_an_old_version_is_refused",
        "test_of_two_in_a_batch_on_one_version_the_first_wins",
        "test_no_update_is_lost_among_many_who_retry",
        "test_many_who_create_the_same_record_create_it_once",
    ),
    NumberIsEnough: (
        "test_a_version_that_was_written_at_another_time_is_not_the_one_that_was_decided_on",
        "test_records_written_in_one_moment_may_be_changed_together",
    ),
    NoRequestCheck: (
        "test_a_repeat_is_answered_and_does_nothing",
        "test_sixty_four_racers_with_one_request_have_one_effect",
        "test_a_known_request_is_answered_before_anything_else_is_judged",
    ),
    FingerprintIgnored: ("test_the_same_id_for_something_else_is_refused",),
    RequestsForEver: ("test_an_expired_request_is_forgotten_without_anybody_sweeping",),
    NotAfterIgnored: (
        "test_a_commit_after_its_time_is_too_late",
        "test_time_runs_out_without_anybody_sweeping",
        "test_lateness_is_judged_before_versions_and_versions_before_the_table",
    ),
    TableIgnored: ("test_one_illegal_change_refuses_its_whole_commit",),
    HalfACommit: (
        "test_a_commit_is_done_as_a_whole_or_not_at_all",
        "test_one_illegal_change_refuses_its_whole_commit",
    ),
    GivenRewritten: (
        "test_the_given_part_of_a_record_is_kept_through_all_its_changes",
        "test_a_batch_changes_what_single_commits_would",
    ),
    ResultForgotten: ("test_a_result_stays_until_another_is_said",),
    BatchAllOrNothing: ("test_a_batch_fails_only_for_records_that_have_changed_meanwhile",),
    BatchesLast: ("test_batches_and_commits_are_judged_in_their_order",),
    NeighboursSuffer: ("test_ten_bad_commits_do_not_disturb_a_hundred_and_ninety_neighbours",),
    ClaimNotExclusive: ("test_concurrent_claimers_get_each_record_once",),
    ClaimKept: (
        "test_a_record_without_a_decision_stays_as_it_is",
        "test_a_decision_that_raises_changes_nothing_and_lets_go_of_everything",
    ),
    PriorityIgnored: (
        "test_a_step_of_priority_is_worth_a_minute",
        "test_a_created_record_is_as_it_was_said",
    ),
    LabelsIgnored: ("test_a_claimer_gets_what_needs_no_other_labels_than_it_has",),
    GuardIgnored: (
        "test_under_a_guard_something_is_given_out_only_while_it_holds",
        "test_a_claim_whose_guard_does_not_hold_decides_nothing_and_locks_nothing",
    ),
    HandlersIgnored: (
        "test_a_record_that_needs_a_handler_goes_to_claimers_that_have_it",
        "test_among_many_handlers_a_claimer_finds_its_own",
    ),
    DelayIgnored: ("test_urgent_records_that_are_not_ready_yet_do_not_hide_those_that_are",),
    SweepsTwice: ("test_overdue_records_are_swept_oldest_first",),
    FeedOutOfOrder: (
        "test_the_feed_has_the_order_of_the_commits",
        "test_within_a_commit_changes_come_in_order_and_then_refusals",
    ),
    FeedThatSkips: ("test_the_feed_can_be_read_page_by_page",),
    GapHidden: ("test_a_reader_that_missed_entries_sees_the_gap_once",),
    PrunesTheLiving: ("test_only_what_has_ended_in_these_states_is_removed",),
    PrunesEveryQueue: ("test_a_queue_of_its_own_age_is_pruned_by_it",),
    PrunesWithoutBound: ("test_a_batch_is_bounded_and_says_whether_there_is_more",),
    FilterAfterPaging: ("test_a_filter_is_applied_before_paging",),
    CountUncapped: ("test_counts_are_capped",),
    CountsWhatItHasSeen: ("test_a_count_that_looks_at_so_many_only_never_says_that_there_are_no_more",),
    OwnClock: ("test_a_created_record_is_as_it_was_said",),
    Deaf: ("test_a_subscriber_may_stop_while_others_go_on",),
    LearnsNamesOnly: (
        "test_the_table_of_a_learned_kind_is_enforced",
        "test_records_of_both_kinds_are_one_commit",
    ),
    ForgetsWhatItKnew: ("test_records_of_known_kinds_stay_as_they_were",),
    RefusalsUnwritten: ("test_a_refusal_is_journalled_and_changes_nothing",),
}
CASES = [(broken, name) for broken, names in CAUGHT_BY.items() for name in names]


async def run(name: str, opener: MemoryOpener) -> None:
    """Run one test of the suite by hand."""
    offered = {"opener": opener, "store": await opener.open()}
    test = SUITE[name]
    await test(**{fixture: offered[fixture] for fixture in inspect.signature(test).parameters})  # type: ignore[misc]


@pytest.mark.parametrize(("broken", "name"), CASES, ids=[f"{b.__name__}-{n}" for b, n in CASES])
async def test_a_broken_rule_is_noticed(broken: type[MemoryStore], name: str) -> None:
    with pytest.raises((AssertionError, UnknownKind)):
        await run(name, MemoryOpener(broken))


@pytest.mark.parametrize("name", sorted({name for _, name in CASES}))
async def test_the_same_test_passes_where_nothing_is_broken(name: str) -> None:
    await run(name, MemoryOpener())


def test_the_suite_leaves_out_tests_for_traits_that_a_store_does_not_have() -> None:
    everything = suite_for(Traits(shared=True, processes=True, persistent=True, sql=True))
    assert set(SUITE) < set(everything)
    assert "test_eight_processes_claim_ten_thousand_records_each_once" not in SUITE
    assert "test_an_illegal_move_is_refused_from_a_shell" not in suite_for(Traits(shared=True))


def test_no_test_names_a_database() -> None:
    everything = suite_for(Traits(shared=True, processes=True, persistent=True, sql=True))
    sources = "".join(inspect.getsource(test) for test in everything.values()).lower()
    assert [
        word for word in ("sqlite", "postgres", "redis", "asyncpg", "memorystore") if word in sources
    ] == []
