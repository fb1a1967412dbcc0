"""Apply an action to every record that the user names: jobs, runs and workers alike.

Ids are acted on at once. A filter is previewed and confirmed, unless `--yes` is given; without a terminal
to ask on, nothing is done.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

import typer

from interlock.cli import output, project
from interlock.cli.connection import connected
from interlock.cli.errors import WRONG_QUESTION, tell
from interlock.cli.output import Sheet, print_line
from interlock.errors import InterlockError, InvalidArguments
from interlock.remote.interfaces import Reach, Services
from interlock.text import counted

AT_ONCE = 100
PREVIEW = 10


class Shown(Protocol):
    """A record as it is shown."""

    @property
    def id(self) -> str:
        """What it is called."""
        ...


F = TypeVar("F")
V = TypeVar("V", bound=Shown)
V_contra = TypeVar("V_contra", bound=Shown, contravariant=True)


class Sheets(Protocol[V_contra]):
    """How several of them are shown."""

    def __call__(self, views: Sequence[V_contra], now: datetime, *, terminal: bool) -> Sheet:
        """One line for each."""
        ...


@dataclass(frozen=True, slots=True)
class BulkAction(Generic[V]):
    """What shall be done, and with which."""

    noun: str
    verb: str
    by_filter: bool
    choose: Callable[[Reach], Awaitable[list[V]]]
    act: Callable[[Services, str], Awaitable[V]]
    """Does it with one."""
    line: Callable[[V], str]
    """What is said about one in a pipe."""
    sheet: Sheets[V]
    at_once: int = AT_ONCE

    def carry_out(self, store: str | None, *, yes: bool, dry_run: bool, as_json: bool) -> int:
        """Do it with all that are meant; the answer is the exit code."""
        here = project.load(store)
        views, now = asyncio.run(self._chosen(here))
        if not views:
            typer.echo(f"No {self.noun} matches.", err=True)
            return 0
        if dry_run or (self.by_filter and not yes):
            self._preview(views, now, as_json=as_json)
            # Nobody holds a connection open while somebody thinks.
            if dry_run or not self._agreed(len(views)):
                return 0
        return self._tell(asyncio.run(self._done(here, [view.id for view in views])), as_json=as_json)

    async def _chosen(self, here: project.Project) -> tuple[list[V], datetime]:
        async with connected(here) as port:
            return await self.choose(port), await port.now()

    async def _done(self, here: project.Project, ids: Sequence[str]) -> list[tuple[str, V | InterlockError]]:
        async with connected(here) as port:
            results: list[tuple[str, V | InterlockError]] = []
            for start in range(0, len(ids), self.at_once):
                together = (self._one(port.here, each) for each in ids[start : start + self.at_once])
                results += await asyncio.gather(*together)
            await port.recover()  # nobody else may be there to pass word on to those who depend on them
            return results

    async def _one(self, place: Services, record_id: str) -> tuple[str, V | InterlockError]:
        try:
            return record_id, await self.act(place, record_id)
        except InterlockError as error:
            return record_id, error

    def _preview(self, views: Sequence[V], now: datetime, *, as_json: bool) -> None:
        if as_json:
            for view in views:
                print_line(view)
            return
        terminal = output.on_terminal()
        shown = views[:PREVIEW] if terminal else views
        output.print_sheets([self.sheet(shown, now, terminal=terminal)])
        if len(shown) < len(views):
            typer.echo(f"… and {len(views) - len(shown)} more")

    def _agreed(self, number: int) -> bool:
        if not sys.stdin.isatty():
            raise InvalidArguments(
                f"Refusing to {self.verb} {counted(number, self.noun)} without confirmation: stdin is not a "
                "terminal. Nothing was done.",
                todo="Pass --yes to do it, or --dry-run to only look.",
                facts={f"{self.noun}s": number},
            )
        return typer.confirm(f"{self.verb.capitalize()} {counted(number, self.noun)}?", err=True)

    def _tell(self, results: Sequence[tuple[str, V | InterlockError]], *, as_json: bool) -> int:
        """A line for each; of one alone the error is the answer."""
        if len(results) == 1 and isinstance(results[0][1], InterlockError):
            raise results[0][1]
        code = 0
        for record_id, result in results:
            if isinstance(result, InterlockError):
                code = WRONG_QUESTION
                if as_json:
                    print_line({"id": record_id, "error": result.as_dict()})
                else:
                    tell(result, as_json=False)
            elif as_json:
                print_line({"id": record_id, self.noun: result})
            else:
                typer.echo(self.line(result))
        return code


def part_of(request_id: str | None, record_id: str) -> str | None:
    """One request id for each record, so that repeating the whole repeats every part."""
    return None if request_id is None else f"{request_id}.{record_id}"


def filter_among(
    words: Sequence[str], id_of: Callable[[str], str | None], read: Callable[[str], F]
) -> F | None:
    """The filter that words make together; None when they are ids."""
    if all(":" not in word for word in words):
        return None
    text = " ".join(words)
    ids = [word for word in words if ":" not in word and id_of(word)]
    if ids:
        raise InvalidArguments(
            f"{ids[0]} is an id, and the rest of {text!r} is a filter.",
            todo=f"Give either, or write id:{','.join(ids)} in the filter.",
            facts={"filter": text},
        )
    return read(text)


def too_many(noun: str, wanted: object, limit: int, *, keys: str) -> InvalidArguments:
    """What a filter means is more than can be dealt with, or has to be looked for among more."""
    return InvalidArguments(
        f"The filter {str(wanted)!r} means more {noun}s than can be dealt with at once, or has to look "
        f"through more: {limit} at most.",
        todo=f"Narrow it down with {keys}.",
        facts={"filter": str(wanted), "limit": limit},
    )
