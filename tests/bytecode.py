"""Compile the tests once, not once in each process that runs them.

pytest rewrites the assertions of a test file when it first imports it, which takes longer than the import.
All processes of a run import the same files in the same order, so in a fresh clone each would rewrite all of
them. Here each process rewrites its share first, and then finds what the others have written.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite  # there is no public way to write what an import would


def keep_bytecode_in(folder: Path) -> None:
    """Where bytecode may not lie beside the sources, keep it in a folder; also for processes of tests."""
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
    sys.dont_write_bytecode = False


def compile_share(config: pytest.Config) -> None:
    """Rewrite this process's share of the test files, if all are about to be run and it is one of several."""
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    number, of = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted((config.rootpath / "tests").rglob("test_*.py"))[number::of]:
        _compile(path, config)


def _compile(path: Path, config: pytest.Config) -> None:
    folder = rewrite.get_cache_dir(path)
    pyc = folder / (path.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(path, pyc) is None and rewrite.try_makedirs(folder):
        try:
            source_hash, code = rewrite._rewrite_test(path, config)
        except SyntaxError:
            return  # told by the import
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, pyc)
