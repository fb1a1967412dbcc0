"""`check_lifecycle`: somebody's own machine, put to every order of its events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pytest

from interlock.errors import InvalidSettings
from interlock.machine import (
    STAY,
    Always,
    Event,
    Kind,
    Machine,
    command,
    end,
    event,
    ignore,
    on,
    refuse,
    state,
)
from interlock.testing.lifecycles import Answer, Here, Lifecycle, LifecycleBroken, check_lifecycle
from interlock.testing.model_checker import always


class Order(StrEnum):
    """Where an order stands."""

    OPEN = "open"
    PAID = "paid"
    SHIPPED = "shipped"
    CLOSED = "closed"


@dataclass(frozen=True)
class Basket:
    """What an order knows."""

    paid: int = 0
    shipped: bool = False


@event(Kind.MESSAGE, by="bank")
class Payment(Event):
    """Money has come in."""

    amount: int


ship = command("ship", "The parcel leaves.", by="warehouse")
close = command("close", "It is over.", by="customer")


def enough(basket: Basket, payment: Payment) -> bool:
    """the amount is not the price"""
    return payment.amount >= 10


def pay(basket: Basket, payment: Payment) -> Basket:
    return replace(basket, paid=basket.paid + payment.amount)


def send(basket: Basket, _: object) -> Basket:
    return replace(basket, shipped=True)


def order(*rows: Any, **more: Any) -> Machine[Order, Basket]:
    return Machine[Order, Basket](
        "order",
        "A parcel for money.",
        initial=Order.OPEN,
        stop=(close,),
        states=(
            state(Order.OPEN, "Waits for money.", turn="bank"),
            state(Order.PAID, "Waits to be sent.", turn="warehouse"),
            state(Order.SHIPPED, "On its way.", turn="customer"),
            end(Order.CLOSED, "Over."),
        ),
        rows=(
            on(ship, Order.PAID, Order.SHIPPED, owner="warehouse", then=send, why="It is paid."),
            on(close, (Order.OPEN, Order.PAID, Order.SHIPPED), Order.CLOSED, owner="customer", why="Over."),
            *rows,
        ),
        **more,
    )


SOUND = order(
    on(Payment, Order.OPEN, Order.PAID, owner="bank", when=enough, then=pay, why="Paid."),
    ignore(Payment, (Order.PAID, Order.SHIPPED), why="it was paid before"),
    refuse(Payment, Order.CLOSED, why="it is over"),
)
ADDING_UP = order(
    on(Payment, Order.OPEN, Order.PAID, owner="bank", when=enough, then=pay, why="Paid."),
    on(Payment, Order.PAID, STAY, owner="bank", then=pay, why="More money."),
    ignore(Payment, Order.SHIPPED, why="it was paid before"),
    refuse(Payment, Order.CLOSED, why="it is over"),
    invariants=(Always("nobody pays twice", lambda _, basket: basket.paid <= 10),),
)
PAYMENTS = (Payment(amount=10), Payment(amount=1))


def test_a_sound_lifecycle_passes_and_is_counted() -> None:
    report = check_lifecycle(SOUND, Lifecycle(data=Basket(), events=PAYMENTS))
    assert (report.states, report.complete, report.ok) == (6, True, True)


def test_a_claim_of_the_table_that_breaks_is_reported_as_the_shortest_story() -> None:
    with pytest.raises(LifecycleBroken) as broken:
        check_lifecycle(ADDING_UP, Lifecycle(data=Basket(), events=PAYMENTS))
    lines = str(broken.value).splitlines()
    assert lines[0] == "order: not always: the claims of the table hold"
    assert [line.strip() for line in lines if line.strip()[:2] in ("1.", "2.", "3.")] == [
        "1. payment (message, by bank)",
        "2. payment (message, by bank)",
    ]


def test_an_event_that_carries_something_needs_an_occurrence() -> None:
    with pytest.raises(InvalidSettings, match="payment") as refused:
        check_lifecycle(SOUND, Lifecycle(data=Basket()))
    assert refused.value.facts["events"] == ["payment"]


def test_a_state_that_is_never_reached_is_noticed() -> None:
    with pytest.raises(LifecycleBroken, match="paid is reached"):
        check_lifecycle(SOUND, Lifecycle(data=Basket(), events=(Payment(amount=1),)))


def test_a_claim_of_ones_own_is_checked() -> None:
    paid_first = always("paid first", lambda here: not here.data.shipped or here.data.paid >= 20)
    with pytest.raises(LifecycleBroken, match="paid first"):
        check_lifecycle(SOUND, Lifecycle(data=Basket(), events=PAYMENTS, claims=(paid_first,)))


def test_a_required_answer_to_an_event_is_checked_also_where_the_event_is_refused() -> None:
    def heeded(before: Here, occurrence: Event, after: Here | None) -> bool:
        return occurrence.name != "ship" or before.state is Order.OPEN or after is not None

    with pytest.raises(LifecycleBroken, match="shipping works"):
        check_lifecycle(
            SOUND, Lifecycle(data=Basket(), events=PAYMENTS, answers=(Answer("shipping works", heeded),))
        )


def test_data_that_grows_for_ever_is_not_explored_for_ever() -> None:
    endless = order(
        on(Payment, Order.OPEN, STAY, owner="bank", then=pay, why="A little."),
        on(command("enough", "Paid.", by="bank"), Order.OPEN, Order.PAID, owner="bank", why="Paid."),
        ignore(Payment, (Order.PAID, Order.SHIPPED), why="it was paid before"),
        refuse(Payment, Order.CLOSED, why="it is over"),
    )
    with pytest.raises(LifecycleBroken, match="more than 500 things"):
        check_lifecycle(endless, Lifecycle(data=Basket(), events=PAYMENTS, most=500))
    bounded = Lifecycle(data=Basket(), events=PAYMENTS, only=lambda basket: basket.paid < 30)
    assert 30 < check_lifecycle(endless, bounded).states < 200


def test_a_lifecycle_may_begin_in_several_ways() -> None:
    rich = Lifecycle(data=Basket(), starts=(Basket(paid=5),), events=PAYMENTS)
    assert check_lifecycle(SOUND, rich).states == 2 * 6 + 1
