"""Record the console sessions of docs/reference/command-line: `make sessions`.

    python tools/sessions.py            replay every transcript in docs/sessions, and write its output anew
    python tools/sessions.py job run    only docs/sessions/job.txt and run.txt

Each transcript is played on a stage of its own: a folder with the files of examples/ and of
docs/sessions/files, and an empty SQLite database. Commands run in this process, on a terminal of 100 columns
or, with `| head -N` or `| tail -N`, in a pipe. The time of the store is that of the stage: it stands still
but for a second after each command, and for directions. Ids are drawn anew each time, and keep the names
that the transcript has given them.

A transcript that begins with `% real-time` has the time of this machine, and commands that run until Ctrl-C:
there, durations and the like may be others than those of the transcript.

Output that differs from one machine to the next is replaced by what the transcript has in its place.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import logging
import os
import pty
import random
import re
import select
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

from msgspec import Raw

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from docs import transcripts  # noqa: E402
from docs.transcripts import DIRECTION, Session, Step  # noqa: E402
from tests.cli.shop import RUNNER, Shop  # noqa: E402 - the tests know how to be a runner, word by word
from tests.cli.test_webhook_command import listening  # noqa: E402
from tests.programs import Program  # noqa: E402
from tests.systems.fleet.fleets import fleet  # noqa: E402
from tests.waiting import PATIENCE_S  # noqa: E402

from interlock.cli.main import main as run_interlock  # noqa: E402
from interlock.engine.outbox import MESSAGE, SENDING, WAITING  # noqa: E402
from interlock.server import parts  # noqa: E402
from interlock.store.records import Query  # noqa: E402
from interlock.store.sqlite import store as sqlite  # noqa: E402
from interlock.store.sqlite.database import HeldClock  # noqa: E402
from interlock.systems import embedded  # noqa: E402
from interlock.systems.access.authentication import Sessions  # noqa: E402
from interlock.systems.access.tokens import Tokens  # noqa: E402
from interlock.systems.embedded import EmbeddedOrchestrator  # noqa: E402
from interlock.systems.quarantine import LostWork  # noqa: E402
from interlock.systems.runtime import Host, Runtime  # noqa: E402
from interlock.text import read_duration  # noqa: E402
from interlock.wire.batches import BatchSpec  # noqa: E402
from interlock.wire.jobs import SHELL, JobSpec  # noqa: E402
from interlock.wire.runner import ClaimRequest, Complete, Failed, Grant, LogLine, Release, Succeeded  # noqa: E402
from interlock.wire.runs import Plan, PlannedJob, RunSpec, Source  # noqa: E402
from interlock.wire.waits import ApprovalQuestion, WaitRequest  # noqa: E402
from interlock.wire.workers import WorkerSpec  # noqa: E402
from interlock.worker.middleware import NO_MIDDLEWARE  # noqa: E402
from interlock.worker.tasks import DEFAULT  # noqa: E402

FILES = (ROOT / "examples", transcripts.FOLDER / "files")
BEGINNING = datetime(2026, 3, 2, 9, tzinfo=UTC)
COLUMNS = 100
PLACE = "/srv/shop"
"""The folder of the stage, as transcripts name it."""
ENVIRONMENT = {
    "COLUMNS": str(COLUMNS),
    "LINES": "40",
    "LOGNAME": "ada",
    "NO_COLOR": "1",
    "TERM": "dumb",
}
ID = re.compile(
    r"\b(?:[bjrsw]_[0-9a-f]{12}|il_[0-9a-f]{16}_[0-9a-f]{64}|whsec_[A-Za-z0-9+/=]+)"
    r"|\b127\.0\.0\.1:\d+"
)
"""What is drawn: ids, access tokens and secrets."""


STEPS = re.compile(r"(?<=:\d\d)\.0000\d\d(?=Z)")
"""Microseconds that tell commits of the same moment apart."""


EXIT = "[exit code"
LOGGED = "TIME ["
LOOSE = [
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00| UTC)?", "TIME"),
        (r"\b\d\d:\d\d:\d\d(\.\d+)?\b", "TIME"),
        (r"(\bin )?\b\d[\d.,]* ?(ms|s|min|h|d|µs)\b( ago)?|\bnow\b", "DURATION"),
        (r"\b[\d.]+/s\b", "RATE"),
        (r"(?<=[#-])[0-9a-f]{1,8}(…|\b)", "DRAWN"),
        (r"\bpid\W*\d+", "PID"),
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
        (r"\b(Interlock|SQLite|Python) \d+\.\d+\.\d+\S*", "VERSION"),
        (r"\b[\d.,]+ (bytes|[KMG]i?B|GB)\b", "SIZE"),
        (r" {2,}", " "),
        ("─+|━+", "─"),
        (r"(?m)^(TIME \[\w+ *\] \w+).*$", r"\1"),
    )
]
"""What differs from one time to the next, in transcripts in real time."""
MACHINE = re.compile(r"\b(?:SQLite|Python) \d+\.\d+\.\d+\S*|\b[\d,]+ bytes\b")
"""What differs from one machine to the next."""
SECRET = re.compile(r"\b[0-9a-f]{16}\b")
"""The public part of an access token."""
REAL_TIME = "% real-time"
"""The first line of a transcript whose commands run in real time, some of them as processes."""


ROOT_ONLY = "steps_run_as_root"
"""A warning that only root gets."""


class Clock:
    """The time of a stage."""

    def __init__(self) -> None:
        self.s = BEGINNING.timestamp()

    def ns(self) -> int:
        """Return nanoseconds, as the clock of a host does."""
        return round(self.s * 1e6) * 1_000

    def seconds(self) -> float:
        """Return seconds."""
        return self.s


class Screen(io.StringIO):
    """Standard output and standard error, on a terminal or in a pipe."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return self._terminal


class Stage:
    """A folder, a database and a clock; plays steps of a transcript."""

    def __init__(self, folder: Path, *, real: bool = False) -> None:
        self.folder = folder
        self.clock = Clock()
        self._real = real
        self.shop = Shop(folder)
        self._names: dict[str, str] = {}
        """The ids of the transcript, and what they are here."""
        self._until = ""
        self._varies = False
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the processes that directions have started."""
        self._open.close()

    def play(self, session: Session) -> Session:
        """Return the session as it goes now."""
        return Session(session.words, tuple(map(self._play, session.steps)))

    def _play(self, step: Step) -> Step:
        line = ID.sub(lambda found: self._names.get(found[0], found[0]), step.line)
        try:
            output = self._direct(line) if step.sign == DIRECTION else self._run(line)
        except Exception as error:
            error.add_note(f"The step is: {line}")
            raise
        self.clock.s += 1
        text = STEPS.sub("", output.replace(str(self.folder), PLACE))
        lines = tuple(line.rstrip() for line in text.rstrip().splitlines() if ROOT_ONLY not in line)
        now = self._named(step.output, lines)
        varies = self._varies and step.sign != DIRECTION
        self._varies = self._varies and not varies
        return Step(step.sign, step.line, self._settled(step.output, now, varies=varies))

    def _named(self, before: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
        """Return what is printed now, with the ids of the transcript."""
        known, there = _ids(before), _ids(now)
        if len(known) == len(there):
            for shown, found in zip(known, there, strict=True):
                if shown not in self._names and found not in self._names.values():
                    self._names |= {
                        shown: found,
                        **dict(zip(shown.split("_"), found.split("_"), strict=True)),
                    }
        shown_by = {found: shown for shown, found in self._names.items() if ID.fullmatch(shown)}
        parts = {found: shown for shown, found in self._names.items()}
        return tuple(
            SECRET.sub(lambda found: parts.get(found[0], found[0]), line)
            for line in (ID.sub(lambda found: shown_by.get(found[0], found[0]), line) for line in now)
        )

    def _settled(self, before: Sequence[str], now: Sequence[str], *, varies: bool) -> tuple[str, ...]:
        """Return the output of the transcript where what is printed now differs by chance only."""
        if varies and before and now:
            same = _fails(before) == _fails(now)
        else:
            same = self._loosened(before) == self._loosened(now)
        return tuple(before if same else now)

    def _loosened(self, lines: Sequence[str]) -> str:
        if not self._real:
            return MACHINE.sub("", "\n".join(lines))
        return loosened(lines)

    def _run_process(self, words: Sequence[str], until: str) -> str:
        """Run a command as a process on a terminal; send SIGINT once it has printed a text."""
        ours, theirs = pty.openpty()
        with Program(*words, folder=self.folder, stdin=theirs, stdout=theirs, stderr=theirs) as process:
            os.close(theirs)
            written = b""
            while until.encode() not in written:
                if not (more := _read(ours)):
                    break
                written += more
            process.send_signal(signal.SIGINT)
            ending = b"".join(iter(lambda: _read(ours), b""))
            code = process.wait()
        os.close(ours)
        parts = [part.decode(errors="replace").replace("\r\n", "\n") for part in (written, ending)]
        return f"{parts[0].rstrip()}\n^C\n{parts[1].removeprefix('^C')}" + _exit(code)

    def _run(self, line: str) -> str:
        line, _, end = line.partition(" | ")
        line, _, file = line.partition(" > ")
        name, *words = shlex.split(line)
        if name == "cat":
            return "".join((self.folder / word).read_text(encoding="utf-8") for word in words)
        if name != "interlock":
            raise ValueError(f"a stage has no command {name}")
        until, self._until = self._until, ""
        if until:
            return self._run_process(words, until)
        screen = Screen(terminal=not (end or file))
        with fresh_process(), redirect_stdout(screen), redirect_stderr(screen):
            code = run_interlock(words)
        output = screen.getvalue()
        if file:
            (self.folder / file).write_text(output, encoding="utf-8")
            return ""
        if end:
            command, number = end.split(" -")
            part = slice(int(number)) if command == "head" else slice(-int(number), None)
            output = "\n".join(output.splitlines()[part])
        return output.rstrip("\n") + "\n" * bool(output) + _exit(code)

    # Directions

    def direct_until(self, *words: str) -> None:
        """Run the next command as a process, and press Ctrl-C when it has printed this."""
        self._until = " ".join(words)

    def direct_varies(self) -> None:
        """Keep the output of the next command, which is another each time; it has to succeed."""
        self._varies = True

    def _direct(self, line: str) -> str:
        name, *words = shlex.split(line)
        return getattr(self, f"direct_{name}")(*words) or ""

    def direct_later(self, duration: str) -> None:
        """Let time pass."""
        passed_s = read_duration(duration).total_seconds()
        self.clock.s += passed_s
        if self._real:
            self.shop.later(passed_s)

    def direct_agents(self, number: str) -> str:
        """Start agents of a fleet; print their addresses."""
        folder = self.folder / ".agents"
        agents = self._open.enter_context(fleet(folder, [{}] * int(number)))
        return "".join(f"{agent.address}\n" for agent in agents)

    def direct_receiver(self) -> str:
        """Start a receiver of webhooks; print its address."""
        url, _ = self._open.enter_context(listening(200))
        return url.removeprefix("http://").removesuffix("/ci")

    def direct_simulate(self, simulation_id: str, status: str) -> None:
        """Have a worker report that a simulation runs, or has paused."""
        worker: dict[str, Any] = {"worker_id": RUNNER} if status == "running" else {}
        self.shop.do(lambda port: port.services.simulations.transition(simulation_id, status, **worker))

    def direct_background(self, *words: str) -> str:
        """Start a workload in the background; print the id of its job once it does something."""
        running = self._open.enter_context(Program(*words, folder=self.folder))
        assert running.stdout is not None
        while not running.stdout.readline().startswith("second"):
            pass
        return self.shop.do(lambda port: port.services.store.find(Query(kind="job", limit=1))).records[0].id

    def direct_page(self, name: str) -> None:
        """Save the first block of Python of a guide in the file that its first line names."""
        text = (ROOT / "docs" / "guides" / f"{name}.md").read_text(encoding="utf-8")
        block = text.partition("```python\n# ")[2].partition("```\n")[0]
        file, _, source = block.partition("\n")
        (self.folder / file).write_text(source, encoding="utf-8")

    def direct_take(self, *job_ids: str) -> None:
        """Claim all ready jobs for a runner, these among them."""
        self.shop.take(*job_ids)

    def direct_write(self, job_id: str, *lines: str) -> None:
        """Have a job that runs write to its log."""
        self.shop.write(job_id, *lines)

    def direct_progress(self, job_id: str, done: str, total: str) -> None:
        """Have a job that runs report its progress."""
        self.shop.report_progress(job_id, float(done), float(total))

    def direct_complete(self, job_id: str, result: str = "null") -> None:
        """Complete a job that runs."""
        self.shop.complete(job_id, json.loads(result))

    def direct_fail(self, job_id: str, error: str) -> None:
        """Fail the attempt of a job that runs."""
        self.shop.fail(job_id, error)

    def direct_attach(self, job_id: str, name: str, content: str) -> None:
        """Have a job that runs store an artifact."""

        async def pieces() -> AsyncIterator[bytes]:
            yield content.encode()

        token = self.shop.grants[job_id].token
        self.shop.do(lambda port: port.keep_artifact(token, RUNNER, name, pieces()))

    def direct_ask(self, job_id: str, question: str) -> None:
        """Have a job that runs wait until a person approves."""
        self._park(job_id, question=ApprovalQuestion(text=question))

    def direct_await(self, job_id: str, signal: str) -> None:
        """Have a job that runs wait for a signal."""
        self._park(job_id, name=signal)

    def _park(self, job_id: str, **how: Any) -> None:
        request = WaitRequest(token=self.shop.grants[job_id].token, runner_id=RUNNER, **how)
        answer = self.shop.do(lambda port: port.await_signal(request))
        self.shop.say(job_id, Release, await_signal=answer.id)

    def direct_recover(self) -> None:
        """Fire deadlines and deliver messages, as a server does all the time."""
        self.shop.do(lambda port: port.recover())

    def direct_hire(self, name: str, slots: str = "10") -> str:
        """Register a worker, and start it; print its id."""

        async def work(port: EmbeddedOrchestrator) -> str:
            worker = await port.services.workers.register(WorkerSpec(name=name, capacity=int(slots)))
            await port.services.workers.start(worker.id)
            return worker.id

        return self.shop.do(work)

    def direct_batch(self, description: str, number: str) -> str:
        """Create a closed batch of receipts; print its id."""
        jobs = [JobSpec(task="shop.send", queue="mail", input=Raw(b'{"address":"ada@example.org"}'))]

        async def create(port: EmbeddedOrchestrator) -> str:
            batches = port.services.batches
            spec = BatchSpec(description=description)
            return (await batches.create(spec, jobs * int(number), close=True)).batch_id

        return self.shop.do(create)

    def direct_lose(self, runner: str, *job_ids: str) -> None:
        """Count jobs that a runner has lost."""
        lost = [LostWork(runner=runner, job_id=job_id, attempt="1.1") for job_id in job_ids]
        self.shop.do(lambda port: port.services.quarantine.count(lost))

    def direct_work(self, *failing: str) -> None:
        """Execute all jobs of runs, one after the other; those that are named fail."""

        while (grant := self.shop.do(self._claim_one)) is not None:
            self._execute(grant, failing)

    async def _claim_one(self, port: EmbeddedOrchestrator) -> Grant | None:
        """Claim a job; None if there is none, and no message that would make one."""
        undelivered = Query(kind=MESSAGE.name, states=(WAITING, SENDING), limit=1)
        while True:
            await port.recover()
            if grants := await port.claim(ClaimRequest(runner_id=RUNNER, limit=1)):
                return grants[0]
            if not (await port.services.store.find(undelivered)).records:
                return None

    def _execute(self, grant: Grant, failing: Sequence[str]) -> None:
        name = self.shop.job(grant.job_id).description
        outcome = Failed(error="1 test failed", exit_code=1) if name in failing else Succeeded()
        began = datetime.fromtimestamp(self.clock.s, UTC)
        line = LogLine(began, "stdout", f"{name}: {'1 failed' if name in failing else 'all good'}")
        self.clock.s += 1 + len(name)
        done = Complete(token=grant.token, runner_id=RUNNER, sequence=1, outcome=outcome, log=(line,))
        self.shop.do(lambda port: port.report([done]))

    def direct_fork(self, workflow: str, number: str) -> str:
        """Submit a run of a change from a fork; print its id."""
        plan = Plan(jobs=(PlannedJob(name="test", task=SHELL),))
        source = Source(
            repository="acme/shop",
            ref=f"refs/pull/{number}/head",
            sha="5f" * 20,
            from_fork=True,
            actor="mallory",
        )

        async def submit(port: EmbeddedOrchestrator) -> str:
            run = await port.services.runs.submit(RunSpec(workflow=workflow, plan=plan, source=source))
            await port.recover()
            return run.id

        return self.shop.do(submit)


def _fails(output: Sequence[str]) -> bool:
    return output[-1].startswith(EXIT)


def _exit(code: int) -> str:
    return f"{EXIT} {code}]\n" if code else ""


def _read(terminal: int) -> bytes:
    ready, _, _ = select.select([terminal], [], [], PATIENCE_S)
    if not ready:
        raise TimeoutError("The process prints nothing.")
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side is closed
        return b""


def loosened(lines: Sequence[str]) -> str:
    """Return output without what differs from one time to the next; of log lines, which events there are."""
    text = "\n".join(line.strip() for line in lines)
    for pattern, name in LOOSE:
        text = pattern.sub(name, text)
    found = text.splitlines()
    events = {line for line in found if line.startswith(LOGGED)}
    return "\n".join([*(line for line in found if line not in events), *sorted(events)])


def _ids(lines: Sequence[str]) -> list[str]:
    """Return the distinct ids in some lines, in their order."""
    return list(dict.fromkeys(ID.findall("\n".join(lines))))


@contextmanager
def fresh_process() -> Iterator[None]:
    """Let a command import what it names, as a new process would."""
    modules, path, chain = set(sys.modules), list(sys.path), DEFAULT.chain
    DEFAULT.chain = NO_MIDDLEWARE
    try:
        with mock.patch.multiple(DEFAULT, _tasks={}, schedules={}, limits={}):
            yield
    finally:
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(Path.cwd())):
                del sys.modules[name]
        sys.path[:], DEFAULT.chain = path, chain


@contextmanager
def stage(*, real: bool = False) -> Iterator[Stage]:
    """Set a stage: the folder is the current one, and the store has its time, unless it is `real`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())).resolve()
        for files in FILES:
            shutil.copytree(files, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        there = Stage(folder, real=real)
        own = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
        environment = {**own, **ENVIRONMENT, "HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config")}
        stack.enter_context(mock.patch.dict(os.environ, environment, clear=True))
        stack.enter_context(chdir(folder))
        stack.enter_context(mock.patch.object(logging.getLogger("interlock.runs.outcomes"), "disabled", True))
        if not real:
            stack.enter_context(frozen(there.clock))
        stack.enter_context(there)
        yield there


@contextmanager
def frozen(clock: Clock) -> Iterator[None]:
    """Give every store of this process the time of a stage; what is drawn is drawn the same every time."""
    held = functools.partial(HeldClock, clock.ns, clock.ns)
    ids, seeds, secrets = random.Random(0), random.Random(1), random.Random(2)
    host = Host(
        monotonic=clock.seconds,
        wall=clock.seconds,
        ids=lambda: ids.randbytes(8).hex(),
        seeds=lambda: seeds.randbytes(32),
        below=ids.randrange,
    )

    def runtime(store: Any, settings: Any, _: Host = host, **more: Any) -> Runtime:
        return Runtime(store, settings, host, **more)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(sqlite, "HeldClock", held))
        for module in (embedded, parts):
            stack.enter_context(mock.patch.object(module, "Runtime", runtime))
        for drawing in (Tokens, Sessions):
            defaults = drawing.__init__.__kwdefaults__
            stack.enter_context(mock.patch.dict(defaults, draw=lambda size: secrets.randbytes(size).hex()))
        yield


def replay(path: Path) -> str:
    """Return a transcript as it goes now."""
    text = path.read_text(encoding="utf-8")
    real = text.startswith(REAL_TIME)
    with stage(real=real) as there:
        played = transcripts.written([there.play(session) for session in transcripts.read(text)])
    return f"{REAL_TIME}\n\n{played}" if real else played


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the transcripts that are named, or all of them."""
    parser = argparse.ArgumentParser(description="Record the console sessions of the reference.")
    parser.add_argument("names", nargs="*", help="names of transcripts below docs/sessions; default: all")
    chosen = parser.parse_args(arguments).names
    for path in (*transcripts.transcripts(), *transcripts.of_pages()):
        if not chosen or path.stem in chosen:
            text = replay(path)
            changed = text != path.read_text(encoding="utf-8")
            path.write_text(text, encoding="utf-8")
            print(f"sessions: {'wrote' if changed else 'nothing to change in'} {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
