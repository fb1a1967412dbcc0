"""Jobs, workers, users, a network, orchestrators and a clock as a model: the possible steps.

A step can be described: the event, then the rows of the tables that were taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from interlock.store.records import Conflict, Repeated, StepLine, TooLate
from interlock.testing.model_checker import (
    AIDED,
    ModelClaim,
    ModelStep,
    always,
    bit,
    eventually,
    sometimes,
    trigger_bit,
)
from interlock_verification import claims, required_events
from interlock_verification.models import budget, job_symmetry
from interlock_verification.models.job_decisions import ABSENT, DecidedEvent, JobDecisions
from interlock_verification.models.job_symmetry import StateTuple
from interlock_verification.models.job_values import (
    FIRST_ANSWER,
    FIRST_COMMAND,
    IDLE,
    Phase,
    Say,
    attempt_bit,
    read_hand,
    read_message,
    write_hand,
    write_message,
)
from interlock_verification.models.plan import ModelPlan

_SAID = {
    Say.ACK: "takes it",
    Say.BEAT: "is still running",
    Say.SUCCESS: "has succeeded",
    Say.FAILURE: "has failed",
    Say.RELEASE: "gives it back",
    Say.STOPPED: "has stopped on request",
}
_ANSWERS = {
    Say.GRANT: "receives the grant",
    Say.BEGIN: "may begin",
    Say.TOLD: "is asked to stop",
    Say.OVER: "learns that the lease has ended",
}


def tell(done: StoryStep, before: Any, after: Any) -> list[str]:
    """Return the step as a sentence, followed by the rows of the tables."""
    lines = [_sentence(done)]
    if done.entry is not None:
        lines += [f"  answer: {done.entry.answer}"] if done.entry.answer else []
        lines += rows(done.entry.lines)
    if len(after) == 5 and len(after[2]) > len(before[2]) + 1:
        lines.append("  messages in flight under an ended lease are answered now")
    return lines


def rows(lines: Sequence[StepLine]) -> list[str]:
    """Return the taken rows of the tables, as in the journal."""
    return [
        f"  {line.machine + ' ' + line.entity if line.entity else line.machine}: "
        + (f"{line.source} → {line.target}" if line.moves else f"stays {line.target}")
        + f" by {line.event}"
        for line in lines
    ]


def _sentence(done: StoryStep) -> str:
    job, worker = f"job {done.job + 1}", f"worker {done.who + 1}"
    what = done.what.removeprefix("decide ")
    by = "An orchestrator decides, and has yet to commit: " if done.what.startswith("decide ") else ""
    sentences = {
        "tick": "A tick passes.",
        "sweep": f"a sweep handles the passed deadlines of {job}.",
        "submit": f"{job} is submitted.",
        "claim": f"{worker} claims work and is granted {_attempt(done)} of {job}.",
        "commit": f"an orchestrator commits its decision about {job}: {_op(done.code)}.",
        "refused": f"the store refuses a commit about {job}: {_op(done.code)} was decided on an old version.",
        "orchestrator dies": f"an orchestrator dies with a decision about {job}: {_op(done.code)}.",
        "cancel": f"a user cancels {job}.",
        "release": f"the run's order reaches {job}: it may begin.",
        "stop": f"the run's order reaches {job}: it has to stop.",
        "crash": f"{worker} is killed and started again.",
    }
    sentence = sentences[what] if what in sentences else _sentence_about(done, what, job, worker)
    return by + sentence if by else sentence[0].upper() + sentence[1:]


def _sentence_about(done: StoryStep, what: str, job: str, worker: str) -> str:
    note = read_message(done.code)
    about = f"{job} {note.shard}.{note.attempt}"
    if note.say is Say.CANCEL:
        again = "is a repeat, which the store remembers" if done.entry is None else "is carried out"
        return f"the user's cancel of {job} arrives and {again}."
    if what == "answer":
        return f"{worker} {_ANSWERS[note.say]}: {about}."
    if what == "lose":
        return f"the grant of {about} to worker {note.worker + 1} is lost on its way."
    label = _SAID[note.say]
    if what == "say":
        return f"{worker} reports on {about}: it {label}."
    if what == "again":
        return f"the orchestrator decides again on the report of {worker} on {about}: it {label}."
    return f"an orchestrator receives the report of {worker} on {about}: it {label}."


def _attempt(done: StoryStep) -> str:
    return f"{done.entry.shard}.{done.entry.index}" if done.entry is not None else "something"


def _op(op: int) -> str:
    if op == -8:
        return "a sweep"
    if op < 0:
        return f"a claim of worker {-op}"
    note = read_message(op)
    if note.say is Say.CANCEL:
        return "a user's cancel"
    label = _SAID.get(note.say, "is answered")
    return f"worker {note.worker + 1} {label} ({note.shard}.{note.attempt})"


NEVER = 99
FRESH, OUTRUN, LATE = 0, 1, 2
CLAIMS, SWEEP = -1, -8


class StoryStep(NamedTuple):
    """A step, for the story."""

    what: str
    job: int
    who: int
    entry: DecidedEvent | None
    code: int = 0


class OrchestratorSteps:
    """The part of a world in which orchestrators act."""

    def __init__(self, plan: ModelPlan, deciding: JobDecisions) -> None:
        self.plan = plan
        self.deciding = deciding
        self._first = [deciding.submit(number) for number in range(len(plan.jobs))]
        self._racing = plan.orchestrators > 1
        self._conflicts = deciding.judge(stale=True, until=None) is Conflict
        self._is_late = deciding.judge(stale=False, until=-1) is TooLate
        self._repeats = deciding.judge_again() is Repeated
        self._marks = {
            name: self._mark(name) for name in (required_events.LOOKED_AGAIN, required_events.TOO_LATE)
        }
        self._repeated = self._mark(required_events.REPEATED)
        self._on_the_way = 0
        self._again = self._broken_by(claims.ClientRequest(("made",) if self._repeats else ("made", "again")))
        self._overtime = (bit(deciding.places[claims.IN_TIME]),)

    def _broken_by(self, made: claims.ClientRequest) -> tuple[int, ...]:
        """Return the broken claims of a repeated request, as an error state."""
        places = self.deciding.places
        wrong = sum(bit(places[claim]) for claim in claims.broken(claims.SUBMISSION_CLAIMS, made))
        return (wrong,) if wrong else ()

    def _mark(self, name: str) -> int:
        places = self.deciding.places
        return bit(places[name]) if name in places else 0

    def _tick(self, state: StateTuple, out: list[ModelStep]) -> None:
        """Let one tick pass, unless no timer changes."""
        jobs, hands, net, orch, spare = state
        age = self.deciding.age
        later = tuple([age(value) for value in jobs])
        waiting = tuple([None if one is None else self._aged(one) for one in orch]) if self._racing else orch
        if later != jobs or waiting != orch:
            out.append((StoryStep("tick", 0, 0, None), (later, hands, net, waiting, spare), 0))

    def _aged(self, one: tuple[int, ...]) -> tuple[int, ...]:
        op, job, after, until, reply, freshness = one
        if freshness != FRESH:
            return one
        if until != NEVER:
            until -= 1
            if until < 0 and self._is_late:
                return op, job, 0, 0, 0, LATE
        return op, job, self.deciding.age(after), until, reply, FRESH

    def _sweeps(self, state: StateTuple, out: list[ModelStep]) -> None:
        for job, value in enumerate(state[0]):
            if self.deciding.due[value]:
                self._decided(state, StoryStep("sweep", job, 0, self.deciding.sweep(value)), SWEEP, 0, out)

    def _delivered(self, state: StateTuple, code: int, out: list[ModelStep], aided: int) -> None:
        """Deliver a message to an orchestrator."""
        note = read_message(code)
        value = state[0][note.job]
        if note.say is Say.SUBMIT:
            out.append(self._submitted(state, note.job, aided))
            return
        if note.say is Say.CANCEL:
            if state[4] & budget.cancel_committed(note.job):
                out.append(self._repeated_request(state, note.job, code, aided))
                return
            entry = self.deciding.cancel(value)
        else:
            entry = self.deciding.receive(value, code)
        reply = self._reply_code(entry, code)
        self._decided(state, StoryStep("hear", note.job, note.worker, entry, code), code, reply, out, aided)

    def _repeated_request(self, state: StateTuple, job: int, code: int, aided: int) -> ModelStep:
        """Deliver a repeat of a committed request."""
        done = StoryStep("again", job, 0, None, code)
        return done, self._again or state, aided | self._repeated

    def _submitted(self, state: StateTuple, job: int, aided: int) -> ModelStep:
        jobs, hands, net, orch, spare = state
        done = StoryStep("submit", job, 0, self._first[job], 0)
        if jobs[job] != ABSENT:
            return done, self._again or state, aided | self._repeated
        if self._first[job].wrong:
            return done, (self._first[job].wrong,), aided
        new = (*jobs[:job], self._first[job].after, *jobs[job + 1 :])
        return done, (new, hands, net, orch, spare), aided

    def _reply_code(self, entry: DecidedEvent, code: int) -> int:
        if entry.reply is None:
            return 0
        note = read_message(code)
        return write_message(entry.reply, note.worker, note.job, note.shard, note.attempt)

    # Decide and commit

    def _decided(
        self, state: StateTuple, done: StoryStep, op: int, reply: int, out: list[ModelStep], aided: int = 0
    ) -> None:
        """Commit a decision, at once or in a race with another orchestrator."""
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

    def become(self, state: StateTuple, job: int, after: int, reply: int) -> StateTuple:
        """Return the state with a job's new version; old decisions conflict."""
        jobs, hands, net, orch, spare = state
        if self._racing:
            orch = tuple([self._outrun(one, job) for one in orch])
        return self._settle(((*jobs[:job], after, *jobs[job + 1 :]), hands, net, orch, spare), job, reply)

    def _outrun(self, one: tuple[int, ...] | None, job: int) -> tuple[int, ...] | None:
        if one is None or one[1] != job or not self._conflicts:
            return one
        return one[0], job, 0, 0, 0, OUTRUN

    def _settle(self, state: StateTuple, job: int, reply: int) -> StateTuple:
        """Answer messages under ended leases; drop answers without a receiver."""
        jobs, hands, net, orch, spare = state
        ended = self.deciding.ended_leases[jobs[job]]
        flying = [reply] if reply else []
        for code in net:
            note = read_message(code)
            doomed = note.say < FIRST_COMMAND and note.job == job
            if doomed and ended & attempt_bit(note.shard, note.attempt):
                entry = self.deciding.receive(jobs[job], code)
                if not entry.changed and not entry.wrong:
                    self._on_the_way |= entry.marks
                    flying.append(self._reply_code(entry, code))
                    continue
            flying.append(code)
        return jobs, hands, tuple(sorted(c for c in set(flying) if c and awaited(c, hands))), orch, spare

    def _commits(self, state: StateTuple, out: list[ModelStep]) -> None:
        if not self._racing:
            return
        jobs, hands, net, orch, spare = state
        for place, one in enumerate(orch):
            if one is None or one in orch[:place]:
                continue
            free = (jobs, hands, net, (*orch[:place], None, *orch[place + 1 :]), spare)
            op, job, after, until, reply, freshness = one
            if freshness == FRESH:
                done = StoryStep("commit", job, place, None, op)
                after_it = self.become(_noted(free, op), job, after, reply)
                out.append((done, self._overtime if until < 0 else after_it, 0))
            else:
                self._looked_again(free, one, out)
            if budget.has(spare, budget.CRASHES):
                fallen = (*free[:4], spare - budget.CRASHES)
                out.append((StoryStep("orchestrator dies", job, place, None, op), fallen, AIDED))

    def _looked_again(self, state: StateTuple, one: tuple[int, ...], out: list[ModelStep]) -> None:
        """Handle a refused commit.

        It decides again about a message, and drops a claim or a sweep.
        """
        op, job, _, _, _, freshness = one
        mark = self._marks[required_events.LOOKED_AGAIN if freshness == OUTRUN else required_events.TOO_LATE]
        if op < 0:
            out.append((StoryStep("refused", job, 0, None, op), state, mark))
            return
        note, value = read_message(op), state[0][job]
        if note.say is Say.CANCEL and state[4] & budget.cancel_committed(job):
            out.append(self._repeated_request(state, job, op, mark))
            return
        entry = self.deciding.cancel(value) if note.say is Say.CANCEL else self.deciding.receive(value, op)
        done = StoryStep("again", job, note.worker, entry, op)
        self._decided(state, done, op, self._reply_code(entry, op), out, mark)


def _noted(state: StateTuple, op: int) -> StateTuple:
    """Return the state with the request recorded in its commit."""
    if op < 0 or op >> 12 != Say.CANCEL:
        return state
    return *state[:4], state[4] | budget.cancel_committed(read_message(op).job)


def awaited(code: int, hands: tuple[int, ...]) -> bool:
    """Return whether a message still matters to its worker."""
    if code >> 12 < FIRST_ANSWER:
        return True
    note, hand = read_message(code), read_hand(hands[read_message(code).worker])
    if note.say is Say.GRANT:
        return hand.phase is Phase.IDLE
    mine = (hand.job, hand.shard, hand.attempt) == (note.job, note.shard, note.attempt)
    if note.say is Say.OVER:
        return mine and hand.phase is not Phase.IDLE
    if note.say is Say.BEGIN:
        return mine and hand.phase is Phase.ACKING
    return mine and hand.phase is Phase.WORKING and not hand.stopping


class WorkerSteps(OrchestratorSteps):
    """The part of a world in which workers, users and faults act."""

    def steps(self, state: StateTuple) -> list[ModelStep]:
        """Return all possible steps."""
        if len(state) == 1:
            return []
        out: list[ModelStep] = []
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

    def _deliveries(self, state: StateTuple, out: list[ModelStep]) -> None:
        jobs, hands, net, orch, spare = state
        last = -1
        for place, code in enumerate(net):
            if code == last:
                continue
            last = code
            rest = net[:place] + net[place + 1 :]
            note = read_message(code)
            if note.say >= FIRST_ANSWER:
                out.append(self._answered(state, rest, code))
                continue
            self._delivered((jobs, hands, rest, orch, spare), code, out, 0)
            if budget.has(spare, budget.DUPLICATES):
                left = spare - budget.DUPLICATES
                self._delivered((jobs, hands, net, orch, left), code, out, AIDED)

    # Workers

    def _claims(self, state: StateTuple, worker: int, out: list[ModelStep]) -> None:
        """Let an idle worker claim, unless a grant is on its way to it."""
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
                reply = write_message(Say.GRANT, worker, job, entry.shard, entry.index)
                self._decided(state, StoryStep("claim", job, worker, entry), CLAIMS - worker, reply, out)

    def _answered(self, state: StateTuple, rest: tuple[int, ...], code: int) -> ModelStep:
        """Deliver an answer to a worker."""
        jobs, hands, _, orch, spare = state
        note = read_message(code)
        hand, sent = read_hand(hands[note.worker]), 0
        token = (note.job, note.shard, note.attempt)
        if note.say is Say.GRANT:
            phase = Phase.WORKING if self.plan.acknowledge else Phase.ACKING
            new = write_hand(phase, *token)
            sent = 0 if self.plan.acknowledge else write_message(Say.ACK, note.worker, *token)
        elif note.say is Say.OVER:
            new = IDLE
        else:
            new = write_hand(Phase.WORKING, *token, hand.beats, int(note.say is Say.TOLD))
        hands = (*hands[: note.worker], new, *hands[note.worker + 1 :])
        after = self._settle((jobs, hands, rest, orch, spare), note.job, sent)
        return StoryStep("answer", note.job, note.worker, None, code), after, 0

    def _works(self, state: StateTuple, worker: int, code: int, out: list[ModelStep]) -> None:
        """Let a worker send a message about its attempt."""
        hand, plan, spare = read_hand(code), self.plan, state[4]
        last = plan.heartbeats + 1
        if hand.phase is not Phase.REPORTING and budget.has(spare, budget.RELEASES):
            fewer = (*state[:4], spare - budget.RELEASES)
            self._say(fewer, worker, Say.RELEASE, last, out, AIDED)
        if hand.phase is not Phase.WORKING:
            return
        if hand.beats < plan.heartbeats:
            self._say(state, worker, Say.BEAT, hand.beats + 1, out, AIDED)
        self._say(state, worker, Say.SUCCESS, last, out, 0)
        if plan.fails:
            self._say(state, worker, Say.FAILURE, last, out, AIDED)
        if hand.stopping:
            self._say(state, worker, Say.STOPPED, last, out, 0)

    def _say(
        self, state: StateTuple, worker: int, say: Say, number: int, out: list[ModelStep], aided: int
    ) -> None:
        jobs, hands, net, orch, spare = state
        hand = read_hand(hands[worker])
        token = (hand.job, hand.shard, hand.attempt)
        going_on = say is Say.BEAT
        phase = Phase.WORKING if going_on else Phase.REPORTING
        new = write_hand(phase, *token, number if going_on else 0, hand.stopping if going_on else 0)
        hands = (*hands[:worker], new, *hands[worker + 1 :])
        code = write_message(say, worker, *token, number)
        after = self._settle((jobs, hands, net, orch, spare), hand.job, code)
        out.append((StoryStep("say", hand.job, worker, None, code), after, aided))

    # Users and faults

    def _chances(self, state: StateTuple, out: list[ModelStep]) -> None:
        jobs, hands, net, orch, spare = state
        if budget.has(spare, budget.CANCELS):
            for job, value in enumerate(jobs):
                if value != ABSENT and self.deciding.unsettled[value] and not spare & budget.wanted(job):
                    left = spare - budget.CANCELS | budget.wanted(job)
                    flying = tuple(sorted((*net, write_message(Say.CANCEL, 0, job))))
                    out.append((StoryStep("cancel", job, 0, None), (jobs, hands, flying, orch, left), AIDED))
        if budget.has(spare, budget.CRASHES):
            out.extend(self._crashes(state))
        if budget.has(spare, budget.LOSSES):
            for place, code in enumerate(net):
                if code >> 12 == Say.GRANT:
                    left = net[:place] + net[place + 1 :]
                    lost = (jobs, hands, left, orch, spare - budget.LOSSES)
                    out.append((StoryStep("lose", read_message(code).job, 0, None, code), lost, AIDED))

    def _crashes(self, state: StateTuple) -> Iterator[ModelStep]:
        """Yield crashes: a worker restarts, and messages to it are lost."""
        jobs, hands, net, orch, spare = state
        for worker, hand in enumerate(hands):
            if hand:
                idle = (*hands[:worker], IDLE, *hands[worker + 1 :])
                left = tuple([code for code in net if awaited(code, idle)])
                after = (jobs, idle, left, orch, spare - budget.CRASHES)
                yield StoryStep("crash", 0, worker, None), after, AIDED


CANCEL_SETTLES = "every cancel settles"
RECLAIMED = "every expired lease is reclaimed"


def claims_of(plan: ModelPlan) -> list[ModelClaim]:
    """Return all claims about the jobs of a plan."""
    held = [claim.sentence for claim in claims.VALUE_CLAIMS]
    held += [claim.sentence for claim in claims.STEP_CLAIMS]
    held += [claims.STORE_CLAIM, claims.BATCH_CLAIM]
    held += [claims.GIVEN_ONCE, claims.ASKED_FOR, claims.DONE_ONCE, claims.IN_TIME]
    return [
        *(always(claim) for claim in held),
        eventually(claims.SETTLES),
        eventually(CANCEL_SETTLES, conditional=True),
        eventually(RECLAIMED, conditional=True),
        *(sometimes(claim) for claim in plan.shows),
    ]


class JobWorld(WorkerSteps):
    """The model of a plan."""

    def __init__(self, plan: ModelPlan, places: dict[str, int] | None = None) -> None:
        self.name = plan.name
        self.claims: Sequence[ModelClaim] = claims_of(plan)
        self.places = places or {claim.claim: place for place, claim in enumerate(self.claims)}
        super().__init__(plan, JobDecisions(plan, self.places))
        self._given_once = bit(self.places[claims.GIVEN_ONCE])
        self._asked_for = bit(self.places[claims.ASKED_FOR])
        self._settled = bit(self.places[claims.SETTLES])
        self._done_stopping = bit(self.places[CANCEL_SETTLES])
        self._reclaimed = bit(self.places[RECLAIMED])
        self._stopping, self._due = (
            trigger_bit(self.places[CANCEL_SETTLES]),
            trigger_bit(self.places[RECLAIMED]),
        )
        self.names = job_symmetry.CanonicalNames(plan, self.deciding)

    # Initial state and observations

    def initial(self) -> StateTuple:
        """Return the initial state, with idle workers."""
        plan, numbers = self.plan, range(len(self.plan.jobs))
        jobs = tuple(ABSENT if plan.submits else self._first[number].after for number in numbers)
        net = tuple(write_message(Say.SUBMIT, 0, number) for number in numbers) if plan.submits else ()
        return jobs, (IDLE,) * plan.workers, net, (None,) * plan.orchestrators, budget.first(plan)

    def first(self, number: int) -> int:
        """Return the value of a submitted job."""
        return self._first[number].after

    def canonical(self, state: StateTuple) -> StateTuple:
        """Return the state with canonical names of workers and jobs."""
        return state if len(state) == 1 else self.names.canonical(state)

    def look(self, state: StateTuple) -> int:
        """Return the observable claims, mostly those of each job's value."""
        if len(state) == 1:
            broken: int = state[0]
            return broken
        jobs, hands, net, _, spare = state
        known, seen, unsettled, stopping, due = self.deciding, 0, False, False, False
        for number, value in enumerate(jobs):
            seen |= known.bits[value]
            unsettled |= known.unsettled[value]
            stopping |= known.stopping[value]
            due |= known.due[value]
            if known.by_cancel[value] and not spare & budget.cancel_committed(number):
                seen |= self._asked_for
        if self._given_twice(hands, net):
            seen |= self._given_once
        seen |= 0 if unsettled else self._settled
        seen |= self._stopping if stopping else self._done_stopping
        return seen | self._on_the_way | (self._due if due else self._reclaimed)

    def _given_twice(self, hands: tuple[int, ...], net: tuple[int, ...]) -> bool:
        if len(hands) < 2:
            return False
        given: dict[tuple[int, int, int], int] = {}
        held = [(read_hand(hand), worker) for worker, hand in enumerate(hands) if hand]
        holders = [((hand.job, hand.shard, hand.attempt), worker) for hand, worker in held]
        for code in net:
            note = read_message(code)
            if note.say is Say.GRANT:
                holders.append(((note.job, note.shard, note.attempt), note.worker))
        return any(given.setdefault(token, worker) != worker for token, worker in holders)

    def tell(self, done: StoryStep, before: StateTuple, after: StateTuple) -> list[str]:
        """Return a step in words."""
        return tell(done, before, after)
