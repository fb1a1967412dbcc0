"""Run the tests in several processes, which are forked when everything has been collected.

    pytest --processes auto
    pytest --processes 4 tests/store

The parent runs no test. It gives out places in the list of tests, passes on what the others report, and
starts another process in place of one that crashed; the test that crashed it has failed. Each process begins
with a stretch of the list, so that tests of one file share their fixtures. One that has nothing left takes
the second half of the longest stretch. Tests with the marker `together` stand at the beginning of a stretch,
where they are not divided: they share what is costly to make, such as a browser.

The interpreters that pytest-xdist starts import and collect everything anew: with six of them that took 150
of 1,240 s of processor time in a fresh clone, and a minute before the first test (decision 0446).
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any
from warnings import WarningMessage

import pytest

FORK = multiprocessing.get_context("fork")
INTERRUPTED = 130


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that says how many processes there are."""
    parser.addoption(
        "--processes",
        default="1",
        metavar="N",
        help="Run the tests in N processes ('auto': four more than there are cores).",
    )


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in several processes, if that is asked for and there are several tests."""
    option = session.config.option
    number = min(_number(option.processes), len(session.items))
    if number < 2 or option.collectonly or option.usepdb or session.testsfailed:
        return None  # pytest's own loop does it
    Crew(session, number).run()
    return True


def _number(processes: str) -> int:
    """Return how many processes run the tests.

    Many tests wait for what they have started, and leave their core free. Each process has servers of its
    own, and needs about a gigabyte of memory.
    """
    if processes != "auto":
        return int(processes)
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    return max(2, min(cores + 4, gigabytes))


def stretches(items: Sequence[pytest.Item], number: int) -> list[list[int]]:
    """Return the places of the tests with which each process begins."""
    groups: dict[str, list[int]] = {}
    others: list[int] = []
    for place, item in enumerate(items):
        marker = item.get_closest_marker("together")
        (groups.setdefault(marker.args[0], []) if marker else others).append(place)
    bounds = [len(others) * at // number for at in range(number + 1)]
    stretches = [others[first:end] for first, end in pairwise(bounds)]
    for at, group in enumerate(groups.values()):
        stretches[at % number][:0] = group
    return stretches


@dataclass(eq=False)
class Runner:
    """A process that runs tests, as the parent sees it."""

    connection: Connection
    process: BaseProcess
    left: list[int]
    """Places in the list of tests that are kept for it."""
    given: list[int] = field(default_factory=list)
    """The test that it runs, and the one that follows."""
    is_done: bool = False


class Crew:
    """The processes, and what is left for each of them."""

    def __init__(self, session: pytest.Session, number: int) -> None:
        self._session = session
        self._items = session.items
        self._hook = session.config.hook
        self._runners: list[Runner] = []
        self._started = 0
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and reporter.verbosity == 0:
            reporter.showfspath = False  # tests of many files are under way at the same time
        _folders(session.config).getbasetemp()  # made once, by the one that removes it
        for stretch in stretches(self._items, number):
            self._start(stretch)

    def run(self) -> None:
        """Give out tests and pass on reports until all processes have ended."""
        try:
            while self._runners:
                ready = wait([runner.connection for runner in self._runners])
                for runner in [runner for runner in self._runners if runner.connection in ready]:
                    self._receive(runner)
                if self._session.shouldfail:
                    raise self._session.Failed(self._session.shouldfail)
                if self._session.shouldstop:
                    raise self._session.Interrupted(self._session.shouldstop)
        finally:
            for runner in self._runners:
                runner.process.terminate()
            for runner in self._runners:
                runner.process.join()

    def _start(self, left: list[int]) -> None:
        ours, theirs = FORK.Pipe()
        parents = [ours, *(runner.connection for runner in self._runners)]
        process = FORK.Process(target=_run, args=(self._session, self._started, theirs, parents))
        process.start()
        theirs.close()
        self._started += 1
        self._runners.append(Runner(ours, process, left))

    def _receive(self, runner: Runner) -> None:
        try:
            news = runner.connection.recv()
        except (EOFError, ConnectionResetError):
            self._bury(runner)
            return
        for kind, content in news:
            self._take(runner, kind, content)

    def _take(self, runner: Runner, kind: str, content: Any) -> None:
        match kind:
            case "next":
                runner.connection.send(self._next(runner))
            case "start":
                self._hook.pytest_runtest_logstart(**content)
            case "report":
                report = self._hook.pytest_report_from_serializable(config=self._session.config, data=content)
                self._hook.pytest_runtest_logreport(report=report)
            case "finish":
                self._hook.pytest_runtest_logfinish(**content)
            case "warning":
                self._hook.pytest_warning_recorded.call_historic(kwargs=content)
            case "begun":
                pass
            case "done":
                runner.is_done = True

    def _next(self, runner: Runner) -> int | None:
        """Return the place of the next test for a process; it has ended the one before the last."""
        del runner.given[:-1]
        if not runner.left:
            longest = max((other.left for other in self._runners), key=len)
            half = len(longest) // 2
            runner.left, longest[half:] = longest[half:], []
        if not runner.left:
            return None
        place = runner.left.pop(0)
        runner.given.append(place)
        return place

    def _bury(self, runner: Runner) -> None:
        """Take leave of a process that has ended; if it crashed, so did its test, and another one goes on."""
        self._runners.remove(runner)
        runner.connection.close()
        runner.process.join()
        if runner.is_done and runner.process.exitcode == 0:
            return
        item = self._items[runner.given[0] if runner.given else 0]
        self._hook.pytest_runtest_logreport(
            report=pytest.TestReport(
                nodeid=item.nodeid,
                location=item.location,
                keywords={},
                outcome="failed",
                longrepr=f"The process of this test ended with exit code {runner.process.exitcode}.",
                when="teardown" if runner.is_done else "call",
            )
        )
        if left := [*runner.given[1:], *runner.left]:
            self._start(left)


class Reporter:
    """Sends the parent what pytest reports in a process, all of a test at once: each time both are woken."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._unsent: list[tuple[str, Any]] = []

    def send(self, kind: str, content: object = None) -> None:
        """Send what has been reported, and this at the end."""
        self._connection.send([*self._unsent, (kind, content)])
        self._unsent.clear()

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Report that a test begins; at once if its name is shown, so that one sees which test hangs."""
        self._unsent.append(("start", {"nodeid": nodeid, "location": location}))
        if self._config.option.verbose > 0:
            self.send("begun")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report what became of a phase of a test."""
        hook = self._config.hook
        data = hook.pytest_report_to_serializable(config=self._config, report=report)
        self._unsent.append(("report", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        """Report that a test has ended."""
        self._unsent.append(("finish", {"nodeid": nodeid, "location": location}))

    def pytest_warning_recorded(
        self, warning_message: WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        """Report a warning, without the object that it is about."""
        warning_message.source = None
        content = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self._unsent.append(("warning", content))


def _run(session: pytest.Session, number: int, connection: Connection, parents: Sequence[Connection]) -> None:
    """Run tests in a forked process until none is left."""
    for other in parents:
        other.close()  # so that the end of the parent is seen
    try:
        reporter = _make_own(session.config, number, connection)
        _run_tests(session, reporter, connection)
        session.config._ensure_unconfigure()
    except (EOFError, KeyboardInterrupt):  # the parent has ended, or is about to
        os._exit(INTERRUPTED)
    reporter.send("done")
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()


def _make_own(config: pytest.Config, number: int, connection: Connection) -> Reporter:
    """Give a process what it must not share: its output, its folder, and somebody to report to."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None:
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    config.pluginmanager.unregister(name="terminalreporter")
    reporter = Reporter(config, connection)
    config.pluginmanager.register(reporter, "reporter")
    folders = _folders(config)
    folders._basetemp = folders.mktemp(f"process-{number}", numbered=False)
    return reporter


def _folders(config: pytest.Config) -> pytest.TempPathFactory:
    folders: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return folders


def _run_tests(session: pytest.Session, reporter: Reporter, connection: Connection) -> None:
    def ask() -> pytest.Item | None:
        reporter.send("next")
        place = connection.recv()
        return None if place is None else session.items[place]

    item, following = ask(), ask()
    while item is not None:
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        item, following = following, None if following is None else ask()
