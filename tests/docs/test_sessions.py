"""The sessions of docs/reference/command-line go today as they were recorded, and every command has one."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs import references, transcripts
from docs.transcripts import Session, Step
from tools import sessions

LONGEST = 28
RECORD = "Write it in docs/sessions, as docs/transcripts.py says, and record it: make sessions"


def is_long(path: Path) -> bool:
    """Return whether it starts processes, which takes seconds."""
    return path.read_text(encoding="utf-8").startswith(sessions.REAL_TIME)


def test_every_command_has_a_session() -> None:
    shown = {session.words for session in transcripts.sessions() if session.shown}
    assert [words for words in references.verbs() if words not in shown] == [], RECORD


def test_every_session_is_of_a_command_and_there_is_one_of_each() -> None:
    words = [session.words for session in transcripts.sessions()]
    assert sorted(set(words) - set(references.verbs())) == []
    assert len(words) == len(set(words))


def test_no_command_of_a_session_prints_more_than_a_screen() -> None:
    steps = [(s.words, step) for s in transcripts.sessions() for step in s.steps if step.sign == "$"]
    assert [(words, step.line) for words, step in steps if len(step.output) > LONGEST] == []


def test_sessions_of_commands_that_print_nothing_were_meant_so() -> None:
    silent = [
        step.line for s in transcripts.sessions() for step in s.steps if step.sign == "$" and not step.output
    ]
    assert [line for line in silent if " > " not in line] == []


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.long if is_long(path) else ())
        for path in transcripts.transcripts()
    ],
    ids=lambda path: path.stem,
)
def test_a_session_goes_today_as_it_was_recorded(path: Path) -> None:
    assert sessions.replay(path) == path.read_text(encoding="utf-8"), (
        "If the output is meant to be another one: make sessions"
    )


def test_output_that_has_changed_is_noticed_and_recorded_anew(tmp_path: Path) -> None:
    path = tmp_path / "token.txt"
    right = "# token list\n$ interlock token list\n  There is no active token; see --all.\n"
    path.write_text(right.replace("no active", "an active"), encoding="utf-8")
    assert sessions.replay(path) == right


def test_ids_keep_the_names_that_a_transcript_has_given_them(tmp_path: Path) -> None:
    path = tmp_path / "job.txt"
    text = (
        "# submit\n$ interlock submit shop:send address=a@example.org\n  j_0a4e98fa6cab\n"
        "$ interlock job cancel j_0a4e98fa6cab\n  j_0a4e98fa6cab\tCANCELED\tstopped: cancel\n"
    )
    path.write_text(text, encoding="utf-8")
    assert sessions.replay(path) == text


def test_times_and_drawn_names_may_differ_and_words_and_counts_may_not() -> None:
    one = ["2026-11-18T22:55:12.2Z [info     ] worker_started    worker_id=till#1185e760", "took  3 ms"]
    two = ["2026-11-19T20:01:01.3Z [info     ] worker_started    worker_id=till#a2", "took     12 min ago"]
    assert sessions.loosened(one) == sessions.loosened(two)
    assert sessions.loosened(one) != sessions.loosened([one[0].replace("started", "stopped"), one[1]])
    assert sessions.loosened(["3 jobs"]) != sessions.loosened(["4 jobs"])


def test_a_transcript_is_read_and_written_as_it_is() -> None:
    first = "# job list\n@ interlock submit a:b\n  j_1\n% later 5m\n$ interlock job list\n\n  a\n"
    text = f"{first}\n# top\n$ interlock top\n"
    found = transcripts.read(text)
    assert found == [
        Session(
            "job list",
            (
                Step("@", "interlock submit a:b", ("j_1",)),
                Step("%", "later 5m"),
                Step("$", "interlock job list", ("", "a")),
            ),
        ),
        Session("top", (Step("$", "interlock top"),)),
    ]
    assert transcripts.written(found) == text
    assert found[0].shown == ["$ interlock job list", "", "a"]


def test_a_line_of_a_transcript_that_is_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="line 3 is neither"):
        transcripts.read("# job list\n$ interlock job list\nj_1\n")
