"""Starting simulations, looking at them, and pausing, resuming and cancelling them."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.responses import Response

from interlock.errors import (
    AlreadyThere,
    GuardRefused,
    InvalidRecord,
    InvalidSimulation,
    NotJson,
    RequestIdReused,
    SimulationExists,
    TerminalState,
    TooLarge,
    TransitionNotAllowed,
    UnknownSimulation,
    UnknownState,
    VersionChanged,
)
from interlock.server.api.events import Admitted
from interlock.server.api.visibility import is_shaped
from interlock.server.event_streams import EventStream
from interlock.server.messages import HistoryPage, entry_view
from interlock.server.problems import BadRequest, TooMany
from interlock.server.routes import Call, Confined, Lane, Link, Route
from interlock.server.simulation_messages import (
    MoveSimulation,
    OneSimulation,
    PauseRequested,
    ResumeSimulation,
    SimulationAction,
    SimulationBeat,
    SimulationEventsQuery,
    SimulationPage,
    SimulationsQuery,
    StaleQuery,
    StaleSimulations,
)
from interlock.server.simulation_stream import SimulationStream
from interlock.systems.access.principals import Role
from interlock.systems.simulations.manager import SimulationManager
from interlock.systems.simulations.validation import unknown
from interlock.wire.simulations import (
    PRIORITIES,
    SaidOfSimulation,
    SimulationFilter,
    SimulationMetrics,
    SimulationOrders,
    SimulationView,
)


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
