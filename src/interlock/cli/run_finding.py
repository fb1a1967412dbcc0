"""From what somebody typed to the runs that they mean: ids, beginnings of ids, filters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from interlock.cli.many import filter_among, too_many
from interlock.errors import UnknownRun
from interlock.remote.interfaces import Reach, RunsApi
from interlock.systems.orchestrator.ids import drawn_at
from interlock.systems.runs.search import found_runs
from interlock.wire.run_filters import WantedRuns, read_run_filter, run_id_of
from interlock.wire.runs import RunFilter, RunView
from interlock.wire.wanted import ID_DIGITS

PAGE = 500
MOST = 1_000
MAX_CANDIDATES = 10
_PREFIX = "r_"
# An id names the time at which it was drawn; so far around it the run may have been stored.
_AROUND = timedelta(minutes=5)


async def whole_run_id(runs: RunsApi, text: str) -> str:
    """The id of a run from what somebody typed: the beginning is enough where it is the only one."""
    run_id = run_id_of(text)
    if run_id is None:
        raise UnknownRun(
            f"{text!r} is not the id of a run, which is {_PREFIX} and {ID_DIGITS} hex digits.",
            todo="Take ids from `interlock run list`; the beginning is enough.",
            facts={"run_id": text},
        )
    if len(run_id) == len(_PREFIX) + ID_DIGITS:
        return run_id
    return await _completed(runs, run_id)


async def chosen_runs(port: Reach, words: Sequence[str], *, among: Sequence[str] = ()) -> list[RunView]:
    """The runs that ids or a filter name; of a filter only those in one of the states `among`."""
    runs = port.here.runs
    wanted = filter_in(words)
    if wanted is None:
        ids = [await whole_run_id(runs, word) for word in words]
        return [await runs.outline(run_id) for run_id in dict.fromkeys(ids)]
    narrowed = wanted.among(among) if among else wanted
    if not narrowed.wanted_states:
        return []
    found = await found_runs(runs, narrowed, await port.now(), limit=MOST)
    if found.cursor:
        raise too_many("run", wanted, MOST, keys="since:, until:, workflow: or outcome:")
    return found.views


def filter_in(words: Sequence[str]) -> WantedRuns | None:
    """The filter that words make together; None when they are ids."""
    return filter_among(words, run_id_of, read_run_filter)


async def _completed(runs: RunsApi, beginning: str) -> str:
    """The only run whose id begins like this."""
    digits = beginning.removeprefix(_PREFIX)
    first, last = (drawn_at(int(digits.ljust(ID_DIGITS, fill), 16)) for fill in "0f")
    asked = RunFilter(since=first - _AROUND, until=last + _AROUND)
    candidates: list[str] = []
    cursor = ""
    while True:
        views, cursor = await runs.find(asked, cursor=cursor, limit=PAGE)
        candidates += [view.id for view in views if view.id.startswith(beginning)]
        if not cursor or len(candidates) > MAX_CANDIDATES:
            break
    if len(candidates) == 1:
        return candidates[0]
    facts: dict[str, object] = {"run_id": beginning, "candidates": candidates[:MAX_CANDIDATES]}
    if not candidates:
        raise UnknownRun(
            f"There is no run whose id begins with {beginning}.",
            todo="Look for it with `interlock run list`; runs are pruned after a while.",
            facts=facts,
        )
    raise UnknownRun(
        f"Several runs begin with {beginning}.",
        allowed=candidates[:MAX_CANDIDATES],
        todo="Type some more of it.",
        facts=facts,
    )
