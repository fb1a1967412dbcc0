"""Simulations: start, list, show, pause, resume, move and cancel them, and follow one live."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from interlock.api.messages import (
    Cursor,
    HistoryPage,
    Input,
    Limit,
    Output,
    ReasonedRequest,
    RequestId,
)
from interlock.api.operation import Link, Operation, QueueConfinement, id_of
from interlock.errors import (
    AlreadyThere,
    BadRequest,
    GuardRefused,
    InvalidRecord,
    InvalidSimulation,
    NotJson,
    RequestIdReused,
    SimulationExists,
    TerminalState,
    TooLarge,
    TooMany,
    TransitionNotAllowed,
    UnknownSimulation,
    UnknownState,
    VersionChanged,
)
from interlock.wire.access import Role
from interlock.wire.simulations import (
    SaidOfSimulation,
    SimulationMetrics,
    SimulationOrders,
    SimulationSpec,
    SimulationView,
)

_ONE = id_of("simulation", UnknownSimulation, "run_id")

_EXAMPLE = {
    "task": "models.epidemic",
    "input": {"people": 500},
    "scenario_name": "Flu in a small town",
    "total_steps": 120,
    "priority": "high",
    "request_id": "flu-17",
}


class OneSimulation(
    SimulationSpec, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One simulation to submit, optionally with a request id."""

    request_id: RequestId | None = None

    def spec(self) -> SimulationSpec:
        """Return the simulation without the request id, which is not part of it."""
        return SimulationSpec(**{name: getattr(self, name) for name in SimulationSpec.__struct_fields__})


class SimulationsQuery(Input, frozen=True, kw_only=True):
    """Filter and page of simulations."""

    status: Annotated[str, Meta(max_length=200, description="Statuses, separated by commas.")] = ""
    priority: Annotated[str, Meta(max_length=20, description="low, normal or high.")] = ""
    text: Annotated[str, Meta(max_length=200, description="Part of its id, task or scenario.")] = ""
    limit: Limit = 50
    cursor: Cursor = ""


class SimulationAction(ReasonedRequest, frozen=True, kw_only=True):
    """Pause, resume or cancel a simulation."""


class ResumeSimulation(SimulationAction, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resume a simulation, optionally in another queue."""

    queue: Annotated[
        str, Meta(max_length=64, description="Queue of the next job (default: the queue of the simulation).")
    ] = ""


class MoveSimulation(SimulationAction, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Move a simulation that is driven by hand to another status."""

    status: Annotated[str, Meta(min_length=1, max_length=20, description="The status to move it to.")]
    expected_version: (
        Annotated[int, Meta(ge=1, le=2**53, description="Refuse if the simulation is in another version.")]
        | None
    ) = None
    worker_id: Annotated[str, Meta(max_length=200, description="Worker that executes it.")] | None = None
    step: Annotated[int, Meta(ge=0, le=2**53, description="The last completed step.")] | None = None
    error: Annotated[str, Meta(max_length=2_000, description="Reason of a failure or an interruption.")] = ""


class SimulationBeat(Input, frozen=True, kw_only=True):
    """A heartbeat of a simulation that is driven by hand."""

    worker_id: Annotated[str, Meta(min_length=1, max_length=200, description="Worker that executes it.")]
    step: Annotated[int, Meta(ge=0, le=2**53, description="The last completed step.")]


class StaleQuery(Input, frozen=True, kw_only=True):
    """Time without a heartbeat."""

    timeout_s: Annotated[
        Annotated[float, Meta(gt=0, le=31_536_000)] | None,
        Meta(description="Time without a heartbeat, in seconds (default: `simulation_silence_s`)."),
    ] = None


class StaleSimulations(msgspec.Struct, frozen=True, kw_only=True):
    """Running simulations without a recent heartbeat."""

    run_ids: tuple[str, ...]


class SimulationEventsQuery(Input, frozen=True, kw_only=True):
    """Cursor to start after."""

    after: Annotated[str, Meta(max_length=200, description="Cursor; Last-Event-ID takes precedence.")] = ""


class SimulationPage(Output, frozen=True, kw_only=True):
    """Simulations, newest first. `cursor` is for the next page, and is empty at the end."""

    simulations: tuple[SimulationView, ...]
    cursor: str


class PauseRequested(msgspec.Struct, frozen=True, kw_only=True):
    """The pause was requested; the worker stops after the present step."""

    status: Literal["pause_requested"] = "pause_requested"
    simulation: SimulationView


START_SIMULATION = Operation(
    name="startSimulation",
    request="POST /api/simulations",
    summary="Start a simulation: stepped work that can be paused and resumed.",
    role=Role.SUBMITTER,
    input=OneSimulation,
    required=True,
    output=SimulationView,
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
)

LIST_SIMULATIONS = Operation(
    name="listSimulations",
    request="GET /api/simulations",
    summary="List simulations, newest first, by status, priority and text.",
    role=Role.VIEWER,
    input=SimulationsQuery,
    output=SimulationPage,
    errors=(UnknownState, BadRequest, InvalidRecord),
    links=(Link("listSimulations", "cursor", "$response.body#/cursor"),),
)

GET_SIMULATION = Operation(
    name="getSimulation",
    request="GET /api/simulations/{run_id}",
    summary="Show a simulation: its state, progress and worker.",
    role=Role.VIEWER,
    parameters=_ONE,
    output=SimulationView,
    errors=(UnknownSimulation,),
)

GET_SIMULATION_METRICS = Operation(
    name="getSimulationMetrics",
    request="GET /api/simulations/{run_id}/metrics",
    summary="Show the metrics that a simulation has recorded, over its steps.",
    role=Role.VIEWER,
    parameters=_ONE,
    output=SimulationMetrics,
    errors=(UnknownSimulation,),
)

GET_SIMULATION_HISTORY = Operation(
    name="getSimulationHistory",
    request="GET /api/simulations/{run_id}/history",
    summary="Show the history of a simulation.",
    role=Role.VIEWER,
    parameters=_ONE,
    output=HistoryPage,
    errors=(UnknownSimulation,),
)

FOLLOW_SIMULATION = Operation(
    name="followSimulation",
    request="GET /api/simulations/{run_id}/events",
    summary="Follow a simulation live (server-sent events); resume with Last-Event-ID.",
    role=Role.VIEWER,
    parameters=_ONE,
    input=SimulationEventsQuery,
    media="text/event-stream",
    errors=(UnknownSimulation, InvalidRecord, TooMany),
    bounded=False,
)

PAUSE_SIMULATION = Operation(
    name="pauseSimulation",
    request="POST /api/simulations/{run_id}/pause",
    summary="Pause a simulation after its current step.",
    role=Role.OPERATOR,
    parameters=_ONE,
    input=SimulationAction,
    output=PauseRequested,
    errors=(UnknownSimulation, TransitionNotAllowed, TerminalState, RequestIdReused),
    fires=("simulation", "request_pause"),
    example={"reason": "the cluster is needed", "request_id": "pause-17"},
)

RESUME_SIMULATION = Operation(
    name="resumeSimulation",
    request="POST /api/simulations/{run_id}/resume",
    summary="Resume a simulation after its last saved step, on any worker.",
    role=Role.OPERATOR,
    parameters=_ONE,
    input=ResumeSimulation,
    output=SimulationView,
    errors=(UnknownSimulation, AlreadyThere, TransitionNotAllowed, InvalidSimulation, RequestIdReused),
    fires=("simulation", "resume"),
    example={"reason": "the night has come", "queue": "gpu", "request_id": "resume-17"},
)

CANCEL_SIMULATION = Operation(
    name="cancelSimulation",
    request="POST /api/simulations/{run_id}/cancel",
    summary="Cancel a simulation: at once if no worker executes it, otherwise after the current step.",
    role=Role.OPERATOR,
    parameters=_ONE,
    input=SimulationAction,
    output=SimulationView,
    errors=(UnknownSimulation, TransitionNotAllowed, TerminalState, RequestIdReused),
    fires=("simulation", "cancel"),
    example={"reason": "the question was another one", "request_id": "stop-17"},
)

TRANSITION_SIMULATION = Operation(
    name="transitionSimulation",
    request="POST /api/simulations/{run_id}/transition",
    summary="Move a simulation that is driven by hand to another status, as its table allows.",
    role=Role.OPERATOR,
    parameters=_ONE,
    input=MoveSimulation,
    output=SimulationView,
    errors=(UnknownSimulation, UnknownState, TransitionNotAllowed, VersionChanged, RequestIdReused),
    example={"status": "running", "worker_id": "cluster-7", "expected_version": 1},
)

HEARTBEAT_SIMULATION = Operation(
    name="heartbeatSimulation",
    request="POST /api/simulations/{run_id}/heartbeat",
    summary="Record a heartbeat of a simulation that is driven by hand.",
    role=Role.OPERATOR,
    parameters=_ONE,
    input=SimulationBeat,
    output=SimulationView,
    errors=(UnknownSimulation, TransitionNotAllowed, GuardRefused),
    example={"worker_id": "cluster-7", "step": 17},
)

LIST_STALE_SIMULATIONS = Operation(
    name="listStaleSimulations",
    request="GET /api/stale-simulations",
    summary="List running simulations without a recent heartbeat.",
    role=Role.VIEWER,
    input=StaleQuery,
    output=StaleSimulations,
    errors=(BadRequest,),
)

SAY_SIMULATION = Operation(
    name="saySimulation",
    request="POST /api/runner/simulation",
    summary="Report on a simulation from its runner; the response has the orders for it.",
    role=Role.RUNNER,
    confined=QueueConfinement.LEASED,
    input=SaidOfSimulation,
    output=SimulationOrders,
    errors=(NotJson, TooLarge),
    example={
        "token": "j_0123456789ab.1.1.00112233445566778899aabbccddeeff",
        "runner_id": "runner-7",
        "word": {"word": "beat", "step": 17, "checkpoint": {"ill": 12}},
    },
    answer_example={"run_id": "s_0123456789ab", "status": "running", "go_on": True, "step": 17},
)
