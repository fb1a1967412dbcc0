"""Recovery of commits with an unknown outcome.

A COMMIT whose answer is lost may have succeeded. It can be sent again, because every commit names the
versions it was decided on, so it is never done twice; but then it may conflict with itself, and the caller
would decide again about finished work. So the store is read: the entry of the commit either is in the journal
or is not.

Why: decision 0113.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from interlock.backoff import nth_pause_s
from interlock.engine.committer import Committer
from interlock.errors import StoreUnavailable
from interlock.store.contract import Store
from interlock.store.records import Change, Commit, Committed, Conflict, Key, Outcome, TooLate

Sleeper: TypeAlias = Callable[[float], Awaitable[None]]

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


async def commit_with_recovery(
    store: Store,
    committer: Committer,
    commit: Commit,
    *,
    tries: int = 6,
    in_doubt: bool = False,
    sleep: Sleeper = asyncio.sleep,
) -> Outcome:
    """Return the outcome of a commit, also after a lost connection.

    The connection may break in between. A commit is recognised by its notes, so they must be unique: `Engine`
    gives each a commit id. A change without a note that was done and then overtaken cannot be recognised, and
    gets a conflict; changes that must not be repeated have a note. Raise `StoreUnavailable` only if the store
    is unavailable for all tries. `in_doubt` if it was sent before with an unknown outcome.
    """
    for tried in range(1, tries + 1):
        try:
            outcome = await _tried(store, committer, commit, in_doubt)
        except StoreUnavailable:
            if tried == tries:
                raise
            in_doubt = True
        else:
            if not (in_doubt and tried < tries and _may_yet_come_true(commit, outcome)):
                return outcome
        await sleep(nth_pause_s(tried, FIRST_PAUSE_S, LONGEST_PAUSE_S))
    raise ValueError(f"a commit cannot be tried {tries} times")


async def _tried(store: Store, committer: Committer, commit: Commit, in_doubt: bool) -> Outcome:
    """Send the commit once more.

    If it is in doubt, compare the outcome with the journal.
    """
    if in_doubt and not commit.changes and (done := await find_outcome(store, commit)):
        return done  # it names no version, so sending it again would repeat it
    outcome = await committer.commit(commit)
    if in_doubt and isinstance(outcome, Conflict | TooLate):
        return await find_outcome(store, commit) or outcome
    return outcome


def _may_yet_come_true(commit: Commit, outcome: Outcome) -> bool:
    """Return whether the unanswered try may still be on its way.

    It may be behind one that came too late. A change of a record waits for its lock, and then knows. A commit
    that only creates records, and is too late, does not wait: so it checks again, as often as it may try.
    """
    return isinstance(outcome, TooLate) and all(change.expected == 0 for change in commit.changes)


async def find_outcome(store: Store, commit: Commit) -> Committed | None:
    """Return the outcome of a commit that is applied already, or None.

    A commit is atomic, so its first change represents all of them.
    """
    if not commit.changes:
        return await _refused(store, commit)
    change = commit.changes[0]
    if change.note is None:
        return await _unnoted(store, change)
    (*found,) = (await store.history(change.key, after_version=change.expected, limit=1)).entries
    if found and found[0].version == change.expected + 1 and found[0].note == change.note:
        return Committed(found[0].at)
    return None


async def _refused(store: Store, commit: Commit) -> Committed | None:
    """Return the outcome of a refusal.

    It has the version of the record, and is among later entries.
    """
    for refused in commit.refusals:
        key = Key(refused.kind, refused.id)
        (record,) = await store.load([key])
        version = record.version - 1 if record else -1
        for entry in (await store.history(key, after_version=version)).entries:
            if entry.note == refused.note:
                return Committed(entry.at)
    return None


async def _unnoted(store: Store, change: Change) -> Committed | None:
    """Return the outcome of a change without a note, while it is the last."""
    (record,) = await store.load([change.key])
    if record is None or record.version != change.expected + 1:
        return None
    same = (record.state, record.body, record.ready_at, record.deadline_at) == (
        change.state,
        change.body,
        change.ready_at,
        change.deadline_at,
    )
    return Committed(record.updated_at) if same else None
