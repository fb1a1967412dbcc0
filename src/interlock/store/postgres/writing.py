"""How commits become calls of `write_wave`: checked, cut into waves, and told the time that was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeAlias

import asyncpg

from interlock.store.catalogue import Catalogue
from interlock.store.checking import check_commits, waves
from interlock.store.contract import Capabilities
from interlock.store.postgres.connections import Session
from interlock.store.postgres.failures import Undone, translate
from interlock.store.postgres.queries import query as statement
from interlock.store.postgres.target import Target
from interlock.store.postgres.wave import Wave
from interlock.store.records import Commit, Outcome, Record

Call: TypeAlias = tuple[str, list[Any]]
"""A statement and its arguments."""


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

    def waves(self, commits: Sequence[Commit], held: Sequence[Record] = ()) -> list[Wave]:
        """Cut only where a record or a request comes twice, or where there are too many."""
        most = self._max_batch
        return [
            Wave(wave[start : start + most], held)
            for wave in waves(commits)
            for start in range(0, len(wave), most)
        ]

    def call(self, wave: Wave, *, judging: bool) -> Call:
        """Return the call that writes a wave within a transaction, as briefly as it can be said."""
        with self._text_is_text():
            if not judging and (arguments := wave.arguments_alike(self.seen)) is not None:
                return statement("write_alike", self._target.schema), arguments
            return statement("write", self._target.schema), wave.arguments(judging, self.seen)

    async def write(self, session: Session, wave: Wave) -> list[Outcome]:
        """Write a wave as if nothing stood in its way; when something did, again with a closer look."""
        sql, arguments = self._optimistic(wave) if session.attempt == 1 else self._judged(wave)
        rows = await session.fetch(sql, *arguments, writes=True)
        if not rows:
            raise Undone
        return self._outcomes(wave, rows)

    def _optimistic(self, wave: Wave) -> Call:
        """Return the call that writes everything, or nothing and no rows."""
        schema = self._target.schema
        with self._text_is_text():
            if (arguments := wave.arguments_alike(self.seen)) is not None:
                return statement("try_alike", schema), arguments
            return statement("try_wave", schema), wave.arguments(False, self.seen)[1:]

    def _judged(self, wave: Wave) -> Call:
        """Return the call that writes what it can, and says what stood in the way of the rest."""
        with self._text_is_text():
            return statement("judge", self._target.schema), wave.arguments(True, self.seen)[1:]

    async def write_within(self, session: Session, wave: Wave, call: Call) -> list[Outcome]:
        """In a transaction that goes on."""
        sql, arguments = call
        return self._outcomes(wave, await session.within(sql, *arguments))

    def _outcomes(self, wave: Wave, rows: list[asyncpg.Record]) -> list[Outcome]:
        self.saw(rows[0]["at"])
        return wave.outcomes(rows)

    @contextmanager
    def _text_is_text(self) -> Iterator[None]:
        """Who brings bytes that are no text is told before anything was sent."""
        try:
            yield
        except UnicodeDecodeError as error:
            raise translate(
                asyncpg.InvalidTextRepresentationError(str(error)), "", self._target, unknown=False
            ) from None
