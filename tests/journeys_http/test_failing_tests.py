"""A test that fails shows the last lines of the processes concerned, and no more than fit on a page."""

from __future__ import annotations

import pytest
from tests.brief_reports import MAX_LINES
from tests.journeys.crew import SHOWN_LENGTH, SHOWN_LINES

pytest_plugins = ["pytester"]

CONFTEST = """
from tests.brief_reports import pytest_runtest_makereport
from tests.journeys_http.conftest import place, served
"""
ASYNCIO = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
FAILING = """
from tests.journeys import errands

async def test_it(served):
    await served.ready("anna")
    await served.il.submit_many([errands.jot.spec(number) for number in range(40)])
    await served.all_completed(40)
    assert len(served.notes) == 41
"""


def test_a_failing_test_shows_the_last_lines_of_its_worker_and_of_its_server(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(FAILING)

    result = pytester.runpytest("-p", "no:schemathesis", *ASYNCIO)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*assert 40 == 41*",
            "notes: *jot *",
            "--- anna (pid *, exit code None)",
            "--- the server",
            "*request method=POST path=/api/*",
        ]
    )
    lines = result.outlines
    worker, server = (lines.index(line) for line in lines if line.startswith("--- "))
    assert 0 < server - worker - 1 <= SHOWN_LINES
    assert "task_state_transition" in lines[server - 1], "its last lines are there, and not its first"
    assert all(len(line) <= SHOWN_LENGTH for line in lines[worker:server])
    assert len(lines) < 3 * MAX_LINES
