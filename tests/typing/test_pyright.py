"""Pyright, which many editors have, agrees with mypy, and need not guess the type of any name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PROGRAM_S

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
EXPECTATIONS = ("handlers.py", "submissions.py")


def pyright(*words: str) -> dict[str, Any]:
    """Run it in our own environment; return its report."""
    environment = {
        **os.environ,
        "VIRTUAL_ENV": sys.prefix,
        "PATH": f"{sys.prefix}/bin{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def checked(folder: Path, *texts: str) -> list[tuple[str, int, str]]:
    """Return what it finds in files with these texts: file, line and rule."""
    settings = {
        "include": [str(folder)],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "standard",
        "enableTypeIgnoreComments": True,
        "reportUnnecessaryTypeIgnoreComment": "error",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    for number, text in enumerate(texts):
        (folder / f"file{number}.py").write_text(text, encoding="utf-8")
    found = pyright("--project", str(folder))
    assert found["summary"]["filesAnalyzed"] >= len(texts)
    return [
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1, one.get("rule", ""))
        for one in found["generalDiagnostics"]
    ]


@pytest.mark.long
def test_pyright_infers_every_expected_type_and_finds_every_expected_error(tmp_path: Path) -> None:
    assert checked(tmp_path, *((HERE / name).read_text(encoding="utf-8") for name in EXPECTATIONS)) == []


@pytest.mark.long
def test_an_expectation_that_is_not_met_is_found(tmp_path: Path) -> None:
    wrong = (
        "from interlock import Interlock, task\n"
        "@task\n"
        "async def double(x: int) -> int: ...\n"
        "async def use(il: Interlock) -> None:\n"
        "    await il.submit(double, 'two')\n"
        "    text: str = await (await il.submit(double, 2)).result()\n"
        "good: int = 1  # type: ignore[assignment]\n"
    )
    assert sorted({line for _, line, _ in checked(tmp_path, wrong)}) == [5, 6, 7]


@pytest.mark.long
def test_pyright_knows_the_type_of_every_name_and_has_to_infer_none() -> None:
    report = pyright("--verifytypes", "interlock", "--ignoreexternal")["typeCompleteness"]
    assert report["exportedSymbolCounts"]["withKnownType"] > 19_000
    unsure = {
        symbol["name"]
        for symbol in report["symbols"]
        if symbol["isExported"] and (not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"])
    }
    assert unsure == set()
    assert report["completenessScore"] == 1.0
