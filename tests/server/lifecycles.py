"""A lifecycle that nothing in the package knows: a parcel, declared as a user would."""

from __future__ import annotations

from enum import StrEnum

import msgspec
from tests.server.running import Running

from interlock.api.jobs import CancelRequest
from interlock.api.operation import Parameter
from interlock.api.server import Alive
from interlock.machine import Deadline, Machine, command, end, ignore, on, refuse, state, timer
from interlock.server.routes import Call, Route
from interlock.store.records import Change, Commit, Committed, Key, Note, StepLine
from interlock.wire.access import Role


class ParcelState(StrEnum):
    """Where a parcel is."""

    PACKED = "packed"
    SENT = "sent"
    ARRIVED = "arrived"
    RETURNED = "returned"


PACKED, SENT, ARRIVED, RETURNED = ParcelState

send = command("send", "The courier has taken it.", by="courier")
arrive = command("arrive", "Somebody has signed for it.", by="courier")
recall = command("recall", "The shop wants it back.", by="shop")
silence = timer("silence", "Nothing was heard for a week.", by="clock")
WEEK = Deadline(silence, "silence_s", 7 * 86_400)

# fmt: off
PARCEL = Machine[ParcelState, None](
    "parcel",
    "Something on its way to a customer.",
    initial=PACKED,
    spine=(PACKED, SENT, ARRIVED),
    stop=(recall,),
    states=(
        state(PACKED, "Waits for the courier.", turn="courier"),
        state(SENT, "On its way.", turn="courier", within=WEEK),
        end(ARRIVED, "The customer has it."),
        end(RETURNED, "The shop has it again."),
    ),
    rows=(
        on(send, PACKED, SENT, owner="courier", why="It was picked up."),
        on(arrive, SENT, ARRIVED, owner="courier", why="It was signed for."),
        on(recall, (PACKED, SENT), RETURNED, owner="shop", why="It was ordered by mistake."),
        on(silence, SENT, RETURNED, owner="courier", why="It is lost or goes back."),
        ignore(silence, (PACKED, ARRIVED, RETURNED), why="it is not on its way"),
        ignore(recall, (ARRIVED, RETURNED), why="it is over"),
        refuse(send, (SENT, ARRIVED, RETURNED), why="it was taken before"),
        refuse(arrive, (PACKED, ARRIVED, RETURNED), why="it is not on its way"),
    ),
)
# fmt: on


class Parcel(msgspec.Struct, frozen=True):
    """What the record of a parcel keeps."""

    weight_g: int
    notes: tuple[str, ...] = ()


async def pack(server: Running, name: str, **body: object) -> None:
    """Put a new parcel into the store."""
    note = Note(actor="shop", reason="ordered")
    await _write(server, _change(name, 0, PACKED, msgspec.json.encode(body or {"weight_g": 1}), note))


async def move(
    server: Running, name: str, event: str, to: str, *, actor: str = "courier", **body: object
) -> None:
    """Take a parcel one step on."""
    (found,) = await server.parts.store.load([Key(PARCEL.name, name)])
    assert found is not None
    step = StepLine(PARCEL.name, "", event, found.state, to, "courier")
    note = Note(steps=(step,), actor=actor, reason=f"because of {event}")
    raw = msgspec.json.encode(body) if body else found.body
    await _write(server, _change(name, found.version, to, raw, note))


def _change(name: str, expected: int, to: str, body: bytes, note: Note) -> Change:
    return Change(kind=PARCEL.name, id=name, expected=expected, state=to, body=body, note=note)


async def _write(server: Running, change: Change) -> None:
    (outcome,) = await server.parts.store.commit([Commit(changes=(change,))])
    assert isinstance(outcome, Committed), outcome


def recalling(servers: list[Running]) -> Route:
    """Return a route that recalls a parcel, of the server that the list will have."""

    async def handle(call: Call) -> Alive:
        await move(servers[0], call.path["parcel_id"], "recall", RETURNED, actor=call.actor)
        return Alive(status="ok")

    return Route(
        request="POST /api/parcels/{parcel_id}/recall",
        name="recallParcel",
        summary="Bring a parcel back.",
        handler=handle,
        role=Role.OPERATOR,
        fires=(PARCEL.name, "recall"),
        parameters={"parcel_id": Parameter("The id of a parcel.")},
        input=CancelRequest,
        output=Alive,
    )
