"""What a run wants of its jobs: to be made, to be released, to be stopped.

An order is a message in the commit of the run that gives it, so none is lost. Carrying it out twice
does nothing more, and the sequence does not matter: an order finds its job as it is, and makes it
where nobody has yet. So a crash anywhere in between is mended by somebody carrying it out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from itertools import groupby

import msgspec

from interlock.engine.bulk import Item, apply_all
from interlock.engine.outbox import outgoing
from interlock.engine.unit_of_work import Applied, Decision, Engine
from interlock.errors import InterlockError
from interlock.lifecycles import job, run
from interlock.lifecycles.job import JOB
from interlock.lifecycles.run import RUN
from interlock.store.records import Change, Commit, Key, Record
from interlock.systems.orchestrator.aggregate import JobAggregate
from interlock.systems.orchestrator.body import RunPart
from interlock.systems.orchestrator.cancellation import commit_of
from interlock.systems.orchestrator.ids import JobIds
from interlock.systems.orchestrator.settings import OrchestratorSettings
from interlock.systems.orchestrator.submission import new_job, release
from interlock.systems.runs.admission import confined, origin_of
from interlock.systems.runs.aggregate import RunAggregate
from interlock.systems.runs.body import RunBody, decode_run
from interlock.systems.runs.plan_validation import spec_of
from interlock.systems.runs.plans import PIECE, Graph, Piece, Plans, piece_key, renamed_piece

ORDERS = "run.orders"
"""The topic under which runs give orders to their jobs."""
PATIENCE_S = 60.0
"""How long whoever has given an order may take to carry it out, before others do."""

HOLD, RELEASE, STOP = "hold", "release", "stop"


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of some jobs of a run."""

    run_id: str
    pieces: int
    what: str
    places: tuple[int, ...]
    why: str = ""
    """The code with which they are stopped."""
    new: bool = False
    """Nobody can have made them yet, unless this is a repeat."""


def orders_of(draft: RunAggregate) -> list[Order]:
    """What the draft wants of its jobs, in portions of which each is soon done."""
    orders: list[Order] = []
    new = draft.has_entered((run.QUEUED,))
    for what, places in ((HOLD, draft.hold), (RELEASE, draft.release)):
        orders += _portions(draft, what, places, new=new)
    for why, places in _by_reason(draft.stop):
        orders += _portions(draft, STOP, places, why=why)
    return orders


def order_change(order: Order, name: str, now: datetime, mark: str, *, taken: bool) -> Change:
    """The order as a message; who carries it out at once has taken it."""
    until = now + timedelta(seconds=PATIENCE_S) if taken else None
    return outgoing(name, ORDERS, msgspec.json.encode(order), now, mark=mark, taken_until=until)


def _portions(
    draft: RunAggregate, what: str, places: Sequence[int], *, why: str = "", new: bool = False
) -> Iterator[Order]:
    graph = draft.graph
    cut = graph.piece_of if graph is not None else partial(_by_number)
    for _, some in groupby(sorted(places), cut):
        yield Order(
            run_id=draft.id, pieces=draft.body.pieces, what=what, places=tuple(some), why=why, new=new
        )


def _by_number(place: int) -> int:
    return place // PIECE


def _by_reason(stop: dict[int, str]) -> Iterator[tuple[str, list[int]]]:
    for why in dict.fromkeys(stop.values()):
        yield why, [place for place, each in stop.items() if each == why]


class Making(msgspec.Struct, frozen=True):
    """What is needed to make jobs of a plan."""

    body: RunBody
    graph: Graph
    pieces: dict[int, Piece]


class Found(Enum):
    """As what an order finds a job."""

    OURS = "ours"
    MISSING = "missing"
    FOREIGN = "foreign"
    """Under its name there is a job of somebody else."""


def _those(answers: dict[int, Found], wanted: Found) -> list[int]:
    return [place for place, found in answers.items() if found is wanted]


class Orders:
    """Carries orders out."""

    def __init__(self, engine: Engine, plans: Plans, settings: OrchestratorSettings, ids: JobIds) -> None:
        self._engine = engine
        self._ids = ids
        self._plans = plans
        self._settings = settings

    async def carry_out(self, order: Order) -> None:
        """Make it so; safe to repeat."""
        graph = await self._plans.graph(order.run_id, order.pieces)
        if graph is None:
            return  # the run was removed, and its plan with it
        making = await self._making(order, graph, order.places) if order.new else None
        answers = await self._apply(order, graph, order.places, making)
        if missing := _those(answers, Found.MISSING):
            making = await self._making(order, graph, missing)
            answers |= await self._apply(order, graph, missing, making)
        if taken := _those(answers, Found.FOREIGN):
            await self._rename(order.run_id, graph, taken)
            again = msgspec.structs.replace(order, places=tuple(taken), new=False)
            await self.carry_out(again)

    async def _making(self, order: Order, graph: Graph, places: Sequence[int]) -> Making | None:
        (record,) = await self._engine.store.load([Key(RUN.name, order.run_id)])
        if record is None:
            return None
        numbers = sorted({graph.piece_of(place) for place in places})
        pieces = await self._plans.some(order.run_id, numbers)
        return Making(decode_run(record.body), graph, pieces)

    async def _apply(
        self, order: Order, graph: Graph, places: Sequence[int], making: Making | None
    ) -> dict[int, Found]:
        """By place, as what each job was found; and then it is as it was ordered."""
        items = [
            Item(
                Key(JOB.name, graph.ids[place]),
                partial(self._decide, order, place, making),
                fresh=order.new and making is not None,
            )
            for place in places
        ]
        answers = {}
        for place, result in zip(places, await apply_all(self._engine, items), strict=True):
            if isinstance(result, InterlockError):
                raise result
            answers[place] = result.answer if isinstance(result, Applied) else Found.OURS
        return answers

    def _decide(
        self, order: Order, place: int, making: Making | None, record: Record | None, now: datetime, mark: str
    ) -> Decision[Found]:
        if record is not None and record.parent != order.run_id:
            return Decision(Found.FOREIGN)
        draft = (
            JobAggregate.of(record, now, self._settings)
            if record is not None
            else self._made(order, place, making, now)
        )
        if draft is None:
            return Decision(Found.MISSING)
        follow(order, draft)
        if not draft.taken:
            return Decision(Found.OURS)
        return Decision(Found.OURS, commit_of(draft, mark=mark, actor="orchestrator", reason=order.why))

    async def _rename(self, run_id: str, graph: Graph, places: Sequence[int]) -> None:
        """Somebody else has drawn the same names, and used them first: draw others for these jobs.

        No job can have been made under such a name, so nothing is lost; whoever still knows the old
        one meets a job of somebody else under it, and comes here to learn the new one.
        """
        for number in sorted({graph.piece_of(place) for place in places}):
            key = piece_key(run_id, number)

            def decide(found: Sequence[Record | None], now: datetime) -> Decision[None]:
                if found[0] is None:
                    return Decision(None)
                change = renamed_piece(found[0], graph, places, lambda: self._ids.draw(now))
                return Decision(None, Commit(changes=(change,)) if change is not None else None)

            await self._engine.apply([key], decide)
        self._plans.forget(run_id)

    def _made(self, order: Order, place: int, making: Making | None, now: datetime) -> JobAggregate | None:
        piece = making.pieces.get(making.graph.piece_of(place)) if making is not None else None
        if making is None or piece is None:
            return None
        body, spec = making.body, making.body.spec
        planned = confined(piece.jobs[place - piece.first], body)
        part = RunPart(
            run_id=order.run_id,
            place=place,
            name=planned.name,
            required=planned.required,
            root=making.graph.carried.issuperset(making.graph.needs[place]),
        )
        job_id = making.graph.ids[place]
        job_spec = spec_of(planned, priority=spec.priority, trace=spec.trace, from_fork=spec.source.from_fork)
        held, origin = order.what != RELEASE, origin_of(body, planned)
        return new_job(job_spec, job_id, now, self._settings, run=part, origin=origin, held=held)


def follow(order: Order, draft: JobAggregate) -> None:
    """What an order makes of a job. Pure; where it was followed before, nothing."""
    if order.what == RELEASE:
        release(draft)
    elif order.what == STOP and draft.root.state not in job.ENDED and draft.root.data.stop_reason is None:
        draft.fire_due()
        draft.stop_reason = order.why
        draft.send(job.Cancel(at=draft.now, still_active=draft.body.active, reason=order.why))
