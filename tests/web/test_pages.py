"""Every page of the dashboard: nothing goes wrong, everybody can read it, and it fits a telephone."""

from __future__ import annotations

import re

import pytest
from tests.effort import pick
from tests.server.running import Running
from tests.waiting import until
from tests.web.visiting import NARROW, PATTERNS, ZOOMED, Visitor, fill, path_of

pytestmark = pytest.mark.asyncio(loop_scope="session")


MOVING = """() => document.getAnimations().map(
  (each) => `${each.animationName ?? each.transitionProperty} of ${each.effect.target.outerHTML}`)"""
"""What moves although the visitor has asked for less motion."""


async def look_at(visitor: Visitor, path: str, *, dark: bool = True) -> list[str]:
    """Return everything that is wrong with one page."""
    await visitor.page.emulate_media(color_scheme="light")
    await visitor.open(path)
    found = [f"light: {each}" for each in await visitor.complaints()]
    await visitor.page.emulate_media(color_scheme="dark")
    found += [f"dark: {each}" for each in (await visitor.complaints("color-contrast") if dark else ())]
    found += [f"narrow: {each}" for each in await visitor.sideways(NARROW)]
    found += [f"zoomed: {each}" for each in await visitor.sideways(ZOOMED)]
    found += [f"moves: {each}" for each in await visitor.page.evaluate(MOVING)]
    return found + visitor.taken()


async def test_every_page_is_sound_without_data(visitor: Visitor) -> None:
    pages = [pattern for pattern in PATTERNS if ":" not in pattern]
    dark = pick(quick=False, thorough=True)  # the same colours are looked at with data
    found = {path: wrong for path in pages if (wrong := await look_at(visitor, path, dark=dark))}
    assert found == {}


async def test_every_page_is_sound_with_data(server: Running, visitor: Visitor) -> None:
    made = await fill(server)
    pages = [path_of(pattern, made) for pattern in PATTERNS]
    found = {path: wrong for path in pages if (wrong := await look_at(visitor, path))}
    assert found == {}


async def test_an_id_that_nothing_has_is_answered_in_the_words_of_the_server(visitor: Visitor) -> None:
    visitor.expected = ("404",)
    wrong: dict[str, list[str]] = {}
    for pattern in PATTERNS:
        if ":" in pattern:
            await visitor.open(re.sub(r":\w+", "x_000000000000", pattern))
            found = await visitor.complaints() + visitor.taken()
            if "x_000000000000" not in (told := await visitor.text()):
                found.append(f"it says: {told}")
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
