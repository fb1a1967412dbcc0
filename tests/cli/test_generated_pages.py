"""docs/generate.py: what it makes, and that `--check` notices whatever is not as it would be made."""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.lifecycles import COUPLINGS, MACHINES
from interlock.machine.check import MEANINGS

SCRIPT = Path(__file__).parents[2] / "docs" / "generate.py"
Generate = Callable[..., int]


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("docs_generate", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(script: Any) -> dict[str, str]:
    pages: dict[str, str] = script.pages()
    return pages


@pytest.fixture(scope="module")
def up_to_date(script: Any, made: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(script, "pages", lambda: made)
        assert script.main(["--into", str(folder)]) == 0
    return folder


@pytest.fixture
def generate(
    script: Any, made: dict[str, str], up_to_date: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generate:
    """Run the script on a folder of its own, which is up to date to begin with.

    The pages come out the same each time, which has a test of its own; so they are made once for all tests.
    """
    shutil.copytree(up_to_date, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(script, "pages", lambda: made)

    def run(*arguments: str) -> int:
        code: int = script.main(["--into", str(tmp_path), *arguments])
        return code

    return run


def test_pages_that_were_just_made_are_up_to_date(
    generate: Generate, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert generate("--check") == 0
    assert generate() == 0
    assert capsys.readouterr().out == "docs: nothing to change\n"


def test_check_notices_a_changed_page_and_does_not_mend_it(
    generate: Generate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "docs" / "lifecycles" / "job.md"
    page.write_text("Something else.", encoding="utf-8")
    assert generate("--check") == 1
    assert "docs: stale docs/lifecycles/job.md\n→ Run: make docs\n" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == "Something else."


def test_check_notices_a_missing_picture(
    generate: Generate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs" / "lifecycles" / "lease.svg").unlink()
    assert generate("--check") == 1
    assert "docs: missing docs/lifecycles/lease.svg\n" in capsys.readouterr().err


def test_check_notices_the_page_of_a_machine_that_is_no_more(
    generate: Generate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs" / "lifecycles" / "ghost.md").write_text("Boo.", encoding="utf-8")
    assert generate("--check") == 1
    assert "docs: surplus docs/lifecycles/ghost.md\n" in capsys.readouterr().err


def test_making_them_again_mends_all_of_it(
    generate: Generate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "docs" / "lifecycles"
    (folder / "job.md").write_text("Something else.", encoding="utf-8")
    (folder / "lease.svg").unlink()
    (folder / "ghost.md").write_text("Boo.", encoding="utf-8")
    capsys.readouterr()
    assert generate() == 0
    assert capsys.readouterr().out.splitlines() == [
        "docs: wrote docs/lifecycles/job.md",
        "docs: wrote docs/lifecycles/lease.svg",
        "docs: removed docs/lifecycles/ghost.md",
    ]
    assert generate("--check") == 0


def test_check_notices_that_the_dashboard_was_made_for_another_api(
    generate: Generate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    described = tmp_path / "web" / "openapi.json"
    described.write_text(described.read_text(encoding="utf-8").replace('"job_id"', '"id_of_job"'))
    assert generate("--check") == 1
    assert "docs: stale web/openapi.json\n→ Run: make docs\n" in capsys.readouterr().err


def test_a_page_written_by_hand_may_stand_in_the_reference(generate: Generate, tmp_path: Path) -> None:
    (tmp_path / "docs" / "reference" / "settings.md").write_text("By hand.", encoding="utf-8")
    assert generate("--check") == 0


def test_each_machine_has_a_page_and_a_picture_and_a_line_in_the_index(made: dict[str, str]) -> None:
    for name in MACHINES:
        assert f"![The states and transitions of {name}]({name}.svg)" in made[f"docs/lifecycles/{name}.md"]
        assert made[f"docs/lifecycles/{name}.svg"].startswith("<svg")
        assert f"| [{name}]({name}.md) |" in made["docs/lifecycles/README.md"]


@pytest.mark.long  # make check compares them with what is committed
def test_the_pages_come_out_the_same_each_time(script: Any, made: dict[str, str]) -> None:
    assert script.pages() == made


def test_every_coupling_stands_once_in_the_index_and_on_the_page_of_its_cause(made: dict[str, str]) -> None:
    for coupling in COUPLINGS:
        escaped = coupling.sentence.replace("|", "\\|").replace("<", "&lt;")
        assert made["docs/lifecycles/README.md"].count(f"| {escaped} |") == 1
        assert f"- {escaped}. " in made[f"docs/lifecycles/{coupling.cause.name}.md"]


def test_the_causes_stand_in_the_order_of_the_machines(made: dict[str, str]) -> None:
    causes = re.findall(r"^### (\w+)$", made["docs/lifecycles/README.md"], re.MULTILINE)
    assert causes == [name for name in MACHINES if name in causes]
    assert causes


def test_every_check_and_every_error_has_a_line_in_the_reference(made: dict[str, str]) -> None:
    assert all(f"| `{check}` |" in made["docs/reference/machine-checks.md"] for check in MEANINGS)
    assert "| `UnknownMachine` | `unknown_machine` | 404 |" in made["docs/reference/errors.md"]
    assert "| `GuardRefused` | `guard_refused` | 409 |" in made["docs/reference/errors.md"]


def test_every_line_of_a_table_has_as_many_cells_as_its_head(made: dict[str, str]) -> None:
    for name, text in made.items():
        widths: list[int] = []
        for line in text.splitlines() if name.endswith(".md") else ():
            widths = [*widths, len(re.findall(r"(?<!\\)\|", line))] if line.startswith("|") else []
            assert len(set(widths)) <= 1, f"{name}: {line}"
