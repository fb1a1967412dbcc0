"""TAB in a real zsh and a real fish, from Debian's packages: the script is where the help says to put it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.shop import Shop
from tests.debian import unpacked
from tests.waiting import PATIENCE_S, PROGRAM_S

Tab = Callable[[str], str]

PROGRAMS = Path(sys.executable).parent
KEYS = "\t\x18"
"""TAB, and the key that ends the shell of the test."""
PROMPT = b"ready> "
ZSHRC = """
PROMPT='ready> '
{relocated}
{setup}
zmodload zsh/zle zsh/complete
finish() {{ print -r -- "$BUFFER" > "$HOME/line"; exit }}
zle -N finish
bindkey '^I' complete-word
bindkey '^X' finish
"""
FROM_THE_PATH = "fpath=(~/.zfunc $fpath)\nautoload -Uz compinit && compinit -u -D"
SOURCED = "autoload -Uz compinit && compinit -u -D\nsource <(interlock completion zsh)"


def fetched(shell: str) -> Path:
    """Return the folder with the package of a shell."""
    folder = unpacked(shell)
    if not folder.exists():
        pytest.xfail(f"There is no {shell}, and no package of it can be fetched: apt install {shell}")
    return folder


def environment(home: Path, libraries: Iterator[Path]) -> dict[str, str]:
    """Return the environment of a shell, which finds the program and the libraries of its package."""
    return {
        **os.environ,
        "HOME": str(home),
        "ZDOTDIR": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "TERM": "dumb",
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "LD_LIBRARY_PATH": os.pathsep.join(sorted({str(each.parent) for each in libraries})),
    }


def script(shell: str) -> str:
    """Return what the program prints for a shell."""
    words = [str(PROGRAMS / "interlock"), "completion", shell]
    return subprocess.run(words, capture_output=True, text=True, timeout=PROGRAM_S, check=True).stdout


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(params=[FROM_THE_PATH, SOURCED], ids=["fpath", "sourced"])
def zsh(request: pytest.FixtureRequest, home: Path, shop: Shop) -> Tab:
    """Press TAB once behind a line of a new zsh, and return the line."""
    program, relocated, libraries = shutil.which("zsh"), "", []
    if program is None:
        folder = fetched("zsh")
        program = str(folder / "bin" / "zsh")
        modules = next(folder.glob("usr/lib/*/zsh/*"))
        functions = folder / "usr/share/zsh/functions"
        relocated = f"module_path=({modules})\nfpath=({functions}/**/*(/N))"
        libraries = [*folder.rglob("*.so*")]
    (home / ".zshrc").write_text(ZSHRC.format(relocated=relocated, setup=request.param))
    (home / ".zfunc").mkdir()
    (home / ".zfunc" / "_interlock").write_text(script("zsh"))

    def press(line: str) -> str:
        keyboard, terminal = pty.openpty()
        try:
            with subprocess.Popen(
                [program, "-d", "-i"],
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                cwd=shop.folder,
                env=environment(home, iter(libraries)),
                start_new_session=True,
            ) as running:
                os.close(terminal)
                shown = read(keyboard, until=PROMPT)  # keys that come before it may be lost
                os.write(keyboard, f"{line}{KEYS}".encode())
                shown += read(keyboard)
                running.kill()
        finally:
            os.close(keyboard)
        written = home / "line"
        assert written.exists(), shown.decode(errors="replace")
        return written.read_text().rstrip("\n")

    return press


def read(keyboard: int, *, until: bytes | None = None) -> bytes:
    """Return what a program shows on its terminal until some text appears, or until it has ended."""
    shown = b""
    while (until is None or until not in shown) and select.select([keyboard], [], [], PATIENCE_S)[0]:
        try:
            shown += os.read(keyboard, 4096)
        except OSError:  # the last process has closed the terminal
            break
    return shown


@pytest.fixture
def fish(home: Path, shop: Shop) -> Tab:
    """Return the values that a new fish offers for a line."""
    program, libraries = shutil.which("fish"), []
    if program is None:
        folder = fetched("fish")
        program = str(home / "bin" / "fish")  # it finds its files beside itself
        (home / "bin").mkdir()
        shutil.copy(folder / "usr/bin/fish", program)
        (home / "share").symlink_to(folder / "usr/share")
        (home / "etc").symlink_to(folder / "etc")
        libraries = [*folder.rglob("*.so*")]
    completions = home / ".config/fish/completions"
    completions.mkdir(parents=True)
    (completions / "interlock.fish").write_text(script("fish"))

    def press(line: str) -> str:
        done = subprocess.run(
            [program, "-c", "complete -C $argv", line],
            cwd=shop.folder,
            env=environment(home, iter(libraries)),
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            check=True,
        )
        return " ".join(each.partition("\t")[0] for each in done.stdout.splitlines())

    return press


@pytest.mark.long
def test_the_first_tab_in_zsh_completes_ids_options_and_filters(zsh: Tab, shop: Shop) -> None:
    job_id = shop.submit()
    assert zsh("interlock job show j_") == f"interlock job show {job_id} "
    assert zsh("interlock job list --colu") == "interlock job list --columns "
    assert zsh("interlock job list state:failed,comp") == "interlock job list state:failed,completed "
    assert zsh("interlock job list --columns id,qu") == "interlock job list --columns id,queue "
    assert zsh("interlock job list --sort -subm") == "interlock job list --sort -submitted "
    assert zsh("interlock job list -o jsonl -o ya") == "interlock job list -o jsonl -o yaml "


@pytest.mark.long
def test_fish_offers_ids_options_and_filters(fish: Tab, shop: Shop) -> None:
    job_id = shop.submit()
    assert fish("interlock job show j_") == job_id
    assert fish("interlock job list --colu") == "--columns"
    assert fish("interlock job list state:failed,comp") == "state:failed,completed"
    assert fish("interlock job list --columns id,qu") == "id,queue"
    assert fish("interlock job list --sort -subm") == "-submitted"
    assert fish("interlock job list -o ya") == "yaml"
