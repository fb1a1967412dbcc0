"""For callers that name the state they want: how to get there, or why not, in the order of S0-12."""

from __future__ import annotations

from enum import StrEnum

import pytest

from interlock.errors import AlreadyThere, TerminalState, TransitionNotAllowed
from interlock.machine import STAY, Machine, Refusal, Refused, command, end, on, state


class Job(StrEnum):
    SUBMITTED = "SUBMITTED"
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


validate = command("validate", "It looks right.", by="engine")
allocate = command("allocate", "There is room.", by="engine")
touch = command("touch", "Still alive.", by="engine")
retry = command("retry", "Once more.", by="engine")
restart = command("restart", "From the top.", by="engine")
succeed = command("succeed", "It went well.", by="worker")
skip = command("skip", "Nothing to do.", by="user")
fail = command("fail", "It went badly.", by="worker")
reopen = command("reopen", "It was not so bad.", by="user")
cancel = command("cancel", "Not wanted.", by="user")

JOB = Machine[Job, None](
    "job",
    "A unit of work.",
    initial=Job.SUBMITTED,
    states=(
        state(Job.SUBMITTED, "New.", turn="engine"),
        state(Job.PENDING, "Waits.", turn="engine"),
        state(Job.RUNNING, "Runs.", turn="worker"),
        end(Job.COMPLETED, "Went well."),
        end(Job.FAILED, "Went badly."),
        end(Job.CANCELED, "Not wanted."),
    ),
    rows=(
        on(validate, Job.SUBMITTED, Job.PENDING, owner="engine", why="Right."),
        on(allocate, Job.PENDING, Job.RUNNING, owner="engine", why="Room."),
        on(touch, Job.PENDING, STAY, owner="engine", why="Alive."),
        on(restart, Job.RUNNING, Job.RUNNING, owner="engine", why="Again."),
        on(retry, Job.RUNNING, Job.PENDING, owner="engine", why="Transient."),
        on(succeed, Job.RUNNING, Job.COMPLETED, owner="worker", why="Well."),
        on(skip, Job.RUNNING, Job.COMPLETED, owner="user", why="Nothing to do."),
        on(fail, Job.RUNNING, Job.FAILED, owner="worker", why="Badly."),
        on(reopen, Job.FAILED, Job.PENDING, owner="user", why="Mercy.", leaves_terminal=True),
        on(cancel, (Job.SUBMITTED, Job.PENDING, Job.RUNNING), Job.CANCELED, owner="user", why="Theirs."),
    ),
    stop=(cancel,),
)


def refused(source: Job, target: Job) -> Refused[Job]:
    answer = JOB.toward(source, target)
    assert isinstance(answer, Refused), answer
    return answer


def test_the_step_that_leads_there_is_reported() -> None:
    answer = JOB.toward(Job.SUBMITTED, Job.PENDING)
    assert not isinstance(answer, Refused)
    assert [(step.event, step.source, step.target) for step in answer] == [
        ("validate", Job.SUBMITTED, Job.PENDING)
    ]


def test_every_step_that_leads_there_is_reported_in_the_order_of_the_table() -> None:
    answer = JOB.toward(Job.RUNNING, Job.COMPLETED)
    assert not isinstance(answer, Refused)
    assert [step.event for step in answer] == ["succeed", "skip"]


def test_a_declared_loop_leads_to_where_it_is() -> None:
    answer = JOB.toward(Job.RUNNING, Job.RUNNING)
    assert not isinstance(answer, Refused)
    assert [step.event for step in answer] == ["restart"]


def test_a_declared_exit_leads_out_of_a_terminal_state() -> None:
    answer = JOB.toward(Job.FAILED, Job.PENDING)
    assert not isinstance(answer, Refused)
    assert [step.event for step in answer] == ["reopen"]


@pytest.mark.parametrize("place", [Job.SUBMITTED, Job.PENDING])
def test_the_state_it_is_in_is_refused_as_already_there(place: Job) -> None:
    assert refused(place, place).kind is Refusal.ALREADY_THERE


@pytest.mark.parametrize("place", [Job.COMPLETED, Job.FAILED, Job.CANCELED])
def test_already_there_is_reported_before_terminal(place: Job) -> None:
    """S0-12: a job that is COMPLETED and is asked to be COMPLETED is not told that it has ended."""
    answer = refused(place, place)
    assert answer.kind is Refusal.ALREADY_THERE
    assert isinstance(answer.error(), AlreadyThere)


@pytest.mark.parametrize("place", [Job.COMPLETED, Job.CANCELED])
@pytest.mark.parametrize("target", [Job.SUBMITTED, Job.RUNNING, Job.FAILED])
def test_terminal_is_reported_before_not_allowed(place: Job, target: Job) -> None:
    answer = refused(place, target)
    assert answer.kind is Refusal.TERMINAL
    assert answer.allowed == ()
    assert isinstance(answer.error(), TerminalState)


def test_a_terminal_state_with_an_exit_is_still_terminal_for_every_other_target() -> None:
    answer = refused(Job.FAILED, Job.RUNNING)
    assert (answer.kind, answer.allowed) == (Refusal.TERMINAL, ("PENDING",))


def test_a_transition_that_is_not_allowed_is_refused_with_the_allowed_states() -> None:
    answer = refused(Job.SUBMITTED, Job.RUNNING)
    assert answer.kind is Refusal.NOT_ALLOWED
    assert answer.allowed == ("PENDING", "CANCELED")
    assert (answer.machine, answer.state, answer.asked) == ("job", Job.SUBMITTED, "RUNNING")
    error = answer.error()
    assert isinstance(error, TransitionNotAllowed)
    assert error.allowed == ("PENDING", "CANCELED")
    assert "PENDING, CANCELED" in error.todo


def test_each_allowed_state_is_named_once_and_the_own_state_is_not() -> None:
    answer = refused(Job.RUNNING, Job.SUBMITTED)
    assert answer.allowed == ("PENDING", "COMPLETED", "FAILED", "CANCELED")


def test_a_row_that_stays_leads_nowhere() -> None:
    assert "touch" not in [step.event for step in JOB.steps_from(Job.PENDING)]
    assert refused(Job.PENDING, Job.PENDING).kind is Refusal.ALREADY_THERE


def test_over_all_pairs_there_is_a_way_exactly_where_the_table_has_a_row() -> None:
    ways = {
        (source, target)
        for source in Job
        for target in Job
        if not isinstance(JOB.toward(source, target), Refused)
    }
    assert ways == {
        (Job.SUBMITTED, Job.PENDING),
        (Job.PENDING, Job.RUNNING),
        (Job.RUNNING, Job.RUNNING),
        (Job.RUNNING, Job.PENDING),
        (Job.RUNNING, Job.COMPLETED),
        (Job.RUNNING, Job.FAILED),
        (Job.FAILED, Job.PENDING),
        (Job.SUBMITTED, Job.CANCELED),
        (Job.PENDING, Job.CANCELED),
        (Job.RUNNING, Job.CANCELED),
    }
