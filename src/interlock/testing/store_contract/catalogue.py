"""The three lifecycles that the suite plays with, small enough to keep in mind.

parcel    packed → sent → delivered
                      ↘ lost → returned     (`lost` is an end with one declared exit)
letter    written → posted
van       parked ⇄ away                      (`parked` is no end, but there it rests)
"""

from __future__ import annotations

from enum import StrEnum

from interlock.machine import Machine, command, end, ignore, on, rest, state
from interlock.store.catalogue import Catalogue, catalogue_of


class Parcel(StrEnum):
    """Where a parcel is."""

    PACKED = "packed"
    SENT = "sent"
    DELIVERED = "delivered"
    LOST = "lost"
    RETURNED = "returned"


class Letter(StrEnum):
    """Where a letter is."""

    WRITTEN = "written"
    POSTED = "posted"


class Van(StrEnum):
    """Where a van is."""

    PARKED = "parked"
    AWAY = "away"


PACKED, SENT, DELIVERED = Parcel.PACKED, Parcel.SENT, Parcel.DELIVERED
LOST, RETURNED = Parcel.LOST, Parcel.RETURNED
WRITTEN, POSTED = Letter.WRITTEN, Letter.POSTED
PARKED, AWAY = Van.PARKED, Van.AWAY

send = command("send", "Hand it over to the carrier.", by="sender")
deliver = command("deliver", "The addressee has it.", by="carrier")
lose = command("lose", "Nobody knows where it is.", by="carrier")
give_back = command("give_back", "It was found, and goes home.", by="carrier")
post = command("post", "Put it into the box.", by="sender")
leave = command("leave", "Drive off.", by="carrier")
come_back = command("come_back", "Drive home.", by="carrier")

PARCEL: Machine[Parcel, None] = Machine(
    name="parcel",
    doc="Something on its way.",
    initial=PACKED,
    states=[
        state(PACKED, "Ready to go.", turn="sender"),
        state(SENT, "On its way.", turn="carrier"),
        end(DELIVERED, "It has arrived."),
        end(LOST, "It has not arrived."),
        end(RETURNED, "It is back home."),
    ],
    rows=[
        on(send, PACKED, SENT, owner="sender", why="It goes."),
        on(deliver, SENT, DELIVERED, owner="carrier", why="It arrives."),
        on(lose, (PACKED, SENT), LOST, owner="carrier", why="It does not arrive."),
        on(give_back, LOST, RETURNED, owner="carrier", leaves_terminal=True, why="It turned up again."),
    ],
    stop=[lose],
)

LETTER: Machine[Letter, None] = Machine(
    name="letter",
    doc="A piece of paper.",
    initial=WRITTEN,
    states=[state(WRITTEN, "It is written.", turn="sender"), end(POSTED, "It is gone.")],
    rows=[on(post, WRITTEN, POSTED, owner="sender", why="It goes.")],
    stop=[post],
)

VAN: Machine[Van, None] = Machine(
    name="van",
    doc="What parcels are carried in.",
    initial=PARKED,
    states=[rest(PARKED, "It stands at home."), state(AWAY, "It is on the road.", turn="carrier")],
    rows=[
        on(leave, PARKED, AWAY, owner="carrier", why="It goes."),
        on(come_back, AWAY, PARKED, owner="carrier", why="It comes home."),
        ignore(come_back, PARKED, why="it is at home"),
    ],
    stop=[come_back],
)

CATALOGUE: Catalogue = catalogue_of([PARCEL, LETTER, VAN])
