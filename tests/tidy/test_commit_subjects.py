"""The subject of a commit is an imperative of at most 72 characters, without a dot at its end."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LONGEST = 72
BASE = "origin/main"
"""Where commits have landed, and cannot be reworded any more."""
NO_IMPERATIVE = re.compile(r"\w+(?:ed|ing)\b|(?:A|An|The|What|Who|Whoever|Somebody|Nobody)\b|\w+: ")
VERBS = frozenset({"Embed", "Feed", "Need", "Seed", "Shed", "Speed", "Bring", "String"})
"""Imperatives that end like other forms."""


def unfit(subjects: Iterable[str]) -> list[str]:
    """Return the subjects that are too long, or do not begin with what a commit does."""
    return [subject for subject in subjects if len(subject) > LONGEST or not _is_imperative(subject)]


def _is_imperative(subject: str) -> bool:
    first = subject.partition(" ")[0]
    plain = first in VERBS or NO_IMPERATIVE.match(subject) is None
    return plain and subject[:1].isupper() and not subject.endswith(".")


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_the_subjects_of_commits_that_have_not_landed_are_short_imperatives() -> None:
    listed = git("log", "--no-merges", "--format=%s", f"{BASE}..HEAD")
    if listed.returncode:
        pytest.skip("this is no clone with a main branch to compare with")
    assert unfit(listed.stdout.splitlines()) == []


@pytest.mark.parametrize("subject", ["Bring the store back", "Fix the order of rows", "Need no second try"])
def test_an_imperative_is_accepted(subject: str) -> None:
    assert unfit([subject]) == []


@pytest.mark.parametrize(
    "subject",
    [
        "Fixed the order of rows",
        "Renaming modules",
        "SQLite: who does as the one before it",
        "Whoever waits is woken",
        "fix the order of rows",
        "Fix the order of rows.",
        f"Fix {'x' * 70}",
    ],
)
def test_another_subject_would_be_noticed(subject: str) -> None:
    assert unfit([subject]) == [subject]
