"""Transcripts of console sessions: what the reference of the command line shows of each command.

They are files in docs/sessions, recorded by `make sessions` (tools/sessions.py) and replayed by tests:

    # job list                         the command that the session is about
    @ interlock submit shop:send       a command that the page leaves out
      j_0a4e98fa6cab
    % later 5m                         a direction, see `tools/sessions.py`; the page leaves it out
    $ interlock job list               a command that the page shows, and its output, indented
      id              state
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).with_name("sessions")
INDENT = "  "
SHOWN, HIDDEN, DIRECTION = "$", "@", "%"


@dataclass(frozen=True, slots=True)
class Step:
    """A command or a direction, and its output."""

    sign: str
    line: str
    output: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The step as a transcript has it."""
        return "\n".join([f"{self.sign} {self.line}", *((INDENT + line).rstrip() for line in self.output)])


@dataclass(frozen=True, slots=True)
class Session:
    """The session of one command, in words: `job list`."""

    words: str
    steps: tuple[Step, ...] = ()

    @property
    def text(self) -> str:
        """The session as a transcript has it."""
        return "\n".join([f"# {self.words}", *(step.text for step in self.steps)])

    @property
    def shown(self) -> list[str]:
        """The lines that the page shows."""
        steps = [step for step in self.steps if step.sign == SHOWN]
        return [line for step in steps for line in (f"$ {step.line}", *step.output)]


@dataclass(slots=True)
class _Reader:
    sessions: list[tuple[str, list[Step]]] = field(default_factory=list)

    def read(self, number: int, line: str) -> None:
        sign, _, rest = line.partition(" ")
        if sign == "#":
            self.sessions.append((rest, []))
            return
        if not self.sessions:
            return  # how the transcript is played
        steps = self.sessions[-1][1]
        if sign in (SHOWN, HIDDEN, DIRECTION):
            steps.append(Step(sign, rest))
        elif steps and (not line or line.startswith(INDENT)):
            last = steps[-1]
            steps[-1] = Step(last.sign, last.line, (*last.output, line.removeprefix(INDENT)))
        elif line:
            raise ValueError(f"line {number} is neither a session, a command nor output: {line}")


def read(text: str) -> list[Session]:
    """Return the sessions of a transcript."""
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), start=1):
        reader.read(number, line)
    return [Session(words, tuple(map(_trimmed, steps))) for words, steps in reader.sessions]


def _trimmed(step: Step) -> Step:
    """Drop the empty lines between this step and the next one."""
    output = step.output
    while output and not output[-1]:
        output = output[:-1]
    return Step(step.sign, step.line, output)


def written(sessions: Sequence[Session]) -> str:
    """Return the transcript of sessions."""
    return "\n\n".join(session.text for session in sessions) + "\n"


def transcripts() -> list[Path]:
    """Return all transcripts."""
    return sorted(FOLDER.glob("*.txt"))


def of_pages() -> list[Path]:
    """Return the files with what guides show, each named like its guide."""
    return sorted((FOLDER / "pages").glob("*.txt"))


def sessions() -> Iterator[Session]:
    """Yield the sessions of all transcripts."""
    for path in transcripts():
        yield from read(path.read_text(encoding="utf-8"))
