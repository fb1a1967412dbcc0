"""Reading records: several callers with one query of the store, or everything page by page.

Callers that are answered together by a group commit continue together, and load next: sixty-four callers
would be sixty-four queries. Requests of one iteration of the event loop are joined; no caller waits longer
than that.

Why: decision 0241.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeAlias

from interlock.store.contract import Store
from interlock.store.records import Entry, Key, Query, Record

MOST = 500
"""Maximum records in one query."""

_LoadRequest: TypeAlias = tuple[Sequence[Key], "asyncio.Future[list[Record | None]]"]


class GroupLoad:
    """The joined reads of one process."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._requests: list[_LoadRequest] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def load(self, keys: Sequence[Key]) -> list[Record | None]:
        """Return the records, in the order of their keys; None for missing ones."""
        if not keys:
            return []
        answer: asyncio.Future[list[Record | None]] = asyncio.get_running_loop().create_future()
        self._requests.append((keys, answer))
        if len(self._requests) == 1:
            task = asyncio.create_task(self._load_all(), name="loads")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
        return await answer

    async def _load_all(self) -> None:
        requests, self._requests = self._requests, []
        try:
            found = await self._found(list(dict.fromkeys(key for keys, _ in requests for key in keys)))
        except BaseException as error:
            for _, answer in requests:
                _fail(answer, error)
            if not isinstance(error, Exception):
                raise
            return
        for keys, answer in requests:
            if not answer.done():
                answer.set_result([found[key] for key in keys])

    async def _found(self, keys: list[Key]) -> dict[Key, Record | None]:
        store, found = self._store(), dict[Key, Record | None]()
        for first in range(0, len(keys), MOST):
            some = keys[first : first + MOST]
            found.update(zip(some, await store.load(some), strict=True))
        return found


def _fail(answer: asyncio.Future[list[Record | None]], error: BaseException) -> None:
    if answer.done():
        return
    if isinstance(error, asyncio.CancelledError):
        answer.cancel()
    else:
        answer.set_exception(error)


PAGE = 500


async def every_record(store: Store, kind: str) -> AsyncIterator[Record]:
    """Yield all records of a kind, the oldest first."""
    cursor = ""
    while True:
        page = await store.find(Query(kind=kind, newest_first=False, cursor=cursor, limit=PAGE))
        for record in page.records:
            yield record
        cursor = page.cursor
        if not cursor:
            return


async def every_entry(store: Store, key: Key, after: int = 0) -> AsyncIterator[Entry]:
    """Yield the journal of one record, from a version on, the oldest first.

    Refusals have the version of the record, so many entries may share one: a page that ends within a version
    is read again from its beginning.
    """
    version, page = after, PAGE
    while True:
        entries = (await store.history(key, after_version=version, limit=page)).entries
        full = len(entries) == page
        whole = [entry for entry in entries if not full or entry.version < entries[-1].version]
        for entry in whole:
            yield entry
        if not full:
            return
        if whole:
            version = entries[-1].version - 1
        else:
            page *= 2  # all of it is one version
