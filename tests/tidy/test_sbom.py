"""The SBOM: valid by the schema of CycloneDX, and complete for what Interlock needs at run time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.waiting import PROGRAM_S
from tools import sbom

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

PERMISSIVE = re.compile(
    r"(apache|bsd|3-clause bsd|isc|mit|psf|python software foundation)[- ]?(2\.0|[23]-clause)?"
    r"( (software )?licen[cs]e)?( \(iscl\))?"
)
"""Apache 2.0, BSD, ISC, MIT and PSF, as the authors of distributions write them."""
WITH_CONDITIONS = {"certifi": "MPL-2.0", "hypothesis": "MPL-2.0", "psycopg": "LGPL-3.0-only"}
"""Whoever changes these and ships them publishes the changes; importing them as they are asks for nothing.
Hypothesis is for tests of users, psycopg is an extra."""


def licences(component: dict[str, Any]) -> list[str]:
    """Return the licences of a component, each of an expression for itself."""
    given = component["licenses"][0]
    name = given.get("expression") or given["license"].get("id") or given["license"]["name"]
    return re.split(r" (?:AND|OR) ", name)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program writes."""
    target = tmp_path_factory.mktemp("sbom") / "interlock.cdx.json"
    command = [sys.executable, str(ROOT / "tools" / "sbom.py"), str(target)]
    subprocess.run(command, check=True, timeout=PROGRAM_S, capture_output=True)
    return target.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def components(text: str) -> dict[str, dict[str, Any]]:
    """The distributions of Python, by name."""
    every = json.loads(text)["components"]
    return {each["name"]: each for each in every if each["purl"].startswith("pkg:pypi/")}


@pytest.fixture(scope="module")
def scripts(text: str) -> dict[str, dict[str, Any]]:
    """The packages of npm in the dashboard, by name."""
    every = json.loads(text)["components"]
    return {
        "/".join(filter(None, (each.get("group"), each["name"]))): each
        for each in every
        if each["purl"].startswith("pkg:npm/")
    }


def names_of(requirements: list[str]) -> set[str]:
    wanted = [Requirement(entry) for entry in requirements]
    return {canonicalize_name(each.name) for each in wanted if each.marker is None or each.marker.evaluate()}


def test_the_schema_of_cyclonedx_accepts_it(text: str) -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"library"', '"nonsense"', 1)) is not None


def test_every_runtime_dependency_is_in_it_with_its_locked_version_and_licence(
    components: dict[str, dict[str, Any]],
) -> None:
    locked = sbom.locked()
    assert names_of(PROJECT["dependencies"]) <= set(components)
    assert [name for name, each in components.items() if each["version"] not in locked[name]] == []
    assert [name for name, each in components.items() if not each["licenses"]] == []


def test_every_script_that_the_dashboard_bundles_is_in_it_with_its_locked_version_and_licence(
    text: str, scripts: dict[str, dict[str, Any]]
) -> None:
    web = ROOT / "web"
    asked = json.loads((web / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((web / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    direct = asked["dependencies"]
    assert {name: scripts[name]["version"] for name in direct} == direct
    assert {name: each["version"] for name, each in scripts.items()} == {
        name: lock[f"node_modules/{name}"]["version"] for name in scripts
    }
    assert [name for name, each in scripts.items() if licences(each) != ["MIT"]] == []
    assert set(asked["devDependencies"]) & set(scripts) == set(), "tools of the developers are not shipped"
    assert all(each["purl"].startswith(("pkg:pypi/", "pkg:npm/")) for each in json.loads(text)["components"])


def test_every_package_that_a_source_of_the_dashboard_imports_is_in_it(
    scripts: dict[str, dict[str, Any]],
) -> None:
    sources = [path for path in (ROOT / "web" / "src").rglob("*.ts*") if path.name != "schema.ts"]
    imported = {
        name
        for path in sources
        for name in re.findall(
            r'(?:from|import) "((?:@[\w-]+/)?[a-z][\w-]*)', path.read_text(encoding="utf-8")
        )
    }
    assert {"preact", "uplot"} <= imported
    assert imported <= set(scripts)


@pytest.mark.parametrize("licence", [None, "GPL-3.0-only"])
def test_a_script_without_a_licence_or_with_another_one_is_noticed(licence: str | None) -> None:
    package = {"version": "1.0.0", **({"license": licence} if licence else {})}
    if licence is None:
        with pytest.raises(SystemExit, match="@a/script declares no licence"):
            sbom._script("@a/script", package)
    else:
        (found,) = sbom._script("@a/script", package).licenses
        assert str(getattr(found, "id", "")) == licence != "MIT"


def test_no_runtime_dependency_has_a_licence_that_was_not_decided_on(
    components: dict[str, dict[str, Any]],
) -> None:
    others = {
        name: found
        for name, each in components.items()
        for found in licences(each)
        if not PERMISSIVE.fullmatch(found.lower())
    }
    assert others == {name: found for name, found in WITH_CONDITIONS.items() if name in components}
    assert components["psycopg"]["scope"] == components["hypothesis"]["scope"] == "optional"


@pytest.mark.parametrize(
    "name", ["GPL-3.0-only", "AGPL-3.0", "UNKNOWN", "Proprietary", "MIT-like", "BSL-1.1"]
)
def test_another_licence_would_be_noticed(name: str) -> None:
    assert not PERMISSIVE.fullmatch(name.lower())


def test_dependencies_of_extras_are_optional_and_others_required(
    components: dict[str, dict[str, Any]],
) -> None:
    required = names_of(PROJECT["dependencies"])
    for name, extra in PROJECT["optional-dependencies"].items():
        found = {each: components[each]["scope"] for each in names_of(extra) - required}
        assert set(found.values()) <= {"optional"}, name
    assert {components[name]["scope"] for name in required} == {"required"}
    assert "mypy" not in components, "tools of the developers are not shipped"


def test_the_dependency_graph_of_the_sbom_reaches_every_component_from_interlock(text: str) -> None:
    bom = json.loads(text)
    graph = {each["ref"]: each.get("dependsOn", []) for each in bom["dependencies"]}
    root = bom["metadata"]["component"]
    assert (root["name"], root["version"]) == ("interlock", PROJECT["version"])
    assert root["licenses"]
    direct = {ref.removeprefix("pkg:pypi/").partition("@")[0] for ref in graph[root["bom-ref"]]}
    assert names_of(PROJECT["dependencies"]) <= direct
    assert any(ref.startswith("pkg:npm/preact@") for ref in graph[root["bom-ref"]])
    reached, waiting = set[str](), [root["bom-ref"]]
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting += graph[ref]
    assert reached == set(graph), "nothing is in it that nothing needs"


@pytest.mark.long  # others read what it writes
def test_two_runs_on_one_lock_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert sbom.as_json(sbom.bom_of_runtime()) == sbom.as_json(sbom.bom_of_runtime())
