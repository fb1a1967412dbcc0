"""Every page of the dashboard: nothing goes wrong, everybody can read it, and it fits a telephone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

import pytest
from tests.effort import ALL, pick
from tests.server.running import Running
from tests.waiting import until
from tests.web.visiting import NARROW, PATTERNS, ZOOMED, Visitor, fill, path_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


MOVING = """() => document.getAnimations().map(
  (each) => `${each.animationName ?? each.transitionProperty} of ${each.effect.target.outerHTML}`)"""
"""What moves although the visitor has asked for less motion."""


Scheme: TypeAlias = Literal["light", "dark"]
LIGHT_AND_DARK: tuple[Scheme, Scheme] = ("light", "dark")


async def look_at(visitor: Visitor, path: str, schemes: Sequence[Scheme], *, axe: bool) -> list[str]:
    """Return everything that is wrong with one page; its contrasts in each of these colour schemes."""
    found = []
    for number, scheme in enumerate(schemes):
        await visitor.page.emulate_media(color_scheme=scheme)
        if number == 0:
            await visitor.turn_to(path)
        rules = ("color-contrast",) if number else ()
        complaints = await visitor.complaints(*rules) if axe else []
        found += [f"{scheme}: {each}" for each in complaints]
    found += [f"narrow: {each}" for each in await visitor.sideways(NARROW)]
    if ALL:  # what is too wide here is nearly always too wide on a telephone
        found += [f"zoomed: {each}" for each in await visitor.sideways(ZOOMED)]
    found += [f"moves: {each}" for each in await visitor.page.evaluate(MOVING)]
    return found + visitor.taken()


async def look_at_all(
    visitor: Visitor, pages: Sequence[str], first: int = 0, axe_every: int = 1
) -> dict[str, list[str]]:
    """Return what is wrong with each page; a quick run takes one colour scheme for each, in turn."""
    found: dict[str, list[str]] = {}
    for number, path in enumerate(pages, first):
        schemes = pick(quick=LIGHT_AND_DARK[number // axe_every % 2 :][:1], thorough=LIGHT_AND_DARK)
        wrong = await look_at(visitor, path, schemes, axe=(number - first) % axe_every == 0)
        found |= {path: wrong} if wrong else {}
    return found


async def test_every_page_is_sound_without_data(visitor: Visitor) -> None:
    pages = [pattern for pattern in PATTERNS if ":" not in pattern][:: pick(2, 1)]
    assert await look_at_all(visitor, pages, first=1, axe_every=pick(3, 1)) == {}


async def test_every_page_is_sound_with_data(server: Running, visitor: Visitor) -> None:
    made = await fill(server)
    pages = sorted((path_of(pattern, made) for pattern in PATTERNS), key=lambda path: path.count("/") > 1)
    assert await look_at_all(visitor, pages, axe_every=pick(4, 1)) == {}


async def test_a_page_of_an_unknown_id_shows_an_error_that_contains_the_id(visitor: Visitor) -> None:
    visitor.expected = ("404",)
    wrong: dict[str, list[str]] = {}
    for number, pattern in enumerate(pattern for pattern in PATTERNS if ":" in pattern):
        await visitor.turn_to(re.sub(r":\w+", "x_000000000000", pattern))
        found = await visitor.complaints() if number % pick(4, 1) == 0 else []
        found += visitor.taken()
        if "x_000000000000" not in (content := await visitor.text()):
            found.append(f"it says: {content}")
        wrong |= {pattern: found} if found else {}
    assert wrong == {}


async def test_a_page_that_is_not_sound_would_be_noticed(visitor: Visitor) -> None:
    await visitor.open("/jobs")
    await visitor.page.evaluate(
        """() => {
          const main = document.querySelector("main");
          const script = document.createElement("script");
          script.append("window.ran = 1");
          const wide = Object.assign(document.createElement("div"), { textContent: "x", className: "far" });
          wide.style.width = "2000px";
          main.append(document.createElement("img"), script, wide);
          fetch("/api/jobs/j_000000000000");
        }"""
    )
    assert [each.partition(":")[0] for each in await visitor.complaints()] == ["image-alt"]
    assert any("DIV.far" in each for each in await visitor.sideways())
    await until(lambda: len(visitor.troubles) >= 3, "the page has met its troubles")
    troubles = "\n".join(visitor.taken())
    assert "This document requires 'TrustedScript' assignment" in troubles
    assert "answered 404: GET" in troubles
    assert await visitor.page.evaluate("() => window.ran") is None
