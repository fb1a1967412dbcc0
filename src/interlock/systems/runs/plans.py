"""The stored plan: beside its run, in pieces, and immutable.

The plan is not in the run's record, so that changing a run of ten thousand jobs costs as much as one of ten.
Its jobs are stored in pieces of some hundred, together with the ids that were drawn when the plan was
accepted: so every process that creates the jobs creates the same ones.

Why: decision 0170.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import chain

import msgspec

from interlock.engine.aggregate import WriteOnce, rewritten
from interlock.machine import Event, command, consequence, end, state
from interlock.store.contract import Store
from interlock.store.records import Change, Key, Note, Record
from interlock.wire.runs import Plan, PlannedJob, SkippedJob

PIECE = 250
"""Maximum number of jobs in a piece."""
PIECE_BYTES = 400_000
SKIPPED_PIECE = 2_000
KEPT_GRAPHS = 256
KEPT_JOBS = 200_000
SHARED_PLANS, SHARED_JOBS = 8, 1_000
"""Number of plans whose graph is shared by their runs, and the number of jobs of such a plan."""
KEPT_PIECES, STORED_JOBS = 512, 16_000
"""Number of pieces, and of their jobs, that are kept after they were stored: the same process probably
carries the plan out.
"""


class PlanState(StrEnum):
    """The states of a piece of a plan."""

    IN_USE = "in_use"
    KEPT = "kept"
    DISCARDED = "discarded"


IN_USE, KEPT, DISCARDED = PlanState.IN_USE, PlanState.KEPT, PlanState.DISCARDED

settle: Event = command("settle", "Its run was reported.", by="orchestrator")
discard: Event = consequence("discard", "It is no longer wanted.", by="operator")

PLAN = WriteOnce(
    "plan",
    "Some jobs of the plan of a run; it is written once, and removed with its run.",
    opened=state(IN_USE, "Its run is under way.", turn="orchestrator"),
    settled=end(KEPT, "Its run was reported; it is kept as long as the run."),
    dropped=end(DISCARDED, "Not wanted."),
    settle=settle,
    why="The run no longer needs its plan.",
    drop=discard,
)


class PlanPiece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of a piece."""

    first: int = 0
    """The place of its first job in the plan."""
    jobs: tuple[PlannedJob, ...] = ()
    ids: tuple[str, ...] = ()
    """Ids of the jobs, or of the carried-over jobs of an earlier run."""
    carried: tuple[int, ...] = ()
    """Places of jobs that are carried over from an earlier run."""
    skipped: tuple[SkippedJob, ...] = ()


_DECODER = msgspec.json.Decoder(PlanPiece)


class PlanGraph(msgspec.Struct, frozen=True):
    """The dependency graph of a plan, by place."""

    names: tuple[str, ...]
    ids: tuple[str, ...]
    required: tuple[bool, ...]
    needs: tuple[tuple[int, ...], ...]
    dependents: tuple[tuple[int, ...], ...]
    carried: frozenset[int] = frozenset()
    firsts: tuple[int, ...] = ()
    """The first place of each piece."""

    def piece_of(self, place: int) -> int:
        """Return the number of the piece with the job at that place."""
        return bisect_right(self.firsts, place) - 1

    def pieces_with(self, places: Iterable[int]) -> list[int]:
        """Return the numbers of the pieces with the jobs at these places."""
        if len(self.firsts) == 1:
            return [0]
        return sorted({bisect_right(self.firsts, place) - 1 for place in places})

    def place_of(self, name: str) -> int | None:
        """Return the place of the job of that name."""
        return self.names.index(name) if name in self.names else None

    def downstream(self, place: int) -> set[int]:
        """Return the job and its transitive dependents."""
        reached, waiting = {place}, [place]
        while waiting:
            following = [each for each in self.dependents[waiting.pop()] if each not in reached]
            reached.update(following)
            waiting += following
        return reached


def plan_graph(pieces: Sequence[PlanPiece]) -> PlanGraph:
    """Return the graph of a validated plan."""
    jobs = [job for piece in pieces for job in piece.jobs]
    places = {job.name: place for place, job in enumerate(jobs)}
    needs = tuple([tuple(map(places.__getitem__, dict.fromkeys(job.needs))) for job in jobs])
    dependents: list[list[int]] = [[] for _ in jobs]
    for place, needed in enumerate(needs):
        for each in needed:
            dependents[each].append(place)
    return PlanGraph(
        names=tuple(places),
        ids=_ids_in(pieces),
        required=tuple([job.required for job in jobs]),
        needs=needs,
        dependents=tuple(map(tuple, dependents)),
        carried=frozenset(place for piece in pieces for place in piece.carried),
        firsts=tuple(piece.first for piece in pieces if piece.jobs),
    )


def _ids_in(pieces: Sequence[PlanPiece]) -> tuple[str, ...]:
    return tuple(chain.from_iterable([piece.ids for piece in pieces]))


def pieces_of(plan: Plan, ids: Sequence[str], carried: frozenset[int] = frozenset()) -> list[PlanPiece]:
    """Return the plan in pieces, each small enough for a record."""
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
    return pieces or [PlanPiece()]  # an empty plan is valid


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


def piece_changes(run_id: str, pieces: Sequence[PlanPiece], *, commit_id: str, actor: str) -> list[Change]:
    """Return the changes that create a plan's pieces, to commit with its run."""
    return [
        PLAN.change(
            piece_key(run_id, number).id,
            msgspec.json.encode(piece),
            settle=False,
            parent=run_id,
            actor=actor,
            commit_id=commit_id,
        )
        for number, piece in enumerate(pieces)
    ]


def settled_piece(record: Record, *, commit_id: str) -> Change:
    """Return the change that settles a piece after its run was reported."""
    return PLAN.change(
        record.id, record.body, settle=True, before=record, actor="orchestrator", commit_id=commit_id
    )


def renamed_piece(
    record: Record, graph: PlanGraph, places: Sequence[int], draw: Callable[[], str]
) -> Change | None:
    """Return a piece with new ids for these jobs.

    Return None if they were already replaced.
    """
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
    """Return the key of a piece of a run's plan."""
    return Key(PLAN.name, f"{run_id}.{number}")


class Plans:
    """Loads plans, and caches their graphs, since a plan never changes."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._graphs: OrderedDict[str, PlanGraph] = OrderedDict()
        self._jobs = 0
        self._stored: OrderedDict[Key, PlanPiece] = OrderedDict()
        self._stored_jobs = 0
        self._shared: deque[tuple[object, PlanGraph]] = deque(maxlen=SHARED_PLANS)

    async def pieces(self, run_id: str, number: int) -> list[PlanPiece] | None:
        """Return all pieces of a plan as they are stored.

        Return None if some are missing.
        """
        records = await self.records(run_id, number)
        return [_DECODER.decode(each.body) for each in records] if len(records) == number else None

    async def records(self, run_id: str, number: int) -> list[Record]:
        """Return the records of the existing pieces."""
        if not number:
            return []
        found = await self._store().load([piece_key(run_id, each) for each in range(number)])
        return [each for each in found if each is not None]

    def graph_of(self, pieces: Sequence[PlanPiece]) -> PlanGraph:
        """Return the graph of a validated plan.

        Runs of the same plan share all of it but the ids.
        """
        plan = [(piece.first, piece.jobs, piece.carried) for piece in pieces]
        for known, graph in self._shared:
            if known == plan:
                return msgspec.structs.replace(graph, ids=_ids_in(pieces))
        graph = plan_graph(pieces)
        if len(graph.ids) <= SHARED_JOBS:
            self._shared.appendleft((plan, graph))
        return graph

    def keep(self, run_id: str, pieces: Sequence[PlanPiece]) -> None:
        """Keep the pieces of a plan that was just stored."""
        for number, piece in enumerate(pieces):
            key = piece_key(run_id, number)
            before = self._stored.pop(key, None)
            self._stored_jobs += len(piece.jobs) - (0 if before is None else len(before.jobs))
            self._stored[key] = piece
        while len(self._stored) > KEPT_PIECES or self._stored_jobs > STORED_JOBS:
            _, oldest = self._stored.popitem(last=False)
            self._stored_jobs -= len(oldest.jobs)

    async def all_of(self, runs: Mapping[str, int]) -> dict[str, list[PlanPiece]]:
        """Return all pieces of the plans of runs, given the number of each.

        Missing ones are loaded together. A run of which some do not exist is left out. Ids of jobs may have
        been replaced since.
        """
        keys = {run_id: [piece_key(run_id, each) for each in range(n)] for run_id, n in runs.items()}
        known = {key: self._stored.get(key) for some in keys.values() for key in some}
        if missing := [key for key, piece in known.items() if piece is None]:
            for key, record in zip(missing, await self._store().load(missing), strict=True):
                known[key] = None if record is None else _DECODER.decode(record.body)
        found: dict[str, list[PlanPiece]] = {}
        for run_id, some in keys.items():
            pieces = [piece for key in some if (piece := known[key]) is not None]
            if len(pieces) == len(some):
                found[run_id] = pieces
        return found

    async def some(self, run_id: str, numbers: Sequence[int]) -> dict[int, PlanPiece]:
        """Return some pieces, by number.

        Ids of jobs may have been replaced since: the graph has them.
        """
        keys = {number: piece_key(run_id, number) for number in numbers}
        known = {number: self._stored[key] for number, key in keys.items() if key in self._stored}
        missing = [number for number in numbers if number not in known]
        if not missing:
            return known
        found = await self._store().load([keys[number] for number in missing])
        return known | {
            number: _DECODER.decode(each.body)
            for number, each in zip(missing, found, strict=True)
            if each is not None
        }

    async def graph(self, run_id: str, number: int) -> PlanGraph | None:
        """Return the graph of a plan.

        Return None if there is no plan yet, or it was pruned.
        """
        if not number:
            return None  # not cached: the plan may come later
        known = self._graphs.get(run_id)
        if known is not None:
            self._graphs.move_to_end(run_id)
            return known
        pieces = await self.pieces(run_id, number)
        return None if pieces is None else self.remember(run_id, self.graph_of(pieces))

    def forget(self, run_id: str) -> None:
        """Remove a graph from the cache."""
        if (known := self._graphs.pop(run_id, None)) is not None:
            self._jobs -= len(known.ids)

    def remember(self, run_id: str, graph: PlanGraph) -> PlanGraph:
        """Cache a graph, and evict the least recently used ones."""
        if run_id not in self._graphs:
            self._jobs += len(graph.ids)
        self._graphs[run_id] = graph
        while len(self._graphs) > KEPT_GRAPHS or (self._jobs > KEPT_JOBS and len(self._graphs) > 1):
            _, forgotten = self._graphs.popitem(last=False)
            self._jobs -= len(forgotten.ids)
        return graph
