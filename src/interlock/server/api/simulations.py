"""Routes of simulations: start, list, show, pause, resume, move and cancel them, and follow one live.

The live stream sends the journal of one simulation as it grows. Steps leave no entry in the journal, so
progress is read now and then. A reader that returns with the id of the last event it has seen misses
nothing but steps, of which it is sent the latest at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from interlock.errors import (
    AlreadyThere,
    GuardRefused,
    InvalidRecord,
    InvalidSimulation,
    NotJson,
    RequestIdReused,
    SimulationExists,
    StoreUnavailable,
    TerminalState,
    TooLarge,
    TransitionNotAllowed,
    UnknownSimulation,
    UnknownState,
    VersionChanged,
)
from interlock.server.api.journal import Admitted
from interlock.server.api.visibility import is_shaped
from interlock.server.event_streams import SILENCE_S, Broadcast, EventStream, gap_after
from interlock.server.messages import Cursor, HistoryPage, Limit, Reason, RequestId, entry_view
from interlock.server.problems import BadRequest, TooMany
from interlock.server.routes import Call, Confined, Lane, Link, Route
from interlock.systems.access.principals import Role
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
    SimulationSpec,
    SimulationView,
)


class OneSimulation(
    SimulationSpec, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One simulation that somebody wants, perhaps under a request id."""

    request_id: RequestId | None = None

    def spec(self) -> SimulationSpec:
        """The simulation without the id of the request, which is not part of it."""
        return SimulationSpec(**{name: getattr(self, name) for name in SimulationSpec.__struct_fields__})


class SimulationsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of which simulations."""

    status: Annotated[str, Meta(max_length=200, description="One or more, separated by commas.")] = ""
    priority: Annotated[str, Meta(max_length=20, description="low, normal or high.")] = ""
    text: Annotated[str, Meta(max_length=200, description="Part of its id, task or scenario.")] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class SimulationAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pause, resume or cancel a simulation."""

    reason: Reason = ""
    request_id: RequestId | None = None


class ResumeSimulation(SimulationAction, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resume a simulation, perhaps in another queue."""

    queue: Annotated[str, Meta(max_length=64, description="Queue of its job; its own if empty.")] = ""


class MoveSimulation(SimulationAction, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Move a simulation that is driven by hand to another status."""

    status: Annotated[str, Meta(min_length=1, max_length=20, description="The status to move it to.")]
    expected_version: (
        Annotated[int, Meta(ge=1, le=2**53, description="Refuse if it is in another version.")] | None
    ) = None
    worker_id: Annotated[str, Meta(max_length=200, description="Who executes it.")] | None = None
    step: Annotated[int, Meta(ge=0, le=2**53, description="The last completed step.")] | None = None
    error: Annotated[str, Meta(max_length=2_000, description="Why it failed or was interrupted.")] = ""


class SimulationBeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sign of life of a simulation that is driven by hand."""

    worker_id: Annotated[str, Meta(min_length=1, max_length=200, description="Who executes it.")]
    step: Annotated[int, Meta(ge=0, le=2**53, description="The last completed step.")]


class StaleQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For how long nothing was heard."""

    timeout_s: (
        Annotated[float, Meta(gt=0, le=31_536_000, description="Default: `simulation_silence_s`.")] | None
    ) = None


class StaleSimulations(msgspec.Struct, frozen=True, kw_only=True):
    """Simulations that run and were not heard of for too long."""

    run_ids: tuple[str, ...]


class SimulationEventsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """From where on."""

    after: Annotated[str, Meta(max_length=200, description="A cursor; Last-Event-ID goes before it.")] = ""


class SimulationPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Simulations, newest first. `cursor` is for the next page, and is empty at the end."""

    simulations: tuple[SimulationView, ...]
    cursor: str


class PauseRequested(msgspec.Struct, frozen=True, kw_only=True):
    """It was asked to pause; its worker does so after the present step."""

    status: Literal["pause_requested"] = "pause_requested"
    simulation: SimulationView


LOOK_EVERY_S = 0.5
PAGE = 500

_ENCODER = msgspec.json.Encoder()


class SimulationStream:
    """What one reader is sent about one simulation."""

    def __init__(
        self,
        broadcast: Broadcast,
        run_id: str,
        cursor: str,
        look: Callable[[], Awaitable[SimulationView | None]],
    ) -> None:
        self._broadcast = broadcast
        self._run_id = run_id
        self.cursor = cursor
        self._look = look
        self._seen: tuple[object, ...] = ()

    def beginning(self) -> bytes:
        """Where the reader is, so that it can come back there although nothing has happened yet."""
        return b"retry: 1000\nid: %s\n\n" % self.cursor.encode()

    async def next(self) -> bytes:
        """What has happened; after a long silence a sign of life."""
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


async def start_simulation(call: Call) -> SimulationView:
    """Make a simulation; a worker takes it right after."""
    asked: OneSimulation = call.body
    return await _manager(call).create_run(asked.spec(), actor=call.actor, request_id=call.request_id)


async def list_simulations(call: Call) -> SimulationPage:
    """A page of those of some status and priority, that say something."""
    asked: SimulationsQuery = call.query
    if asked.priority and asked.priority not in PRIORITIES:
        raise BadRequest(
            f"There is no priority {asked.priority!r}.",
            allowed=PRIORITIES,
            todo=f"Use one of: {', '.join(PRIORITIES)}.",
        )
    statuses = tuple(filter(None, asked.status.split(",")))
    wanted = SimulationFilter(statuses=statuses, priority=asked.priority, text=asked.text)
    views, cursor = await _manager(call).list_runs(wanted, cursor=asked.cursor, limit=asked.limit)
    return SimulationPage(simulations=tuple(views), cursor=cursor)


async def get_simulation(call: Call) -> SimulationView:
    """A simulation as it stands."""
    return await _manager(call).get(_id_in(call))


async def get_history(call: Call) -> HistoryPage:
    """What the journal says about a simulation and its pulse, oldest first."""
    entries = await _manager(call).history(_id_in(call))
    return HistoryPage(entries=tuple(map(entry_view, entries)))


async def get_metrics(call: Call) -> SimulationMetrics:
    """Return its metrics over the steps."""
    return await _manager(call).metrics(_id_in(call))


async def pause_simulation(call: Call) -> PauseRequested:
    """Ask for a pause; the worker makes the transition."""
    asked: SimulationAction = call.body or SimulationAction()
    view = await _manager(call).pause(
        _id_in(call), reason=asked.reason, actor=call.actor, request_id=call.request_id
    )
    return PauseRequested(simulation=view)


async def resume_simulation(call: Call) -> SimulationView:
    """Give it to a worker again."""
    asked: ResumeSimulation = call.body or ResumeSimulation()
    return await _manager(call).resume(
        _id_in(call),
        reason=asked.reason,
        actor=call.actor,
        request_id=call.request_id,
        queue=asked.queue,
    )


async def cancel_simulation(call: Call) -> SimulationView:
    """Stop it for good."""
    asked: SimulationAction = call.body or SimulationAction()
    return await _manager(call).cancel(
        _id_in(call), reason=asked.reason, actor=call.actor, request_id=call.request_id
    )


async def move_simulation(call: Call) -> SimulationView:
    """Move it by hand, by the table."""
    asked: MoveSimulation = call.body
    return await _manager(call).transition(
        _id_in(call),
        asked.status,
        expected_version=asked.expected_version,
        worker_id=asked.worker_id,
        step=asked.step,
        error=asked.error,
        reason=asked.reason,
        actor=call.actor,
        request_id=call.request_id,
    )


async def beat_simulation(call: Call) -> SimulationView:
    """Note a sign of life."""
    asked: SimulationBeat = call.body
    return await _manager(call).heartbeat(_id_in(call), asked.worker_id, asked.step)


async def list_stale(call: Call) -> StaleSimulations:
    """Return those that run and were not heard of."""
    asked: StaleQuery = call.query
    return StaleSimulations(run_ids=tuple(await _manager(call).check_stale_runs(asked.timeout_s)))


async def follow_simulation(call: Call) -> Response:
    """A stream of what happens to it."""
    asked: SimulationEventsQuery = call.query
    parts, run_id = call.parts, _id_in(call)
    await _manager(call).get(run_id)
    after = call.headers.get("last-event-id", asked.after)
    if after:
        await parts.broadcast.read(after, 1)  # a cursor that is none is refused before the stream begins
    look = partial(_manager(call).get_state, run_id)
    stream = SimulationStream(parts.broadcast, run_id, after or parts.broadcast.cursor, look)
    return Admitted(
        EventStream(stream, parts.broadcast, parts.ending(call.principal)),
        parts.readers,
        call.principal.name,
        parts.settings.streams_each,
    )


async def say_of_simulation(call: Call) -> SimulationOrders:
    """What a worker says about the simulation that it executes."""
    said: SaidOfSimulation = call.body
    return await _manager(call).hear(said.token, said.runner_id, said.word)


def _manager(call: Call) -> SimulationManager:
    return call.parts.runtime.simulations


def _id_in(call: Call) -> str:
    run_id = call.path["run_id"]
    if not is_shaped(run_id):
        raise unknown(run_id[:64])
    return run_id


_ONE = {"run_id": "The id of a simulation."}
_EXAMPLE = {
    "task": "models.epidemic",
    "input": {"people": 500},
    "scenario_name": "Flu in a small town",
    "total_steps": 120,
    "priority": "high",
    "request_id": "flu-17",
}


def _action(
    verb: str, summary: str, handler: Any, answer: Any, example: dict[str, Any], **other: Any
) -> Route:
    said: dict[str, Any] = {
        "bodies": (SimulationAction,),
        "body_required": False,
        "repeatable": True,
        "errors": (UnknownSimulation, TransitionNotAllowed, TerminalState, RequestIdReused),
    }
    return Route(
        method="POST",
        path=f"/api/simulations/{{run_id}}/{verb}",
        name=f"{verb}Simulation",
        summary=summary,
        handler=handler,
        role=Role.OPERATOR,
        everything=True,
        parameters=_ONE,
        answer=answer,
        example=example,
        **{**said, **other},
    )


ROUTES = (
    Route(
        method="POST",
        path="/api/simulations",
        name="startSimulation",
        summary="Start a simulation: stepped work that can be paused and resumed.",
        handler=start_simulation,
        role=Role.SUBMITTER,
        everything=True,
        bodies=(OneSimulation,),
        repeatable=True,
        answer=SimulationView,
        status=201,
        errors=(InvalidSimulation, SimulationExists, TooLarge, RequestIdReused),
        example=_EXAMPLE,
        links=tuple(
            Link(name, "run_id", "$response.body#/run_id")
            for name in (
                "getSimulation",
                "getSimulationHistory",
                "pauseSimulation",
                "resumeSimulation",
                "cancelSimulation",
            )
        ),
    ),
    Route(
        method="GET",
        path="/api/simulations",
        name="listSimulations",
        summary="List simulations, newest first, by status, priority and text.",
        handler=list_simulations,
        role=Role.VIEWER,
        everything=True,
        query=SimulationsQuery,
        answer=SimulationPage,
        errors=(UnknownState, BadRequest, InvalidRecord),
        links=(Link("listSimulations", "cursor", "$response.body#/cursor"),),
    ),
    Route(
        method="GET",
        path="/api/simulations/{run_id}",
        name="getSimulation",
        summary="Show a simulation: its state, how far it is, and who executes it.",
        handler=get_simulation,
        role=Role.VIEWER,
        everything=True,
        parameters=_ONE,
        answer=SimulationView,
        errors=(UnknownSimulation,),
    ),
    Route(
        method="GET",
        path="/api/simulations/{run_id}/metrics",
        name="getSimulationMetrics",
        summary="Show the metrics that a simulation has recorded, over its steps.",
        handler=get_metrics,
        role=Role.VIEWER,
        everything=True,
        parameters=_ONE,
        answer=SimulationMetrics,
        errors=(UnknownSimulation,),
    ),
    Route(
        method="GET",
        path="/api/simulations/{run_id}/history",
        name="getSimulationHistory",
        summary="Show everything that has happened to a simulation.",
        handler=get_history,
        role=Role.VIEWER,
        everything=True,
        parameters=_ONE,
        answer=HistoryPage,
        errors=(UnknownSimulation,),
    ),
    Route(
        method="GET",
        path="/api/simulations/{run_id}/events",
        name="followSimulation",
        summary="Follow a simulation live (server-sent events); resume with Last-Event-ID.",
        handler=follow_simulation,
        role=Role.VIEWER,
        everything=True,
        parameters=_ONE,
        query=SimulationEventsQuery,
        media="text/event-stream",
        bounded=False,
        errors=(UnknownSimulation, InvalidRecord, TooMany),
    ),
    _action(
        "pause",
        "Ask a simulation to pause; its worker does so after the present step.",
        pause_simulation,
        PauseRequested,
        {"reason": "the cluster is needed", "request_id": "pause-17"},
        fires=("simulation", "request_pause"),
    ),
    _action(
        "resume",
        "Go on with a simulation after its last saved step, on any worker.",
        resume_simulation,
        SimulationView,
        {"reason": "the night has come", "queue": "gpu", "request_id": "resume-17"},
        fires=("simulation", "resume"),
        bodies=(ResumeSimulation,),
        errors=(UnknownSimulation, AlreadyThere, TransitionNotAllowed, InvalidSimulation, RequestIdReused),
    ),
    _action(
        "cancel",
        "Stop a simulation for good: at once where it stands, else after the present step.",
        cancel_simulation,
        SimulationView,
        {"reason": "the question was another one", "request_id": "stop-17"},
        fires=("simulation", "cancel"),
    ),
    _action(
        "transition",
        "Move a simulation that is driven by hand to another status, by its table.",
        move_simulation,
        SimulationView,
        {"status": "running", "worker_id": "cluster-7", "expected_version": 1},
        bodies=(MoveSimulation,),
        body_required=True,
        errors=(UnknownSimulation, UnknownState, TransitionNotAllowed, VersionChanged, RequestIdReused),
    ),
    _action(
        "heartbeat",
        "Note a sign of life of a simulation that is driven by hand.",
        beat_simulation,
        SimulationView,
        {"worker_id": "cluster-7", "step": 17},
        bodies=(SimulationBeat,),
        body_required=True,
        repeatable=False,
        errors=(UnknownSimulation, TransitionNotAllowed, GuardRefused),
    ),
    Route(
        method="GET",
        path="/api/stale-simulations",
        name="listStaleSimulations",
        summary="List the simulations that run and were not heard of for too long.",
        handler=list_stale,
        role=Role.VIEWER,
        everything=True,
        query=StaleQuery,
        answer=StaleSimulations,
        errors=(BadRequest,),
    ),
    Route(
        method="POST",
        path="/api/runner/simulation",
        name="saySimulation",
        summary="What a runner says about the simulation that it executes; the answer says what to do.",
        handler=say_of_simulation,
        role=Role.RUNNER,
        confined=Confined.LEASED,
        bodies=(SaidOfSimulation,),
        answer=SimulationOrders,
        lane=Lane.RUNNER,
        errors=(NotJson, TooLarge),
        example={
            "token": "j_0123456789ab.1.1.00112233445566778899aabbccddeeff",
            "runner_id": "runner-7",
            "word": {"word": "beat", "step": 17, "checkpoint": {"ill": 12}},
        },
        answer_example={"run_id": "s_0123456789ab", "status": "running", "go_on": True, "step": 17},
    ),
)
