"""What to do when nobody knows whether a commit happened.

A COMMIT whose answer is lost may have succeeded. It can be sent again, because every commit names
the versions it was decided on, so it is never done twice; but then it may be told of a conflict
with itself, and somebody would decide anew what has been done already. So in doubt the store is
read: the entry that the commit would have written is either in the journal or it is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from interlock.engine.committer import Committer
from interlock.errors import StoreUnavailable
from interlock.store.contract import Store
from interlock.store.records import Change, Commit, Committed, Conflict, Key, Outcome, TooLate

Sleep: TypeAlias = Callable[[float], Awaitable[None]]

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


async def commit_with_recovery(
    store: Store,
    committer: Committer,
    commit: Commit,
    *,
    tries: int = 6,
    in_doubt: bool = False,
    sleep: Sleep = asyncio.sleep,
) -> Outcome:
    """The outcome of a commit, also when a connection broke in the middle of it.

    A commit is recognised by its notes, so no two may say the same: `Engine` gives each a mark of its
    own. A change without a note that was done and then overtaken cannot be recognised, and is answered
    with a conflict; what must not be done twice has a note. Raises `StoreUnavailable` only when the
    store stays away for all the tries. `in_doubt` when it was sent before and nobody knows what came of it.
    """
    pause_s = FIRST_PAUSE_S
    for remaining in reversed(range(tries)):
        try:
            outcome = await _tried(store, committer, commit, in_doubt)
        except StoreUnavailable:
            if not remaining:
                raise
            in_doubt = True
        else:
            if not (in_doubt and remaining and _may_yet_come_true(commit, outcome)):
                return outcome
        await sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    raise ValueError(f"a commit cannot be tried {tries} times")


async def _tried(store: Store, committer: Committer, commit: Commit, in_doubt: bool) -> Outcome:
    """Once more; in doubt what it is told is compared with what is there."""
    if in_doubt and not commit.changes and (done := await find_outcome(store, commit)):
        return done  # it names no version, so sending it again would do it again
    outcome = await committer.commit(commit)
    if in_doubt and isinstance(outcome, Conflict | TooLate):
        return await find_outcome(store, commit) or outcome
    return outcome


def _may_yet_come_true(commit: Commit, outcome: Outcome) -> bool:
    """Whether the try that was not answered may still be on its way, past one that came too late.

    Who changes a record waits for whoever holds it, and then knows. Who only creates records, and is too
    late for that, has nothing to wait for: so it looks again, as often as it may try.
    """
    return isinstance(outcome, TooLate) and all(change.expected == 0 for change in commit.changes)


async def find_outcome(store: Store, commit: Commit) -> Committed | None:
    """The outcome of a commit that is already true; None when it is not.

    A commit is true as a whole or not at all, so its first change speaks for all of them.
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
    """A refusal carries the version that the record had; it is among the entries since then."""
    for refused in commit.refusals:
        key = Key(refused.kind, refused.id)
        (record,) = await store.load([key])
        version = record.version - 1 if record else -1
        for entry in (await store.history(key, after_version=version)).entries:
            if entry.note == refused.note:
                return Committed(entry.at)
    return None


async def _unnoted(store: Store, change: Change) -> Committed | None:
    """A change without a note leaves no entry; it is recognised while nobody has changed more."""
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
