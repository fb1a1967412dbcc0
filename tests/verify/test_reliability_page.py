"""The page on reliability says what the code says: numbers are those that are pinned, names exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.sources import tree_of
from tests.verify import test_broken_rules
from tests.verify.test_entry_points import ALONE, SYSTEMS, explored
from tests.verify.test_environments import IN_MINUTES

from interlock.text import counted
from interlock_verification.chaos.__main__ import HARNESSES
from interlock_verification.cli import QUICK_HOURS
from interlock_verification.environments import ENVIRONMENTS, LONG, QUICK, REDUCED
from interlock_verification.mutation import all_mutants, harmless
from interlock_verification.worlds.campaign import episodes_of
from interlock_verification.worlds.faults import MIXES
from interlock_verification.worlds.worlds import WORLDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
# fmt: off
WORDS = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)
# fmt: on
FILE = re.compile(r"`((?:tests|verification)/[\w./]+|interlock_verification/[\w./]+)`")


def states_of(plans: object) -> int:
    assert isinstance(plans, tuple)
    return sum(plan.states for plan in plans)


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells of the rows of all tables, by the first one."""
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line[:1] == "|"
    ]
    return {first: rest for first, *rest in cells}


def wrong_figures(page: str) -> Iterator[str]:
    """Yield what the figures of the model checker should be, and are not."""
    quick, everything = WORDS[len(QUICK)], WORDS[len(ENVIRONMENTS)]
    expected = {
        f"the {quick} quick environments (`interlock verify model`)": states_of(QUICK),
        f"all {everything} (`interlock verify model --long`, two side by side)": states_of((*QUICK, *LONG)),
    }
    found = rows(page)
    expected |= {next((name for name in found if f"`{p.name}`" in name), p.name): p.states or 0 for p in LONG}
    for name, states in expected.items():
        if found.get(name, [""])[0] != f"{states:,}":
            yield f"{name}: {states:,}"


def test_the_figures_of_the_model_checker_are_the_pinned_ones() -> None:
    assert [*wrong_figures(PAGE)] == []


@pytest.mark.parametrize("figure", [f"{states_of(QUICK):,}", "thirteen", f"{LONG[1].states:,}", "eighteen"])
def test_a_figure_that_is_out_of_date_would_be_noticed(figure: str) -> None:
    assert [*wrong_figures(PAGE.replace(figure, "351,297"))]


def costs(page: str) -> list[tuple[int, float, int]]:
    """Return states, millions of edges and seconds of each row of figures; the last row is the sum."""
    return [
        (_number(cells[0]), float(cells[1].split()[0]), _number(cells[2].split()[0]))
        for cells in rows(page).values()
        if len(cells) == 4 and cells[1].endswith(" million")
    ]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def wrong_sums(page: str) -> Iterator[str]:
    """Yield the columns of the figures whose last row is not the sum of the others."""
    *parts, whole = costs(page)
    for name, numbers, total in zip(
        ("states", "edges", "seconds"), zip(*parts, strict=True), whole, strict=True
    ):
        if round(sum(numbers), 1) != total:
            yield f"{name}: {sum(numbers):.1f}, not {total}"


def test_the_last_row_of_the_figures_is_the_sum_of_the_others() -> None:
    assert len(costs(PAGE)) == len(LONG) + 2
    assert [*wrong_sums(PAGE)] == []


@pytest.mark.parametrize("figure", ["660 s", "32.7 million", "| 110 s", "404,024"])
def test_a_sum_that_is_out_of_date_would_be_noticed(figure: str) -> None:
    assert [*wrong_sums(PAGE.replace(figure, figure.replace("0", "1").replace("7", "8")))]


def test_the_speed_of_the_model_checker_is_that_of_its_figures() -> None:
    speeds = [states / seconds for states, _, seconds in costs(PAGE)]
    slowest, fastest = (100 * round(speed / 100) for speed in (min(speeds), max(speeds)))
    assert f"about {slowest:,} to {fastest:,} states a second" in PAGE


def test_the_episodes_of_worlds_last_as_long_as_the_page_says() -> None:
    lengths = {world.name: world.episode_h for world in WORLDS}
    assert "work for hours up to weeks under all kinds of faults" in " ".join(PAGE.split())
    assert min(lengths.values()) < 24
    assert "ten to twenty days in which little happens (`nights`, `pair`, `holidays`)" in " ".join(
        PAGE.split()
    )
    quiet = {lengths.pop(name) for name in ("nights", "pair", "holidays")}
    assert (min(quiet), max(quiet)) == (10 * 24, 20 * 24)
    assert max(lengths.values()) < 24


def test_the_environments_of_make_test_are_named() -> None:
    first, second = IN_MINUTES
    assert f"`make test` explores `{first}` and `{second}` of the quick environments" in PAGE
    assert f"`make verify` all {WORDS[len(ENVIRONMENTS)]}" in PAGE


def test_the_number_of_rules_that_are_taken_away_is_that_of_the_tests() -> None:
    assert test_broken_rules.__file__ is not None
    tree = tree_of(Path(test_broken_rules.__file__))
    tests = [
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[:5] == "test_"
    ]
    noticed = [name for name in tests if name.endswith("_noticed")]
    assert len(tests) - len(noticed) == 1, "One of them is the control."
    assert f"removes {WORDS[len(noticed)]} such rules" in PAGE


def test_the_numbers_of_mutants_are_those_of_the_tables_and_the_list_of_survivors() -> None:
    everything = len(all_mutants())
    caught = everything - len(harmless())
    words = " ".join(PAGE.split())
    assert f"{caught} of the {everything} mutants are caught ({100 * caught / everything:.1f} %)" in words
    by_table, by_claim = map(int, re.findall(r"(\d+) by the checks of the table, (\d+) by a claim", words)[0])
    assert by_table + by_claim == caught


def test_the_quick_hours_are_those_of_the_command_and_have_every_world_with_every_mix() -> None:
    episodes = list(episodes_of(QUICK_HOURS))
    pairs = {(one.world, one.faults) for one in episodes}
    assert pairs == {(world.name, mix.name) for world in WORLDS for mix in MIXES if mix.name != "none"}
    assert f"# {QUICK_HOURS:g} simulated hours, every world with every mix of faults" in PAGE
    name = f"`interlock verify world`: {counted(len(episodes), 'seed')}, every world with every mix"
    assert rows(PAGE)[name][0] == f"{QUICK_HOURS:g} h"


def test_every_world_and_every_harness_is_on_the_page() -> None:
    assert [world.name for world in WORLDS if f"`{world.name}`" not in PAGE] == []
    assert [name for name in HARNESSES if name not in PAGE] == []


def test_every_file_that_the_page_names_exists() -> None:
    named = FILE.findall(PAGE)
    assert len(named) > 8
    places = (ROOT, ROOT / "verification" / "src")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_every_option_of_a_command_names_what_exists() -> None:
    assert {*re.findall(r"--environment ([\w-]+)", PAGE)} <= ENVIRONMENTS.keys()
    assert {*re.findall(r"--world (\w+)", PAGE)} <= {world.name for world in WORLDS}
    assert {*re.findall(r"--faults (\w+)", PAGE)} <= {mix.name for mix in MIXES}
    assert {*re.findall(r"--only (\w+) ", PAGE)} <= {*HARNESSES}


@cache
def named_deciders() -> tuple[tuple[str, str], ...]:
    paragraph = PAGE.partition("calls the production code:")[2].partition("`interlock.lifecycles`")[0]
    return tuple(re.findall(r"`([a-z_]+)\.([a-z_]+)`", paragraph))


def test_every_decider_that_the_page_names_is_called_by_the_model_checker() -> None:
    called = explored(ALONE, *REDUCED)
    assert len(named_deciders()) > 5
    for module, name in named_deciders():
        places = {
            (str(path), node.lineno)
            for path in SYSTEMS.rglob(f"{module}.py")
            for node in tree_of(path).body
            if isinstance(node, ast.FunctionDef) and node.name == name
        }
        assert places & called, f"{module}.{name}"
