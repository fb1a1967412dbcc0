"""What workers, users and the network do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from interlock.verify.claims import AIDED
from interlock.verify.jobs import spares
from interlock.verify.jobs.codes import (
    FIRST_ANSWER,
    IDLE,
    Phase,
    Say,
    read_hand,
    read_note,
    write_hand,
    write_note,
)
from interlock.verify.jobs.decisions import ABSENT
from interlock.verify.jobs.orchestrators import CLAIMS, Doing, Done, awaited
from interlock.verify.model_checker import Step

State: TypeAlias = tuple[Any, ...]


class Working(Doing):
    """The part of a world in which everybody else acts."""

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
        token = (note.job, note.shard, note.attempt)
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
        token = (hand.job, hand.shard, hand.attempt)
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
                if value != ABSENT and self.deciding.unsettled[value] and not spare & spares.wanted(job):
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
                left = tuple([code for code in net if awaited(code, idle)])
                after = (jobs, idle, left, orch, spare - spares.CRASHES)
                yield Done("crash", 0, worker, None), after, AIDED
