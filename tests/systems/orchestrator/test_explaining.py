"""Why no live worker takes a job: what is said where queue, labels, task or leave to work is missing."""

from __future__ import annotations

from typing import Any

import pytest
from tests.systems.orchestrator.house import House, release

from interlock.wire.workers import WorkerBeat, WorkerSpec

WAITS = "It waits for a worker of the queue default"


async def alive(house: House, name: str = "anna", **spec: Any) -> str:
    """Register a worker that has given a sign of life."""
    workers = house.port.services.workers
    worker = await workers.register(WorkerSpec(name=name, incarnation="1", **spec))
    await workers.beat(worker.id, WorkerBeat(begun=True))
    return worker.id


async def told(house: House, task: str = "shop.send", **spec: Any) -> tuple[str, str]:
    """Submit a job, and say why no worker takes it and what to do."""
    explained = await house.jobs.explain(await house.submit(task, **spec))
    assert explained.sentence.endswith(explained.blocked)
    return explained.blocked, explained.todo


async def test_explain_shows_the_command_to_start_a_worker_if_there_is_none(house: House) -> None:
    job_id = await house.submit("shop.send")
    explained = await house.jobs.explain(job_id)
    assert explained.sentence == f"{WAITS}. No live worker takes the queue default."
    assert explained.todo == "interlock worker start MODULE"
    assert (await told(house, "interlock.shell", queue="ci"))[
        1
    ] == "interlock worker start --shell --queue ci"


async def test_a_worker_that_may_take_it_is_waited_for(house: House) -> None:
    await alive(house, tasks=("interlock.shell", "shop.send"))
    explained = await house.jobs.explain(await house.submit("shop.send"))
    assert (explained.sentence, explained.blocked, explained.todo) == (f"{WAITS}.", "", "")


async def test_explain_treats_a_worker_that_declares_no_tasks_as_able_to_take_any_task(house: House) -> None:
    await alive(house)
    assert await told(house) == ("", "")


async def test_explain_names_a_queue_that_no_live_worker_takes_and_the_queues_that_are_taken(
    house: House,
) -> None:
    await alive(house, queues=("mail", "ci"))
    blocked, _ = await told(house)
    assert blocked == "No live worker takes the queue default. Those that are alive take: ci, mail."


@pytest.mark.parametrize(
    ("labels", "missing"),
    [
        (("gpu",), "has the label gpu."),
        (("arm", "gpu", "linux"), "has all of the labels arm, gpu."),
        (("big", "linux"), "has all of the labels big, linux."),
    ],
)
async def test_labels_that_no_worker_has_are_named(
    house: House, labels: tuple[str, ...], missing: str
) -> None:
    await alive(house, labels=("linux",))
    await alive(house, "ben", labels=("big",))
    blocked, todo = await told(house, labels=labels)
    assert blocked == f"No live worker of the queue default {missing}"
    assert todo.endswith("".join(f" --label {label}" for label in labels))


async def test_explain_names_a_task_that_no_live_worker_has_and_suggests_a_similar_task(house: House) -> None:
    await alive(house, tasks=("interlock.shell", "shop.sent"))
    blocked, todo = await told(house)
    assert blocked == "No live worker has the task shop.send. Did you mean shop.sent?"
    assert todo == "interlock worker start MODULE"
    assert (await told(house, "mail.collect"))[0] == "No live worker has the task mail.collect."


async def test_a_paused_worker_is_named_with_how_to_resume_it(house: House) -> None:
    first = await alive(house, tasks=("shop.send",))
    await alive(house, "other", tasks=("shop.count",))
    await house.port.services.workers.pause(first)
    blocked, todo = await told(house)
    assert blocked == "The only live worker that could take it, anna, is paused."
    assert todo == f"interlock worker resume {first}"
    await house.port.services.workers.pause(await alive(house, "ben"))
    assert (await told(house))[0] == "All 2 live workers that could take it are paused."


async def test_explain_does_not_count_a_draining_worker_as_live(house: House) -> None:
    await house.port.services.workers.drain(await alive(house))
    assert (await told(house))[0] == "No live worker takes the queue default."


async def test_a_job_that_is_not_ready_waits_for_no_worker_yet(house: House) -> None:
    assert await told(house, delay_s=60) == ("", "")


async def test_explain_reports_a_missing_worker_for_a_released_job_as_for_a_new_one(house: House) -> None:
    grant = await house.started(task="shop.send")
    await house.heard(release(grant))
    explained = await house.jobs.explain(grant.job_id)
    assert explained.blocked == "No live worker takes the queue default."


async def test_explain_for_a_caller_confined_to_some_queues_names_no_workers_or_other_queues(
    house: House,
) -> None:
    worker = await alive(house, tasks=("shop.sent",), queues=("default", "secret"))
    job_id, elsewhere = await house.submit("shop.send"), await house.submit("shop.send", queue="ci")
    confined = [await house.jobs.explain(each, in_general=False) for each in (job_id, elsewhere)]
    assert [each.blocked for each in confined] == [
        "No live worker has the task shop.send.",
        "No live worker takes the queue ci.",
    ]
    await house.port.services.workers.pause(worker)
    paused = await house.jobs.explain(await house.submit("shop.sent"), in_general=False)
    assert (paused.blocked, paused.todo) == ("The only live worker that could take it is paused.", "")


async def test_five_hundred_tasks_fit_into_the_record_of_a_worker(house: House) -> None:
    names = tuple(f"shop.department{number:03}.send_a_letter" for number in range(500))
    worker = await alive(house, tasks=names)
    workers = house.port.services.workers
    assert (await workers.get(worker)).tasks == names
    blocked, _ = await told(house, names[-1])
    assert blocked == ""
    blocked, _ = await told(house, "shop.department499.sent_a_letter")
    assert "Did you mean shop.department" in blocked
