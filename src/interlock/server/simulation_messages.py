"""What goes in and out about simulations where `interlock.wire` has no struct for it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from interlock.server.messages import Cursor, Limit, Reason, RequestId
from interlock.wire.simulations import SimulationSpec, SimulationView


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
