"""What a layout promises about boxes, lines and labels, held on every sample and on random machines.

Each promise is a checker that lists offenders; for each checker a picture with an offence shows
that it can fail.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise, product

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import pick

from interlock.machine.blueprint import Blueprint, KeptSheet, StateSheet, TransitionSheet
from interlock.machine.draw.geometry import Box, Label, Picture, Point, Rect, Wire
from interlock.machine.draw.layout import lay_out
from interlock.machine.draw.plan import spine_of

Segment = tuple[Point, Point]


def segments(wire: Wire) -> list[Segment]:
    return [pair for route in wire.routes for pair in pairwise(route.points)]


def overlap(one: Rect, other: Rect) -> bool:
    """Return whether the two share more than an edge."""
    across = one.x < other.right and other.x < one.right
    return across and one.y < other.bottom and other.y < one.bottom


def crosses(segment: Segment, place: Rect) -> bool:
    """Return whether a horizontal or vertical line runs through the inside."""
    (x1, y1), (x2, y2) = segment
    across = min(x1, x2) < place.right and place.x < max(x1, x2)
    down = min(y1, y2) < place.bottom and place.y < max(y1, y2)
    if y1 == y2:
        return across and place.y < y1 < place.bottom
    return down and place.x < x1 < place.right


def overlapping_boxes(picture: Picture) -> list[tuple[str, str]]:
    pairs = combinations(picture.boxes, 2)
    return [(a.state.name, b.state.name) for a, b in pairs if overlap(a.place, b.place)]


def labels_on_boxes(picture: Picture) -> list[tuple[Label, str]]:
    pairs = product(picture.wires, picture.boxes)
    return [(w.label, b.state.name) for w, b in pairs if overlap(w.label.place, b.place)]


def overlapping_labels(picture: Picture) -> list[tuple[Label, Label]]:
    pairs = combinations([wire.label for wire in picture.wires], 2)
    return [(a, b) for a, b in pairs if overlap(a.place, b.place)]


def crossed_labels(picture: Picture) -> list[tuple[Label, Segment]]:
    """Labels with a line through them; only a pill may lie on a line, and only on its own."""
    found = [(w.label, picture.entry) for w in picture.wires if _hits(w.label, picture.entry)]
    for wire, other in product(picture.wires, picture.wires):
        if not (wire is other and wire.label.pill):
            found += [(wire.label, s) for s in segments(other) if _hits(wire.label, s)]
    return found


def _hits(label: Label, segment: Segment) -> bool:
    return crosses(segment, label.place)


def lines_through_boxes(picture: Picture) -> list[tuple[Segment, str]]:
    lines = [*(s for wire in picture.wires for s in segments(wire)), picture.entry]
    pairs = product(lines, picture.boxes)
    return [(s, box.state.name) for s, box in pairs if crosses(s, box.place)]


def lines_on_lines(picture: Picture) -> list[tuple[Segment, Segment]]:
    """Parts of different wires that lie on one another, so that nobody can tell them apart."""
    return [
        (one, two)
        for a, b in combinations(picture.wires, 2)
        for one, two in product(segments(a), segments(b))
        if _share(one, two) or _share(_turned(one), _turned(two))
    ]


def _share(one: Segment, two: Segment) -> bool:
    """Return whether two horizontal lines have a stretch in common."""
    ((ax, ay), (bx, by)), ((cx, cy), (dx, dy)) = one, two
    return ay == by == cy == dy and max(min(ax, bx), min(cx, dx)) < min(max(ax, bx), max(cx, dx))


def _turned(segment: Segment) -> Segment:
    (ax, ay), (bx, by) = segment
    return (ay, ax), (by, bx)


def slanted_lines(picture: Picture) -> list[Segment]:
    lines = [s for wire in picture.wires for s in segments(wire)]
    return [(a, b) for a, b in lines if a[0] != b[0] and a[1] != b[1]]


def loose_ends(picture: Picture) -> list[Segment]:
    """Lines that do not begin on the edge of their source or end on the edge of their target."""
    place = {box.state.name: box.place for box in picture.boxes}
    found = []
    for route in (r for wire in picture.wires for r in wire.routes):
        start, end = route.points[0], route.points[-1]
        begins = _on_edge(place[route.transition.source], start)
        if not (begins and _on_edge(place[route.transition.target], end)):
            found.append((start, end))
    return found


def _on_edge(place: Rect, point: Point) -> bool:
    x, y = point
    beside = x in (place.x, place.right) and place.y < y < place.bottom
    return beside or (y in (place.y, place.bottom) and place.x < x < place.right)


def off_the_paper(picture: Picture) -> list[Rect]:
    paper = Rect(0, 0, picture.width, picture.height)
    places = [b.place for b in picture.boxes] + [w.label.place for w in picture.wires]
    return [p for p in places if p.x < 0 or p.y < 0 or p.right > paper.w or p.bottom > paper.h]


CHECKERS = (
    overlapping_boxes,
    labels_on_boxes,
    overlapping_labels,
    crossed_labels,
    lines_through_boxes,
    lines_on_lines,
    slanted_lines,
    loose_ends,
    off_the_paper,
)


def offences(picture: Picture) -> dict[str, object]:
    found = {checker.__name__: checker(picture) for checker in CHECKERS}
    return {name: offenders for name, offenders in found.items() if offenders}


# -- the samples ---------------------------------------------------------------------------------


def test_nothing_overlaps_crosses_or_hangs_loose(sample: Blueprint) -> None:
    assert offences(lay_out(sample)) == {}


def test_the_spine_is_straight_and_runs_downwards(sample: Blueprint) -> None:
    place = {box.state.name: box.place for box in lay_out(sample).boxes}
    spine = [place[name] for name in spine_of(sample)]
    assert len({(p.centre_x, p.w) for p in spine}) == 1
    assert [p.y for p in spine] == sorted(p.y for p in spine)


def test_every_state_has_one_box_and_every_transition_one_route(sample: Blueprint) -> None:
    picture = lay_out(sample)
    assert [box.state for box in picture.boxes] == list(sample.states)
    drawn = [route.transition for wire in picture.wires for route in wire.routes]
    assert sorted(map(repr, drawn)) == sorted(map(repr, sample.transitions))


def test_transitions_with_one_event_owner_and_target_share_a_line(
    samples: dict[str, Blueprint],
) -> None:
    wires = lay_out(samples["attempt"]).wires
    cancel = next(
        wire
        for wire in wires
        if {r.transition.source for r in wire.routes} == {"QUEUED", "LEASED", "STARTING", "RUNNING"}
    )
    assert len({route.points[-1] for route in cancel.routes}) == 1
    assert [row.text for row in cancel.label.words.rows] == ["cancel", "[has_live_lease]"]


def test_a_line_from_one_spine_state_to_one_side_state_is_straight_where_it_can_be(
    samples: dict[str, Blueprint],
) -> None:
    wires = [wire for wire in lay_out(samples["lease"]).wires if not wire.label.pill]
    straight = {wire.routes[0].transition.event: len(wire.routes[0].points) == 2 for wire in wires}
    assert straight == {"ttl": True, "revoke": True, "cancel_ack": True}


def test_events_with_the_same_sources_and_targets_share_a_line_that_shows_a_common_guard_once(
    samples: dict[str, Blueprint],
) -> None:
    pills = [wire.label.words.rows for wire in lay_out(samples["attempt"]).wires if wire.label.pill]
    texts = [[row.text for row in rows] for rows in pills]
    assert ["heartbeat", "report_running"] in texts
    assert ["complete", "[succeeded]"] in texts


def test_a_spine_that_is_not_declared_follows_the_first_transitions(
    samples: dict[str, Blueprint],
) -> None:
    assert spine_of(replace_spine(samples["attempt"])) == samples["attempt"].spine
    assert spine_of(samples["door"]) == ("closed", "open")


def replace_spine(blueprint: Blueprint) -> Blueprint:
    facts = {name: getattr(blueprint, name) for name in blueprint.__struct_fields__}
    return Blueprint(**{**facts, "spine": ()})


# -- each checker can fail -----------------------------------------------------------------------


def picture_of(samples: dict[str, Blueprint]) -> Picture:
    return lay_out(samples["lease"])


def with_box(picture: Picture, place: Rect) -> Picture:
    box = replace(picture.boxes[0], place=place)
    return replace(picture, boxes=(box, *picture.boxes[1:]))


def with_label(picture: Picture, place: Rect) -> Picture:
    plain = next(i for i, wire in enumerate(picture.wires) if not wire.label.pill)
    wires = list(picture.wires)
    wires[plain] = replace(wires[plain], label=replace(wires[plain].label, place=place))
    return replace(picture, wires=tuple(wires))


def with_points(picture: Picture, *points: Point) -> Picture:
    wire = picture.wires[0]
    route = replace(wire.routes[0], points=points)
    return replace(picture, wires=(replace(wire, routes=(route,)), *picture.wires[1:]))


def test_two_boxes_in_one_place_are_reported(samples: dict[str, Blueprint]) -> None:
    picture = picture_of(samples)
    bad = with_box(picture, picture.boxes[1].place.moved(3, 3))
    assert overlapping_boxes(bad)
    assert not overlapping_boxes(picture)


def test_a_label_on_a_box_is_reported(samples: dict[str, Blueprint]) -> None:
    picture = picture_of(samples)
    assert labels_on_boxes(with_label(picture, picture.boxes[2].place.moved(-5, -5)))


def test_a_label_on_a_label_is_reported(samples: dict[str, Blueprint]) -> None:
    picture = picture_of(samples)
    assert overlapping_labels(with_label(picture, picture.wires[-1].label.place.moved(1, 1)))


def test_a_label_with_a_line_through_it_is_reported(samples: dict[str, Blueprint]) -> None:
    picture = picture_of(samples)
    x, y = picture.wires[1].routes[0].points[0]
    assert crossed_labels(with_label(picture, Rect(x - 20, y - 5, 40, 10)))
    assert crossed_labels(with_label(picture, Rect(picture.entry[0][0] - 5, 5, 10, 5)))


def test_a_line_through_a_box_is_reported(samples: dict[str, Blueprint]) -> None:
    picture = picture_of(samples)
    place = picture.boxes[0].place
    y = place.y + 5
    assert lines_through_boxes(with_points(picture, (place.x - 9, y), (place.right + 9, y)))


def test_a_line_on_another_line_is_reported(samples: dict[str, Blueprint]) -> None:
    picture = picture_of(samples)
    assert lines_on_lines(with_points(picture, *segments(picture.wires[-1])[0]))
    assert lines_on_lines(with_points(picture, *segments(picture.wires[1])[0]))


def test_a_slanted_line_and_a_loose_end_are_reported(samples: dict[str, Blueprint]) -> None:
    bad = with_points(picture_of(samples), (1, 1), (50, 60))
    assert slanted_lines(bad)
    assert loose_ends(bad)


def test_a_box_beyond_the_paper_is_reported(samples: dict[str, Blueprint]) -> None:
    assert off_the_paper(with_box(picture_of(samples), Rect(-1, 0, 10, 10)))


# -- random machines -----------------------------------------------------------------------------


@st.composite
def machines(draw: st.DrawFn) -> Blueprint:
    names = [f"state_{index}" * draw(st.integers(1, 2)) for index in range(draw(st.integers(2, 10)))]
    places = st.sampled_from(names)
    moves = draw(
        st.lists(
            st.builds(
                TransitionSheet,
                event=st.sampled_from(["go", "stop", "a_longer_event", "x", "lease_expired"]),
                source=places,
                target=places,
                owner=st.sampled_from(["user", "clock", "worker"]),
                guards=st.sampled_from([(), ("ready",), ("a_guard_that_is_far_too_long_to_show",)]),
            ),
            max_size=24,
        )
    )
    kept = draw(st.lists(st.builds(KeptSheet, st.just("beat"), places, st.just("user")), max_size=3))
    spine = draw(st.lists(places, max_size=5, unique=True))
    terminal = draw(st.sets(places, max_size=3))
    return Blueprint(
        machine="random",
        initial=draw(places),
        states=tuple(StateSheet(name, name in terminal) for name in names),
        transitions=tuple(moves),
        spine=tuple(spine),
        kept=tuple(kept),
    )


@settings(max_examples=pick(40, 150))
@given(machines())
def test_no_machine_makes_boxes_labels_or_lines_meet(blueprint: Blueprint) -> None:
    assert offences(lay_out(blueprint)) == {}


def test_a_machine_of_one_state_is_one_box() -> None:
    alone = Blueprint("alone", "here", (StateSheet("here", terminal=True),), ())
    (box,) = lay_out(alone).boxes
    assert isinstance(box, Box)
    assert offences(lay_out(alone)) == {}
