"""The references are complete: every public name, command, setting and variable is on its page."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from docs import python_pages, references

import interlock
import interlock.machine
import interlock.testing
from interlock.store.postgres import target as postgres
from interlock.store.redis import connections as redis

ROOT = Path(__file__).parents[2]
SYSTEMS = ROOT / "src/interlock/systems"
VARIABLE = re.compile(r"INTERLOCK_[A-Z][A-Z_]*[A-Z]\b")

ELSEWHERE = {
    "interlock.errors.": "the page of errors",
    "interlock.store.": "ARCHITECTURE.md: parts of stores, for tests with faults",
    "interlock.systems.": "ARCHITECTURE.md: the kinds of a store, for tests with faults",
    "interlock.wire.": "the HTTP API and the runner protocol: the same fields",
}
"""Packages that guides import from, and where they are described."""


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return references.reference_pages()


def test_every_public_name_has_its_signature_on_a_page(pages: dict[str, str]) -> None:
    for place, page in python_pages.PYTHON_PAGES.items():
        shown = Counter(re.findall(r"^### `(\w+)`$", pages[f"reference/{place}.md"], re.M))
        assert shown == Counter(name for names in page.modules.values() for name in names)


def test_every_package_that_programs_import_is_on_the_pages_with_all_its_names() -> None:
    """Modules without `__all__` are there with the names that the guides use."""
    promised = python_pages.PROMISED
    names_of_pages = {name for names in promised.values() for name in names}
    for module in (interlock, interlock.machine, interlock.testing):
        assert set(promised[module.__name__]) == set(module.__all__)
    guides = [path.read_text("utf-8") for path in (*ROOT.glob("docs/*/*.md"), ROOT / "README.md")]
    imports = [
        found for text in guides for found in re.findall(r"^from (interlock[\w.]*) import (.+)$", text, re.M)
    ]
    named = {(module, name) for module, names in imports for name in re.findall(r"(\w+)(?: as \w+)?", names)}
    missing = {f"{module}.{name}" for module, name in named if name not in names_of_pages}
    assert len(named) > 40
    assert {name for name in missing if not name.startswith(tuple(ELSEWHERE))} == set()


def test_every_attribute_of_a_client_is_described() -> None:
    """The attributes of a client, and what its methods return, are classes of the pages."""
    promised = {name for names in python_pages.PROMISED.values() for name in names}
    for module in ("interlock.client", "interlock.sync"):
        source = (ROOT / "src" / module.replace(".", "/")).with_suffix(".py").read_text("utf-8")
        kept = re.findall(r"self\.[a-z]\w*: (\w+) = ", source)
        returned = re.findall(r"-> (\w*(?:Client|Handle|Composition|Records|JobId))\b", source)
        assert len(kept) >= 7
        assert {*kept, *returned} - promised - {"Callable", "Submission", "str"} == set()


def test_methods_of_a_base_without_an_entry_are_shown(pages: dict[str, str]) -> None:
    assert "#### `Context.wait_children`" in pages["reference/python-api.md"]


def test_every_command_has_its_help_on_the_page(pages: dict[str, str]) -> None:
    found = [text for name, text in pages.items() if name.startswith("reference/command-line")]
    shown = [words for text in found for words in re.findall(r"^## `interlock ?(.*)`$", text, re.M)]
    assert {"submit", "job list", "worker start", "db migrate"} <= set(shown)
    assert sum(text.count("Usage: interlock") for text in found) == len(shown) == len(set(shown))


def test_every_command_has_its_session_below_its_help(pages: dict[str, str]) -> None:
    assert "```console\n$ interlock job list\n" in pages["reference/command-line/job.md"]
    found = [text for name, text in pages.items() if name.startswith("reference/command-line")]
    assert sum(text.count("```console") for text in found) == len(references.verbs())


def test_every_setting_is_on_the_page_with_its_default(pages: dict[str, str]) -> None:
    page = pages["reference/configuration.md"]
    names = {
        field.encode_name for kind in references.sections().values() for field in msgspec.structs.fields(kind)
    }
    assert {name for name in names if not re.search(rf"\b{name}\b", page)} == set()
    assert "| `lease_ttl_s` | `120` | s |" in page


def test_a_setting_without_a_text_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(references.TEXTS["settings"]["[durations]"], "lease_ttl_s")
    with pytest.raises(LookupError, match="no text about lease_ttl_s"):
        references.configuration_page()


def test_a_text_without_its_setting_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(references.TEXTS["settings"]["[limits]"], "max_moons", {"effect": "None."})
    with pytest.raises(LookupError, match="max_moons"):
        references.configuration_page()


def test_every_option_of_a_store_url_is_on_the_page_with_its_default() -> None:
    """The default of the page, written out, changes nothing."""
    shown = references.configuration_page().partition("## Options of store URLs")[2].partition("## ")[0]
    rows = re.findall(r"^\| `(\w+):` \| `(\w+)` \| (.+?) \| (.+?) \|", shown, re.M)
    named = {scheme: {name for each, name, *_ in rows if each == scheme} for scheme, *_ in rows}
    assert named == {"postgresql": set(postgres.OPTIONS), "redis": set(redis.OPTIONS)}
    plain = msgspec.structs.asdict(postgres.target_of("postgresql://host/name"))
    defaults = {
        name: re.findall(r"`(\w+)`", text)[0] for scheme, name, _, text in rows if scheme == "postgresql"
    }
    for name, default in defaults.items():
        same = msgspec.structs.asdict(postgres.target_of(f"postgresql://host/name?{name}={default}"))
        assert {**same, "shown": plain["shown"]} == plain, name
    assert redis.read_address("redis://host").shown_under == ""
    assert redis.read_address("redis://host?shown=apart").shown_under == "apart"


def test_an_option_of_a_store_without_a_text_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis, "OPTIONS", (*redis.OPTIONS, "moon"))
    with pytest.raises(LookupError, match="store_options"):
        references.configuration_page()


def test_every_variable_of_the_source_is_described_or_known_to_be_internal() -> None:
    read = {
        name for path in (ROOT / "src").rglob("*.py") for name in VARIABLE.findall(path.read_text("utf-8"))
    }
    described = set(references.TEXTS["environment"]) | set(references.TEXTS["internal"]["variables"])
    assert read - described == set()


def test_the_deciders_that_the_page_on_reliability_names_are_those_of_production() -> None:
    paragraph = (ROOT / "docs/reliability.md").read_text().partition("calls the production code:")[2]
    named = re.findall(r"`([a-z_]+)\.([a-z_]+)`", paragraph.partition("`interlock.lifecycles`")[0])
    assert len(named) > 5
    missing = [
        f"{module}.{name}"
        for module, name in named
        if not any(f"def {name}(" in path.read_text() for path in SYSTEMS.rglob(f"{module}.py"))
    ]
    assert missing == []
