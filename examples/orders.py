"""Order fulfilment: an order is paid in time or expires, is shipped or paid back, and is delivered.

The table is all there is. Declared as a kind, it gets storage, journal, timers, HTTP API and command line:

    interlock server --kinds examples/orders.py
    interlock record create order customer=ada amount=40 --kinds examples/orders.py
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from interlock import kind
from interlock.machine import (
    Deadline,
    Event,
    Kind,
    Machine,
    command,
    end,
    event,
    ignore,
    message,
    on,
    state,
    timer,
)


class OrderState(StrEnum):
    """Where an order is."""

    PLACED = "placed"
    PAID = "paid"
    SHIPPED = "shipped"
    DELIVERED = "delivered"
    REFUNDING = "refunding"
    REFUNDED = "refunded"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


PLACED, PAID, SHIPPED, DELIVERED = (
    OrderState.PLACED,
    OrderState.PAID,
    OrderState.SHIPPED,
    OrderState.DELIVERED,
)
REFUNDING, REFUNDED = OrderState.REFUNDING, OrderState.REFUNDED
EXPIRED, CANCELLED = OrderState.EXPIRED, OrderState.CANCELLED
EVERYWHERE = tuple(OrderState)


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of an order."""

    customer: str
    amount: int
    paid: int = 0
    paid_at: datetime | None = None
    tracking: str = ""


@event(Kind.COMMAND, by="customer")
class Pay(Event):
    """The customer pays."""

    amount: int
    at: datetime


@event(Kind.COMMAND, by="warehouse")
class Ship(Event):
    """The warehouse hands the parcel to the carrier."""

    tracking: str


cancel = command("cancel", "The customer does not want it any more.", by="customer")
close = command("close", "Support closes it by hand.", by="support")
deliver = message("deliver", "The carrier has delivered the parcel.", by="carrier")
refund = message("refund", "The bank has paid the money back.", by="bank")
payment_late = timer("payment_late", "The order was not paid in time.", by="clock")
shipping_late = timer("shipping_late", "The order was not shipped in time.", by="clock")


def paid_in_full(order: Order, pay: Pay) -> bool:
    """the amount is not that of the order"""
    return pay.amount == order.amount


def note_payment(order: Order, pay: Pay) -> Order:
    """Remember the amount and the time of the payment."""
    return msgspec.structs.replace(order, paid=pay.amount, paid_at=pay.at)


def note_tracking(order: Order, ship: Ship) -> Order:
    """Remember the number of the parcel."""
    return msgspec.structs.replace(order, tracking=ship.tracking)


def others(*states: OrderState) -> tuple[OrderState, ...]:
    """Return all other states."""
    return tuple(each for each in EVERYWHERE if each not in states)


ORDER: Machine[OrderState, Order] = Machine(
    name="order",
    doc="An order from the basket to the door.",
    initial=PLACED,
    states=[
        state(
            PLACED, "Waits for the payment.", turn="customer", within=Deadline(payment_late, "payment_s", 900)
        ),
        state(
            PAID,
            "Waits for the parcel.",
            turn="warehouse",
            within=Deadline(shipping_late, "shipping_s", 172_800),
        ),
        state(SHIPPED, "Is on its way.", turn="carrier"),
        state(REFUNDING, "The money goes back.", turn="bank"),
        end(DELIVERED, "The customer has it."),
        end(REFUNDED, "The customer has the money back."),
        end(EXPIRED, "It was not paid in time."),
        end(CANCELLED, "It was cancelled."),
    ],
    rows=[
        on(Pay, PLACED, PAID, when=paid_in_full, then=note_payment, owner="customer", why="It is paid."),
        on(Ship, PAID, SHIPPED, then=note_tracking, owner="warehouse", why="The parcel leaves the house."),
        on(deliver, SHIPPED, DELIVERED, owner="carrier", why="The parcel has arrived."),
        on(cancel, PLACED, CANCELLED, owner="customer", why="Nothing was paid yet."),
        on(cancel, PAID, REFUNDING, owner="customer", why="The amount paid goes back."),
        on(
            close,
            (PLACED, PAID, SHIPPED, REFUNDING),
            CANCELLED,
            owner="support",
            why="People have settled it.",
        ),
        on(shipping_late, PAID, REFUNDING, owner="clock", why="A customer does not wait for ever."),
        on(refund, REFUNDING, REFUNDED, owner="bank", why="The money is back."),
        on(payment_late, PLACED, EXPIRED, owner="clock", why="The goods are offered to others."),
        ignore(deliver, others(SHIPPED), why="a carrier may report twice"),
        ignore(refund, others(REFUNDING), why="a bank may report twice"),
        ignore(payment_late, others(PLACED), why="it was decided before"),
        ignore(shipping_late, others(PAID), why="it was decided before"),
    ],
    stop=[close],
    spine=[PLACED, PAID, SHIPPED, DELIVERED],
)

ORDERS = kind(
    ORDER,
    Order,
    labels=("customer",),
    send={"pay": "submitter", "cancel": "submitter"},
    durations={"payment_s": 900},
)
