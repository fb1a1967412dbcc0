"""How commits become calls: checked, cut into waves and batches, and told the time that was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TypeAlias

import asyncpg
import msgspec

from interlock.store.catalogue import Catalogue
from interlock.store.checking import check_commits, waves
from interlock.store.contract import Capabilities
from interlock.store.postgres.batch import BatchPart, batch_of
from interlock.store.postgres.columns import ends_in
from interlock.store.postgres.connections import Session
from interlock.store.postgres.failures import Undone, translate
from interlock.store.postgres.queries import query as statement
from interlock.store.postgres.target import Target
from interlock.store.postgres.wave import Statement, Wave
from interlock.store.records import Batch, Commit, Outcome, Record, Work

Part: TypeAlias = Wave | BatchPart
"""What is written by one statement."""

_FEW = 16
"""A batch of fewer records that comes with other commits is written with them."""


class Writing:
    """What committing and claiming have in common."""

    def __init__(self, target: Target, catalogue: Catalogue, capabilities: Capabilities) -> None:
        self.know(catalogue)
        self.seen = datetime(1970, 1, 1, tzinfo=UTC)
        """The latest time that the server has told us."""
        self._target = target
        self._max_body_bytes = capabilities.max_body_bytes
        self._max_batch = capabilities.max_batch

    def know(self, catalogue: Catalogue) -> None:
        """Take these kinds for those that there are."""
        self.catalogue = catalogue
        self._ends = ends_in(catalogue)

    def saw(self, now: datetime) -> datetime:
        """The store's clock never goes back, also when the server's does."""
        self.seen = max(self.seen, now)
        return self.seen

    def check(self, work: Sequence[Work]) -> None:
        """Raise for what no store may take."""
        check_commits(self.catalogue, work, self._max_body_bytes)

    def parts(self, work: Sequence[Work], held: Sequence[Record] = ()) -> list[Part]:
        """Cut only where a record or a request comes twice, at batches, or where there are too many."""
        parts: list[Part] = []
        commits: list[Commit] = []
        for item in work:
            if isinstance(item, Commit):
                commits.append(item)
            elif len(item.ids) < _FEW and len(work) > 1:
                commits += item.commits()
            else:
                parts += self._waves(commits, held)
                commits = []
                parts += self._batches(item)
        return parts + self._waves(commits, held)

    def _batches(self, batch: Batch) -> list[Part]:
        most = self._max_batch
        if len(batch.ids) <= most:
            return [BatchPart(self._ends, batch)]
        return [
            BatchPart(
                self._ends,
                msgspec.structs.replace(
                    batch,
                    ids=batch.ids[start : start + most],
                    expected_at=batch.expected_at[start : start + most],
                    given=batch.given[start : start + most],
                    result=batch.result[start : start + most],
                ),
            )
            for start in range(0, len(batch.ids), most)
        ]

    def _waves(self, commits: Sequence[Commit], held: Sequence[Record]) -> list[Part]:
        if len(commits) == 1 and (alone := batch_of(commits[0])) is not None:
            return [BatchPart(self._ends, alone)]
        most = self._max_batch
        return [
            Wave(self._ends, wave[start : start + most], held)
            for wave in waves(commits)
            for start in range(0, len(wave), most)
        ]

    def call(self, part: Part, *, judging: bool) -> Statement:
        """Return the call that writes a part within a transaction."""
        with self._text_is_text():
            return part.within(judging, self.seen)

    async def write(self, session: Session, part: Part) -> list[Outcome]:
        """Write a part as if nothing stood in its way; when something did, again with a closer look."""
        with self._text_is_text():
            name, arguments = part.trial(self.seen) if session.attempt == 1 else part.judged(self.seen)
        rows = await session.fetch(statement(name, self._target.schema), *arguments, writes=True)
        if not rows:
            raise Undone
        return self._outcomes(part, rows)

    async def write_all(self, session: Session, parts: Sequence[Part]) -> list[Outcome]:
        """Write all parts or none, as if nothing stood in their way."""
        if len(parts) == 1:
            return await self.write(session, parts[0])
        with self._text_is_text():
            calls = [(part, part.trial(self.seen)) for part in parts]
        outcomes: list[Outcome] = []
        await session.begin()
        for part, (name, arguments) in calls:
            rows = await session.within(statement(name, self._target.schema), *arguments)
            if not rows:
                await session.rollback()
                raise Undone
            outcomes += self._outcomes(part, rows)
        await session.commit()
        return outcomes

    async def write_within(self, session: Session, part: Part, call: Statement) -> list[Outcome]:
        """Write a part in a transaction that goes on."""
        name, arguments = call
        rows = await session.within(statement(name, self._target.schema), *arguments)
        if not rows or rows[0]["at"] is None:
            raise Undone
        return self._outcomes(part, rows)

    def _outcomes(self, part: Part, rows: list[asyncpg.Record]) -> list[Outcome]:
        self.saw(rows[0]["at"])
        return part.outcomes(rows)

    @contextmanager
    def _text_is_text(self) -> Iterator[None]:
        """Who brings bytes that are no text is told before anything was sent."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise translate(
                asyncpg.InvalidTextRepresentationError(str(error)), "", self._target, unknown=False
            ) from None
