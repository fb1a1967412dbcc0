"""Events that have consequences: every coupling reaches its receiver, or the wiring cannot be made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import pytest

from interlock.errors import MalformedCouplings
from interlock.machine import (
    STAY,
    Couplings,
    Deadline,
    Event,
    Kind,
    Machine,
    Refused,
    command,
    consequence,
    couple,
    end,
    event,
    ignore,
    on,
    rest,
    state,
    timer,
)
from interlock.machine.cascade import (
    Cascade,
    CouplingRoute,
    EventRules,
    MakeEvent,
    Root,
    Wiring,
    create,
    each,
    elsewhere,
    order,
    outward,
    to,
)
from interlock.machine.couplings import AnyMachine, Fact

NOW = datetime(2026, 11, 17, tzinfo=UTC)


class Tap(StrEnum):
    SHUT = "shut"
    OPEN = "open"
    GONE = "gone"


class Cup(StrEnum):
    EMPTY = "empty"
    FULL = "full"


open_it = command("open_it", "Let it run.", by="guest")
drip = command("drip", "A drop falls.", by="tap")
shut = timer("shut", "It has run for long enough.", by="clock")
remove = command("remove", "Take it away.", by="guest")


@event(Kind.CONSEQUENCE, by="tap")
class Fill(Event):
    """Water flows."""

    at: datetime


spill = consequence("spill", "It is knocked over.", by="tap")
FLOW = Deadline(shut, "flow_s", 30.0)

TAP = Machine[Tap, None](
    "tap",
    "Gives water.",
    initial=Tap.SHUT,
    spine=(Tap.SHUT, Tap.OPEN, Tap.GONE),
    stop=(remove,),
    states=(
        rest(Tap.SHUT, "Dry."),
        state(Tap.OPEN, "Water flows.", turn="guest", within=FLOW),
        end(Tap.GONE, "Not there any more."),
    ),
    rows=(
        on(open_it, Tap.SHUT, Tap.OPEN, owner="guest", why="Thirst."),
        on(drip, Tap.SHUT, STAY, owner="tap", why="It is old."),
        on(shut, Tap.OPEN, Tap.SHUT, owner="clock", why="Water is dear."),
        on(remove, (Tap.SHUT, Tap.OPEN), Tap.GONE, owner="guest", why="There is a new one."),
        ignore(drip, (Tap.OPEN, Tap.GONE), why="nobody hears it"),
        ignore(shut, (Tap.SHUT, Tap.GONE), why="it does not run"),
    ),
)
CUP = Machine[Cup, None](
    "cup",
    "Holds water.",
    initial=Cup.EMPTY,
    spine=(Cup.EMPTY, Cup.FULL),
    stop=(spill,),
    states=(rest(Cup.EMPTY, "Dry."), rest(Cup.FULL, "Wet.")),
    rows=(
        on(Fill, Cup.EMPTY, Cup.FULL, owner="tap", why="That is what it is for."),
        on(spill, Cup.FULL, Cup.EMPTY, owner="tap", why="That happens."),
        ignore(Fill, Cup.FULL, why="it is full"),
        ignore(spill, Cup.EMPTY, why="there is nothing in it"),
    ),
)


@dataclass
class Facts:
    thirsty: bool = True


def somebody_is_thirsty(now: Facts) -> bool:
    """somebody is thirsty"""
    return now.thirsty


COUPLINGS = Couplings[Facts](
    (
        couple(TAP, Tap.OPEN, CUP, None, to="a new cup", why="One cannot drink from the tap."),
        couple(TAP, Tap.OPEN, CUP, Fill, to="each cup", when=somebody_is_thirsty, why="Water flows."),
        couple(TAP, Tap.SHUT, CUP, spill, to="the cup below", holding=True, by=drip, why="A drop is heavy."),
        couple(CUP, Cup.FULL, TAP, drip, to="its tap", why="The last drop."),
        couple(TAP, Tap.GONE, CUP, spill, to="the neighbours", why="They hear of it."),
    ),
    delivered_by={
        (TAP, "each cup"): "butler",
        (TAP, "the neighbours"): "house",
        (CUP, "its tap"): "kitchen",
    },
)


class Kitchen(Cascade):
    def __init__(self, *, thirsty: bool = True) -> None:
        super().__init__(NOW)
        self.tap = Root(TAP.initial)
        self.cups: list[Root] = []
        self.thirsty = thirsty
        self.noted: list[str] = []

    def parts(self) -> Iterable[tuple[AnyMachine, Any, Any]]:
        return ((TAP, self.tap, None), *((CUP, cup, cup) for cup in self.cups))

    def facts(self, _: Any) -> Facts:
        return Facts(self.thirsty)

    def seconds(self, setting: str) -> float:
        return {"flow_s": 30.0}[setting]

    def name_of(self, owner: Any) -> str:
        return str(self.cups.index(owner))

    def entered(self, step: Any, _: Any) -> None:
        self.noted.append(f"{step.machine} {step.target}")


ROUTES: dict[Any, CouplingRoute] = {
    "a new cup": create(lambda kitchen, _: kitchen.cups.append(Root(CUP.initial))),
    "each cup": each(CUP, lambda kitchen, _: [(cup, cup) for cup in kitchen.cups]),
    "the cup below": to(CUP, lambda kitchen, _: kitchen.cups[0] if kitchen.cups else None),
    "its tap": to(TAP, lambda kitchen, _: kitchen.tap),
    "the neighbours": outward(),
}


MADE: dict[type[Event], MakeEvent] = {Fill: lambda kitchen, _: Fill(at=kitchen.now)}


def wired(routes: dict[Any, CouplingRoute] | None = None, **options: Any) -> Wiring:
    options = {"events": EventRules(made=MADE), "durations": ("flow_s",), **options}
    return Wiring((TAP, CUP), COUPLINGS, ROUTES if routes is None else routes, **options)


Kitchen.wiring = wired(events=EventRules(made=MADE, quiet=(drip,)), notes={CUP: (Cup.FULL,)})


def rewired(routes: dict[Any, CouplingRoute], **options: Any) -> Kitchen:
    class Rewired(Kitchen):
        wiring = wired(routes)

    return Rewired(**options)


def steps(kitchen: Kitchen) -> list[tuple[str, str, str]]:
    named = [("" if owner is None else kitchen.name_of(owner), effects) for owner, effects in kitchen.taken]
    return [(name, s.machine, s.event) for name, effects in named for s in effects.steps]


def faults_of(routes: dict[Any, CouplingRoute], **options: Any) -> str:
    with pytest.raises(MalformedCouplings) as raised:
        wired(routes, **options)
    return str(raised.value)


def test_all_consequences_of_an_event_are_applied_in_order() -> None:
    kitchen = Kitchen()
    kitchen.cups.append(Root(CUP.initial))
    assert kitchen.send_to(TAP, kitchen.tap, open_it) is None
    assert steps(kitchen) == [("", "tap", "open_it"), ("0", "cup", "fill"), ("1", "cup", "fill")]
    assert [cup.state for cup in kitchen.cups] == [Cup.FULL, Cup.FULL]
    assert kitchen.noted == ["cup full", "cup full"]
    assert kitchen.is_news


def test_a_consequence_whose_condition_is_false_is_not_applied() -> None:
    kitchen = Kitchen(thirsty=False)
    kitchen.send_to(TAP, kitchen.tap, open_it)
    assert steps(kitchen) == [("", "tap", "open_it")]
    assert [cup.state for cup in kitchen.cups] == [Cup.EMPTY]


@pytest.mark.parametrize("thirsty", [True, False])
@pytest.mark.parametrize("holds", [True, False])
def test_a_condition_that_is_a_fact_is_met_if_the_fact_is_as_it_says(thirsty: bool, holds: bool) -> None:
    condition = Fact("thirst", "somebody is thirsty", "thirsty", holds)
    couplings = Couplings([replace(each, when=(condition,) if each.when else ()) for each in COUPLINGS])

    class Rewired(Kitchen):
        wiring = Wiring((TAP, CUP), couplings, ROUTES, events=EventRules(made=MADE), durations=("flow_s",))

    kitchen = Rewired(thirsty=thirsty)
    kitchen.send_to(TAP, kitchen.tap, open_it)
    assert [cup.state for cup in kitchen.cups] == [Cup.FULL if thirsty is holds else Cup.EMPTY]
    assert condition(Facts(thirsty)) is (thirsty is holds)
    assert condition.__name__ == "thirst"
    assert [each.sentence for each in couplings if each.when] == [
        "tap enters open, if somebody is thirsty: send fill to each cup"
    ]


def test_a_refused_event_changes_nothing_and_returns_the_reason() -> None:
    kitchen = Kitchen()
    kitchen.send_to(TAP, kitchen.tap, remove)
    before = list(kitchen.taken)
    refused = kitchen.send_to(TAP, kitchen.tap, open_it)
    assert refused is not None
    assert "gone" in refused.sentence
    assert (kitchen.taken, kitchen.cups) == (before, [])


def test_a_coupling_to_another_record_is_collected_with_the_step_that_caused_it() -> None:
    kitchen = Kitchen()
    kitchen.send_to(TAP, kitchen.tap, remove)
    ((coupling, step),) = kitchen.outward
    assert (coupling.to, step.event, step.target) == ("the neighbours", "remove", Tap.GONE)


def test_conditions_about_another_record_are_left_to_it() -> None:
    routes = ROUTES | {"each cup": outward(judged_there=True)}
    kitchen = rewired(routes, thirsty=False)
    kitchen.send_to(TAP, kitchen.tap, open_it)
    assert [coupling.to for coupling, _ in kitchen.outward] == ["each cup"]


def test_a_route_for_one_event_takes_precedence_over_the_route_of_its_receiver() -> None:
    kitchen = rewired(ROUTES | {("its tap", drip): order(lambda kitchen, _: kitchen.noted.append("a drop"))})
    kitchen.send_to(TAP, kitchen.tap, open_it)
    assert kitchen.noted == ["a drop"]
    assert steps(kitchen) == [("", "tap", "open_it"), ("0", "cup", "fill")]


def test_a_route_for_an_event_that_no_coupling_sends_there_is_a_fault() -> None:
    assert "there is a route to “its tap” for shut, which no coupling" in faults_of(
        ROUTES | {("its tap", shut): outward()}
    )


@pytest.mark.parametrize(("note", "noted"), [((Cup.FULL, Fill), ["cup full"]), ((Cup.FULL, spill), [])])
def test_entering_a_state_can_be_noted_for_one_event_alone(note: Any, noted: list[str]) -> None:
    class Rewired(Kitchen):
        wiring = wired(notes={CUP: (note,)})

    kitchen = Rewired()
    kitchen.send_to(TAP, kitchen.tap, open_it)
    assert kitchen.noted == noted


def test_a_quiet_event_alone_is_no_news() -> None:
    kitchen = Kitchen()
    kitchen.send_to(TAP, kitchen.tap, drip)
    assert not kitchen.is_news
    assert steps(kitchen) == [("", "tap", "drip")]


def test_a_timer_that_is_started_again_runs_from_now_or_since_another_time() -> None:
    kitchen = Kitchen()
    kitchen.send_to(TAP, kitchen.tap, open_it)
    kitchen.now = NOW + timedelta(seconds=10)
    kitchen.arm(TAP, kitchen.tap)
    assert kitchen.tap.timer_at == NOW + timedelta(seconds=40)
    kitchen.arm(TAP, kitchen.tap, since=NOW + timedelta(seconds=5))
    assert kitchen.tap.timer_at == NOW + timedelta(seconds=35)


def test_a_timer_runs_from_entering_the_state_and_fires_once() -> None:
    kitchen = Kitchen()
    kitchen.send_to(TAP, kitchen.tap, open_it)
    kitchen.fire_due()
    assert kitchen.tap.timer_at == NOW + timedelta(seconds=30)
    kitchen.now = NOW + timedelta(seconds=30)
    kitchen.fire_due()
    assert kitchen.tap.state is Tap.SHUT
    assert kitchen.deadline_at is None


def test_a_cascade_follows_steps_of_external_machines_that_its_wiring_names() -> None:
    class House(Kitchen):
        wiring = Wiring(
            (CUP,),
            COUPLINGS,
            {"the neighbours": ROUTES["the cup below"], "its tap": elsewhere("kitchen")},
            deliverer="house",
        )

    house = House()
    house.cups.append(Root(Cup.FULL))
    (gone,) = (step for step in TAP.steps_from(Tap.SHUT) if step.target is Tap.GONE)
    house.follow_step(TAP, gone, None)
    assert house.cups[0].state is Cup.EMPTY


def test_a_coupling_that_is_taken_out_has_no_consequence_until_it_is_back() -> None:
    everything = COUPLINGS.all
    try:
        COUPLINGS.exchange(tuple(c for c in everything if c.event is not Fill))
        without = Kitchen()
        without.send_to(TAP, without.tap, open_it)
        assert [cup.state for cup in without.cups] == [Cup.EMPTY]
    finally:
        COUPLINGS.exchange(everything)
    again = Kitchen()
    again.send_to(TAP, again.tap, open_it)
    assert [cup.state for cup in again.cups] == [Cup.FULL]


def test_a_coupling_without_a_route_keeps_the_program_from_starting() -> None:
    routes = {name: route for name, route in ROUTES.items() if name != "each cup"}
    assert "there is no route to “each cup”" in faults_of(routes)


def test_a_route_that_creates_nothing_keeps_the_program_from_starting() -> None:
    routes = ROUTES | {"a new cup": each(CUP, lambda *_: [])}
    assert "the route to “a new cup” creates nothing" in faults_of(routes)


def test_a_route_to_another_machine_keeps_the_program_from_starting() -> None:
    routes = ROUTES | {"each cup": to(TAP, lambda kitchen, _: kitchen.tap)}
    assert "the route to “each cup” leads to no cup" in faults_of(routes)


def neighbours_with(routes: dict[Any, CouplingRoute], deliverer: str = "house") -> Wiring:
    return Wiring((CUP,), COUPLINGS, {"its tap": elsewhere("kitchen"), **routes}, deliverer=deliverer)


def test_a_wiring_without_a_route_for_a_step_elsewhere_keeps_the_program_from_starting() -> None:
    with pytest.raises(MalformedCouplings, match="there is no route to “the neighbours”"):
        neighbours_with({})


def test_a_wiring_that_leaves_what_it_is_to_deliver_to_another_keeps_the_program_from_starting() -> None:
    with pytest.raises(MalformedCouplings, match="is delivered here, and its route leads to “kitchen”"):
        neighbours_with({"the neighbours": elsewhere("kitchen")})


def test_a_deliverer_that_no_coupling_names_keeps_the_program_from_starting() -> None:
    with pytest.raises(MalformedCouplings, match="no coupling names “hovse” as its deliverer"):
        neighbours_with({"the neighbours": ROUTES["the cup below"]}, deliverer="hovse")


def test_a_coupling_that_is_left_to_another_than_its_deliverer_keeps_the_program_from_starting() -> None:
    assert "its deliverer is not “butcher”" in faults_of(ROUTES | {"each cup": elsewhere("butcher")})


def test_conditions_that_no_other_wiring_judges_keep_the_program_from_starting() -> None:
    assert "no deliverer evaluates its conditions" in faults_of(
        ROUTES | {"a new cup": outward(judged_there=True)}
    )


def test_a_step_elsewhere_has_no_consequence_in_a_wiring_that_is_not_its_deliverer() -> None:
    class Hearsay(Kitchen):
        wiring = Wiring(
            (CUP,), COUPLINGS, {"the neighbours": ROUTES["the cup below"], "its tap": elsewhere("kitchen")}
        )

    kitchen = Hearsay()
    kitchen.cups.append(Root(Cup.FULL))
    (gone,) = (step for step in TAP.steps_from(Tap.SHUT) if step.target is Tap.GONE)
    kitchen.follow_step(TAP, gone, None)
    assert kitchen.cups[0].state is Cup.FULL


def test_a_deliverer_of_no_coupling_keeps_the_program_from_starting() -> None:
    with pytest.raises(MalformedCouplings, match="“the cellar” of a tap has a deliverer"):
        Couplings[Facts](COUPLINGS.all, delivered_by={(TAP, "the cellar"): "house"})


def test_an_event_without_a_maker_keeps_the_program_from_starting() -> None:
    assert "there is no maker of fill" in faults_of(ROUTES, events=EventRules())


def test_a_timer_without_a_duration_keeps_the_program_from_starting() -> None:
    assert "the tap has a timer of flow_s, and there is no such duration" in faults_of(ROUTES, durations=())


def test_a_consequence_that_nothing_sends_keeps_the_program_from_starting() -> None:
    with pytest.raises(MalformedCouplings) as raised:
        Wiring((CUP,), Couplings[Facts](()), {})
    assert "no coupling sends fill to a cup" in str(raised.value)
    assert "no coupling sends spill to a cup" in str(raised.value)


def test_an_order_or_a_part_elsewhere_is_a_route() -> None:
    ordered: list[str] = []
    routes = ROUTES | {
        "each cup": elsewhere("butler"),
        "the neighbours": order(lambda *_: ordered.append("tell them")),
    }
    kitchen = rewired(routes)
    kitchen.send_to(TAP, kitchen.tap, open_it)
    kitchen.send_to(TAP, kitchen.tap, remove)
    assert [cup.state for cup in kitchen.cups] == [Cup.EMPTY]
    assert ordered == ["tell them"]


def test_in_memory_a_consequence_that_its_receiver_refuses_is_reported() -> None:
    reported: list[str] = []

    class Seen(Kitchen):
        in_memory = True
        wiring = wired()

        def report_refusal(self, refused: Refused[Any], _: Any) -> None:
            reported.append(f"{refused.machine} {refused.asked} {refused.state}")

    kitchen = Seen()
    kitchen.cups.append(Root(Cup.FULL))
    kitchen.send_to(TAP, kitchen.tap, open_it)
    assert "cup fill full" in reported


def test_an_event_that_is_sent_while_consequences_are_delivered_delivers_none_of_them_twice() -> None:
    def knock_over(kitchen: Kitchen, _: Any) -> None:
        kitchen.noted.append("knocked over")
        kitchen.send_to(CUP, kitchen.cups[0], spill, kitchen.cups[0])

    kitchen = rewired(ROUTES | {"a new cup": create(knock_over)})
    kitchen.cups.append(Root(Cup.FULL))
    kitchen.send_to(TAP, kitchen.tap, open_it)
    assert kitchen.noted == ["knocked over"]
    assert steps(kitchen)[:2] == [("", "tap", "open_it"), ("0", "cup", "spill")]
    assert kitchen.cups[0].state is Cup.FULL, "it was filled afterwards, once"
    assert len([step for step in steps(kitchen) if step[2] == "fill"]) == 1
