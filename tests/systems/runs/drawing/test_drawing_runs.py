"""The graph of a run as text says what the plan says, whatever the plan; and the other ways to draw it."""

from __future__ import annotations

from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.systems.runs.graph import MARKS, Node, RunGraph, drawn_needs, run_graph
from interlock.systems.runs.graph_export import draw_dot, draw_mermaid, draw_svg
from interlock.systems.runs.graph_text import draw_text
from interlock.wire.runs import RunJobView, RunView

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def a_run(*jobs: tuple[str, str, str]) -> RunView:
    """Jobs as (name, state, needs separated by spaces)."""
    views = tuple(
        RunJobView(name=name, job_id="j_1", state=state, needs=tuple(needs.split()))
        for name, state, needs in jobs
    )
    return RunView(
        id="r_1", state="RUNNING", version=1, workflow="ci", created_at=NOW, updated_at=NOW, jobs=views
    )


def text_of(graph: RunGraph, width: int = 100) -> list[str]:
    drawn = draw_text(graph, width, lambda _: "")
    return ["".join(piece.text for piece in line) for line in drawn]


CI = a_run(
    ("lint", "COMPLETED", ""),
    ("types", "COMPLETED", ""),
    ("unit", "RUNNING", "lint types"),
    ("slow", "PENDING", "lint types"),
    ("pack", "WAITING", "unit slow lint"),
)


def test_layers_stand_side_by_side_and_lines_join_them() -> None:
    assert text_of(run_graph(CI)) == [
        "✓ lint ──┬─ ● unit ─┬─ ◌ pack",
        "✓ types ─┴─ ○ slow ─┘",
    ]


def test_a_text_graph_uses_extra_rows_and_columns_where_its_lines_would_be_ambiguous() -> None:
    run = a_run(
        ("lint", "COMPLETED", ""),
        ("types", "COMPLETED", ""),
        ("docs", "PENDING", "lint"),
        ("unit", "RUNNING", "lint types"),
    )
    assert text_of(run_graph(run)) == [
        "✓ lint ──┬─┐",
        "         └─│─ ○ docs",
        "✓ types ───┤",
        "           └─ ● unit",
    ]


def test_a_run_whose_text_graph_would_be_ambiguous_is_drawn_as_a_list() -> None:
    run = a_run(
        ("a", "COMPLETED", ""),
        ("b", "COMPLETED", ""),
        ("c", "COMPLETED", ""),
        ("x", "PENDING", "a b"),
        ("y", "PENDING", "b c"),
    )
    assert text_of(run_graph(run)) == ["✓ a", "✓ b", "✓ c", "○ x  ← a, b", "○ y  ← b, c"]


def test_a_run_whose_text_graph_exceeds_the_width_is_drawn_as_a_list() -> None:
    assert text_of(run_graph(CI), 20) == [
        "✓ lint",
        "✓ types",
        "● unit  ← lint, typ…",
        "○ slow  ← lint, typ…",
        "◌ pack  ← unit, slow",
    ]


@st.composite
def graphs(draw: st.DrawFn) -> RunGraph:
    size = draw(st.integers(1, 9))
    nodes = []
    for number in range(size):
        needs = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else set()
        nodes.append(
            Node(name=f"n{number}", state="PENDING", needs=tuple(f"n{need}" for need in sorted(needs)))
        )
    return RunGraph(nodes=tuple(nodes))


@given(graphs())
def test_the_lines_of_the_text_graph_connect_each_job_to_the_jobs_that_it_needs(graph: RunGraph) -> None:
    """Read the characters themselves, without knowing how they came about."""
    lines = text_of(graph, 1_000)
    if any("←" in line for line in lines):
        return
    read = _read(lines, [node.name for node in graph.nodes])
    needs = drawn_needs(graph)
    assert {name: sorted(found) for name, found in read.items()} == {
        name: sorted(wanted) for name, wanted in needs.items()
    }


_RIGHT, _UP, _DOWN, _LEFT = "─┌└├┬┴┼", "│└┘├┤┴┼", "│┌┐├┤┬┼", "─┐┘┤┬┴┼"


def _read(lines: list[str], names: list[str]) -> dict[str, set[str]]:
    grid = {(row, column): letter for row, line in enumerate(lines) for column, letter in enumerate(line)}
    places = {}
    for row, line in enumerate(lines):
        for name in names:
            at = line.find(f"○ {name}")
            if at >= 0 and not line[at + 2 + len(name) :][:1].isdigit():
                places[name] = (row, at)
    found: dict[str, set[str]] = {name: set() for name in names}
    for name, (row, at) in places.items():
        for target in _reached(grid, (row, at + len(name) + 3), {at: n for n, at in places.items()}):
            found[target].add(name)
    return found


def _reached(
    grid: dict[tuple[int, int], str], start: tuple[int, int], places: dict[tuple[int, int], str]
) -> set[str]:
    found, seen, waiting = set(), set(), [(start, "right")]
    while waiting:
        (row, column), way = waiting.pop()
        letter = grid.get((row, column), " ")
        if ((row, column), way) in seen:
            continue
        seen.add(((row, column), way))
        if (row, column + 1) in places and way == "right" and letter in " ─":
            found.add(places[row, column + 1])
            continue
        if letter == "│" and way == "right":  # it passes below
            waiting.append(((row, column + 1), "right"))
            continue
        if letter in _RIGHT:
            waiting.append(((row, column + 1), "right"))
        if letter in _UP:
            waiting.append(((row - 1, column), "up"))
        if letter in _DOWN:
            waiting.append(((row + 1, column), "down"))
        if letter == " " and way == "right" and grid.get((row, column + 1), " ") == "─":
            waiting.append(((row, column + 1), "right"))
    return found


def test_of_many_jobs_those_of_a_matrix_are_one() -> None:
    jobs = [
        ("lint", "COMPLETED", ""),
        *((f"t ({n})", "FAILED" if n < 3 else "RUNNING", "lint") for n in range(99)),
    ]
    graph = run_graph(a_run(*jobs))
    assert [(node.name, node.state, node.stands_for) for node in graph.nodes] == [
        ("lint", "COMPLETED", 1),
        ("t", "FAILED", 99),
    ]
    assert text_of(graph) == ["✓ lint ─── ✗ t \N{MULTIPLICATION SIGN}99  ✗3 ●96"]


def test_a_graph_of_too_many_jobs_shows_the_failed_job_and_counts_the_jobs_left_out() -> None:
    jobs = [(f"j{n}", "FAILED" if n == 9_000 else "COMPLETED", "") for n in range(10_000)]
    graph = run_graph(a_run(*jobs), most=10)
    assert (len(graph.nodes), graph.left_out) == (10, 9_990)
    assert "j9000" in {node.name for node in graph.nodes}


def test_the_svg_of_a_run_is_well_formed_xml_and_escapes_job_names() -> None:
    evil = "<script>\"&'</script>"
    graph = run_graph(a_run((evil, "FAILED", ""), ("b", "WAITING", evil)))
    picture = ET.fromstring(draw_svg(graph, evil, lambda _: evil))
    assert "script" not in {element.tag.rpartition("}")[2] for element in picture.iter()}
    assert len([e for e in picture.iter() if e.get("class") == "line"]) == 1


def test_a_line_in_a_picture_is_whole_where_it_skips_a_column() -> None:
    graph = run_graph(
        a_run(("docs", "COMPLETED", ""), ("build", "COMPLETED", ""), ("test", "RUNNING", "build"),
              ("package", "WAITING", "test docs"))
    )  # fmt: skip
    picture = ET.fromstring(draw_svg(graph, "ci", lambda _: ""))
    lines = [e.get("d", "").split() for e in picture.iter() if e.get("class") == "line"]
    begins = {(words[1], words[2]) for words in lines}
    ends = {(words[-1], words[2]) if words[3] == "H" else (words[-2], words[-1]) for words in lines}
    boxes = [e for e in picture.iter() if e.get("class") == "box"]
    places = [[float(e.get(name, 0)) for name in ("x", "y", "width", "height")] for e in boxes]
    left = {(f"{x:g}", f"{y + high / 2:g}") for x, y, _, high in places}
    right = {(f"{x + wide:g}", f"{y + high / 2:g}") for x, y, wide, high in places}
    assert ends - begins <= left, "a line ends at a box, or where it goes on"
    assert begins - ends <= right


def test_a_picture_is_as_wide_as_its_title() -> None:
    title = "ci  r_072e26bfe46a  REPORTED (FAILED)  acme/shop main  required job failed: test (3.12)"
    picture = ET.fromstring(draw_svg(run_graph(a_run(("a", "FAILED", ""))), title, lambda _: ""))
    assert float(picture.get("width", 0)) > len(title) * 8


def test_mermaid_and_dot_have_every_job_and_every_need() -> None:
    graph = run_graph(CI)
    mermaid, dot = draw_mermaid(graph, lambda _: "3s"), draw_dot(graph, "ci", lambda _: "3s")
    assert mermaid.count("-->") == dot.count("->") == 6
    assert 'j0["✓ lint 3s"]' in mermaid
    assert '"unit" [label="● unit 3s", color="#1d5fd1"];' in dot


def test_names_cannot_break_out_of_mermaid_or_dot() -> None:
    graph = run_graph(a_run(('a"] --> b; "\\', "PENDING", "")))
    assert draw_mermaid(graph, lambda _: "").count("-->") == 0
    assert '"a\\"] --> b; \\"\\\\"' in draw_dot(graph, "x", lambda _: "")


@pytest.mark.parametrize(
    "state", ["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELED", "WAITING", "STOPPING"]
)
def test_every_state_has_a_mark(state: str) -> None:
    assert len(MARKS[state]) == 1
