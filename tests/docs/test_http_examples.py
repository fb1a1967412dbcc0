"""The requests of docs/reference/http-api are answered as they were recorded; every operation has one."""

from __future__ import annotations

import pytest
from docs import http_examples
from tests.effort import further
from tools import http_examples as recorder

RECORD = "Record it: make sessions. It needs an example, or names in tests/server/fuzzing."
EVERY = 8
EXAMPLES = http_examples.read()
SPECIAL = list(recorder.SPECIAL)
"""All of these are sent in a quick run, and some of the others."""
QUICK = [*SPECIAL, *[name for name in EXAMPLES if name not in SPECIAL][::EVERY]]


def test_every_operation_has_a_request_and_its_answer() -> None:
    assert [name for name in recorder.LABELS if name not in EXAMPLES] == [], RECORD
    assert [name for name in EXAMPLES if name not in recorder.LABELS] == []


def test_every_recorded_answer_is_a_good_one() -> None:
    assert [name for name, example in EXAMPLES.items() if not 200 <= example.status < 300] == []


@pytest.mark.parametrize("name", [*QUICK, *further(*(name for name in EXAMPLES if name not in QUICK))])
def test_a_request_is_answered_today_as_it_was_recorded(name: str) -> None:
    now = recorder.sent(name, EXAMPLES[name].place)
    assert recorder.loosened(now) == recorder.loosened(EXAMPLES[name]), (
        "If the answer is meant to be another one: make sessions"
    )


def test_an_answer_that_has_changed_would_be_noticed() -> None:
    known = EXAMPLES["healthz"]
    assert recorder.loosened(recorder.sent("healthz", known.place)) == recorder.loosened(known)
    other = http_examples.Example(
        operation="healthz", place=known.place, method="GET", path=known.path, status=200,
        media=known.media, answer={"status": "unwell"},
    )  # fmt: skip
    assert recorder.loosened(other) != recorder.loosened(known)


def test_long_answers_are_cut_and_say_so() -> None:
    answer = {"jobs": [{"id": str(number), "log": "x" * 500} for number in range(100)]}
    short = recorder.shortened(answer)
    assert http_examples.as_text(short).count("\n") < recorder.LONGEST
    assert short["jobs"][-1] == "… 97 more"
    assert short["jobs"][0]["log"].endswith("…")


def test_a_request_is_shown_as_a_command_of_curl() -> None:
    example = http_examples.Example(
        operation="submitJobs", place="waiting", method="POST", path="/api/jobs", status=201,
        media="application/json", headers={"X-A": "it's"}, body={"task": "a"}, answer={"id": "j_1"},
    )  # fmt: skip
    assert list(http_examples.shown(example)) == [
        "```sh",
        """curl http://localhost:8088/api/jobs -H 'X-A: it'"'"'s' --json '{"task": "a"}'""",
        "```",
        "",
        "`201` `application/json`",
        "",
        "```json",
        "{",
        '  "id": "j_1"',
        "}",
        "```",
    ]


def test_requests_name_tasks_of_a_user_and_not_one_of_interlock_with_a_foreign_input() -> None:
    tasks = {
        name: example.body["task"]
        for name, example in EXAMPLES.items()
        if isinstance(example.body, dict) and "task" in example.body
    }
    assert {"submitJobs", "startSimulation"} <= tasks.keys()
    assert {name for name, task in tasks.items() if task.startswith("interlock.")} == set()
