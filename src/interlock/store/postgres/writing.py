"""How commits become calls of `write_wave`: checked, cut into waves, and told the time that was seen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import asyncpg

from interlock.store.catalogue import Catalogue
from interlock.store.checking import check_commits, waves
from interlock.store.contract import Capabilities
from interlock.store.postgres.connections import Session
from interlock.store.postgres.failures import translate
from interlock.store.postgres.queries import query as statement
from interlock.store.postgres.target import Target
from interlock.store.postgres.wave import Held, Wave
from interlock.store.records import Commit, Outcome, Record


class Writing:
    """What committing and claiming have in common."""

    def __init__(self, target: Target, catalogue: Catalogue, capabilities: Capabilities) -> None:
        self.catalogue = catalogue
        self.seen = datetime(1970, 1, 1, tzinfo=UTC)
        """The latest time that the server has told us."""
        self._target = target
        self._max_body_bytes = capabilities.max_body_bytes
        self._max_batch = capabilities.max_batch

    def saw(self, now: datetime) -> datetime:
        """The store's clock never goes back, also when the server's does."""
        self.seen = max(self.seen, now)
        return self.seen

    def check(self, commits: Sequence[Commit], held: Sequence[Record] = ()) -> None:
        """Raise for what no store may take."""
        check_commits(self.catalogue, commits, self._max_body_bytes, held)

    def waves(self, commits: Sequence[Commit], held: Held | None = None) -> list[Wave]:
        """Cut only where a record or a request comes twice, or where there are too many."""
        most = self._max_batch
        return [
            Wave([commit for _, commit in wave[start : start + most]], held)
            for wave in waves(commits)
            for start in range(0, len(wave), most)
        ]

    def arguments(self, wave: Wave, *, judging: bool) -> list[Any]:
        """Those of one call; text that is none is told of before anything was sent."""
        try:
            return wave.arguments(judging, self.seen)
        except UnicodeDecodeError as error:
            raise translate(
                asyncpg.InvalidTextRepresentationError(str(error)), "", self._target, unknown=False
            ) from None

    async def write(self, session: Session, wave: Wave) -> list[Outcome]:
        """Write a wave as if nothing stood in its way; when something did, again with a closer look."""
        if session.attempt == 1:
            return await self.write_blindly(session, wave)
        sql, arguments = statement("judge", self._target.schema), self.arguments(wave, judging=True)[1:]
        return self._outcomes(wave, await session.fetch(sql, *arguments, writes=True))

    async def write_blindly(self, session: Session, wave: Wave) -> list[Outcome]:
        """In a transaction of its own, as if nothing stood in its way."""
        sql, arguments = statement("write", self._target.schema), self.arguments(wave, judging=False)
        return self._outcomes(wave, await session.fetch(sql, *arguments, writes=True))

    async def write_within(self, session: Session, wave: Wave, arguments: Sequence[Any]) -> list[Outcome]:
        """In a transaction that goes on."""
        return self._outcomes(wave, await session.within(statement("write", self._target.schema), *arguments))

    def _outcomes(self, wave: Wave, rows: list[asyncpg.Record]) -> list[Outcome]:
        self.saw(rows[0]["at"])
        return wave.outcomes(rows)
