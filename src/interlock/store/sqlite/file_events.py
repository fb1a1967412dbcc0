"""Events of the database's files, by inotify: a reader waits for them instead of polling.

The writer of a store touches the shared memory file (`-shm`) after each commit, and readers of other
processes look at once. Programs that do not touch it, such as a shell, write to the log (`-wal`) before
their commit is visible, so the reader looks a little later, again and again. The watch of the log fires
once and is armed again before a look, so a burst of writes is one event.

No commit depends on an event: a reader looks now and then without one. Where inotify is missing, or does
not deliver events of these files, `open_events` returns None, and the reader polls.

Why: decision 0525.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_ATTRIBUTES, _MODIFIED, _OVERFLOW = 0x4, 0x2, 0x4000
_ONCE = 0x8000_0000
_EVENT = struct.Struct("iIII")
_READ = 4_096
_LONGEST_S = 3_600.0
"""Maximum time of a wait: `poll` raises for more than some days."""
_NO_EVENTS = (False, False)


def memory_file_of(path: Path) -> str:
    """Return the file of shared memory that SQLite keeps beside a database.

    It follows symbolic links.
    """
    return f"{path.resolve()}-shm"


def announce(memory_file: str) -> None:
    """Notify the readers of all processes of a commit."""
    with suppress(OSError):  # they look without it, only later
        os.utime(memory_file)


def open_events(path: Path) -> FileEvents | None:
    """Return the events of a database; None where inotify does not work."""
    if sys.platform != "linux":
        return None
    try:
        events = FileEvents(path)
    except (OSError, AttributeError):  # no inotify, or as many instances as the system allows
        return None
    try:
        if events.arm():
            announce(events.memory_file)
            if events.wait(0.0, unless=bool)[0]:
                return events
    except OSError:
        pass
    events.close()
    return None


class FileEvents:
    """The events of one database, for one thread; `interrupt` may be called by others."""

    def __init__(self, path: Path) -> None:
        import ctypes  # noqa: PLC0415 - a process that subscribes to nothing does not need it

        libc = ctypes.CDLL(None, use_errno=True)
        add_watch = libc.inotify_add_watch
        add_watch.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32]
        self._add_watch: Callable[[int, bytes, int], int] = add_watch
        self.memory_file: str = memory_file_of(path)
        self._memory_path = os.fsencode(self.memory_file)
        self._log_path = os.fsencode(f"{path.resolve()}-wal")
        self._memory_watch = -1
        self._is_waiting = self._is_closed = False
        self._gate = threading.Lock()
        self._events = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._events < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        try:
            self._interrupts = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except BaseException:
            os.close(self._events)
            raise
        self._poll, self._poll_interrupts = select.poll(), select.poll()
        self._poll.register(self._events, select.POLLIN)
        for poll in (self._poll, self._poll_interrupts):
            poll.register(self._interrupts, select.POLLIN)

    def arm(self) -> bool:
        """Watch both files; return False if one is missing.

        Look afterwards: earlier events are lost.
        """
        self._memory_watch = self._add_watch(self._events, self._memory_path, _ATTRIBUTES)
        log_watch = self._add_watch(self._events, self._log_path, _MODIFIED | _ONCE)
        return min(self._memory_watch, log_watch) >= 0

    def wait(
        self, timeout_s: float, *, unless: Callable[[], bool], is_resting: bool = False
    ) -> tuple[bool, bool]:
        """Wait for an event, an interrupt or the timeout.

        Return whether there was a commit, and whether something was written to the log. While resting,
        events stay for the next wait.

        `unless` is asked after interrupts have become possible, so that none is lost.
        """
        poll = self._poll_interrupts if is_resting else self._poll
        self._is_waiting = True
        try:
            found = dict(poll.poll(0 if unless() else min(max(0.0, timeout_s), _LONGEST_S) * 1_000))
        finally:
            self._is_waiting = False
        if self._interrupts in found:
            os.eventfd_read(self._interrupts)
        return self._read_events() if self._events in found else _NO_EVENTS

    def interrupt(self) -> None:
        """End a wait; does nothing if there is none."""
        if self._is_waiting:
            with self._gate:
                if not self._is_closed:  # its number may be that of another file by now
                    os.eventfd_write(self._interrupts, 1)

    def close(self) -> None:
        """Close it; interrupts do nothing afterwards."""
        with self._gate:
            self._is_closed = True
            for descriptor in (self._events, self._interrupts):
                os.close(descriptor)

    def _read_events(self) -> tuple[bool, bool]:
        data = os.read(self._events, _READ)
        committed = written = False
        at = 0
        while at < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            committed |= bool(mask & _OVERFLOW) or (watch == self._memory_watch and bool(mask & _ATTRIBUTES))
            written |= bool(mask & _MODIFIED)
        return committed, written
