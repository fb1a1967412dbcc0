"""Jobs, workers, a network, orchestrators and a clock: what can happen next.

A state is five tuples of small numbers: the value of each job, what each worker knows, what is on its
way (in no order), what each orchestrator has decided and not committed, and how many faults are left.
A message that is lost is one that is never delivered, so nothing has to be done to lose it. What is
said under a lease that has ended is answered at once: it is refused now as at any later time, and the
answer may still take as long as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from interlock.store.records import Conflict, Repeated, TooLate
from interlock.verify.checking import Step
from interlock.verify.claims import AIDED, Claim, always, bit, eventually, sometimes, trigger_bit
from interlock.verify.jobs import judging, naming, spares
from interlock.verify.jobs.codes import (
    FIRST_ANSWER,
    FIRST_COMMAND,
    IDLE,
    Phase,
    Say,
    read_hand,
    read_note,
    write_hand,
    write_note,
)
from interlock.verify.jobs.deciding import ABSENT, Deciding, Entry
from interlock.verify.jobs.plan import Plan
from interlock.verify.jobs.values import attempt_bit

State: TypeAlias = tuple[Any, ...]

NEVER = 99
FRESH, OUTRUN, LATE = 0, 1, 2
CLAIMS, SWEEP = -1, -8

SETTLES = "every job settles, and nobody holds a lease on it"
CANCEL_SETTLES = "every cancel settles"
RECLAIMED = "every expired lease is reclaimed"


class Done(NamedTuple):
    """A step, as the story needs it."""

    what: str
    job: int
    who: int
    entry: Entry | None
    code: int = 0


def claims_of(plan: Plan) -> list[Claim]:
    """Everything that is claimed of the jobs of a plan."""
    held = [*judging.VALUE_CLAIMS, *judging.STEP_CLAIMS, judging.STORE_CLAIM]
    held += [judging.GIVEN_ONCE, judging.ASKED_FOR, judging.DONE_ONCE, judging.IN_TIME]
    return [
        *(always(claim) for claim in held),
        eventually(SETTLES),
        eventually(CANCEL_SETTLES, conditional=True),
        eventually(RECLAIMED, conditional=True),
        *(sometimes(claim) for claim in plan.shows),
    ]


class JobWorld:
    """The model of a plan."""

    def __init__(self, plan: Plan, places: dict[str, int] | None = None) -> None:
        self.plan = plan
        self.name = plan.name
        self.claims: Sequence[Claim] = claims_of(plan)
        self.places = places or {claim.claim: place for place, claim in enumerate(self.claims)}
        self.deciding = self._make_deciding()
        self._first = [self.deciding.submit(number) for number in range(len(plan.jobs))]
        self._racing = plan.orchestrators > 1
        self._conflicts = self.deciding.judge(stale=True, until=None) is Conflict
        self._repeats = self.deciding.judge_again() is Repeated
        self._is_late = self.deciding.judge(stale=False, until=-1) is TooLate
        self._given_once = bit(self.places[judging.GIVEN_ONCE])
        self._asked_for = bit(self.places[judging.ASKED_FOR])
        self._marks = {name: self._mark(name) for name in (judging.LOOKED_AGAIN, judging.TOO_LATE)}
        self._repeated = self._mark(judging.REPEATED)
        self._on_the_way = 0
        self._twice = (bit(self.places[judging.DONE_ONCE]),)
        self._overtime = (bit(self.places[judging.IN_TIME]),)
        self._learn_goals()
        self.names = naming.Naming(self)

    def _make_deciding(self) -> Deciding:
        return Deciding(self.plan, self.places)

    def _mark(self, name: str) -> int:
        return bit(self.places[name]) if name in self.places else 0

    def _learn_goals(self) -> None:
        places, self._goal_of = self.places, dict[int, tuple[int, bool]]()
        self._settled, self._done_stopping = bit(places[SETTLES]), bit(places[CANCEL_SETTLES])
        self._stopping, self._due = trigger_bit(places[CANCEL_SETTLES]), trigger_bit(places[RECLAIMED])
        self._reclaimed = bit(places[RECLAIMED])

    # Where it begins, and what is seen

    def initial(self) -> State:
        """Nobody has begun; the jobs are there, or about to be submitted."""
        plan, numbers = self.plan, range(len(self.plan.jobs))
        jobs = tuple(ABSENT if plan.submits else self._first[number].after for number in numbers)
        net = tuple(write_note(Say.SUBMIT, 0, number) for number in numbers) if plan.submits else ()
        return jobs, (IDLE,) * plan.workers, net, (None,) * plan.orchestrators, spares.first(plan)

    def first(self, number: int) -> int:
        """The value of a job that was just submitted."""
        return self._first[number].after

    def canonical(self, state: State) -> State:
        """The same with the names of workers and jobs put in order."""
        return state if len(state) == 1 else self.names.canonical(state)

    def look(self, state: State) -> int:
        """What is to be seen, mostly what is known of each job's value."""
        if len(state) == 1:
            broken: int = state[0]
            return broken
        jobs, hands, net, _, spare = state
        bits, seen, open_ones, due, stopping = self.deciding.bits, 0, False, False, False
        for number, value in enumerate(jobs):
            seen |= bits[value]
            goal, by_cancel = self._goal(value)
            open_ones |= bool(goal & 1)
            stopping |= bool(goal & 2)
            due |= self.deciding.due[value]
            if by_cancel and not spare & spares.asked(number):
                seen |= self._asked_for
        if self._given_twice(hands, net):
            seen |= self._given_once
        seen |= 0 if open_ones else self._settled
        seen |= self._stopping if stopping else self._done_stopping
        return seen | self._on_the_way | (self._due if due else self._reclaimed)

    def _goal(self, value: int) -> tuple[int, bool]:
        known = self._goal_of.get(value)
        if known is None:
            found = self.deciding.values[value]
            if found is None:
                known = (1, False)
            else:
                seen = judging.look_at(found, self.plan, 0)
                by_cancel = seen.state.value == "CANCELED" and seen.body.data.stop_reason == "cancel"
                known = (judging.unsettled(seen) + 2 * judging.stopping(seen), by_cancel)
            self._goal_of[value] = known
        return known

    def _given_twice(self, hands: tuple[int, ...], net: tuple[int, ...]) -> bool:
        if len(hands) < 2:
            return False
        given: dict[tuple[int, int, int], int] = {}
        held = [(read_hand(hand), worker) for worker, hand in enumerate(hands) if hand]
        holders = [((hand.job, hand.shard, hand.index), worker) for hand, worker in held]
        for code in net:
            note = read_note(code)
            if note.say is Say.GRANT:
                holders.append(((note.job, note.shard, note.index), note.worker))
        return any(given.setdefault(token, worker) != worker for token, worker in holders)

    def tell(self, done: Done, before: State, after: State) -> list[str]:
        """A step in words."""
        from interlock.verify.jobs.telling import tell  # stories are rare

        return tell(self, done, before, after)

    # What can happen

    def steps(self, state: State) -> list[Step]:
        """Everything that can happen next."""
        if len(state) == 1:
            return []
        out: list[Step] = []
        self._tick(state, out)
        self._sweeps(state, out)
        self._deliveries(state, out)
        self._commits(state, out)
        for worker, hand in enumerate(state[1]):
            if hand:
                self._works(state, worker, hand, out)
            else:
                self._claims(state, worker, out)
        self._chances(state, out)
        return out

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

    def _deliveries(self, state: State, out: list[Step]) -> None:
        jobs, hands, net, orch, spare = state
        last = -1
        for place, code in enumerate(net):
            if code == last:
                continue
            last = code
            rest = net[:place] + net[place + 1 :]
            note = read_note(code)
            if note.say >= FIRST_ANSWER:
                out.append(self._answered(state, rest, code))
                continue
            self._delivered((jobs, hands, rest, orch, spare), code, out, 0)
            if spares.has(spare, spares.DUPLICATES):
                left = spare - spares.DUPLICATES
                self._delivered((jobs, hands, net, orch, left), code, out, AIDED)

    def _delivered(self, state: State, code: int, out: list[Step], aided: int) -> None:
        """A message reaches an orchestrator."""
        note = read_note(code)
        jobs, hands, net, orch, spare = state
        value = jobs[note.job]
        if note.say is Say.SUBMIT:
            out.append(self._submitted(state, note.job, aided))
            return
        if note.say is Say.CANCEL:
            if spare & spares.asked(note.job):
                done = Done("again", note.job, 0, None, code)
                out.append((done, state if self._repeats else self._twice, aided | self._repeated))
                return
            entry = self.deciding.cancel(value)
            asked = spare | spares.asked(note.job) if entry.changed else spare
            state = (jobs, hands, net, orch, asked)
        else:
            entry = self.deciding.hear(value, code)
        reply = self._reply_code(entry, code)
        self._decided(state, Done("hear", note.job, note.worker, entry, code), code, reply, out, aided)

    def _submitted(self, state: State, job: int, aided: int) -> Step:
        jobs, hands, net, orch, spare = state
        done = Done("submit", job, 0, self._first[job], 0)
        if jobs[job] != ABSENT:
            return done, state if self._repeats else self._twice, aided | self._repeated
        new = (*jobs[:job], self._first[job].after, *jobs[job + 1 :])
        return done, (new, hands, net, orch, spare), aided

    def _reply_code(self, entry: Entry, code: int) -> int:
        if entry.reply is None:
            return 0
        note = read_note(code)
        return write_note(entry.reply, note.worker, note.job, note.shard, note.index)

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
            out.append((done, self.become(state, done.job, entry.after, reply), bits))
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
        """What is said under a lease that has ended is answered now; an answer that nobody waits for is none."""
        jobs, hands, net, orch, spare = state
        ended = self.deciding.ended_leases[jobs[job]]
        flying = [reply] if reply else []
        for code in net:
            note = read_note(code)
            doomed = note.say < FIRST_COMMAND and note.job == job
            if doomed and ended & attempt_bit(note.shard, note.index):
                entry = self.deciding.hear(jobs[job], code)
                if not entry.changed and not entry.wrong:
                    self._on_the_way |= entry.marks
                    flying.append(self._reply_code(entry, code))
                    continue
            flying.append(code)
        return jobs, hands, tuple(sorted(c for c in set(flying) if c and _awaited(c, hands))), orch, spare

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
                out.append((done, self._overtime if until < 0 else self.become(free, job, after, reply), 0))
            else:
                self._looked_again(free, one, out)
            if spares.has(spare, spares.CRASHES):
                fallen = (*free[:4], spare - spares.CRASHES)
                out.append((Done("orchestrator dies", job, place, None, op), fallen, AIDED))

    def _looked_again(self, state: State, one: tuple[int, ...], out: list[Step]) -> None:
        """The store has refused: a message is decided anew, a claim or a sweep is let go."""
        op, job, _, _, _, fate = one
        mark = self._marks[judging.LOOKED_AGAIN if fate == OUTRUN else judging.TOO_LATE]
        if op < 0:
            out.append((Done("refused", job, 0, None, op), state, mark))
            return
        note, value = read_note(op), state[0][job]
        entry = self.deciding.cancel(value) if note.say is Say.CANCEL else self.deciding.hear(value, op)
        done = Done("again", job, note.worker, entry, op)
        self._decided(state, done, op, self._reply_code(entry, op), out, mark)

    # Workers

    def _claims(self, state: State, worker: int, out: list[Step]) -> None:
        """An idle worker asks for work, unless a grant is on its way to it."""
        jobs, _, net, orch, _ = state
        if any(code >> 10 == (Say.GRANT << 2 | worker) for code in net):
            return
        if any(one is not None and one[0] == CLAIMS - worker for one in orch):
            return
        for job, value in enumerate(jobs):
            if not self.deciding.ready[value]:
                continue
            entry = self.deciding.claim(value, worker)
            if entry is not None:
                reply = write_note(Say.GRANT, worker, job, entry.shard, entry.index)
                self._decided(state, Done("claim", job, worker, entry), CLAIMS - worker, reply, out)

    def _answered(self, state: State, rest: tuple[int, ...], code: int) -> Step:
        """A worker receives an answer."""
        jobs, hands, _, orch, spare = state
        note = read_note(code)
        hand, sent = read_hand(hands[note.worker]), 0
        token = (note.job, note.shard, note.index)
        if note.say is Say.GRANT:
            phase = Phase.WORKING if self.plan.acknowledge else Phase.ACKING
            new = write_hand(phase, *token)
            sent = 0 if self.plan.acknowledge else write_note(Say.ACK, note.worker, *token)
        elif note.say is Say.OVER:
            new = IDLE
        else:
            new = write_hand(Phase.WORKING, *token, hand.beats, int(note.say is Say.TOLD))
        hands = (*hands[: note.worker], new, *hands[note.worker + 1 :])
        after = self._settle((jobs, hands, rest, orch, spare), note.job, sent)
        return Done("answer", note.job, note.worker, None, code), after, 0

    def _works(self, state: State, worker: int, code: int, out: list[Step]) -> None:
        """A worker that was let begin says something about its attempt."""
        hand, plan, spare = read_hand(code), self.plan, state[4]
        last = plan.heartbeats + 1
        if hand.phase is not Phase.REPORTING and spares.has(spare, spares.RELEASES):
            fewer = (*state[:4], spare - spares.RELEASES)
            self._say(fewer, worker, Say.RELEASE, last, out, AIDED)
        if hand.phase is not Phase.WORKING:
            return
        if hand.beats < plan.heartbeats:
            self._say(state, worker, Say.BEAT, hand.beats + 1, out, AIDED)
        self._say(state, worker, Say.SUCCESS, last, out, 0)
        if plan.fails:
            self._say(state, worker, Say.FAILURE, last, out, AIDED)
        if hand.told:
            self._say(state, worker, Say.STOPPED, last, out, 0)

    def _say(self, state: State, worker: int, say: Say, number: int, out: list[Step], aided: int) -> None:
        jobs, hands, net, orch, spare = state
        hand = read_hand(hands[worker])
        token = (hand.job, hand.shard, hand.index)
        going_on = say is Say.BEAT
        phase = Phase.WORKING if going_on else Phase.REPORTING
        new = write_hand(phase, *token, number if going_on else 0, hand.told if going_on else 0)
        hands = (*hands[:worker], new, *hands[worker + 1 :])
        code = write_note(say, worker, *token, number)
        after = self._settle((jobs, hands, net, orch, spare), hand.job, code)
        out.append((Done("say", hand.job, worker, None, code), after, aided))

    # Users and faults

    def _chances(self, state: State, out: list[Step]) -> None:
        jobs, hands, net, orch, spare = state
        if spares.has(spare, spares.CANCELS):
            for job, value in enumerate(jobs):
                if value != ABSENT and self._goal(value)[0] & 1 and not spare & spares.wanted(job):
                    left = spare - spares.CANCELS | spares.wanted(job)
                    flying = tuple(sorted((*net, write_note(Say.CANCEL, 0, job))))
                    out.append((Done("cancel", job, 0, None), (jobs, hands, flying, orch, left), AIDED))
        if spares.has(spare, spares.CRASHES):
            out.extend(self._crashes(state))
        if spares.has(spare, spares.LOSSES):
            for place, code in enumerate(net):
                if code >> 12 == Say.GRANT:
                    left = net[:place] + net[place + 1 :]
                    lost = (jobs, hands, left, orch, spare - spares.LOSSES)
                    out.append((Done("lose", read_note(code).job, 0, None, code), lost, AIDED))

    def _crashes(self, state: State) -> Iterator[Step]:
        """A worker is killed and started again under its name; what was meant for it is gone."""
        jobs, hands, net, orch, spare = state
        for worker, hand in enumerate(hands):
            if hand:
                idle = (*hands[:worker], IDLE, *hands[worker + 1 :])
                left = tuple([code for code in net if _awaited(code, idle)])
                after = (jobs, idle, left, orch, spare - spares.CRASHES)
                yield Done("crash", 0, worker, None), after, AIDED


def _awaited(code: int, hands: tuple[int, ...]) -> bool:
    """Whether an answer still means something to its worker; anything else always does."""
    if code >> 12 < FIRST_ANSWER:
        return True
    note, hand = read_note(code), read_hand(hands[read_note(code).worker])
    if note.say is Say.GRANT:
        return hand.phase is Phase.IDLE
    mine = (hand.job, hand.shard, hand.index) == (note.job, note.shard, note.index)
    if note.say is Say.OVER:
        return mine and hand.phase is not Phase.IDLE
    if note.say is Say.BEGIN:
        return mine and hand.phase is Phase.ACKING
    return mine and hand.phase is Phase.WORKING and not hand.told
