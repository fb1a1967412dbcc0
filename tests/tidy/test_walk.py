"""The measure of a job's way through the code counts what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.waiting import PROGRAM_S

WALK = Path(__file__).parents[2] / "tools" / "walk.py"
MOST_FILES, MOST_FUNCTIONS = 55, 330
"""What every job may meet from submit to done. There is some slack: on a slow machine a job takes so long
that the epoch is read for each of them, and with Python 3.13 some 20 functions more are seen. Lower it when
the way becomes shorter."""


def test_the_way_of_one_job_is_counted_from_the_client_to_the_table_and_back() -> None:
    result = subprocess.run(
        [sys.executable, str(WALK), "--json"], capture_output=True, text=True, timeout=PROGRAM_S, check=True
    )
    walk = json.loads(result.stdout)
    visits = walk["visits"]
    assert next(iter(visits)) == "client.py"
    assert {"lifecycles/attempt.py", "machine/machine.py", "store/sqlite/transaction.py"} <= {*visits}
    assert walk["files"] == len(visits)
    assert walk["functions"] == sum(visits.values()) <= walk["calls"]
    assert walk["returns"] == walk["moves"] - walk["files"]
    assert 0 < walk["steady_files"] <= walk["files"]
    assert 0 < walk["steady_functions"] <= walk["functions"]
    met = {"files": walk["steady_files"], "functions": walk["steady_functions"]}
    assert met["files"] <= MOST_FILES, met
    assert met["functions"] <= MOST_FUNCTIONS, met
