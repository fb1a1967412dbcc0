"""The client behind `Interlock.dead_letters`.

letters, cursor = await il.dead_letters.list("queue:mail since:1d")
for letter in letters:
    print(letter.id, letter.job.failure.error)
new_id = await il.dead_letters.retry(letters[0].id, input={"address": "a@b.example"})
await il.dead_letters.discard(letters[1].id, reason="the customer has left")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interlock.errors import InterlockError, StoreUnavailable
from interlock.remote.dead_letters import DeadLettersApi
from interlock.remote.interfaces import Services
from interlock.wire.filters import read_filter
from interlock.wire.jobs import DeadLetterView
from interlock.worker.codec import encode


class DeadLettersClient:
    """The dead letters of a store, or of a server before one."""

    def __init__(self, here: Callable[[], Services], actor: str) -> None:
        self._here = here
        self._actor = actor

    @property
    def _letters(self) -> DeadLettersApi:
        return self._here().dead_letters

    async def list(
        self, wanted: str = "", *, limit: int = 100, cursor: str = ""
    ) -> tuple[Sequence[DeadLetterView], str]:
        """Return a page of failed jobs that nothing was done about, newest first, and the next cursor.

        `wanted` is a filter, such as `"queue:mail since:1d"`. A page may be short, or empty, while its cursor
        goes on; it is empty at the end.
        """
        return await self._letters.find(read_filter(wanted), limit=limit, cursor=cursor)

    async def get(self, job_id: str) -> DeadLetterView:
        """Return a dead letter, and what was done about it."""
        return await self._letters.get(job_id)

    async def retry(
        self,
        job_id: str,
        *,
        input: object = None,  # noqa: A002 - as in the spec of a job
        reason: str = "",
        request_id: str | None = None,
    ) -> str:
        """Do a dead letter again, as a new job, and return its id. `input` replaces its arguments."""
        given = None if input is None else encode(input, "input")
        return await self._letters.retry(
            job_id, input=given, reason=reason, actor=self._actor, request_id=request_id
        )

    async def discard(
        self, job_id: str, *, reason: str = "", request_id: str | None = None
    ) -> DeadLetterView:
        """Leave a dead letter as it is, for good."""
        return await self._letters.discard(job_id, reason=reason, actor=self._actor, request_id=request_id)

    async def retry_all(
        self, wanted: str, *, reason: str = "", limit: int = 1_000
    ) -> dict[str, str | InterlockError]:
        """Retry every dead letter that a filter means: by id the id of the new job, or why there is none."""

        async def one(job_id: str) -> str:
            return await self.retry(job_id, reason=reason)

        return await self._with_each(wanted, limit, one)

    async def discard_all(
        self, wanted: str, *, reason: str = "", limit: int = 1_000
    ) -> dict[str, str | InterlockError]:
        """Discard every dead letter that a filter means: by id its state, or why it was not discarded."""

        async def one(job_id: str) -> str:
            return (await self.discard(job_id, reason=reason)).state

        return await self._with_each(wanted, limit, one)

    async def _with_each(self, wanted: str, limit: int, one: Any) -> dict[str, str | InterlockError]:
        """Look at all first: what was dealt with is no longer on a page, so pages would shift."""
        ids: Any = []
        cursor = ""
        while len(ids) < limit:
            letters, cursor = await self.list(wanted, limit=limit - len(ids), cursor=cursor)
            ids += [letter.id for letter in letters]
            if not cursor:
                break
        done: dict[str, str | InterlockError] = {}
        for job_id in ids:
            try:
                done[job_id] = await one(job_id)
            except StoreUnavailable:
                raise
            except InterlockError as error:
                done[job_id] = error
        return done
