"""`--help` on the processors, beside a Python that does nothing: most of it is imports.

User and system time of the child process, so that a busy machine changes little. Each has run before, and
its bytecode is written, also where the environment forbids it (`PYTHONDONTWRITEBYTECODE`): an installation
has bytecode. The width of the terminal is that of most: on fewer than 80 columns typer makes the text.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from resource import RUSAGE_CHILDREN, getrusage

from bench.report import Line, Section
from bench.rounds import Figure, Pace

NOTHING = "python -c pass"
NAME = "interlock"
COMMANDS = (("--help",), ("job", "list", "--help"), ("worker", "start", "--help"))
MOST_MS = 150.0


def run(pace: Pace) -> Section:
    """Measure the commands in turns with an empty program."""
    lines: list[Line] = []
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as bytecode:
        for words in COMMANDS:
            ours, empty = ("-m", "interlock", *words), ("-c", "pass")
            for program in (ours, empty):
                _spent_ms(program, bytecode)
            rounds = [(_spent_ms(ours, bytecode), _spent_ms(empty, bytecode)) for _ in range(pace.rounds)]
            figure = Figure(tuple(each[0] for each in rounds))
            line = f"interlock {' '.join(words)}"
            lines.append(Line(line, "ms", {NAME: figure, NOTHING: Figure(tuple(each[1] for each in rounds))}))
            if figure.median > MOST_MS:
                missed.append(
                    f"`{line}` should take less than {MOST_MS:g} ms, and takes {figure.median:.0f}."
                )
    return Section("Command line: help texts, on the processors", NOTHING, tuple(lines), missed=tuple(missed))


def _spent_ms(words: tuple[str, ...], bytecode: str) -> float:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "COLUMNS": "80"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True, env=environment)
    after = getrusage(RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
