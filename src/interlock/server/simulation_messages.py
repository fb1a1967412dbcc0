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
