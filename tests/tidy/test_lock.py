"""The lock holds what both distributions ask for, pinned, hashed, and from no place in particular."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERIFICATION: dict[str, Any] = tomllib.loads(
    (ROOT / "verification" / "pyproject.toml").read_text(encoding="utf-8")
)
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")

_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_PLACE = re.compile(r"://|--(?:extra-)?index-url|--find-links|--trusted-host|\s@\s|^-[ife]\s", re.MULTILINE)


def asked_for(project: dict[str, Any]) -> list[Requirement]:
    """Every dependency, optional dependency and member of a group."""
    wanted = list(project["project"].get("dependencies", ()))
    for extra in project["project"].get("optional-dependencies", {}).values():
        wanted += extra
    for group in project.get("dependency-groups", {}).values():
        wanted += [entry for entry in group if isinstance(entry, str)]
    return [Requirement(entry) for entry in wanted]


def faults_of(lock: str, wanted: list[Requirement]) -> list[str]:
    """Everything that is wrong with a lock, one sentence each."""
    faults = [f"it names a place: {line.strip()}" for line in lock.splitlines() if _PLACE.search(line)]
    pinned: dict[str, list[str]] = {}
    for entry in _entries(lock):
        requirement = Requirement(entry.partition(" --hash=")[0])
        pins = [pin.version for pin in requirement.specifier if pin.operator == "=="]
        if len(pins) != 1:
            faults.append(f"{requirement.name} is not pinned")
        if not _HASH.search(entry):
            faults.append(f"{requirement.name} has no hash")
        pinned.setdefault(canonicalize_name(requirement.name), []).extend(pins)
    for requirement in wanted:
        versions = pinned.get(canonicalize_name(requirement.name), [])
        if not versions:
            faults.append(f"{requirement.name} is asked for and not locked")
        faults += [
            f"{requirement.name} is locked at {version}, which is not {requirement.specifier}"
            for version in versions
            if not requirement.specifier.contains(version, prereleases=True)
        ]
    return faults


def _entries(lock: str) -> list[str]:
    """The lock with continued lines joined, without comments, places and blank lines."""
    joined = re.sub(r"\s*\\\n\s*", " ", lock)
    lines = (line.partition(" #")[0].strip() for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-")) and not _PLACE.search(line)]


def test_the_lock_pins_and_hashes_every_requirement_and_names_no_url_index_or_path() -> None:
    assert faults_of(LOCK, asked_for(PYPROJECT)) == []
    others = [each for each in asked_for(VERIFICATION) if each.name != "interlock"]
    assert faults_of(LOCK, others) == []


def test_the_two_distributions_have_one_version_and_the_second_is_pinned_to_it() -> None:
    version = PYPROJECT["project"]["version"]
    assert VERIFICATION["project"]["version"] == version
    (pin,) = [each for each in asked_for(VERIFICATION) if each.name == "interlock"]
    assert str(pin.specifier) == f"=={version}"
    assert pin.extras <= PYPROJECT["project"]["optional-dependencies"].keys()


def test_there_is_something_to_look_at() -> None:
    assert len(_entries(LOCK)) > 10
    assert {"msgspec", "pytest"} <= {requirement.name for requirement in asked_for(PYPROJECT)}


HASHED = f"--hash=sha256:{'a' * 64}"
WANTED = [Requirement("Some_Thing>=2"), Requirement("other")]
SOUND = f"""\
some-thing==2.1 \\
    {HASHED} \\
    {HASHED}
other==1.0 ; sys_platform == 'win32' \\
    {HASHED}
"""


def test_a_sound_lock_has_no_fault() -> None:
    assert faults_of(SOUND, WANTED) == []


@pytest.mark.parametrize(
    ("lock", "fault"),
    [
        (SOUND.replace("some-thing", "another"), "Some_Thing is asked for and not locked"),
        (SOUND.replace("2.1", "1.9"), "Some_Thing is locked at 1.9, which is not >=2"),
        (SOUND.replace("other==1.0", "other>=1.0"), "other is not pinned"),
        (SOUND + "third==3.0\n", "third has no hash"),
        (SOUND + "third==3.0 --hash=sha256:abc\n", "third has no hash"),
        (f"--index-url https://mirror.example/simple\n{SOUND}", "it names a place"),
        (f"--trusted-host mirror.example\n{SOUND}", "it names a place"),
        (f"{SOUND}third @ https://mirror.example/third.whl\n", "it names a place"),
        (f"# via https://mirror.example\n{SOUND}", "it names a place"),
        (f"{SOUND}-e ../third\n", "it names a place"),
    ],
)
def test_a_lock_that_is_not_sound_would_be_noticed(lock: str, fault: str) -> None:
    found = faults_of(lock, WANTED)
    assert any(entry.startswith(fault) for entry in found), found


def test_the_requirements_of_extras_and_dependency_groups_are_included() -> None:
    project = {
        "project": {"dependencies": ["a>=1"], "optional-dependencies": {"pg": ["b"]}},
        "dependency-groups": {"dev": ["c", {"include-group": "bench"}], "bench": ["d"]},
    }
    assert [requirement.name for requirement in asked_for(project)] == ["a", "b", "c", "d"]
