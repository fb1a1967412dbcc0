"""No block of a page is left to itself: each has a language, and a test that runs, reads or compares it.

Output is compared with what is printed now; what cannot be is named below, with the reason.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jsonschema_rs
import pytest
import yaml
from bench import __main__ as bench
from bench.workers import drain
from docs import transcripts
from tests import programs
from tests.deploy.files import schema_in
from tests.docs import (
    test_commands_on_pages,
    test_dev_page,
    test_load_test_page,
    test_other_blocks,
    test_pages_tell_the_truth,
    test_runner_protocol_page,
)
from tests.waiting import PROGRAM_S
from tools import sessions
from tools.dashboard import find_node

from interlock.errors import InterlockError, MalformedTable
from interlock.systems.runs.graph import MARKS, Node, RunGraph
from interlock.systems.runs.graph_text import draw_text
from interlock.systems.runs.workflows.workflow import read_workflow
from interlock_verification.chaos import __main__ as chaos

ROOT = Path(__file__).parents[2]
FOR_CONTRIBUTORS = [
    *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(ROOT / name / "README.md" for name in ("bench", "verification")),
]
PAGES = [
    ROOT / "README.md",
    *FOR_CONTRIBUTORS,
    *sorted((ROOT / "docs").glob("*.md")),
    *(
        page
        for name in ("tutorials", "guides", "coming-from")
        for page in sorted((ROOT / "docs" / name).glob("*.md"))
    ),
    *(ROOT / "docs" / "reference" / name for name in ("outgoing-webhooks.md", "runner-protocol.md")),
]
GENERATED = ("command-line", "http-api", "python-api", "testing-api")
"""Pages of the reference, or their folders, which `make check` generates again; tests run their examples."""
EVERY_PAGE = [*PAGES, *ROOT.glob("docs/*/**/*.md"), ROOT / "CHANGELOG.md", ROOT / "bench" / "FIGURES.md"]
RELIABILITY = ROOT / "docs" / "reliability.md"
READERS = {
    "console": [*test_pages_tell_the_truth.PAGES, RELIABILITY],
    "http": [test_runner_protocol_page.PAGE],
    "json": test_other_blocks.PAGES,
    "py": test_other_blocks.PAGES,
    "python": test_pages_tell_the_truth.PAGES,
    "sh": test_commands_on_pages.PAGES,
    "toml": test_other_blocks.PAGES,
    "yaml": test_other_blocks.PAGES,
}
"""The pages whose blocks in a language are run or read."""
COMPARED = {
    ("ARCHITECTURE.md", " cli          server"): "the layers",
    ("choosing-a-store.md", "max_connections ≥"): "connections",
    ("README.md", "   3.37 s  attempt 1.1  grant"): "the demo",
    ("README.md", "                ┌─── ✓ flaky 13 s"): "a graph",
    ("first-ci.md", "ci  r_0a4ef327c266  RUNNING"): "a graph",
    ("your-own-ci.md", "ci  r_0a4ef327c266  RUNNING"): "a graph",
    ("your-own-ci.md", ".interlock/ci.yml:14:5:"): "a fault of a workflow",
    ("first-job.md", "$ interlock submit shop.py:greet"): "a job that is waited for",
    ("first-lifecycle.md", "undecided-event: the timer silence"): "a fault of a table",
    ("your-own-lifecycle.md", "undecided-event: the timer silence"): "a fault of a table",
    ("dead-letters.md", "$ interlock dead-letter list"): "a transcript",
    ("dead-letters.md", "$ interlock dead-letter retry"): "a transcript",
    ("dead-letters.md", "$ interlock dead-letter discard"): "a transcript",
    ("jobs-that-submit-jobs.md", "$ interlock job tree"): "a transcript",
    ("limit-calls-to-a-vendor.md", "$ interlock limit show"): "a transcript",
    ("put-jobs-together.md", "$ interlock submit"): "a transcript",
    ("put-jobs-together.md", "$ interlock job explain"): "a transcript",
    ("wait-for-a-person.md", "$ interlock approval list"): "a transcript",
    ("run-something-every-night.md", "$ interlock schedule list"): "the schedules of the page",
    ("see-it-all-on-one-machine.md", "Interlock listens at"): test_dev_page.__name__,
    ("running-an-agent.md", "The agent listens on"): test_load_test_page.__name__,
}
"""Blocks with output, by their page and beginning, and what they are compared with."""
NOT_COMPARED = {
    ("reliability.md", "Not always: an attempt is granted"): "needs a broken store: verify/test_broken_rules",
    ("reliability.md", "Broken: a repeated report"): "needs a broken store: verify/test_broken_worlds",
    (
        "middleware.md",
        '{"level":"warning","logger":"shop"',
    ): "a line of a worker: integrations/test_observability.py",
    ("running-a-server.md", "Interlock listens at"): "the lines of `interlock dev`: docs/test_dev_page",
}
"""Blocks with output that no test of the pages prints, and why."""
OTHER_TOOLS = {"yml": "github-actions.md", "js": "locust-and-k6.md"}
"""Languages of files for other tools, and the page that has them; a test parses these."""
QUICK = ("verify world --list", "verify model --environment race", "verify mutate --machine lease")
"""Commands of the page on reliability that are run here; `make verify` and `make chaos` run the others."""
FENCE = re.compile(r"^( *)```(\S*)\n(.*?)^\1```$", re.S | re.M)


class Block(NamedTuple):
    """A block of a page."""

    page: Path
    language: str
    text: str


def blocks_of(page: Path) -> Iterator[Block]:
    yield from (Block(page, found[1], found[2]) for found in FENCE.findall(page.read_text(encoding="utf-8")))


def python_of(page: Path) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == "python"]


def compared(kind: str) -> list[Block]:
    """Return the blocks that are compared in one way."""
    return [
        block
        for page in PAGES
        for block in blocks_of(page)
        if block.language == "text" and any(COMPARED[place] == kind for place in places_of(block, COMPARED))
    ]


def places_of(block: Block, known: dict[tuple[str, str], str]) -> list[tuple[str, str]]:
    return [place for place in known if place[0] == block.page.name and block.text.startswith(place[1])]


def fault_of(block: Block) -> str:
    """Return why nothing looks after a block; empty if something does."""
    where = f"{block.page.name}: {block.text.splitlines()[0]}"
    if block.language == "text":
        known = places_of(block, COMPARED) + places_of(block, NOT_COMPARED)
        return "" if len(known) == 1 else f"{where} is output, and not compared"
    if OTHER_TOOLS.get(block.language) == block.page.name:
        return ""
    if block.language not in READERS:
        return f"{where} has the language {block.language!r}"
    return "" if block.page in READERS[block.language] else f"{where} is on a page that is not read"


def test_every_block_of_every_page_is_run_or_read_or_compared() -> None:
    found = [block for page in PAGES for block in blocks_of(page)]
    assert len(found) > 280
    assert [fault for block in found if (fault := fault_of(block))] == []
    fences = sum(len(re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.M)) for page in PAGES)
    assert fences == 2 * len(found)


def test_every_page_with_blocks_is_read_here_or_generated() -> None:
    others = [page for page in EVERY_PAGE if page not in PAGES and FENCE.search(page.read_text("utf-8"))]
    reference = ROOT / "docs" / "reference"
    assert {page.relative_to(reference).parts[0].removesuffix(".md") for page in others} == {*GENERATED}


def indented_blocks(text: str) -> list[str]:
    """Return the first lines of blocks that are indented, which have no language."""
    return re.findall(r"(?:\A|\n)[ \t]*\n((?: {4}|\t).*)", FENCE.sub("", text))


def test_no_page_has_an_indented_block() -> None:
    found = {page: indented_blocks(page.read_text(encoding="utf-8")) for page in EVERY_PAGE}
    assert {page: blocks for page, blocks in found.items() if blocks} == {}


def test_an_indented_block_is_noticed_and_a_block_in_a_list_is_none() -> None:
    assert indented_blocks("All suites:\n\n    make bench\n    make chaos\n") == ["    make bench"]
    assert indented_blocks("- All suites:\n\n  ```sh\n\n    make bench\n  ```\n") == []


def test_every_block_that_is_named_above_is_on_its_page() -> None:
    shown = [block for page in PAGES for block in blocks_of(page) if block.language == "text"]
    named = {**COMPARED, **NOT_COMPARED}
    assert len(named) == len(COMPARED) + len(NOT_COMPARED)
    assert {place for block in shown for place in places_of(block, named)} == named.keys()


@pytest.mark.parametrize(
    ("language", "text"),
    [("", "interlock job list\n"), ("text", "a table of mine\n"), ("ini", "[worker]\n")],
)
def test_a_block_that_nothing_looks_after_is_noticed(language: str, text: str) -> None:
    assert fault_of(Block(ROOT / "README.md", language, text))


def test_a_block_on_a_page_that_is_not_read_is_noticed() -> None:
    assert fault_of(Block(ROOT / "docs" / "glossary.md", "python", "1 / 0\n"))


def test_files_for_other_tools_parse(tmp_path: Path) -> None:
    (workflow,) = blocks_in("yml")
    read = yaml.load(workflow.text, yaml.BaseLoader)
    schema = schema_in("github-workflows")
    jsonschema_rs.validate(schema, read)
    assert not jsonschema_rs.is_valid(schema, {**read, "job": {}})
    (script,) = blocks_in("js")
    file = tmp_path / "script.mjs"
    node = find_node()
    assert node is not None, "the dashboard is built with it"
    for text, faults in ((script.text, 0), (script.text + "}", 1)):
        file.write_text(text, encoding="utf-8")
        check = [str(Path(node.folder) / "node"), "--check", str(file)]
        assert subprocess.run(check, capture_output=True, timeout=PROGRAM_S, check=False).returncode == faults


def blocks_in(language: str) -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page) if block.language == language]


@pytest.mark.parametrize("path", transcripts.of_pages(), ids=lambda path: path.stem)
def test_output_on_a_page_is_what_its_transcript_prints_now(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert sessions.replay(path) == text
    page = ROOT / "docs" / "guides" / f"{path.stem}.md"
    shown = ["\n".join(session.shown) + "\n" for session in transcripts.read(text)]
    assert [block.text for block in compared("a transcript") if block.page == page] == shown


def test_the_history_in_the_readme_is_part_of_the_recorded_demo() -> None:
    (block,) = compared("the demo")
    (demo,) = (session for session in transcripts.sessions() if session.words == "demo")
    recorded = [sessions.loosened([line]).split() for line in demo.shown]
    for each in block.text.splitlines():
        words = sessions.loosened([each]).split()
        named = {"anna", "ben"} & {*words}  # which worker it was may be another
        assert "..." in words or any(
            [word for word in words if word not in named]
            == [word for word in line if word not in {"anna", "ben"}]
            for line in recorded
        ), each


STATES = {mark: state for state, mark in MARKS.items()}
JOB = re.compile(rf"([{''.join(STATES)}]) (\S+(?: \([^)]*\))*)((?: [\d.]+ s)?)")


def drawn(text: str, planned: list[dict[str, Any]]) -> str:
    """Draw the jobs of a plan, each in the state and with the duration that a text has."""
    shown = {name.removesuffix(" (optional)"): (mark, took.strip()) for mark, name, took in JOB.findall(text)}
    nodes = [
        Node(
            name=job["name"],
            state=STATES[shown[job["name"]][0]],
            needs=(*job.get("needs", ()), *job.get("after", ())),
            required=job.get("required", True),
        )
        for job in planned
    ]
    lines = draw_text(RunGraph(nodes=tuple(nodes)), 100, lambda node: shown[node.name][1])
    return "\n".join("".join(piece.text for piece in line).rstrip() for line in lines)


def interlock(folder: Path, *words: str) -> str:
    """Return what a command prints in a folder."""
    done = programs.run(
        *words, folder=folder, environment={**os.environ, "INTERLOCK_URL": "", "NO_COLOR": "1"}
    )
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@pytest.mark.long  # systems/runs/drawing draws such graphs
def test_the_graphs_on_the_pages_are_drawn_like_that(tmp_path: Path) -> None:
    for block in compared("a graph"):
        folder = tmp_path / block.page.stem
        (folder / ".interlock").mkdir(parents=True)
        own = ROOT / ".interlock" / "ci.yml"
        texts = [each.text for each in blocks_of(block.page) if each.text.startswith("# .interlock/ci.yml\n")]
        (folder / ".interlock" / "ci.yml").write_text(texts[0] if texts else own.read_text(encoding="utf-8"))
        planned = json.loads(interlock(folder, "run", "submit", "--dry-run", "--json"))["jobs"]
        head, graph = block.text[: block.text.startswith("ci ") and block.text.index("\n") + 1], block.text
        assert drawn(graph, planned).strip("\n") == graph.removeprefix(head).strip("\n")


def test_the_fault_of_a_workflow_is_reported_where_the_page_says() -> None:
    (block,) = compared("a fault of a workflow")
    (workflow,) = (
        each.text for each in blocks_of(block.page) if each.text.startswith("# .interlock/ci.yml\n")
    )
    lines = workflow.splitlines()
    file, line, _, says = block.text.rstrip("\n").split(":", 3)
    lines[int(line) - 1] = lines[int(line) - 1].replace("steps:", "stepz:")
    with pytest.raises(InterlockError) as refused:
        read_workflow("\n".join(lines), file)
    assert block.text.strip() in str(refused.value), says


def test_a_table_without_the_row_has_the_fault_that_the_page_says() -> None:
    for block in compared("a fault of a table"):
        source = python_of(block.page)[0]
        without = re.sub(r"^ +ignore\(silence.*\n", "", source, flags=re.M)
        assert without != source
        with pytest.raises(MalformedTable) as refused:
            exec(compile(without, str(block.page), "exec", dont_inherit=True), {"__name__": "a_page"})
        assert block.text.strip() in str(refused.value)


def test_the_schedules_of_the_page_are_listed_like_that(tmp_path: Path) -> None:
    (block,) = compared("the schedules of the page")
    (tmp_path / "shop.py").write_text(python_of(block.page)[0], encoding="utf-8")
    interlock(tmp_path, "schedule", "apply", "shop.py")
    listed = [line.split("\t") for line in interlock(tmp_path, "schedule", "list").splitlines()]
    shown = [re.split(r" {2,}", line) for line in block.text.splitlines()[2:]]
    assert [(*line[:3], line[4]) for line in shown] == [(*line[:3], line[4]) for line in listed]


@pytest.mark.long  # cli/test_submit.py waits for a job as well
def test_a_job_that_is_waited_for_prints_what_the_page_says(tmp_path: Path) -> None:
    (block,) = compared("a job that is waited for")
    (tmp_path / "shop.py").write_text(python_of(block.page)[0], encoding="utf-8")
    prompt, *shown = block.text.splitlines()
    script = (
        f"interlock worker start shop.py 2>worker.log & {prompt.removeprefix('$ ')} 2>&1; kill $!; wait $!"
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "INTERLOCK_URL": "", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + (tmp_path / "worker.log").read_text()
    quiet = [line for line in done.stdout.splitlines() if not re.search(r"RUNNING|^Waiting", line)]
    found = [re.sub(r"j_[0-9a-f]{12}", "ID", line) for line in quiet]
    promised = [re.sub(r"j_[0-9a-f]{12}", "ID", line) for line in shown]
    assert found in (promised, [line for line in promised if "PENDING" not in line])


@pytest.mark.long  # starts mypy; tests/typing has the same calls
def test_the_type_checker_reports_each_mistake_on_the_page(tmp_path: Path) -> None:
    page = ROOT / "docs" / "tutorials" / "first-job.md"
    (mistakes,) = (block.text for block in blocks_of(page) if "# error:" in block.text)
    before = "\n".join([python_of(page)[0], python_of(page)[1].rstrip(), ""])
    lines = "".join(f"    {line}\n" for line in mistakes.splitlines())
    (tmp_path / "page.py").write_text(f"{before}\n{lines}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", tmp_path / "cache", "page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    first = before.count("\n") + 2
    wrong = {int(number) for number in re.findall(r"^page\.py:(\d+): error:", done.stdout, re.M)}
    assert wrong == {*range(first, first + mistakes.count("\n"))}, done.stdout


def test_chaos_accepts_the_commands_of_the_page_on_reliability() -> None:
    lines = test_pages_tell_the_truth.commands(RELIABILITY)
    programs_of = [shlex.split(line, comments=True) for line in lines]
    started = [
        words[3:] for words in programs_of if words[:3] == ["python", "-m", "interlock_verification.chaos"]
    ]
    assert len(started) > 3
    assert all(chaos._arguments(words) for words in started)
    others = {tuple(words[:2]) for words in programs_of if words[0] != "python"}
    assert others == {("interlock", "verify"), ("make", "chaos")}


@pytest.mark.long
@pytest.mark.parametrize("command", QUICK)
def test_a_quick_command_of_the_page_on_reliability_succeeds(command: str, tmp_path: Path) -> None:
    lines = test_pages_tell_the_truth.commands(RELIABILITY)
    words = shlex.split(command)
    assert ["interlock", *words] in [shlex.split(line, comments=True) for line in lines]
    assert interlock(tmp_path, *words)


MODULES: dict[str, Callable[[Sequence[str]], object]] = {
    "bench": lambda words: bench_parsed(*words),
    "bench.workers.drain": lambda words: drain._parser().parse_args(words),
    "interlock_verification.chaos": chaos._arguments,
}
"""Programs of contributors, and how they read their arguments."""


def bench_parsed(*words: str) -> object:
    with mock.patch.object(sys, "argv", ["bench", *words]):
        return bench._arguments()


def fault_of_program(line: str) -> str:
    """Return why a line of a page for contributors cannot be run; empty if it can."""
    try:
        match shlex.split(line, comments=True):
            case ["make", target]:
                makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
                return "" if re.search(rf"^{target}:", makefile, re.M) else f"{line}: no such target"
            case ["python" | ".venv/bin/python", "-m", module, *arguments]:
                MODULES[module](arguments)
                return ""
            case ["interlock", *_]:
                return ""  # test_commands_on_pages reads these
    except (SystemExit, KeyError) as error:
        return f"{line}: {error!r}"
    return f"{line}: no test reads it"


def test_every_program_on_the_pages_for_contributors_accepts_its_arguments() -> None:
    pages = [block for page in FOR_CONTRIBUTORS for block in blocks_of(page) if block.language == "sh"]
    release = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## How to release\n")[2]
    lines = [line for block in pages if block.text not in release for line in block.text.splitlines()]
    assert len(lines) > 15, "those of a release are followed by tests/release/test_release.py"
    assert [fault for line in lines if (fault := fault_of_program(line))] == []


@pytest.mark.parametrize(
    "line",
    [
        "make benches",
        ".venv/bin/python -m bench --only kernels",
        ".venv/bin/python -m bench --twice",
        "python -m bench.worker.drain",
        "python -m interlock_verification.chaos --only worlds",
        "pytest -q",
    ],
)
def test_a_program_with_other_arguments_is_noticed(line: str) -> None:
    assert fault_of_program(line)


def test_the_layers_are_drawn_in_the_order_of_the_contract_of_imports() -> None:
    (block,) = compared("the layers")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = project["tool"]["importlinter"]["contracts"][0]["layers"]
    place = {name: number for number, layer in enumerate(contract) for name in re.findall(r"\w+", layer)}
    lines = [re.findall(r"[a-z]+", line[:40]) for line in block.text.splitlines()]
    layers = [names for names in lines if names]
    assert {name for names in layers for name in names} <= place.keys()
    for upper, lower in pairwise(layers):
        assert max(place[name] for name in upper) <= min(place[name] for name in lower), (upper, lower)


def test_the_formula_of_connections_gives_the_numbers_of_the_guides() -> None:
    (block,) = compared("connections")
    formula = (
        block.text.partition("≥")[2]
        .removesuffix("+ what others use\n")
        .replace("\N{MULTIPLICATION SIGN}", "*")
        .strip()
    )
    worker, server = (eval(formula, {"pool": 4, "workers": n, "servers": 1 - n}) for n in (1, 0))
    production = (ROOT / "docs" / "guides" / "running-in-production.md").read_text(encoding="utf-8")
    assert f"worker opens up to {worker} connections and a server up to {server}:" in production
    fleets = re.findall(r"(\d+) workers, (\d+) servers? \| (\d+) \|", production)
    assert len(fleets) == 3
    for workers, servers, total in fleets:
        assert int(workers) * worker + int(servers) * server == int(total)
    at_most = f"62 connections at rest and {20 * worker + server} at most"
    assert f"20 workers and a server with the default settings use {at_most}" in block.page.read_text("utf-8")
