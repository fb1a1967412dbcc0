"""Blocks of pages that are not run: settings, YAML, requests with curl, and Python of other tools.

`test_pages_tell_the_truth.py` runs `python` and `console`; `test_commands_on_pages.py` parses commands, and
`test_json_blocks.py` compares JSON.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jsonschema_rs
import pytest
import yaml

from interlock.cli.nouns.simulation_start import read_scenario
from interlock.cli.project import read_file
from interlock.errors import InterlockError
from interlock.systems.fleet.workload_file import read_workload
from interlock.systems.orchestrator.vault import Vault
from interlock.systems.runs.workflows.workflow import read_workflow

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(
        page
        for name in ("tutorials", "guides", "coming-from")
        for page in sorted((ROOT / "docs" / name).glob("*.md"))
    ),
    *(ROOT / "docs" / "reference" / name for name in ("runner-protocol.md", "outgoing-webhooks.md")),
]
OPEN_API = json.loads((ROOT / "web" / "openapi.json").read_text(encoding="utf-8"))
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
SECRETS_FILE = 'NPM_TOKEN = "npm_'
"""In the file that INTERLOCK_SECRETS_FILE names, which has values and no settings."""
PYPROJECT = "[project."
OWN_KINDS = "/api/kinds/"
"""Below it is what a server serves for the kinds of its user."""
PLACED = re.compile(r"\{\w+\}")


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the blocks of all pages in a language, each with its page."""
    return [
        (page.name, text)
        for page in PAGES
        for found, text in BLOCK.findall(page.read_text(encoding="utf-8"))
        if found == language
    ]


def faults_of_settings(text: str, file: Path) -> str:
    """Return why a block cannot be in `interlock.toml`."""
    file.write_text(text, encoding="utf-8")
    try:
        read_file(file)
    except InterlockError as error:
        return error.sentence
    return ""


def kind_of_yaml(text: str, file: Path) -> str:
    """Read a file of one of the kinds that there are, and return the kind; raise if it has a fault."""
    keys = yaml.safe_load(text).keys()
    if "jobs" in keys:
        read_workflow(text)
        return "workflow"
    if "simulation" in keys:
        file.write_text(text, encoding="utf-8")
        read_scenario(file)
        return "scenario"
    if "kind" in keys:
        read_workload(text, agents=("127.0.0.1:7167",))
        return "workload"
    assert keys == {"scrape_configs", "rule_files"}, f"of no kind: {text}"
    return "prometheus"


@cache
def operations() -> list[tuple[re.Pattern[str], str, dict[str, Any]]]:
    """Return the operations of the API: a pattern of their path, their method, and their description."""
    return [
        (re.compile(PLACED.sub("[^/]+", path)), method.upper(), operation)
        for path, methods in OPEN_API["paths"].items()
        for method, operation in methods.items()
    ]


def requests(script: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield method, address and body of each request that a script makes with curl."""
    for line in script.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if "curl" not in words:
            continue
        method, address, body = "", "", None
        rest = iter(words[words.index("curl") + 1 :])
        for word in rest:
            if word in ("-X", "--request"):
                method = next(rest)
            elif word == "--json":
                body = next(rest)
            elif word in ("-H", "-d", "--data", "-o"):
                value = next(rest)
                if word in ("-d", "--data"):
                    body = f"not sent as JSON: {value}"
            elif not word.startswith("-"):
                address = address or word
        yield method or ("GET" if body is None else "POST"), address, body


def fault_of_json(text: str) -> str:
    """Return why a text is no JSON object; empty if it is one."""
    try:
        return "" if isinstance(json.loads(text), dict) else "no JSON object"
    except ValueError as error:
        return f"{error}: {text}"


def fault_of_request(method: str, address: str, body: str | None) -> str:
    """Return why the server would refuse a request, by its description; empty if it would not."""
    url = urlsplit(address if "://" in address else f"http://{address}")
    if url.path.startswith(OWN_KINDS):
        return "" if body is None else fault_of_json(body)
    found = [
        (pattern, operation)
        for pattern, its, operation in operations()
        if its == method and pattern.fullmatch(url.path)
    ]
    if not found:
        return f"there is no {method} {url.path}"
    _, operation = min(found, key=lambda each: each[0].pattern.count("[^/]+"))
    known = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    if strange := {name for name, _ in parse_qsl(url.query)} - known:
        return f"{method} {url.path} has no {sorted(strange)}"
    if body is None:
        required = operation.get("requestBody", {}).get("required", False)
        return f"{method} {url.path} needs a body" if required else ""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    try:
        jsonschema_rs.validator_for({**schema, "components": OPEN_API["components"]}).validate(
            json.loads(body)
        )
    except (ValueError, jsonschema_rs.ValidationError) as error:
        return f"{method} {url.path}: {str(error).splitlines()[0]}"
    return ""


def test_every_table_of_settings_can_be_in_the_project_file(tmp_path: Path) -> None:
    found = [
        (page, faults_of_settings(text, tmp_path / "interlock.toml"))
        for page, text in blocks("toml")
        if SECRETS_FILE not in text and PYPROJECT not in text
    ]
    assert len(found) > 15
    assert [each for each in found if each[1]] == []


def test_the_file_with_secrets_is_one_that_the_vault_reads(tmp_path: Path) -> None:
    (text,) = (text for _, text in blocks("toml") if SECRETS_FILE in text)
    file = tmp_path / "secrets.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    vault = Vault({"INTERLOCK_SECRETS_FILE": str(file)})
    assert vault.value("NPM_TOKEN").startswith("npm_")


def test_every_request_with_curl_is_one_that_the_api_describes() -> None:
    made = [(page, request) for page, text in (*blocks("sh"), *blocks("")) for request in requests(text)]
    assert len(made) > 10
    assert [(page, fault) for page, request in made if (fault := fault_of_request(*request))] == []


def test_every_block_of_yaml_is_a_workflow_a_workload_a_scenario_or_what_prometheus_reads(
    tmp_path: Path,
) -> None:
    found = Counter(kind_of_yaml(text, tmp_path / "scenario.yml") for _, text in blocks("yaml"))
    assert found.keys() == {"workflow", "workload", "scenario", "prometheus"}
    assert found["workflow"] > 5


def test_every_block_of_python_that_is_not_run_can_be_compiled() -> None:
    for page, text in blocks("py"):
        compile(text, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


@pytest.mark.parametrize(
    "script",
    [
        "curl http://127.0.0.1:8088/api/jbos",
        "curl 'http://127.0.0.1:8088/api/jobs?state=failed'",
        "curl -X POST http://127.0.0.1:8088/api/jobs",
        "curl http://127.0.0.1:8088/api/jobs --json '{\"tsak\": 1}'",
        'curl -X POST http://127.0.0.1:8088/api/jobs -d \'{"task": "shop.send"}\'',
    ],
)
def test_a_request_that_would_be_refused_is_noticed(script: str) -> None:
    assert all(fault_of_request(*request) for request in requests(script))


def test_a_setting_that_does_not_exist_is_noticed(tmp_path: Path) -> None:
    assert "slot" in faults_of_settings("[worker]\nslot = 3\n", tmp_path / "interlock.toml")
