"""Compile the tests with all cores, before one process collects them.

pytest rewrites the assertions of a test file when it first imports it, which takes longer than the import. In
a fresh clone that is most of the time of the collection, and it can be divided.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from _pytest.assertion import rewrite  # there is no public way to write what an import would

FORK = multiprocessing.get_context("fork")
FEW = 20
"""So many files are left to the import."""


def keep_bytecode_in(folder: Path) -> None:
    """Where bytecode may not lie beside the sources, keep it in a folder; also for processes of tests."""
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
    sys.dont_write_bytecode = False


def compile_tests(config: pytest.Config) -> None:
    """Rewrite the test files in several processes, if all are about to be collected and many are changed."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    paths = [path for path in (config.rootpath / "tests").rglob("test_*.py") if not _is_compiled(path)]
    if len(paths) < FEW:
        return
    cores = os.cpu_count() or 1
    processes = [FORK.Process(target=_compile, args=(paths[at::cores], config)) for at in range(cores)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _is_compiled(path: Path) -> bool:
    return rewrite._read_pyc(path, _compiled(path)) is not None


def _compiled(path: Path) -> Path:
    return rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)


def _compile(paths: Sequence[Path], config: pytest.Config) -> None:
    for path in paths:
        if not rewrite.try_makedirs(_compiled(path).parent):
            return  # nothing can be kept here
        try:
            source_hash, code = rewrite._rewrite_test(path, config)
        except SyntaxError:
            continue  # reported by the import
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, _compiled(path))
