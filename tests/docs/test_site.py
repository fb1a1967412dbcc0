"""The documentation site is built without a warning, needs no network, and no page of it is orphaned."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml
from tools.docs_site import LATER, PROJECT, rewrite

ROOT = Path(__file__).parents[2]
CLICKS = 2
BUILDS_S = 300


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a broken link or anchor, and a page that is not in the navigation, fail the build."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILDS_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


class Page(HTMLParser):
    """What a page links to, and what a browser fetches for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect addresses."""
        given = {name: value for name, value in attrs if value}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif "src" in given:
            self.fetched.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.fetched.append(given.get("href", ""))


def pages_of(site: Path) -> Iterator[Path]:
    return (page for page in site.rglob("*.html") if page.name != "404.html")


def clicks_to(site: Path) -> dict[Path, int]:
    """Count how many clicks each page is away from the first one."""
    far = {site / "index.html": 0}
    to_read = deque(far)
    while to_read:
        page = to_read.popleft()
        for link in Page(page.read_text(encoding="utf-8")).links:
            there = Path(os.path.normpath(page.parent / unquote(urldefrag(link).url)))
            if there.suffix == ".html" and there.is_file() and there not in far:
                far[there] = far[page] + 1
                to_read.append(there)
    return far


@pytest.mark.long
def test_every_page_is_reached_with_two_clicks(site: Path) -> None:
    far = clicks_to(site)
    assert {page.name for page in pages_of(site) if far.get(page, CLICKS + 1) > CLICKS} == set()


@pytest.mark.long
def test_the_site_needs_no_network(site: Path) -> None:
    fetched = {(p.name, url) for p in pages_of(site) for url in Page(p.read_text(encoding="utf-8")).fetched}
    styles = (path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    imported = {url for text in styles for url in re.findall(r"url\(['\"]?(https?:[^)]+)", text)}
    assert {url for _, url in fetched if "://" in url or url.startswith("//")} | imported == set()


@pytest.mark.long
def test_the_site_can_be_searched(site: Path) -> None:
    index = (site / "search" / "search_index.json").read_text(encoding="utf-8")
    assert "fencing token" in index


def test_an_orphaned_page_and_a_far_one_would_be_noticed(tmp_path: Path) -> None:
    for name, link in (("index", "a"), ("a", "b"), ("b", "c"), ("c", "index"), ("orphan", "index")):
        (tmp_path / f"{name}.html").write_text(f'<a href="{link}.html#top">on</a>', encoding="utf-8")
    far = clicks_to(tmp_path)
    assert {page.stem: far.get(page) for page in pages_of(tmp_path)} == {
        "index": 0,
        "a": 1,
        "b": 2,
        "c": 3,
        "orphan": None,
    }


def in_navigation(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict | list):
        for item in nav.values() if isinstance(nav, dict) else nav:
            yield from in_navigation(item)


def test_every_page_but_a_decision_on_its_own_is_in_the_navigation_once() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    named = sorted(in_navigation(nav))
    there = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in there if page.startswith("decisions/0")}
    project = {place for place in PROJECT.values() if place.startswith("project/")}
    assert named == sorted((there - decisions) | project | LATER)


def test_links_to_files_of_the_repository_lead_to_pages_of_the_site() -> None:
    assert rewrite("[a](../../SECURITY.md#x)", "guides/running-workers.md") == "[a](../project/security.md#x)"
    assert rewrite("[a](../../examples/orders.py)", "guides/x.md") == "[a](../examples/orders.py)"
    assert rewrite("[a](docs/glossary.md)", "project/changelog.md") == "[a](../glossary.md)"
    assert rewrite("[a](ARCHITECTURE.md)", "project/contributing.md") == "[a](architecture.md)"
    assert (
        rewrite("`[a](../../x)` [b](https://a.example/)", "guides/x.md")
        == "`[a](../../x)` [b](https://a.example/)"
    )
