"""What an import of Interlock loads: what every process pays for, it should need."""

from __future__ import annotations

import subprocess
import sys

from tests.waiting import PROGRAM_S

HEAVY = {
    "httpx2",
    "structlog",
    "rich",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "grpc",
    "asyncpg",
    "redis",
}


def test_a_client_and_its_tasks_load_neither_http_nor_logging_nor_drivers_of_other_stores() -> None:
    script = f"import sys; from interlock import Interlock, task; print(*(sys.modules.keys() & {HEAVY!r}))"
    answer = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=True,
    )
    assert answer.stdout.split() == []
