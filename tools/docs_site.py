"""Hooks of MkDocs for the documentation site (`mkdocs.yml`, `make site`).

The site is made from `docs/`, and from pages that stand elsewhere in the repository because people look for
them there (ARCHITECTURE.md, SECURITY.md, …). Links between the two are written for readers of the
repository; here they are rewritten for readers of the site.

Why: decision 0398.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

REPOSITORY = Path(__file__).parents[1]
PROJECT = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "bench/README.md": "project/benchmarks.md",
    "bench/FIGURES.md": "project/figures.md",
    "verification/README.md": "project/verification.md",
    "README.md": "index.md",
}
"""Where pages of the repository are in the site."""

EXAMPLES = "examples"
DEPLOY = "deploy"
"""Folders whose files pages link to."""
LATER = frozenset({"reference/http-api.md"})
"""Pages that have a place in the navigation, and appear when their file does."""

_CODE = re.compile(r"^(```|~~~).*?^\1$|`[^`\n]+`", re.S | re.M)
_LINK = re.compile(r"(\]\()([^)#\s]+)([^)]*\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Leave pages out of the navigation that are announced and not there yet."""
    missing = {name for name in LATER if not (REPOSITORY / _in_repository(name)).is_file()}
    config.nav = _without(config.nav, missing)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and examples of the repository."""
    for name, place in PROJECT.items():
        if place.startswith("project/") and (REPOSITORY / name).is_file():
            files.append(File.generated(config, place, abs_src_path=str(REPOSITORY / name)))
    for path in sorted((*(REPOSITORY / EXAMPLES).iterdir(), *(REPOSITORY / DEPLOY).rglob("*"))):
        hidden = path.name.startswith(".") or "__pycache__" in path.parts  # deploy/.env has a password
        if path.is_file() and not hidden:
            place = path.relative_to(REPOSITORY).as_posix()
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Make links to files of the repository links to pages of the site."""
    return rewrite(markdown, page.file.src_uri)


def rewrite(markdown: str, place: str) -> str:
    """Return the text of the page at `place` of the site with its links as the site has them."""
    source = _in_repository(place)

    def link(found: re.Match[str]) -> str:
        target = found[2]
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        there = _in_site(os.path.normpath(Path(source).parent / target))
        return f"{found[1]}{os.path.relpath(there, Path(place).parent)}{found[3]}"

    return "".join(text if is_code else _LINK.sub(link, text) for text, is_code in _parts(markdown))


def _parts(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yield the text in pieces, and whether a piece is code, in which nothing is a link."""
    end = 0
    for code in _CODE.finditer(markdown):
        yield markdown[end : code.start()], False
        yield code[0], True
        end = code.end()
    yield markdown[end:], False


def _in_repository(place: str) -> str:
    homes = {there: name for name, there in PROJECT.items() if there.startswith("project/")}
    return homes.get(place, f"docs/{place}")


def _in_site(name: str) -> str:
    return PROJECT.get(name, name.removeprefix("docs/"))


def _without(nav: Any, missing: set[str]) -> Any:
    if isinstance(nav, list):
        return [_without(item, missing) for item in nav if not _leads_to(item, missing)]
    if isinstance(nav, dict):
        return {title: _without(item, missing) for title, item in nav.items()}
    return nav


def _leads_to(item: Any, missing: set[str]) -> bool:
    targets = [item] if isinstance(item, str) else list(item.values())
    return any(isinstance(target, str) and target in missing for target in targets)
