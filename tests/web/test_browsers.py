"""Where the tests get their browser from, and what they say when there is none."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from tests.web import browsers
from tests.web.conftest import within
from tests.web.visiting import Visitor


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without a browser, and without a network to fetch one; returns the folder of its programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(browsers, "folder_of", lambda name: tmp_path / name)
    monkeypatch.setattr(browsers, "_fetched", lambda _: None)
    return tmp_path


def test_without_a_browser_the_tests_fail_with_the_command_that_helps(bare: Path) -> None:
    with pytest.raises(browsers.NoBrowser, match="→ Run: apt-get install --no-install-recommends chromium"):
        browsers.chromium(str(bare / "of-playwright"))


@pytest.mark.parametrize("name", ["chromium-headless-shell", "chromium", "of-playwright"])
def test_a_browser_that_is_installed_is_used_as_it_is(bare: Path, name: str) -> None:
    (bare / name).touch(mode=0o755)
    assert browsers.chromium(str(bare / "of-playwright")) == browsers.Chromium(str(bare / name), {})


def test_of_several_browsers_the_one_that_draws_no_windows_is_used(bare: Path) -> None:
    for name in ("of-playwright", "chromium", "chromium-headless-shell"):
        (bare / name).touch(mode=0o755)
    found = browsers.chromium(str(bare / "of-playwright"))
    assert found.program == str(bare / "chromium-headless-shell")


@pytest.mark.parametrize("package", ["chromium-headless-shell", "chromium"])
def test_an_unpacked_browser_finds_the_libraries_and_the_fonts_beside_it(bare: Path, package: str) -> None:
    for name in (f"chromium/{package}", "x86_64-linux-gnu/libogg.so.0", "x86_64-linux-gnu/pulse/libp.so"):
        path = bare / package / "usr/lib" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    found = browsers.chromium(str(bare / "of-playwright"))
    lib = bare / package / "usr/lib/x86_64-linux-gnu"
    assert found.environment["LD_LIBRARY_PATH"] == f"{lib}:{lib / 'pulse'}"
    fonts = Path(found.environment["FONTCONFIG_FILE"]).read_text(encoding="utf-8")
    assert f"<dir>{bare / package}/usr/share/fonts</dir>" in fonts, "without a font it crashes"


@pytest.mark.asyncio(loop_scope="session")
async def test_a_script_that_never_ends_fails_its_test(
    visitor: Visitor, request: pytest.FixtureRequest
) -> None:
    limited = inspect.unwrap(request.function, stop=lambda test: "limit_s" in test.__code__.co_freevars)
    assert limited.__closure__, "this test has no limit itself"

    async def waits() -> None:
        await visitor.page.evaluate("() => new Promise(() => {})")

    with pytest.raises(TimeoutError):
        await within(0.1, waits)()
