"""Optional parts without their libraries name the command that installs them; nothing else breaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tests.effort import further
from tests.waiting import PROGRAM_S

PROJECT: dict[str, Any] = tomllib.loads(
    (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
)["project"]
WITHOUT = "import sys\nfor name in {missing!r}:\n    sys.modules[name] = None\n"
CALL = WITHOUT + "from interlock.cli.main import main\nsys.exit(main({words!r}))"

LIBRARIES = {
    "fleet": ("grpc", "google.protobuf", "hdrh"),
    "postgres": ("asyncpg",),
    "redis": ("redis",),
    "s3": ("obstore",),
}
WORKLOAD = "kind: sleep\nwith: {operation_s: 0.001}\nduration: 1s\nagents: ['127.0.0.1:1']\n"
SETTINGS = '[blobs]\nurl = "s3://a-bucket"\n'


def call(folder: Path, missing: tuple[str, ...], *words: str) -> subprocess.CompletedProcess[str]:
    """Call the program where some libraries are not installed."""
    return subprocess.run(
        [sys.executable, "-c", CALL.format(missing=missing, words=list(words))],
        cwd=folder,
        env={**os.environ, "INTERLOCK_URL": "sqlite:///here.db"},
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("postgres", ["job", "list", "--store", "postgresql://localhost/none"]),
        ("redis", ["job", "list", "--store", "redis://localhost:1/0"]),
        ("fleet", ["agent"]),
        *further(
            ("fleet", ["workload", "run", "load.yml"]), ("s3", ["worker", "start", "--shell", "--burst"])
        ),
    ],
)
def test_a_part_without_its_libraries_names_the_command_that_installs_them(
    extra: str, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "load.yml").write_text(WORKLOAD, encoding="utf-8")
    if extra == "s3":
        (tmp_path / "interlock.toml").write_text(SETTINGS, encoding="utf-8")
    done = call(tmp_path, LIBRARIES[extra], *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"interlock[{extra}]" in done.stderr
    assert "Traceback" not in done.stderr


SUITE = """
from interlock.errors import InterlockError
from interlock.testing.store_contract import Traits, suite_for
try:
    suite_for(Traits())
except InterlockError as error:
    print(error.sentence, error.todo)
"""


@pytest.mark.parametrize("library", ["hypothesis", "pytest"])
def test_the_contract_of_a_store_without_its_libraries_names_the_command(
    library: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(missing=(library,)) + SUITE],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"{library} is missing" in done.stdout
    assert "pip install 'interlock[testing]'" in done.stdout


@pytest.mark.parametrize("missing", [("opentelemetry.sdk",), *further((("opentelemetry",),))])
def test_a_worker_that_cannot_send_its_spans_logs_the_command_that_installs_the_libraries(
    missing: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(
        "from interlock import task\n\n\n@task(name='one')\ndef one() -> int:\n    return 1\n"
    )
    start = ("worker", "start", "shop.py", "--burst", "--log-format", "json")
    assert "spans_not_sent" not in call(tmp_path, missing, *start).stderr
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    done = call(tmp_path, missing, *start)
    assert done.returncode == 0, done.stderr
    (line,) = (json.loads(line) for line in done.stderr.splitlines() if "spans_not_sent" in line)
    assert line["level"] == "warning"
    assert line["todo"] == "Install them: pip install 'interlock[otel]'"


def test_jobs_on_sqlite_need_no_extra(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from interlock import task\n\n\n@task(name='one')\ndef one() -> int:\n    return 1\n"
    )
    missing = (*chain.from_iterable(LIBRARIES.values()), "IPython", "opentelemetry")
    assert call(tmp_path, missing, "submit", "shop.py:one").returncode == 0
    assert call(tmp_path, missing, "worker", "start", "shop.py", "--burst").returncode == 0
    assert "one" in call(tmp_path, missing, "job", "list", "state:completed").stdout


def test_every_extra_is_known_here_or_has_a_test_of_its_own() -> None:
    here = "release/test_extras.py"
    own = {
        "notebook": (
            "integrations/test_notebook.py",
            "without_ipython_the_command_that_installs_it_is_named",
        ),
        "otel": (here, "a_worker_that_cannot_send_its_spans_logs_the_command_that_installs_the_libraries"),
        "psycopg": (
            "systems/orchestrator/test_transactions.py",
            "a_connection_without_a_transaction_is_refused",
        ),
        "testing": (here, "the_contract_of_a_store_without_its_libraries_names_the_command"),
    }
    assert set(PROJECT["optional-dependencies"]) == {*LIBRARIES, *own}
    for file, name in own.values():
        text = (Path(__file__).parents[1] / file).read_text(encoding="utf-8")
        assert f"def test_{name}(" in text
