"""A plan as it is kept: beside its run, in pieces, and never changed.

A run of ten thousand jobs must not weigh more than one of ten whenever something is noted of it, so
the plan is not in the run's record. Its jobs are kept in pieces of some hundred, together with the
names that were drawn for them when the plan was accepted: whoever makes the jobs, and however often,
makes the same ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

import msgspec

from interlock.engine.aggregate import WriteOnce, rewritten
from interlock.machine import command, consequence, end, state
from interlock.store.contract import Store
from interlock.store.records import Change, Key, Note, Record
from interlock.wire.runs import Plan, PlannedJob, SkippedJob

PIECE = 250
"""How many jobs a piece has at most."""
PIECE_BYTES = 400_000
SKIPPED_PIECE = 2_000
KEPT_GRAPHS = 256
KEPT_JOBS = 200_000


class PlanState(StrEnum):
    """Where a piece of a plan stands."""

    IN_USE = "in_use"
    KEPT = "kept"
    DISCARDED = "discarded"


IN_USE, KEPT, DISCARDED = PlanState.IN_USE, PlanState.KEPT, PlanState.DISCARDED

settle = command("settle", "Its run was reported.", by="orchestrator")
discard = consequence("discard", "Nobody wants it.", by="operator")

PLAN = WriteOnce(
    "plan",
    "Some jobs of the plan of a run; it is written once, and removed with its run.",
    opened=state(IN_USE, "Its run is under way.", turn="orchestrator"),
    settled=end(KEPT, "Its run was reported; it is kept as long as that."),
    dropped=end(DISCARDED, "Not wanted."),
    settle=settle,
    why="The run has nothing more to look up.",
    drop=discard,
)


class PlanPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a piece."""

    first: int = 0
    """The place of its first job in the plan."""
    jobs: tuple[PlannedJob, ...] = ()
    ids: tuple[str, ...] = ()
    """The names of the jobs, or of those of an earlier run that stand for them."""
    carried: tuple[int, ...] = ()
    """Places of jobs that are not done again: an earlier run has done them."""
    skipped: tuple[SkippedJob, ...] = ()


_DECODER = msgspec.json.Decoder(PlanPiece)


class PlanGraph(msgspec.Struct, frozen=True):
    """What has to be known of a plan to decide about its run; by place."""

    names: tuple[str, ...]
    ids: tuple[str, ...]
    required: tuple[bool, ...]
    needs: tuple[tuple[int, ...], ...]
    dependents: tuple[tuple[int, ...], ...]
    carried: frozenset[int] = frozenset()
    firsts: tuple[int, ...] = ()
    """The place with which each piece begins."""

    def piece_of(self, place: int) -> int:
        """The number of the piece that has the job at that place."""
        return bisect_right(self.firsts, place) - 1

    def place_of(self, name: str) -> int | None:
        """Where the job of that name is."""
        return self.names.index(name) if name in self.names else None

    def downstream(self, place: int) -> set[int]:
        """The job and everything that follows from it."""
        reached, waiting = {place}, [place]
        while waiting:
            following = [each for each in self.dependents[waiting.pop()] if each not in reached]
            reached.update(following)
            waiting += following
        return reached


def plan_graph(pieces: Sequence[PlanPiece]) -> PlanGraph:
    """The graph of a plan that was checked."""
    jobs = [job for piece in pieces for job in piece.jobs]
    places = {job.name: place for place, job in enumerate(jobs)}
    needs = tuple(tuple(dict.fromkeys(places[name] for name in job.needs)) for job in jobs)
    dependents: list[list[int]] = [[] for _ in jobs]
    for place, needed in enumerate(needs):
        for each in needed:
            dependents[each].append(place)
    return PlanGraph(
        names=tuple(places),
        ids=tuple(name for piece in pieces for name in piece.ids),
        required=tuple(job.required for job in jobs),
        needs=needs,
        dependents=tuple(map(tuple, dependents)),
        carried=frozenset(place for piece in pieces for place in piece.carried),
        firsts=tuple(piece.first for piece in pieces if piece.jobs),
    )


def pieces_of(plan: Plan, ids: Sequence[str], carried: frozenset[int] = frozenset()) -> list[PlanPiece]:
    """The plan in pieces, each small enough for a record."""
    pieces = []
    for first, last in _cuts(plan.jobs):
        pieces.append(
            PlanPiece(
                first=first,
                jobs=plan.jobs[first:last],
                ids=tuple(ids[first:last]),
                carried=tuple(place for place in range(first, last) if place in carried),
            )
        )
    for first in range(0, len(plan.skipped), SKIPPED_PIECE):
        skipped = plan.skipped[first : first + SKIPPED_PIECE]
        pieces.append(PlanPiece(first=len(plan.jobs), skipped=skipped))
    return pieces or [PlanPiece()]  # a plan of nothing is a plan


def _cuts(jobs: Sequence[PlannedJob]) -> Iterator[tuple[int, int]]:
    first = size = 0
    for place, job in enumerate(jobs):
        weight = len(msgspec.json.encode(job))
        if place > first and (place - first >= PIECE or size + weight > PIECE_BYTES):
            yield first, place
            first, size = place, 0
        size += weight
    if jobs:
        yield first, len(jobs)


def piece_change(run_id: str, number: int, piece: PlanPiece, *, mark: str, actor: str) -> Change:
    """A piece, to be committed with the run that it belongs to."""
    name, body = piece_key(run_id, number).id, msgspec.json.encode(piece)
    return PLAN.change(name, body, settle=False, parent=run_id, actor=actor, mark=mark)


def settled_piece(record: Record, *, mark: str) -> Change:
    """A piece whose run was reported."""
    return PLAN.change(record.id, record.body, settle=True, before=record, actor="orchestrator", mark=mark)


def renamed_piece(
    record: Record, graph: PlanGraph, places: Sequence[int], draw: Callable[[], str]
) -> Change | None:
    """A piece with other names for these jobs; None when somebody has seen to it already."""
    piece = _DECODER.decode(record.body)
    ids = list(piece.ids)
    for place in places:
        here = place - piece.first
        if 0 <= here < len(ids) and ids[here] == graph.ids[place]:
            ids[here] = draw()
    if tuple(ids) == piece.ids:
        return None
    body = msgspec.json.encode(msgspec.structs.replace(piece, ids=tuple(ids)))
    return rewritten(record, body=body, note=Note(actor="orchestrator", reason="names were taken"))


def piece_key(run_id: str, number: int) -> Key:
    """Where a piece of the plan of a run is."""
    return Key(PLAN.name, f"{run_id}.{number}")


class Plans:
    """Reads plans, and remembers graphs: a plan never changes, so what was read once stays true."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._graphs: OrderedDict[str, PlanGraph] = OrderedDict()
        self._jobs = 0

    async def pieces(self, run_id: str, number: int) -> list[PlanPiece] | None:
        """All pieces of a plan; None when some of them are not there any more."""
        records = await self.records(run_id, number)
        return [_DECODER.decode(each.body) for each in records] if len(records) == number else None

    async def records(self, run_id: str, number: int) -> list[Record]:
        """Those pieces that are there, as the store keeps them."""
        if not number:
            return []
        found = await self._store().load([piece_key(run_id, each) for each in range(number)])
        return [each for each in found if each is not None]

    async def some(self, run_id: str, numbers: Sequence[int]) -> dict[int, PlanPiece]:
        """Some pieces, by their numbers."""
        found = await self._store().load([piece_key(run_id, number) for number in numbers])
        return {
            number: _DECODER.decode(each.body)
            for number, each in zip(numbers, found, strict=True)
            if each is not None
        }

    async def graph(self, run_id: str, number: int) -> PlanGraph | None:
        """The graph of a plan; None when there is no plan yet, or not any more."""
        if not number:
            return None  # and nothing is remembered: a plan may come
        known = self._graphs.get(run_id)
        if known is not None:
            self._graphs.move_to_end(run_id)
            return known
        pieces = await self.pieces(run_id, number)
        return None if pieces is None else self.remember(run_id, plan_graph(pieces))

    def forget(self, run_id: str) -> None:
        """Read it anew the next time."""
        if (known := self._graphs.pop(run_id, None)) is not None:
            self._jobs -= len(known.ids)

    def remember(self, run_id: str, graph: PlanGraph) -> PlanGraph:
        """Keep it for the next time, and forget what was not asked for the longest."""
        if run_id not in self._graphs:
            self._jobs += len(graph.ids)
        self._graphs[run_id] = graph
        while len(self._graphs) > KEPT_GRAPHS or (self._jobs > KEPT_JOBS and len(self._graphs) > 1):
            _, forgotten = self._graphs.popitem(last=False)
            self._jobs -= len(forgotten.ids)
        return graph
