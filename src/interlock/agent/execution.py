"""Execution of one workload: its processes are watched, and their end is an event for the table.

The process of a workload runs under a warden (`interlock.processes`), so all processes that it starts end
with it, and it ends with the agent, even on a crash. `ended` returns when no process of it is left, and not
before.

Events report facts, not their meaning: when the processes are gone, both that the workload ended (with
success or failure) and that no process is left. Which of the two matters depends on whether it was being
stopped, and only the table knows that.

Why: decisions 0038 and 0338.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from interlock.agent.protocol import (
    MAX_LINE_BYTES,
    FromChild,
    LoadSample,
    Order,
    Started,
    Stop,
    Up,
    WorkloadEnded,
    from_child,
    line_of,
)
from interlock.lifecycles.durations import Durations
from interlock.lifecycles.workload import (
    DurationElapsed,
    OfWorkload,
    TaskCancelled,
    Timeout15s,
    WorkloadError,
)
from interlock.processes.groups import End, Group, hunt

CHILD = "interlock.agent.workload_process"
LAST_LINES = 20
LOOK_AGAIN_S = 0.2
LAST_WORDS_S = 15.0
"""Time for reading the output after the end of the process; normally much less is needed."""
OURS = "INTERLOCK_"

ReceiveFromWorkload: TypeAlias = Callable[[Started | LoadSample], None]
"""Callback for messages of the workload while it runs."""
WriteLine: TypeAlias = Callable[[str, str], None]
"""Callback for each line of output, with its stream."""


class WorkloadFamily(Protocol):
    """The processes of a workload that has been started."""

    async def ended(self) -> str | None:
        """Return the error, or None on success, when no process of it is left."""
        ...

    def request_stop(self) -> None:
        """Ask it to stop and clean up."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to every process of it."""
        ...

    def kill(self) -> None:
        """Kill every process of it."""
        ...

    def survivors(self) -> int:
        """Return the number of its processes."""
        ...


class ProcessFamily:
    """A workload in a process of its own; see `WorkloadFamily`."""

    def __init__(self, order: Order, receive: ReceiveFromWorkload, line: WriteLine) -> None:
        self._order = order
        self._receive = receive
        self._line = line
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._group: Group | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._up = False
        self._last_message: WorkloadEnded | None = None
        self._garbled = ""
        self._over = False
        self._pending: list[Callable[[], None]] = []

    async def ended(self) -> str | None:
        """Run it until all its processes have ended."""
        try:
            end = await self._run()
        except OSError as error:
            self._over = True
            return f"The workload process cannot be started: {error}."
        left = {pid: _birth(pid) for pid in end.left}
        while not end.confirmed_dead and self._kill_remaining(left):
            await asyncio.sleep(LOOK_AGAIN_S)
        self._over = True
        return self._judge(end)

    def request_stop(self) -> None:
        """Request a stop; kill the process if it is not up yet.

        Before it is up it has nothing to clean up.
        """
        if self._up and self._writer is not None and not self._writer.is_closing():
            self._writer.write(line_of(Stop()))
        else:
            self.kill()

    def terminate(self) -> None:
        """Send SIGTERM to each process; the table decides about SIGKILL."""
        self._with_group(lambda group: group.terminate(float(10**6)))

    def kill(self) -> None:
        """Send SIGKILL to each process."""
        self._with_group(lambda group: group.kill())

    def survivors(self) -> int:
        """Return the number of processes.

        It is at least one while the warden has not reported the end.
        """
        return 0 if self._over else 1

    def _with_group(self, act: Callable[[Group], None]) -> None:
        if self._group is not None:
            act(self._group)
        elif not self._over:
            self._pending.append(lambda: self._with_group(act))

    async def _run(self) -> End:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            environment = {n: v for n, v in os.environ.items() if not n.startswith(OURS)}
            self._group = group = await Group.start(
                [sys.executable, "-m", CHILD, str(theirs.fileno())],
                self._note,
                env=environment,
                pass_fds=(theirs.fileno(),),
            )
            theirs.close()
            for act in self._pending:
                act()
            return await self._until_both_end(group, ours)

    async def _until_both_end(self, group: Group, ours: socket.socket) -> End:
        """Read its messages and wait for the end of its processes.

        If the processes end first, its last messages are still read for a while; after an invalid message the
        processes are killed.
        """
        talking = asyncio.create_task(self._converse(ours))
        ending = asyncio.create_task(group.ended())
        try:
            await asyncio.wait((talking, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._last_message is None:
                group.kill()  # it is gone, has sent an invalid message, or this task is cancelled
            await asyncio.wait((ending,))
            await asyncio.wait((talking,), timeout=LAST_WORDS_S)
            talking.cancel()
            await asyncio.wait((talking,))
        return ending.result()

    async def _converse(self, ours: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
        self._writer = writer
        try:
            writer.write(line_of(self._order))
            with contextlib.suppress(ConnectionError):
                while self._last_message is None and (line := await reader.readline()):
                    self._take(from_child(line))
        except (ValueError, msgspec.DecodeError) as error:  # an invalid line
            self._garbled = f"The workload process sent an invalid message: {error}."
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _take(self, word: FromChild) -> None:
        match word:
            case Up():
                self._up = True
            case WorkloadEnded():
                self._last_message = word
            case _:
                self._receive(word)

    def _note(self, line: str, stream: str) -> None:
        self._last.append(line)
        self._line(line, stream)

    def _kill_remaining(self, left: dict[int, str]) -> bool:
        """Kill the remaining processes again; return whether there are any."""
        assert self._group is not None
        hunted = hunt(self._group.mark)
        return hunted > 0 or any(birth and _birth(pid) == birth for pid, birth in left.items())

    def _judge(self, end: End) -> str | None:
        if self._last_message is not None:
            return self._last_message.error
        if self._garbled:
            return self._garbled
        last = f" Its last line: {self._last[-1]}" if self._last else ""
        return f"The workload process exited by itself with code {end.code}.{last}"


def _birth(pid: int) -> str:
    """Return the start time of a process, or "" when it is gone.

    It distinguishes processes with a reused id.
    """
    with contextlib.suppress(OSError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return "" if state in "ZX" else fields[18]
    return ""


Spawn: TypeAlias = Callable[[Order, ReceiveFromWorkload, WriteLine], WorkloadFamily]

KILLED_S = 1.0
"""Time to wait for killed processes before they are counted."""
OVERRUN = "It was still running some time after its duration was over, and was killed."


class WorkloadExecution:
    """The processes of one workload, from the start to the end of the last one."""

    def __init__(
        self,
        workload_id: str,
        family: WorkloadFamily,
        send: Callable[[OfWorkload], object],
        durations: Durations,
    ) -> None:
        self._workload_id = workload_id
        self._family = family
        self._send = send
        self._durations = durations
        self._killed = False
        self._overrun = False
        self._timer: asyncio.TimerHandle | None = None
        self.watching: asyncio.Task[None] = asyncio.create_task(self._watch())

    def request_stop(self) -> None:
        """Ask it to stop and clean up."""
        self._family.request_stop()

    def terminate(self) -> None:
        """Terminate its processes."""
        self._family.terminate()

    def kill(self) -> None:
        """Kill its processes; a little later, report the number of survivors."""
        self._killed = True
        self._family.kill()
        self._call_later(KILLED_S, self._count)

    def is_over_time(self) -> None:
        """Terminate a workload that has exceeded its time, which is a failure."""
        self._overrun = True
        self._family.terminate()
        self._call_later(self._durations.abort_kill_s - self._durations.abort_warning_s, self._family.kill)

    async def abandon(self) -> None:
        """Stop waiting: its warden loses the agent, and ends everything."""
        self.watching.cancel()
        await asyncio.wait((self.watching,))

    def _count(self) -> None:
        if not self.watching.done():
            self._send(Timeout15s(workload_id=self._workload_id, survivors=self._family.survivors()))

    async def _watch(self) -> None:
        try:
            error = await self._family.ended()
        except Exception as caught:  # noqa: BLE001 - an agent must not stay busy
            error = f"The agent can no longer observe it: {type(caught).__name__}: {caught}"
        if self._timer is not None:
            self._timer.cancel()
        if self._overrun:
            error = OVERRUN
        if error is None:
            self._send(DurationElapsed(workload_id=self._workload_id))
        else:
            self._send(WorkloadError(workload_id=self._workload_id, error=error))
        last = Timeout15s if self._killed else TaskCancelled
        self._send(last(workload_id=self._workload_id))

    def _call_later(self, seconds: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, act)
