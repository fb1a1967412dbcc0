"""The page of the benches' figures is made of the kept files, and the page beside it has the method only."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from bench import figure_page
from bench.figure_page import FOLDER, PAGE, Kept, keep, kept_in, page_of, summary_of, write
from bench.report import Line, Report, Section
from bench.rounds import Figure

ROOT = Path(__file__).parents[2]
WORDS = 1_500


def run_of(*lines: Line, missed: tuple[str, ...] = (), notes: tuple[str, ...] = ()) -> Report:
    section = Section("Queues: a drain", "ours", lines, notes, missed)
    at = datetime(2026, 11, 18, 21, 5, 7, 123, tzinfo=UTC)
    return Report(at, "3.11.7", "Linux", 2, 0.123456, {"msgspec": "0.22.0"}, (section,), "python -m bench")


def line(measure: str = "one worker", **figures: tuple[float, ...]) -> Line:
    return Line(measure, "µs a job", {name: Figure(rounds) for name, rounds in figures.items()})


def test_the_page_is_what_the_kept_figures_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_of(kept_in())


def test_every_kept_figure_comes_from_a_run_of_the_bench() -> None:
    for path in FOLDER.glob("*.json"):
        kept = msgspec.json.decode(path.read_bytes(), type=Kept)
        assert kept.command.startswith("python -m bench"), path.name
        assert kept.sections, path.name


def test_the_page_about_the_method_is_short_and_has_no_figures_by_date() -> None:
    text = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= WORDS
    assert re.findall(r"20\d\d-\d\d-\d\d", text) == []


def test_a_figure_is_the_median_and_its_ratio_the_median_of_the_rounds() -> None:
    run = summary_of(run_of(line(ours=(10.0, 20.0, 40.0), theirs=(30.0, 30.0, 80.0))))
    ours, theirs = run.sections[0].lines[0].figures.values()
    assert (ours.median, ours.least, ours.most, ours.rounds, ours.times) == (20.0, 10.0, 40.0, 3, None)
    assert (theirs.median, theirs.times) == (30.0, 2.0)


def test_figures_are_kept_with_four_digits_and_without_their_rounds(tmp_path: Path) -> None:
    path = keep(run_of(line(ours=(1.0 / 3, 12_345.678))), "jobs", tmp_path)
    assert path == tmp_path / "jobs.json"
    [figure] = kept_in(tmp_path)["jobs"].sections[0].lines[0].figures.values()
    assert (figure.least, figure.most, figure.rounds) == (0.3333, 12_350.0, 2)
    assert "12345.678" not in path.read_text()


def test_a_figure_that_no_round_can_compare_has_no_ratio() -> None:
    run = summary_of(run_of(line(ours=(0.0,), theirs=(3.0,))))
    assert run.sections[0].lines[0].figures["theirs"].times is None
    assert "nan" not in page_of({"jobs": run})


def test_lines_with_the_same_contenders_share_a_table(tmp_path: Path) -> None:
    first, other = line(ours=(10.0, 12.0), fast=(5.0, 6.0)), line(ours=(10.0,), slow=(90.0,))
    part = line("  on the processors", ours=(8.0, 8.0), fast=(4.0, 4.0))
    keep(run_of(first, other, part, missed=("too slow",), notes=("quiet",)), "jobs", tmp_path)
    page = page_of(kept_in(tmp_path))
    assert "| [jobs](#jobs) | 2026-11-18 21:05 | `python -m bench` | 1 |" in page
    assert page.count("|  | ours | fast | times |") == page.count("|  | ours | slow | times |") == 1
    assert "| one worker, µs a job | 11.0 (10.0 to 12.0) | 5.50 (5.00 to 6.00) | 0.500 |" in page
    assert "| · on the processors, µs a job | 8.00 (8.00 to 8.00) | 4.00 (4.00 to 4.00) | 0.500 |" in page
    assert "| one worker, µs a job | 10.0 | 90.0 | 9.00 |" in page
    assert "- quiet\n- **Missed**: too slow" in page


def test_parts_that_were_not_measured_again_keep_their_figures(tmp_path: Path) -> None:
    page, folder = tmp_path / "FIGURES.md", tmp_path / "figures"
    for name in ("stores", "jobs"):
        keep(run_of(line(ours=(1.0,))), name, folder)
        write(page, folder)
    assert re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.M) == ["jobs", "stores"]


def test_a_page_that_is_not_what_the_files_say_fails_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figure_page, "PAGE", tmp_path / "FIGURES.md")
    monkeypatch.setattr("sys.argv", ["bench.figure_page", "--check"])
    assert figure_page.main() == 1
    (tmp_path / "FIGURES.md").write_text(PAGE.read_text(encoding="utf-8") + "| typed by hand | 1 |\n")
    assert figure_page.main() == 1
    assert "python -m bench.figure_page" in capsys.readouterr().out
