"""What orchestrators do: hear, sweep, decide, commit; and what that does to everything on its way."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from interlock.store.records import Conflict, Repeated, TooLate
from interlock.verify.claims import AIDED, bit
from interlock.verify.jobs import judge, spares
from interlock.verify.jobs.codes import (
    FIRST_ANSWER,
    FIRST_COMMAND,
    Phase,
    Say,
    read_hand,
    read_note,
    write_note,
)
from interlock.verify.jobs.decisions import ABSENT, Deciding, Entry
from interlock.verify.jobs.plan import Plan
from interlock.verify.jobs.values import attempt_bit
from interlock.verify.model_checker import Step

State: TypeAlias = tuple[Any, ...]

NEVER = 99
FRESH, OUTRUN, LATE = 0, 1, 2
CLAIMS, SWEEP = -1, -8


class Done(NamedTuple):
    """A step, as the story needs it."""

    what: str
    job: int
    who: int
    entry: Entry | None
    code: int = 0


class Doing:
    """The part of a world in which orchestrators act."""

    def __init__(self, plan: Plan, deciding: Deciding) -> None:
        self.plan = plan
        self.deciding = deciding
        self._first = [deciding.submit(number) for number in range(len(plan.jobs))]
        self._racing = plan.orchestrators > 1
        self._conflicts = deciding.judge(stale=True, until=None) is Conflict
        self._is_late = deciding.judge(stale=False, until=-1) is TooLate
        self._repeats = deciding.judge_again() is Repeated
        self._marks = {name: self._mark(name) for name in (judge.LOOKED_AGAIN, judge.TOO_LATE)}
        self._repeated = self._mark(judge.REPEATED)
        self._on_the_way = 0
        self._twice = (bit(deciding.places[judge.DONE_ONCE]),)
        self._overtime = (bit(deciding.places[judge.IN_TIME]),)

    def _mark(self, name: str) -> int:
        places = self.deciding.places
        return bit(places[name]) if name in places else 0

    def _tick(self, state: State, out: list[Step]) -> None:
        """Time passes; where nothing is timed that changes nothing."""
        jobs, hands, net, orch, spare = state
        age = self.deciding.age
        later = tuple([age(value) for value in jobs])
        waiting = tuple([None if one is None else self._aged(one) for one in orch]) if self._racing else orch
        if later != jobs or waiting != orch:
            out.append((Done("tick", 0, 0, None), (later, hands, net, waiting, spare), 0))

    def _aged(self, one: tuple[int, ...]) -> tuple[int, ...]:
        op, job, after, until, reply, fate = one
        if fate != FRESH:
            return one
        if until != NEVER:
            until -= 1
            if until < 0 and self._is_late:
                return op, job, 0, 0, 0, LATE
        return op, job, self.deciding.age(after), until, reply, FRESH

    def _sweeps(self, state: State, out: list[Step]) -> None:
        for job, value in enumerate(state[0]):
            if self.deciding.due[value]:
                self._decided(state, Done("sweep", job, 0, self.deciding.sweep(value)), SWEEP, 0, out)

    def _delivered(self, state: State, code: int, out: list[Step], aided: int) -> None:
        """A message reaches an orchestrator."""
        note = read_note(code)
        value = state[0][note.job]
        if note.say is Say.SUBMIT:
            out.append(self._submitted(state, note.job, aided))
            return
        if note.say is Say.CANCEL:
            if state[4] & spares.asked(note.job):
                out.append(self._asked_again(state, note.job, code, aided))
                return
            entry = self.deciding.cancel(value)
        else:
            entry = self.deciding.hear(value, code)
        reply = self._reply_code(entry, code)
        self._decided(state, Done("hear", note.job, note.worker, entry, code), code, reply, out, aided)

    def _asked_again(self, state: State, job: int, code: int, aided: int) -> Step:
        """A request that the store has carried out comes again."""
        done = Done("again", job, 0, None, code)
        return done, state if self._repeats else self._twice, aided | self._repeated

    def _submitted(self, state: State, job: int, aided: int) -> Step:
        jobs, hands, net, orch, spare = state
        done = Done("submit", job, 0, self._first[job], 0)
        if jobs[job] != ABSENT:
            return done, state if self._repeats else self._twice, aided | self._repeated
        if self._first[job].wrong:
            return done, (self._first[job].wrong,), aided
        new = (*jobs[:job], self._first[job].after, *jobs[job + 1 :])
        return done, (new, hands, net, orch, spare), aided

    def _reply_code(self, entry: Entry, code: int) -> int:
        if entry.reply is None:
            return 0
        note = read_note(code)
        return write_note(entry.reply, note.worker, note.job, note.shard, note.attempt)

    # Deciding and committing

    def _decided(
        self, state: State, done: Done, op: int, reply: int, out: list[Step], aided: int = 0
    ) -> None:
        """With one orchestrator it is committed at once; with two somebody else may be faster."""
        entry = done.entry
        assert entry is not None
        bits = aided | entry.marks
        if entry.wrong:
            out.append((done, (entry.wrong,), bits))
            return
        if not entry.changed:
            out.append((done, self._settle(state, done.job, reply), bits))
            return
        if not self._racing:
            out.append((done, self.become(_noted(state, op), done.job, entry.after, reply), bits))
            return
        orch = state[3]
        for place, busy in enumerate(orch):
            if busy is None:
                until = NEVER if entry.until is None else entry.until
                waiting = (op, done.job, entry.after, until, reply, FRESH)
                held = (*orch[:place], waiting, *orch[place + 1 :])
                out.append((done._replace(what=f"decide {done.what}"), (*state[:3], held, state[4]), bits))
                return

    def become(self, state: State, job: int, after: int, reply: int) -> State:
        """A job has a new version: whoever has decided on the old one will be told so."""
        jobs, hands, net, orch, spare = state
        if self._racing:
            orch = tuple([self._outrun(one, job) for one in orch])
        return self._settle(((*jobs[:job], after, *jobs[job + 1 :]), hands, net, orch, spare), job, reply)

    def _outrun(self, one: tuple[int, ...] | None, job: int) -> tuple[int, ...] | None:
        if one is None or one[1] != job or not self._conflicts:
            return one
        return one[0], job, 0, 0, 0, OUTRUN

    def _settle(self, state: State, job: int, reply: int) -> State:
        """Answer what is said under a lease that has ended, and drop answers that nobody waits for."""
        jobs, hands, net, orch, spare = state
        ended = self.deciding.ended_leases[jobs[job]]
        flying = [reply] if reply else []
        for code in net:
            note = read_note(code)
            doomed = note.say < FIRST_COMMAND and note.job == job
            if doomed and ended & attempt_bit(note.shard, note.attempt):
                entry = self.deciding.hear(jobs[job], code)
                if not entry.changed and not entry.wrong:
                    self._on_the_way |= entry.marks
                    flying.append(self._reply_code(entry, code))
                    continue
            flying.append(code)
        return jobs, hands, tuple(sorted(c for c in set(flying) if c and awaited(c, hands))), orch, spare

    def _commits(self, state: State, out: list[Step]) -> None:
        if not self._racing:
            return
        jobs, hands, net, orch, spare = state
        for place, one in enumerate(orch):
            if one is None or one in orch[:place]:
                continue
            free = (jobs, hands, net, (*orch[:place], None, *orch[place + 1 :]), spare)
            op, job, after, until, reply, fate = one
            if fate == FRESH:
                done = Done("commit", job, place, None, op)
                after_it = self.become(_noted(free, op), job, after, reply)
                out.append((done, self._overtime if until < 0 else after_it, 0))
            else:
                self._looked_again(free, one, out)
            if spares.has(spare, spares.CRASHES):
                fallen = (*free[:4], spare - spares.CRASHES)
                out.append((Done("orchestrator dies", job, place, None, op), fallen, AIDED))

    def _looked_again(self, state: State, one: tuple[int, ...], out: list[Step]) -> None:
        """The store has refused: a message is decided anew, a claim or a sweep is let go."""
        op, job, _, _, _, fate = one
        mark = self._marks[judge.LOOKED_AGAIN if fate == OUTRUN else judge.TOO_LATE]
        if op < 0:
            out.append((Done("refused", job, 0, None, op), state, mark))
            return
        note, value = read_note(op), state[0][job]
        if note.say is Say.CANCEL and state[4] & spares.asked(job):
            out.append(self._asked_again(state, job, op, mark))
            return
        entry = self.deciding.cancel(value) if note.say is Say.CANCEL else self.deciding.hear(value, op)
        done = Done("again", job, note.worker, entry, op)
        self._decided(state, done, op, self._reply_code(entry, op), out, mark)


def _noted(state: State, op: int) -> State:
    """With the request noted in the commit that carries it out."""
    if op < 0 or op >> 12 != Say.CANCEL:
        return state
    return *state[:4], state[4] | spares.asked(read_note(op).job)


def awaited(code: int, hands: tuple[int, ...]) -> bool:
    """Whether an answer still means something to its worker; anything else always does."""
    if code >> 12 < FIRST_ANSWER:
        return True
    note, hand = read_note(code), read_hand(hands[read_note(code).worker])
    if note.say is Say.GRANT:
        return hand.phase is Phase.IDLE
    mine = (hand.job, hand.shard, hand.attempt) == (note.job, note.shard, note.attempt)
    if note.say is Say.OVER:
        return mine and hand.phase is not Phase.IDLE
    if note.say is Say.BEGIN:
        return mine and hand.phase is Phase.ACKING
    return mine and hand.phase is Phase.WORKING and not hand.told
