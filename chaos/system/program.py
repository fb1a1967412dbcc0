"""How a process of the fleet begins: `interlock` itself, which dies with the harness.

Forked (`run_forked`) for those that are killed often, and as a program of its own
(`python -m chaos.system.program WAY ...`) where that needs another environment from the start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from chaos.forks import die_with_parent
from chaos.system.ways import break_rule


def run(way: str, arguments: Sequence[str]) -> int:
    """The command line `interlock ARGUMENTS`, without the rule that `way` names."""
    from interlock.cli.main import main  # noqa: PLC0415 - after whatever was broken

    die_with_parent()
    break_rule(way)
    return main(arguments)


def run_forked(
    way: str, arguments: Sequence[str], folder: str, log: str, environment: Mapping[str, str]
) -> None:
    """The same in a process that was forked: it gets a folder, an environment and a log of its own."""
    words = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(words, stream)
    os.close(words)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.exit(run(way, arguments))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))
