"""`manage.py interlock …`: the program `interlock` with the settings of the project.

python manage.py interlock worker start
python manage.py interlock job list state:failed
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from django.core.management.base import BaseCommand

from interlock.cli.errors import print_error
from interlock.cli.main import main
from interlock.django import access_token, store_url, task_module
from interlock.errors import InterlockError

_NEEDS_TASKS = (["worker", "start"], ["supervisor"], ["dev"])


class Command(BaseCommand):
    """Hand the command line on, with the store and the tasks of the settings as defaults."""

    help = "Run interlock with the store and the tasks of this project: manage.py interlock worker start"

    def run_from_argv(self, argv: list[str]) -> None:
        """Run a command line; Django's own options are not read from it."""
        sys.exit(run(argv[2:]))

    def handle(self, *words: str, **_: object) -> None:
        """Run the words of `call_command("interlock", "job", "list")`."""
        if code := run(words):
            raise SystemExit(code)


def run(words: Sequence[str]) -> int:
    """Run `interlock WORDS`; return the exit code."""
    try:
        os.environ["INTERLOCK_URL"] = store_url()
        if token := access_token():
            os.environ["INTERLOCK_TOKEN"] = token
        given = with_tasks(words, task_module())
    except InterlockError as error:
        return print_error(error, as_json="--json" in words)
    return main(given)


def with_tasks(words: Sequence[str], module: str | None) -> list[str]:
    """Return the words with the module of the tasks.

    It is added where a command needs one and none is given.
    """
    given = list(words)
    for needs in _NEEDS_TASKS:
        rest = given[len(needs) :]
        if module and given[: len(needs)] == needs and "--shell" not in rest and not _has_argument(rest):
            return [*needs, module, *rest]
    return given


def _has_argument(rest: Sequence[str]) -> bool:
    """Return whether the first word is an argument.

    Options of these commands come after it.
    """
    return bool(rest) and not rest[0].startswith("-")
