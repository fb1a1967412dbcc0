"""One workload while something of it may live: its processes are watched, and their end is sent to the table.

The process of a workload runs under a warden (`interlock.processes`), so its end is the end of everything it
has started, and the end of the agent, however sudden, is its end as well. `ended` returns when nothing of it
is left, and not before.

Events say what happened, not what it means: when the processes are gone, both that the workload ended (with
success or failure) and that nothing of it is left. Which of the two matters depends on whether it was being
stopped, and only the table knows that.
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
from structlog.typing import FilteringBoundLogger

from interlock.agent.protocol import (
    MAX_LINE_BYTES,
    Ended,
    FromChild,
    Order,
    Sample,
    Started,
    Stop,
    Up,
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
"""How long what it has said is read after its end; that ends by itself, unless the machine stands still."""
OURS = "INTERLOCK_"

Hear: TypeAlias = Callable[[Started | Sample], None]
"""Is given what the workload says while it runs."""
Line: TypeAlias = Callable[[str, str], None]
"""Is given each line that it writes, and to which stream."""


class Family(Protocol):
    """A workload that has been started."""

    async def ended(self) -> str | None:
        """Why it failed, or None when it ended well; answers when nothing of it is left."""
        ...

    def ask(self) -> None:
        """Ask it to stop and clean up."""
        ...

    def terminate(self) -> None:
        """Do not ask any more: terminate every process of it."""
        ...

    def kill(self) -> None:
        """Kill every process of it."""
        ...

    def survivors(self) -> int:
        """How many processes of it there are."""
        ...


class ProcessFamily:
    """A workload in a process of its own; see `Family`."""

    def __init__(self, order: Order, hear: Hear, line: Line) -> None:
        self._order = order
        self._hear = hear
        self._line = line
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._group: Group | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._up = False
        self._said: Ended | None = None
        self._garbled = ""
        self._over = False
        self._pending: list[Callable[[], None]] = []

    async def ended(self) -> str | None:
        """Run it to its end, and to the end of all that it has started."""
        try:
            end = await self._run()
        except OSError as error:
            self._over = True
            return f"Its process cannot be started: {error}."
        left = {pid: _birth(pid) for pid in end.left}
        while not end.confirmed_dead and self._still(left):
            await asyncio.sleep(LOOK_AGAIN_S)
        self._over = True
        return self._judge(end)

    def ask(self) -> None:
        """Ask it to stop; what is not up yet has nothing to clean up, and is killed."""
        if self._up and self._writer is not None and not self._writer.is_closing():
            self._writer.write(line_of(Stop()))
        else:
            self.kill()

    def terminate(self) -> None:
        """SIGTERM to each of them; who kills, and when, is the table's to say."""
        self._with_group(lambda group: group.terminate(float(10**6)))

    def kill(self) -> None:
        """SIGKILL to each of them."""
        self._with_group(lambda group: group.kill())

    def survivors(self) -> int:
        """How many there are; at least one while the warden has not said that all is over."""
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
        """Listen until it has said its last word, and wait for the end of all of it, whichever is first."""
        talking = asyncio.create_task(self._converse(ours))
        ending = asyncio.create_task(group.ended())
        try:
            await asyncio.wait((talking, ending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if self._said is None:
                group.kill()  # it is gone, or nobody understands it, or nobody wants to know any more
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
                while self._said is None and (line := await reader.readline()):
                    self._take(from_child(line))
        except (ValueError, msgspec.DecodeError) as error:  # no line, or none of ours
            self._garbled = f"Its process says what nobody understands: {error}."
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    def _take(self, word: FromChild) -> None:
        match word:
            case Up():
                self._up = True
            case Ended():
                self._said = word
            case _:
                self._hear(word)

    def _note(self, line: str, stream: str) -> None:
        self._last.append(line)
        self._line(line, stream)

    def _still(self, left: dict[int, str]) -> bool:
        """Kill whoever is left again; whether there is somebody."""
        assert self._group is not None
        hunted = hunt(self._group.mark)
        return hunted > 0 or any(birth and _birth(pid) == birth for pid, birth in left.items())

    def _judge(self, end: End) -> str | None:
        if self._said is not None:
            return self._said.error
        if self._garbled:
            return self._garbled
        last = f" Its last line: {self._last[-1]}" if self._last else ""
        return f"Its process ended by itself, with code {end.code}.{last}"


def _birth(pid: int) -> str:
    """When a process began, which tells it from a later one of the same number; empty when it is gone."""
    with contextlib.suppress(OSError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return "" if state in "ZX" else fields[18]
    return ""


Log: TypeAlias = FilteringBoundLogger
Spawn: TypeAlias = Callable[[Order, Hear, Line], Family]

KILLED_S = 1.0
"""How long the killed are waited for before they are counted."""
OVERRUN = "It had not ended some time after its time was over, and was killed."


class Execution:
    """The processes of one workload, from the start to the last one's end."""

    def __init__(
        self, workload_id: str, family: Family, say: Callable[[OfWorkload], object], durations: Durations
    ) -> None:
        self._workload_id = workload_id
        self._family = family
        self._say = say
        self._durations = durations
        self._killed = False
        self._overrun = False
        self._timer: asyncio.TimerHandle | None = None
        self.watching = asyncio.create_task(self._watch())

    def ask(self) -> None:
        """Ask it to stop and clean up."""
        self._family.ask()

    def terminate(self) -> None:
        """Do not ask any more."""
        self._family.terminate()

    def kill(self) -> None:
        """Kill all of it; a little later, if that was not the end of it, say how many are left."""
        self._killed = True
        self._family.kill()
        self._in(KILLED_S, self._count)

    def is_over_time(self) -> None:
        """It should have ended by itself, and has not: made to end, and that is a failure."""
        self._overrun = True
        self._family.terminate()
        self._in(self._durations.abort_kill_s - self._durations.abort_warning_s, self._family.kill)

    async def abandon(self) -> None:
        """Nobody can wait any longer: its warden loses its orders, and ends everything."""
        self.watching.cancel()
        await asyncio.wait((self.watching,))

    def _count(self) -> None:
        if not self.watching.done():
            self._say(Timeout15s(workload_id=self._workload_id, survivors=self._family.survivors()))

    async def _watch(self) -> None:
        try:
            error = await self._family.ended()
        except Exception as caught:  # noqa: BLE001 - an agent must not stay busy with what it cannot watch
            error = f"The agent has lost sight of it: {type(caught).__name__}: {caught}"
        if self._timer is not None:
            self._timer.cancel()
        if self._overrun:
            error = OVERRUN
        if error is None:
            self._say(DurationElapsed(workload_id=self._workload_id))
        else:
            self._say(WorkloadError(workload_id=self._workload_id, error=error))
        last = Timeout15s if self._killed else TaskCancelled
        self._say(last(workload_id=self._workload_id))

    def _in(self, seconds: float, act: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, act)
