"""The SVG: what it says, what it lights, and that it is the same everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.effort import further

from interlock.errors import UnknownState
from interlock.machine.blueprint import Blueprint, StateSheet, TransitionSheet
from interlock.machine.draw import draw_svg
from interlock.machine.draw.theme import DARK, LIGHT, ColourMode

Element = ET.Element
_SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> Element:
    return ET.fromstring(svg)


def having(root: Element, key: str, **facts: str) -> list[Element]:
    """Groups with the attribute `key`, and with the given values of others."""
    groups = [g for g in root.iter(f"{_SVG}g") if key in g.attrib]
    return [g for g in groups if all(g.get(name) == value for name, value in facts.items())]


def state_of(root: Element, name: str) -> Element:
    return next(g for g in having(root, "data-state") if g.get("data-state") == name)


def classes(element: Element) -> set[str]:
    return set(element.get("class", "").split())


def edges(root: Element, kind: str = "edge") -> list[tuple[str, str, str]]:
    found = [g for g in having(root, "data-event") if kind in classes(g)]
    return [(g.attrib["data-event"], g.attrib["data-from"], g.attrib["data-to"]) for g in found]


def shown(text: str) -> str:
    return text.replace("\0", "\ufffd")


def test_every_state_and_transition_can_be_found_by_its_data(sample: Blueprint) -> None:
    root = parsed(draw_svg(sample))
    states = [g.attrib["data-state"] for g in having(root, "data-state")]
    assert states == [shown(state.name) for state in sample.states]
    expected = [(shown(t.event), shown(t.source), shown(t.target)) for t in sample.transitions]
    assert sorted(edges(root)) == sorted(expected)


def test_every_id_is_used_once(sample: Blueprint) -> None:
    ids = [e.attrib["id"] for e in parsed(draw_svg(sample)).iter() if "id" in e.attrib]
    assert len(ids) == len(set(ids)) == len(sample.states) + 2


def test_states_whose_names_differ_only_in_punctuation_have_different_ids() -> None:
    names = ("a b", "a-b", "a+b", "a b--2")
    states = tuple(StateSheet(name, terminal=False) for name in names)
    root = parsed(draw_svg(Blueprint("twins", "a b", states, ())))
    ids = [g.attrib["id"] for g in having(root, "data-state")]
    assert len(set(ids)) == len(names)


def test_terminal_states_have_two_borders_and_resting_ones_a_dashed_second(
    sample: Blueprint,
) -> None:
    root = parsed(draw_svg(sample))
    for state in sample.states:
        borders = [r.get("class", "") for r in state_of(root, shown(state.name)).iter(f"{_SVG}rect")]
        expected = ["box"]
        if state.terminal or state.resting:
            expected.append("inner dashed" if state.resting else "inner")
        assert borders == expected


def test_the_picture_names_and_describes_itself(samples: dict[str, Blueprint]) -> None:
    root = parsed(draw_svg(samples["attempt"], current="LEASED"))
    title, desc = root.find(f"{_SVG}title"), root.find(f"{_SVG}desc")
    assert title is not None
    assert desc is not None
    assert title.text == "The attempt machine"
    assert desc.text == (
        "One try of a job. 12 states and 28 transitions. It begins in CREATED. "
        "It ends in SUCCEEDED, FAILED, CANCELED, TIMED_OUT, STALE. It is now in LEASED."
    )
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "attempt-title attempt-desc"


def test_the_tooltip_of_an_edge_shows_its_event_states_guard_owner_and_reason(
    samples: dict[str, Blueprint],
) -> None:
    root = parsed(draw_svg(samples["run"]))
    (edge,) = having(root, "data-event", **{"data-event": "job_failed"})
    title = edge.find(f"{_SVG}title")
    assert title is not None
    assert title.text == (
        "job_failed: RUNNING → FAILED\n"
        "only if a_required_job_is_out_of_retries\n"
        "by orchestrator\n"
        "Why job_failed."
    )


def test_a_state_box_shows_its_deadline_its_turn_and_the_events_that_keep_the_state(
    samples: dict[str, Blueprint],
) -> None:
    root = parsed(draw_svg(samples["attempt"]))
    words = [t.text for t in state_of(root, "RUNNING").iter(f"{_SVG}text")]
    assert words == ["RUNNING", "≤ 1 h · runner", "↻ heartbeat"]


def test_a_long_guard_is_a_question_mark_and_a_short_one_is_named(
    samples: dict[str, Blueprint],
) -> None:
    words = {t.text for t in parsed(draw_svg(samples["run"])).iter(f"{_SVG}text")}
    assert {"job_failed ?", "[jobs_created]", "[all_required_succeeded]"} <= words


def test_the_legend_names_every_owner_that_moves_the_machine(
    samples: dict[str, Blueprint],
) -> None:
    words = [t.text for t in parsed(draw_svg(samples["workload"])).iter(f"{_SVG}text")]
    legend = words[words.index("by controller") :]
    assert legend == [
        *("by controller", "by clock", "by network", "by agent", "at rest"),
        *("↻", "accepted, stays here", "≤", "at most this long"),
    ]


def test_the_current_state_and_the_way_to_it_are_lit(samples: dict[str, Blueprint]) -> None:
    path = ["CREATED", "QUEUED", "LEASED", "CANCEL_REQUESTED"]
    root = parsed(draw_svg(samples["attempt"], current="CANCEL_REQUESTED", path=path))
    kinds = {g.attrib["data-state"]: classes(g) for g in having(root, "data-state")}
    assert [name for name, kind in kinds.items() if "current" in kind] == ["CANCEL_REQUESTED"]
    assert {name for name, kind in kinds.items() if "visited" in kind} == set(path)
    assert all("dim" in kind for name, kind in kinds.items() if name not in path)
    assert set(edges(root, "lit")) == {
        ("enqueue", "CREATED", "QUEUED"),
        ("lease", "QUEUED", "LEASED"),
        ("cancel", "LEASED", "CANCEL_REQUESTED"),
    }


def test_without_a_path_nothing_is_dim_or_lit(sample: Blueprint) -> None:
    root = parsed(draw_svg(sample, current=sample.initial))
    marked = [e for e in root.iter() if classes(e) & {"dim", "lit", "visited"}]
    assert marked == []


def test_a_way_through_a_loop_lights_the_loop(samples: dict[str, Blueprint]) -> None:
    root = parsed(draw_svg(samples["process"], path=["running", "running"]))
    assert edges(root, "lit") == [("poll_cycle_complete", "running", "running")]


@pytest.mark.parametrize("lights", [{"current": "LEASD"}, {"path": ["QUEUED", "LEASD"]}])
def test_an_unknown_state_is_refused_with_the_known_ones(
    samples: dict[str, Blueprint], lights: dict[str, Any]
) -> None:
    with pytest.raises(UnknownState) as caught:
        draw_svg(samples["attempt"], **lights)
    assert caught.value.allowed == tuple(s.name for s in samples["attempt"].states)
    assert "Did you mean LEASED?" in caught.value.sentence


def test_names_are_escaped_everywhere_in_the_svg(samples: dict[str, Blueprint]) -> None:
    svg = draw_svg(samples["hostile"], current='<a & "b">')
    root = parsed(svg)
    assert "<script" not in svg
    assert root.get("data-machine") == '"><script>alert(1)</script>'
    assert state_of(root, '<a & "b">') is not None
    assert {e.tag.removeprefix(_SVG) for e in root.iter()} == {
        *("svg", "title", "desc", "style", "g", "rect", "text", "path", "circle")
    }


def test_the_picture_loads_nothing_from_elsewhere(sample: Blueprint) -> None:
    svg = draw_svg(sample)
    assert "url(" not in svg
    assert "href" not in svg
    assert "@import" not in svg


def test_the_same_machine_is_the_same_bytes(sample: Blueprint) -> None:
    path = [sample.initial]
    assert draw_svg(sample) == draw_svg(sample)
    again = Blueprint.from_json(sample.to_json())
    assert draw_svg(again, current=sample.initial, path=path) == draw_svg(
        sample, current=sample.initial, path=path
    )


@pytest.mark.parametrize("seed", ["0", *further("1", "42")])
def test_the_bytes_do_not_depend_on_the_hash_seed(samples: dict[str, Blueprint], seed: str) -> None:
    program = (
        "import sys; from interlock.machine.blueprint import Blueprint;"
        "from interlock.machine.draw import draw_dot, draw_mermaid, draw_svg;"
        "b = Blueprint.from_json(sys.stdin.buffer.read());"
        "text = draw_svg(b, path=[b.initial]) + draw_mermaid(b) + draw_dot(b);"
        "sys.stdout.buffer.write(text.encode())"
    )
    from interlock.machine.draw import draw_dot, draw_mermaid

    for name in ("attempt", "awkward"):
        b = samples[name]
        ran = subprocess.run(
            [sys.executable, "-c", program],
            input=b.to_json().encode(),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        here = draw_svg(b, path=[b.initial]) + draw_mermaid(b) + draw_dot(b)
        assert ran.stdout.decode() == here


# -- colours -------------------------------------------------------------------------------------


def contrast(one: str, two: str) -> float:
    """The contrast ratio of WCAG 2."""
    light, dark = sorted((_luminance(one), _luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])


@pytest.mark.parametrize("mode", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_can_be_read_on_its_ground(mode: ColourMode) -> None:
    on_paper = [mode.ink, mode.muted, mode.accent, *mode.owners]
    pairs = [(colour, mode.paper) for colour in on_paper]
    for ground in (mode.box, mode.box_spine, mode.visited):
        pairs += [(mode.ink, ground), (mode.muted, ground)]
    pairs.append((mode.on_accent, mode.accent))
    assert [pair for pair in pairs if contrast(*pair) < 4.5] == []


def test_the_contrast_of_black_and_white_is_21_and_of_a_failing_pair_less_than_4_5() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#94a3b8", "#ffffff") < 4.5


def test_the_dark_colours_apply_only_within_the_dark_mode_media_query(
    samples: dict[str, Blueprint],
) -> None:
    light, _, dark = draw_svg(samples["door"]).partition("@media (prefers-color-scheme: dark) {")
    assert LIGHT.paper in light
    assert DARK.paper not in light
    assert DARK.paper in dark


def test_every_owner_beyond_the_palette_still_has_a_colour() -> None:
    states = (StateSheet("a", terminal=False), StateSheet("b", terminal=True))
    moves = tuple(TransitionSheet(f"e{i}", "a", "b", f"owner {i}") for i in range(12))
    root = parsed(draw_svg(Blueprint("crowd", "a", states, moves)))
    named = {f"o{i}" for i in range(len(LIGHT.owners))}
    edge_groups = having(root, "data-event")
    assert len(edge_groups) == 12
    assert all(classes(g) & named for g in edge_groups)
