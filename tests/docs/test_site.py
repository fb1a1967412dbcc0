"""The documentation site is built without a warning, needs no network, and no page of it is orphaned."""

from __future__ import annotations

import os
import py_compile
import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from playwright.sync_api import Browser, Page, sync_playwright
from tests.waiting import PATIENCE_S
from tests.web.browsers import ARGUMENTS, chromium
from tools.docs_site import LATER, PROJECT, rewrite

ROOT = Path(__file__).parents[2]
CLICKS = 2
BUILDS_S = 300
BYTECODE = "docs/__pycache__/transcripts.of-a-test.pyc"
VISIBLE = """() => [...document.querySelectorAll("a[href]")]
  .filter((link) => link.checkVisibility({opacityProperty: true, visibilityProperty: true}))
  .filter((link) => link.getClientRects().length && link.getBoundingClientRect().height > 0)
  .map((link) => link.href)"""
"""The addresses of the links of a page that are drawn, also further down."""
SCHEMES = {"light": "default", "dark": "slate"}
IN_SCHEME = "scheme => document.body.dataset.mdColorScheme === scheme"
COLOURS = """() => ["color", "backgroundColor"].map((name) =>
  getComputedStyle(document.body)[name].match(/[\\d.]+/g).slice(0, 3).map(Number))"""
"""The colours of the text and of the background of a page: red, green and blue."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a broken link or anchor, and a page that is not in the navigation, fail the build."""
    folder = tmp_path_factory.mktemp("site")
    py_compile.compile(str(ROOT / "docs" / "transcripts.py"), cfile=str(ROOT / BYTECODE))
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


class Fetched(HTMLParser):
    """What a browser fetches for a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect addresses."""
        given = {name: value for name, value in attrs if value}
        if "src" in given:
            self.fetched.append(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.fetched.append(given.get("href", ""))


def pages_of(site: Path) -> Iterator[Path]:
    return (page for page in site.rglob("*.html") if page.name != "404.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = chromium(playwright.chromium.executable_path)
        browser = playwright.chromium.launch(
            executable_path=found.program,
            env={**os.environ, **found.environment},
            args=[*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])],
        )
        yield browser
        browser.close()


def clicks_to(site: Path, browser: Browser, *, hidden: str = "") -> dict[Path, int]:
    """Count how many clicks each page is away from the first one, by the links that a reader sees.

    The theme writes the whole navigation into every page and shows a part of it, so addresses alone prove
    nothing. Pages that are CLICKS away are not opened: their links would be one too far. What the selector
    `hidden` finds is hidden.
    """
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    opened = context.new_page()
    far = {site / "index.html": 0}
    to_read = deque(far)
    while to_read:
        page = to_read.popleft()
        opened.goto(page.as_uri())
        if hidden:
            opened.add_style_tag(content=f"{hidden} {{display: none !important}}")
        for link in opened.evaluate(VISIBLE):
            there = Path(unquote(urlsplit(link).path))
            if there.suffix == ".html" and there.is_file() and there not in far:
                far[there] = far[page] + 1
                if far[there] < CLICKS:
                    to_read.append(there)
    context.close()
    return far


def far_pages(site: Path, browser: Browser, *, hidden: str = "") -> set[str]:
    """Return the pages that are not reached with two clicks."""
    far = clicks_to(site, browser, hidden=hidden)
    return {page.relative_to(site).as_posix() for page in pages_of(site) if page not in far}


@pytest.mark.long
def test_every_page_is_reached_with_two_clicks_on_what_is_visible(site: Path, browser: Browser) -> None:
    assert far_pages(site, browser) == set()


@pytest.mark.long
def test_a_page_that_is_only_in_a_closed_part_of_the_navigation_is_far(site: Path, browser: Browser) -> None:
    closed = ".md-nav__item--section .md-nav__item--nested > .md-nav"
    assert "reference/http-api/jobs.html" in far_pages(site, browser, hidden=closed)
    linked = "a[href*='configuration.html']"
    assert far_pages(site, browser, hidden=linked) == {"reference/configuration.html"}


@pytest.mark.long
def test_a_page_that_is_opened_from_a_folder_can_be_searched(site: Path, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE_S * 1000)
    page = context.new_page()
    page.goto((site / "guides" / "fencing.html").as_uri())
    page.get_by_role("textbox", name="Search").click()
    page.keyboard.type("fencing token")
    found = page.locator(".md-search-result__item a", has_text="Fencing")
    found.first.wait_for(state="visible")
    found.first.click()
    page.wait_for_url(re.compile(r"[?&]h=fencing"))
    assert "fencing" in page.locator("article mark").first.inner_text().lower()
    context.close()


@pytest.mark.long
@pytest.mark.parametrize("system", ["light", "dark"])
def test_the_site_is_light_or_dark_as_the_system_is_and_as_the_reader_chooses(
    site: Path, browser: Browser, system: str
) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE_S * 1000)
    page = context.new_page()
    page.emulate_media(color_scheme=cast(Any, system))
    page.goto((site / "index.html").as_uri())
    assert shade_of(page) == system
    for button, shade in (("light theme", "light"), ("dark theme", "dark"), ("theme of the system", system)):
        page.locator(f"label[title='Use the {button}']").click()
        page.wait_for_function(IN_SCHEME, arg=SCHEMES[shade])
        assert shade_of(page) == shade
        page.goto((site / "guides" / "fencing.html").as_uri())
        assert shade_of(page) == shade, "the choice is kept"
    context.close()


def shade_of(page: Page) -> str:
    """Return whether the text of a page is drawn on a light or on a dark background."""
    text, background = page.evaluate(COLOURS)
    return "light" if sum(background) > sum(text) else "dark"


@pytest.mark.long
def test_the_site_needs_no_network(site: Path) -> None:
    fetched = {
        (p.name, url) for p in pages_of(site) for url in Fetched(p.read_text(encoding="utf-8")).fetched
    }
    styles = (path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    imported = {url for text in styles for url in re.findall(r"url\(['\"]?(https?:[^)]+)", text)}
    assert {url for _, url in fetched if "://" in url or url.startswith("//")} | imported == set()


@pytest.mark.long
def test_the_site_has_no_bytecode_and_no_code_but_the_examples(site: Path) -> None:
    assert (ROOT / BYTECODE).is_file()
    assert [path for path in site.rglob("*") if "__pycache__" in path.parts] == []
    assert [path for path in site.rglob("*.py") if path.parent != site / "examples"] == []


@pytest.mark.parametrize("section", ["tutorials", "guides", "coming-from", "reference", "explanation"])
def test_the_first_page_of_a_section_links_to_the_others(section: str) -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    first = f"{section}/index.md"
    (pages,) = (found for part in nav if first in (found := set(in_navigation(part))))
    lists = (
        "command-line/",
        "http-api/",
        "python-api/",
        "lifecycles/",
        "decisions/",
    )  # their own first page has these
    text = rewrite((ROOT / "docs" / first).read_text(encoding="utf-8"), first)
    linked = {os.path.normpath(Path(section) / target) for target in re.findall(r"\]\(([^)#]+\.md)", text)}
    assert {page for page in pages - linked if not any(each in page for each in lists)} == {first}


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
