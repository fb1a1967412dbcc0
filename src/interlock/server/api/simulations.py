"""Routes of simulations: start, list, show, pause, resume, move and cancel them, and follow one live.

The live stream sends the journal of one simulation as it grows. Steps leave no entry in the journal, so
progress is read now and then. A reader that returns with the id of the last event it has seen misses
nothing but steps, of which it is sent the latest at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec
from starlette.responses import Response

from interlock.api import simulations as api
from interlock.api.messages import HistoryPage
from interlock.errors import BadRequest, StoreUnavailable
from interlock.server.api.journal import AdmittedStream
from interlock.server.api.visibility import is_shaped
from interlock.server.event_streams import SILENCE_S, Broadcast, EventStream, gap_after
from interlock.server.history import entry_view
from interlock.server.routes import Call, handles
from interlock.systems.simulations.manager import SimulationManager
from interlock.systems.simulations.validation import unknown
from interlock.systems.simulations.views import KINDS, news_of
from interlock.wire.simulations import (
    PRIORITIES,
    SaidOfSimulation,
    SimulationFilter,
    SimulationMetrics,
    SimulationNews,
    SimulationOrders,
    SimulationView,
)

LOOK_EVERY_S = 0.5
PAGE = 500

_ENCODER = msgspec.json.Encoder()


class SimulationStream:
    """The event stream of one simulation for one reader."""

    def __init__(
        self,
        broadcast: Broadcast,
        run_id: str,
        cursor: str,
        look: Callable[[], Awaitable[SimulationView | None]],
    ) -> None:
        self._broadcast = broadcast
        self._run_id = run_id
        self.cursor: str = cursor
        self._look = look
        self._seen: tuple[object, ...] = ()

    def beginning(self) -> bytes:
        """Return the first event, with a cursor to resume from."""
        return b"retry: 1000\nid: %s\n\n" % self.cursor.encode()

    async def next(self) -> bytes:
        """Return the next events, or a keep-alive comment after a long silence."""
        loop = asyncio.get_running_loop()
        until = loop.time() + SILENCE_S
        while True:
            try:
                piece = await self._entries() + await self._step()
            except StoreUnavailable:
                piece = b""
            if piece:
                return piece
            if loop.time() >= until:
                return b": still here\nid: %s\n\n" % self.cursor.encode()
            await self._broadcast.news(LOOK_EVERY_S)

    async def _entries(self) -> bytes:
        pieces: list[bytes] = []
        while True:
            feed = await self._broadcast.read(self.cursor, PAGE)
            if feed.gap:
                pieces.append(gap_after(self.cursor))
            self.cursor = feed.entries[-1].cursor if feed.entries else feed.cursor or self.cursor
            pieces += [
                _event(news, entry.cursor)
                for entry in feed.entries
                if entry.id == self._run_id and entry.kind in KINDS
                for news in news_of(entry)
            ]
            if len(feed.entries) < PAGE:
                return b"".join(pieces)

    async def _step(self) -> bytes:
        view = await self._look()
        if view is None:
            return b""
        seen = (
            view.status,
            view.current_step,
            view.total_steps,
            view.danger_count,
            view.resuming,
            view.stale,
        )
        if seen == self._seen:
            return b""
        self._seen = seen
        return _event(SimulationNews(event="step", run_id=view.run_id, simulation=view), self.cursor)


def _event(news: SimulationNews, cursor: str) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        cursor.encode(), news.event.encode(), _ENCODER.encode(news),
    )  # fmt: skip


@handles(api.START_SIMULATION)
async def start_simulation(call: Call) -> SimulationView:
    """Create a simulation; a worker claims it asynchronously."""
    body: api.OneSimulation = call.body
    return await _manager(call).create_run(body.spec(), actor=call.actor, request_id=call.request_id)


@handles(api.LIST_SIMULATIONS)
async def list_simulations(call: Call) -> api.SimulationPage:
    """Return a page of simulations with a status, a priority and a text."""
    query: api.SimulationsQuery = call.query
    if query.priority and query.priority not in PRIORITIES:
        raise BadRequest(
            f"There is no priority {query.priority!r}.",
            allowed=PRIORITIES,
            todo=f"Use one of: {', '.join(PRIORITIES)}.",
        )
    statuses = tuple(filter(None, query.status.split(",")))
    wanted = SimulationFilter(statuses=statuses, priority=query.priority, text=query.text)
    views, cursor = await _manager(call).list_runs(wanted, cursor=query.cursor, limit=query.limit)
    return api.SimulationPage(simulations=tuple(views), cursor=cursor)


@handles(api.GET_SIMULATION)
async def get_simulation(call: Call) -> SimulationView:
    """Return a simulation."""
    return await _manager(call).get(_id_in(call))


@handles(api.GET_SIMULATION_HISTORY)
async def get_history(call: Call) -> HistoryPage:
    """Return the journal of a simulation and its pulse, oldest first."""
    entries = await _manager(call).history(_id_in(call))
    return HistoryPage(entries=tuple(map(entry_view, entries)))


@handles(api.GET_SIMULATION_METRICS)
async def get_metrics(call: Call) -> SimulationMetrics:
    """Return its metrics over the steps."""
    return await _manager(call).metrics(_id_in(call))


@handles(api.PAUSE_SIMULATION)
async def pause_simulation(call: Call) -> api.PauseRequested:
    """Request a pause; the worker makes the transition."""
    body: api.SimulationAction = call.body or api.SimulationAction()
    view = await _manager(call).pause(
        _id_in(call), reason=body.reason, actor=call.actor, request_id=call.request_id
    )
    return api.PauseRequested(simulation=view)


@handles(api.RESUME_SIMULATION)
async def resume_simulation(call: Call) -> SimulationView:
    """Resume a simulation on a worker."""
    body: api.ResumeSimulation = call.body or api.ResumeSimulation()
    return await _manager(call).resume(
        _id_in(call),
        reason=body.reason,
        actor=call.actor,
        request_id=call.request_id,
        queue=body.queue,
    )


@handles(api.CANCEL_SIMULATION)
async def cancel_simulation(call: Call) -> SimulationView:
    """Cancel a simulation permanently."""
    body: api.SimulationAction = call.body or api.SimulationAction()
    return await _manager(call).cancel(
        _id_in(call), reason=body.reason, actor=call.actor, request_id=call.request_id
    )


@handles(api.TRANSITION_SIMULATION)
async def move_simulation(call: Call) -> SimulationView:
    """Apply a transition to a simulation, as its table allows."""
    body: api.MoveSimulation = call.body
    return await _manager(call).transition(
        _id_in(call),
        body.status,
        expected_version=body.expected_version,
        worker_id=body.worker_id,
        step=body.step,
        error=body.error,
        reason=body.reason,
        actor=call.actor,
        request_id=call.request_id,
    )


@handles(api.HEARTBEAT_SIMULATION)
async def beat_simulation(call: Call) -> SimulationView:
    """Record a heartbeat."""
    body: api.SimulationBeat = call.body
    return await _manager(call).heartbeat(_id_in(call), body.worker_id, body.step)


@handles(api.LIST_STALE_SIMULATIONS)
async def list_stale(call: Call) -> api.StaleSimulations:
    """Return running simulations without a recent heartbeat."""
    query: api.StaleQuery = call.query
    return api.StaleSimulations(run_ids=tuple(await _manager(call).check_stale_runs(query.timeout_s)))


@handles(api.FOLLOW_SIMULATION)
async def follow_simulation(call: Call) -> Response:
    """Return the event stream of a simulation."""
    query: api.SimulationEventsQuery = call.query
    parts, run_id = call.parts, _id_in(call)
    await _manager(call).get(run_id)
    after = call.headers.get("last-event-id", query.after)
    if after:
        await parts.broadcast.read(after, 1)  # an invalid cursor is refused before the stream begins
    look = partial(_manager(call).get_state, run_id)
    stream = SimulationStream(parts.broadcast, run_id, after or parts.broadcast.cursor, look)
    return AdmittedStream(
        EventStream(stream, parts.broadcast, parts.ending(call.principal)),
        parts.readers,
        call.principal.name,
        parts.settings.streams_each,
    )


@handles(api.SAY_SIMULATION)
async def receive_message(call: Call) -> SimulationOrders:
    """Process a message of the worker that executes a simulation."""
    body: SaidOfSimulation = call.body
    return await _manager(call).receive(body.token, body.runner_id, body.word)


def _manager(call: Call) -> SimulationManager:
    return call.parts.runtime.simulations


def _id_in(call: Call) -> str:
    run_id = call.path["run_id"]
    if not is_shaped(run_id):
        raise unknown(run_id[:64])
    return run_id
