"""The context of a handler: progress, log, checkpoint, cancellation, and unsent messages.

A handler may run in the worker's event loop or in a thread, and may start more threads: every method here
can be called from any of them, and none waits except those that say so. `UnsentMessages` and `Lines` keep
messages of a handler until the worker sends them: the latest progress and checkpoint, and a bounded number of
log lines with their position in the whole log, so that a gap is visible. The context itself sends nothing, so
an unavailable store never blocks a handler.

The worker's half is below the line: `take`, `put_back`, `stop` and `active`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, overload

import msgspec

from interlock.errors import InvalidArguments, JobError, TooLarge
from interlock.processes.masks import NOTHING_SECRET, Mask
from interlock.processes.sandbox import NO_SANDBOX, SandboxSettings
from interlock.wire.artifacts import ArtifactView
from interlock.wire.runner import Grant, LogLine, Progress, size_of
from interlock.wire.schedules import schedule_in, scheduled_for_in
from interlock.wire.workloads import WorkloadFact
from interlock.worker.child_jobs import NO_CHILD_JOBS, ChildJobContext, ChildJobService, T
from interlock.worker.codec import decode, encode
from interlock.worker.middleware import Chain, no_middleware
from interlock.worker.postponement import Duration, Snooze
from interlock.worker.secrets import Secrets
from interlock.worker.simulation_channel import NO_CHANNEL, LeaseChannel, SimulationChannel
from interlock.worker.transfers import NO_CACHES, CacheAccess, OwnCaches, Upload, Uploads, no_uploads

MAX_LINES = 1_000
MAX_LOG_BYTES = 256 * 1024
MAX_LINE_BYTES = 8 * 1024


class UnsentMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a handler since they were last taken."""

    progress: Progress | None = None
    checkpoint: msgspec.Raw | None = None
    log: tuple[LogLine, ...] = ()
    log_offset: int = 0
    """Offset of these lines in the whole log of the handler, in bytes."""
    heartbeat: bool = False
    """Whether the handler requests a heartbeat now."""
    uploading: bool = False
    """Whether the handler only uploads artifacts."""

    def __bool__(self) -> bool:
        return self != NOTHING


NOTHING = UnsentMessages()


class Lines:
    """The newest lines of a log. Not thread-safe: callers hold a lock."""

    __slots__ = ("_bytes", "_end", "_lines")

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque()
        self._bytes = 0
        self._end = 0

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def offset(self) -> int:
        """Offset of the oldest kept line in the whole log."""
        return self._end - self._bytes

    def add(self, line: LogLine) -> None:
        """Add a line; drop the oldest ones above the limit."""
        self._lines.append(line)
        size = size_of(line)
        self._bytes += size
        self._end += size
        self._drop_oldest()

    def take(self) -> tuple[tuple[LogLine, ...], int]:
        """Return all lines and their offset, and remove them."""
        taken, offset = tuple(self._lines), self.offset
        self._lines.clear()
        self._bytes = 0
        return taken, offset

    def put_back(self, taken: tuple[LogLine, ...], offset: int) -> None:
        """Restore taken lines, unless newer ones were dropped."""
        size = sum(map(size_of, taken))
        if offset + size == self.offset:
            self._lines.extendleft(reversed(taken))
            self._bytes += size
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        while self._lines and (len(self._lines) > MAX_LINES or self._bytes > MAX_LOG_BYTES):
            self._bytes -= size_of(self._lines.popleft())


def pieces(text: str, limit_bytes: int) -> list[str]:
    """Split text into pieces within the limit, without losing any of it."""
    if len(text) <= limit_bytes and text.isascii() and "\x00" not in text:
        return [text]
    data = text.replace("\x00", "\\x00").encode(errors="backslashreplace")
    found = []
    while len(data) > limit_bytes:
        piece = data[:limit_bytes].decode(errors="ignore")  # not in the middle of a character
        found.append(piece)
        data = data[len(piece.encode()) :]
    return [*found, data.decode()]


def cut(text: str, limit_bytes: int) -> str:
    """Return text within the limit, without lone surrogates and NUL."""
    if len(text) <= limit_bytes and text.isascii() and "\x00" not in text:
        return text
    data = text[: limit_bytes + 1].replace("\x00", "\\x00").encode(errors="backslashreplace")
    if len(data) <= limit_bytes:
        return data.decode()
    mark = f"… (cut: {len(text):,} characters)"
    return data[: limit_bytes - len(mark.encode())].decode(errors="ignore") + mark


MAX_MESSAGE_BYTES = 1_024
MAX_LEVEL = 20
MAX_PRINTED = MAX_LINE_BYTES // 4
"""Maximum characters of a printed line; longer ones are split. A character has up to four bytes."""
MAX_CHECKPOINT_BYTES = 64 * 1024
_LARGEST_WHOLE = 2**53


class TaskCancelled(BaseException):
    """Raised by `raise_if_cancelled` in a handler that should stop.

    It is a BaseException, as asyncio.CancelledError is: `except Exception` around one item of many is common,
    and must not turn "stop" into "continue with the next item". It is not a CancelledError, because that
    would look as if the task that awaits the handler's thread had been cancelled.
    """

    def __init__(self, reason: str = "", *, confirmed_dead: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.confirmed_dead = confirmed_dead
        """Whether all processes of the handler are known to have ended."""


class HandlerServices(msgspec.Struct, frozen=True, kw_only=True):
    """The services of a worker for contexts, and the isolation of their output and commands."""

    upload: Upload = no_uploads
    simulations: SimulationChannel = NO_CHANNEL
    caching: CacheAccess = NO_CACHES
    child_jobs: ChildJobService = NO_CHILD_JOBS
    mask: Mask = NOTHING_SECRET
    """Removes the worker's secrets from all output."""
    sandbox: SandboxSettings = NO_SANDBOX
    middleware: Callable[[], Chain] = no_middleware
    """Middleware of the submission of a child."""


NO_SERVICES = HandlerServices()


class Context(ChildJobContext):
    """The context of a handler: one attempt at a job."""

    __slots__ = (
        "_caching", "_checkpoint", "_cost", "_has_messages", "_heartbeat", "_lines", "_lock", "_now",
        "_printed", "_progress", "_progress_known", "_simulations", "_stopped", "_upload", "_uploading",
        "_waiters", "_wake", "_woken", "mask", "sandbox", "stop_reason",
    )  # fmt: skip

    def __init__(
        self,
        grant: Grant,
        *,
        now: Callable[[], datetime],
        wake: Callable[[], None] = lambda: None,
        services: HandlerServices = NO_SERVICES,
    ) -> None:
        self._grant, self._simulations = grant, services.simulations
        self._upload, self._caching = services.upload, services.caching
        self._child_jobs, self._submissions, self._waits_by_name = services.child_jobs, 0, None
        self._middleware = services.middleware
        self._now, self._wake = now, wake
        # Reentrant, because a finalizer that logs can run at any time.
        self._lock = threading.RLock()
        self._woken = False
        self._heartbeat = False
        self._uploading = False
        self._progress: Progress | None = None
        self._progress_known = _NOWHERE
        self._checkpoint: msgspec.Raw | None = None
        self._cost: float | None = None
        self._has_messages = False
        self._lines: Lines | None = None
        self._printed: dict[str, str] | None = None
        self._stopped: threading.Event | None = None
        self._waiters: tuple[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]], ...] = ()
        self.stop_reason: str | None = None
        self.mask: Mask = Mask(grant.secrets, beside=services.mask) if grant.secrets else services.mask
        """Removes the secrets of the job from all output."""
        self.sandbox: SandboxSettings = services.sandbox
        """Isolation of commands of this attempt from the worker and from other jobs."""

    def __repr__(self) -> str:
        return f"<Context of {self.task} {self.job_id}, shard {self.shard}, attempt {self.attempt}>"

    @property
    def job_id(self) -> str:
        """Id of the job."""
        return self._grant.job_id

    @property
    def task(self) -> str:
        """Name of the task."""
        return self._grant.task

    @property
    def shard(self) -> int:
        """Number of this shard of the job, from 1 to `shards`."""
        return self._grant.shard

    @property
    def shards(self) -> int:
        """Number of parallel shards of the job."""
        return self._grant.shards

    @property
    def attempt(self) -> int:
        """Number of this attempt at the shard, from 1."""
        return self._grant.attempt

    @property
    def fence(self) -> int:
        """Fencing token: grows with every lease of the job. Other systems can remember the highest one
        and refuse lower ones, so that an outdated attempt cannot write to them."""
        return self._grant.fence

    @property
    def lease_token(self) -> str:
        """Secret of the lease, for `Interlock.within`; empty in a process of its own. Never log it."""
        return self._grant.token

    @property
    def queue(self) -> str:
        """Queue of the job."""
        return self._grant.queue

    @property
    def parent_job_id(self) -> str | None:
        """Id of the parent job, if there is one."""
        return self._grant.parent_job_id

    @property
    def depth(self) -> int:
        """Number of ancestors of the job."""
        return self._grant.depth

    @property
    def trace(self) -> Mapping[str, str]:
        """Trace context of the submission (OpenTelemetry)."""
        return self._grant.trace

    @property
    def metadata(self) -> Mapping[str, str]:
        """Metadata of the job, as it was submitted."""
        return self._grant.metadata

    @property
    def input(self) -> Any:
        """Input of the job as plain JSON values: arguments by name. Decoded anew with each access."""
        return decode(self._grant.input, Any, "input")

    @property
    def schedule(self) -> str | None:
        """The schedule that submitted the job, or that the job belongs to; None for other jobs."""
        return schedule_in(self._grant.trace)

    @property
    def scheduled_for(self) -> datetime | None:
        """The fire time for which a schedule submitted the job; the same for every attempt."""
        return scheduled_for_in(self._grant.trace)

    @property
    def secrets(self) -> Secrets:
        """Secrets of the job, by name."""
        return Secrets(self._grant)

    @property
    def untrusted(self) -> bool:
        """Whether the job runs code of an author without write access, as from a fork."""
        return self._grant.untrusted

    @property
    def withheld(self) -> bool:
        """Whether the job names secrets that it does not receive."""
        return self._grant.secrets_withheld

    def progress(self, done: float | None = None, total: float | None = None, message: str = "") -> None:
        """Report progress; an omitted number is kept, an omitted text cleared."""
        given_done, given_total = _number(done, "done"), _number(total, "total")
        text = cut(self.mask.text(str(message)), MAX_MESSAGE_BYTES)
        with self._lock:
            known = self._progress_known
            self._progress = self._progress_known = Progress(
                done=known.done if done is None else given_done,
                total=known.total if total is None else given_total,
                message=text,
            )
        self._message_added()

    def log(self, text: object, level: str = "info") -> None:
        """Write a line to the log of the job; long lines are split."""
        name = cut(str(level).lower()[:MAX_LEVEL], MAX_MESSAGE_BYTES)
        now, lines = self._now(), pieces(self.mask.text(str(text)).rstrip("\n"), MAX_LINE_BYTES)
        with self._lock:
            for piece in lines:
                self._log_lines().add(LogLine(now, name, piece))
        self._message_added()

    def printed(self, text: str, stream: str) -> None:
        """Write printed text to the log of the job; the last line may continue."""
        with self._lock:
            held = self._printed = self._printed or {}
            *whole, rest = f"{held.get(stream, '')}{text}".split("\n")
            rest = rest[rest.rstrip("\r").rfind("\r") + 1 :]  # a progress bar overwrites itself
            while len(rest) >= MAX_PRINTED:
                whole.append(rest[:MAX_PRINTED])
                rest = rest[MAX_PRINTED:]
            held[stream] = rest
        for line in whole:
            self._log_printed(line, stream)

    def _log_printed(self, line: str, stream: str) -> None:
        shown = line.rstrip("\r").rpartition("\r")[2]
        for start in range(0, max(len(shown), 1), MAX_PRINTED):
            self.log(shown[start : start + MAX_PRINTED], stream)

    def checkpoint(self, value: object) -> None:
        """Save a value for later attempts at this shard: see `restored`."""
        raw = self.mask.raw(encode(value, "checkpoint"))
        size = memoryview(raw).nbytes
        if size > MAX_CHECKPOINT_BYTES:
            raise TooLarge(
                f"The checkpoint has {size:,} bytes; at most {MAX_CHECKPOINT_BYTES:,} are kept.",
                todo="Save where the work is (a position, a key), and the work itself elsewhere.",
                facts={"bytes": size, "limit": MAX_CHECKPOINT_BYTES, "job_id": self.job_id},
            )
        with self._lock:
            self._checkpoint = raw
        self._message_added()

    @overload
    def restored(self, type: type[T]) -> T | None: ...
    @overload
    def restored(self, type: Any = Any) -> Any: ...
    def restored(self, type: Any = Any) -> Any:  # noqa: A002 - read as a sentence: restored(type=Position)
        """Return the last checkpoint of this shard, or None."""
        saved = self._grant.checkpoint
        return decode(saved, type, "checkpoint") if isinstance(saved, msgspec.Raw) else None

    async def artifact(self, name: str, path: str | Path) -> ArtifactView:
        """Store a file, or a folder as a tar, as an artifact. Idempotent."""
        return await asyncio.wrap_future(self._upload(self._grant.token, name, Path(path)))

    def artifact_sync(self, name: str, path: str | Path) -> ArtifactView:
        """Store an artifact, for a handler in a thread or a process."""
        return self._upload(self._grant.token, name, Path(path)).result()

    @property
    def caches(self) -> OwnCaches:
        """Caches shared with later jobs; for handlers in the event loop."""
        return OwnCaches(self._caching, self._grant.token)

    async def report_workloads(self, facts: Sequence[WorkloadFact]) -> None:
        """Report events of this job's agents; only in the worker's process."""
        if isinstance(self._upload, Uploads):
            await asyncio.wrap_future(self._upload.send_facts(self._grant.token, facts))

    def snooze(self, when: Duration | datetime) -> NoReturn:
        """Run again after "10m", or at a time; it costs no retry: see `Snooze`."""
        raise Snooze(when)

    def spend(self, amount: float) -> None:
        """Add to the cost of this attempt: money, tokens, or another unit."""
        number = _number(amount, "amount", "cost", "spend(0.02)")
        if number is None or number < 0:
            raise InvalidArguments(
                f"The cost cannot be {amount!r}: it only grows, by a finite number.",
                todo="Pass the amount since the last call, such as spend(0.02).",
                facts={"argument": "amount"},
            )
        with self._lock:
            self._cost = (self._cost or 0.0) + number

    @property
    def cost(self) -> float | None:
        """Cost so far, or None. It is reported when the handler ends."""
        return self._cost

    def heartbeat(self) -> None:
        """Send a heartbeat now. Leases are renewed automatically without it."""
        with self._lock:
            self._heartbeat = True
        self._message_added()

    def uploading(self) -> None:
        """Report that the work is done and only artifacts are being uploaded."""
        with self._lock:
            self._uploading = True
        self._message_added()

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: the job is cancelled, the lease lost, or the worker shuts down."""
        return self.stop_reason is not None

    def raise_if_cancelled(self) -> None:
        """Raise `TaskCancelled` if the handler should stop."""
        if self.stop_reason is not None:
            raise TaskCancelled(self.stop_reason)

    async def wait_cancelled(self, timeout_s: float | None = None) -> bool:
        """Wait up to `timeout_s` for a request to stop; return whether it came."""
        loop = asyncio.get_running_loop()
        waiter = (loop, loop.create_future())
        with self._lock:
            if self.cancelled:
                return True
            self._waiters = (*self._waiters, waiter)
        try:
            await asyncio.wait((waiter[1],), timeout=timeout_s)
            return self.cancelled
        finally:
            waiter[1].cancel()
            with self._lock:
                self._waiters = tuple(other for other in self._waiters if other is not waiter)

    def wait_cancelled_sync(self, timeout_s: float | None = None) -> bool:
        """Wait until the handler should stop, for a handler in a thread."""
        with self._lock:
            if self.cancelled:
                return True
            if self._stopped is None:
                self._stopped = threading.Event()
            stopped = self._stopped
        return stopped.wait(timeout_s)

    # ---- the runner's half ---------------------------------------------------------------------

    def surround(self, chain: Chain) -> None:
        """Use this middleware for children that are submitted from now on."""
        self._middleware = lambda: chain

    def take(self) -> UnsentMessages:
        """Return the unsent messages, and remove them."""
        with self._lock:
            self._woken = False
            log, offset = ((), 0) if self._lines is None else self._lines.take()
            progress, checkpoint, heartbeat = self._progress, self._checkpoint, self._heartbeat
            self._progress, self._checkpoint, self._heartbeat = None, None, False
            uploading, self._uploading = self._uploading, False
        if not log and progress is None and checkpoint is None and not heartbeat and not uploading:
            return NOTHING
        return UnsentMessages(
            progress=progress,
            checkpoint=checkpoint,
            log=log,
            log_offset=offset,
            heartbeat=heartbeat,
            uploading=uploading,
        )

    def put_back(self, unsent: UnsentMessages) -> None:
        """Restore messages after a failed send, before newer ones."""
        with self._lock:
            self._woken = False
            self._log_lines().put_back(unsent.log, unsent.log_offset)
            self._progress = unsent.progress if self._progress is None else self._progress
            self._checkpoint = unsent.checkpoint if self._checkpoint is None else self._checkpoint
            self._heartbeat = unsent.heartbeat or self._heartbeat
            self._uploading = unsent.uploading or self._uploading

    def finish_lines(self) -> None:
        """Write printed text without a final newline; the handler has ended."""
        with self._lock:
            left, self._printed = self._printed or {}, None
        for stream, text in left.items():
            if text:
                self._log_printed(text, stream)

    def stop(self, reason: str) -> None:
        """Stop the handler and wake its waiters; the latest reason counts."""
        with self._lock:
            self.stop_reason = reason
            waiters, stopped = self._waiters, self._stopped
        if stopped is not None:
            stopped.set()
        for loop, waiter in waiters:
            with contextlib.suppress(RuntimeError):  # a closed loop has no waiters
                loop.call_soon_threadsafe(_settle, waiter)

    def simulation_channel(self) -> LeaseChannel:
        """Return the channel for messages of a simulation."""
        return LeaseChannel(self._simulations, self._grant.token, self._grant.ttl_s)

    def active(self) -> Active:
        """Return a context manager in which `current()` returns this context."""
        return Active(self)

    @property
    def quiet(self) -> bool:
        """Whether the handler has never logged or reported, so that there is nothing to take."""
        return not self._has_messages

    def _log_lines(self) -> Lines:
        if self._lines is None:
            self._lines = Lines()
        return self._lines

    def _message_added(self) -> None:
        with self._lock:
            known, self._woken, self._has_messages = self._woken, True, True
        if not known:
            self._wake()


class Active:
    """Makes a context the current one while entered. (A generator would be slower.)"""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> Context:
        self._token = CURRENT.set(self._context)
        return self._context

    def __exit__(self, *_: object) -> None:
        CURRENT.reset(self._token)
        if self._context._printed:  # noqa: SLF001 - part of the class above
            self._context.finish_lines()


def running() -> Context | None:
    """Return the context of the running handler, if there is one."""
    found = CURRENT.get()
    return found() if isinstance(found, partial) else found


def current() -> Context:
    """Return the context of the running handler; raise if there is none."""
    context = running()
    if context is None:
        raise JobError(
            "No handler is running here, so there is no context.",
            todo="Call it from a task that a worker executes; a thread of your own is given the context.",
        )
    return context


CURRENT: ContextVar[Context | partial[Context] | None] = ContextVar("interlock_context", default=None)
"""The context of the running handler, or a factory for it: most handlers never use it."""
_NOWHERE = Progress()


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _number(value: Any, name: str, noun: str = "progress", example: str = "progress(3, 10)") -> float | None:
    """Return a number that can be sent; None if it is not finite."""
    if value is None or (type(value) is int and abs(value) <= _LARGEST_WHOLE):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArguments(
            f"The {noun} cannot be {value!r}: {name} is a number.",
            todo=f"Give numbers, such as {example}.",
            facts={"argument": name},
        ) from error
    return number if math.isfinite(number) else None
