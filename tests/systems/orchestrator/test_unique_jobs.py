"""Unique jobs: one job with a key, which jobs count, and what a submission does where one is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.systems.orchestrator.house import TTL_S, House, done, failed

from interlock.errors import DuplicateJob, InvalidJob, TransitionNotAllowed
from interlock.store.records import Key, Query, Record
from interlock.systems.orchestrator.submission import unique_part
from interlock.systems.orchestrator.uniqueness import FREED_AFTER, UNIQUE_KEY
from interlock.wire.jobs import JobSpec, SubmittedJob, Unique
from interlock.wire.runner import Grant
from interlock.worker.codec import with_json


def mail(policy: str = "reject", key: str = "order-17", **more: Any) -> JobSpec:
    """A job with a unique key."""
    rule: dict[str, Any] = {"key": key, "policy": policy}
    rule |= {name: more.pop(name) for name in ("by", "scope", "states", "within") if name in more}
    unique = msgspec.convert(rule, Unique)
    fields: dict[str, Any] = {"task": "mail", "unique": unique, **more}
    return with_json(JobSpec(**fields))


async def submitted(house: House, *specs: JobSpec) -> list[tuple[str, str]]:
    """What submissions have led to."""
    return [(one.id, one.how) for one in await house.jobs.submit_jobs(specs)]


async def refused(house: House, spec: JobSpec) -> DuplicateJob:
    """The error of a submission."""
    with pytest.raises(DuplicateJob) as error:
        await house.jobs.submit(spec)
    return error.value


async def input_of(house: House, job_id: str) -> Any:
    """What a handler would be given."""
    return msgspec.json.decode((await house.view(job_id)).input)


async def claimed(house: House) -> Grant:
    """The job, given to a runner."""
    return await house.grant()


# What happens when there is one


async def test_a_second_job_with_the_key_is_rejected_with_the_id_of_the_first(house: House) -> None:
    first = await house.jobs.submit(mail())
    error = await refused(house, mail())
    assert (error.code, error.status) == ("duplicate_job", 409)
    assert error.facts == {"job_id": first, "state": "PENDING", "unique_key": "order-17"}
    assert f"interlock job show {first}" in error.todo
    assert await house.number_of_jobs() == 1


async def test_a_duplicate_submission_returns_the_existing_job_marked_as_existing(house: House) -> None:
    ((first, how),) = await submitted(house, mail("existing"))
    assert how == "created"
    assert await submitted(house, mail("existing")) == [(first, "existing")]
    assert await house.jobs.submit_many([mail("existing")]) == [first]


async def test_the_input_of_a_job_that_waits_is_replaced_and_it_keeps_its_place(house: House) -> None:
    first = await house.jobs.submit(mail("replace", input={"n": 1}, description="one"))
    before = await house.record(first)
    assert await submitted(house, mail("replace", input={"n": 2}, description="two")) == [(first, "replaced")]
    view, after = await house.view(first), await house.record(first)
    assert (await input_of(house, first), view.description, view.unique_key) == ({"n": 2}, "two", "order-17")
    assert (after.ready_at, after.given) == (before.ready_at, before.given)
    assert msgspec.json.decode((await claimed(house)).input) == {"n": 2}
    *_, entry, _ = await house.history(first)
    assert entry.note.reason == "input replaced by a submission with its unique key order-17"
    assert await house.faults() == []


async def test_a_debounced_job_waits_anew_with_the_newest_input(house: House) -> None:
    first = await house.jobs.submit(mail("debounce", input={"n": 1}, delay_s=60))
    await house.later(59)
    assert await submitted(house, mail("debounce", input={"n": 2}, delay_s=60)) == [(first, "debounced")]
    await house.later(59)
    assert await house.claim() == []
    await house.later(1)
    assert msgspec.json.decode((await claimed(house)).input) == {"n": 2}


async def test_a_prompt_job_can_be_debounced(house: House) -> None:
    first = await house.jobs.submit(mail("debounce"))
    assert await submitted(house, mail("debounce", delay_s=5)) == [(first, "debounced")]
    assert await house.claim() == []
    await house.later(5)
    assert (await claimed(house)).job_id == first


@pytest.mark.parametrize("policy", ["replace", "debounce"])
async def test_a_job_that_runs_is_left_alone_and_another_one_waits_behind_it(
    house: House, policy: str
) -> None:
    first = await house.jobs.submit(mail(policy, input={"n": 1}))
    await claimed(house)
    ((second, how),) = await submitted(house, mail(policy, input={"n": 2}))
    assert (second != first, how) == (True, "created")
    assert [one for one, _ in await submitted(house, mail(policy, input={"n": 3}))] == [second]
    assert (await input_of(house, first), await input_of(house, second)) == ({"n": 1}, {"n": 3})


async def test_a_replacement_of_a_running_job_is_refused_with_the_state_of_the_job(house: House) -> None:
    await house.jobs.submit(mail())
    await claimed(house)
    error = await refused(house, mail("replace", states=("pending", "running")))
    assert "cannot be changed: it is RUNNING, and only a job that waits is changed" in error.sentence


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"task": "print"}, "its task is mail"),
        ({"secrets": ("TOKEN",)}, "it is given other secrets"),
    ],
)
async def test_a_submission_changes_no_job_that_is_given_something_else(
    house: House, other: dict[str, Any], why: str
) -> None:
    await house.jobs.submit(mail(scope="queue"))
    assert why in (await refused(house, mail("replace", scope="queue", **other))).sentence


# Which jobs count


@pytest.mark.parametrize("end", ["completed", "failed", "canceled", "lost"])
async def test_the_key_is_free_as_soon_as_its_job_has_ended(house: House, end: str) -> None:
    first = await house.jobs.submit(mail(losses=0))
    if end == "canceled":
        await house.jobs.cancel(first)
    else:
        grant = await claimed(house)
        assert (await refused(house, mail())).facts["state"] == "RUNNING"
        if end == "lost":
            await house.later(TTL_S)
        else:
            await house.heard(done(grant) if end == "completed" else failed(grant))
    ((second, how),) = await submitted(house, mail())
    assert (second != first, how) == (True, "created")


async def test_a_job_that_was_pruned_does_not_count(house: House) -> None:
    first = await house.jobs.submit(mail(within="30d"))
    await house.heard(done(await claimed(house)))
    assert (await refused(house, mail(within="30d"))).facts["job_id"] == first
    pruned = await house.store.prune(kind="job", states=("COMPLETED",), older_than=FREED_AFTER * 0)
    assert pruned.records == 1
    ((_, how),) = await submitted(house, mail(within="30d"))
    assert how == "created"


async def test_a_completed_job_counts_within_its_window_and_a_failed_one_does_not(house: House) -> None:
    rule = {"within": "1h"}
    first = await house.jobs.submit(mail(**rule))
    await house.heard(failed(await claimed(house)))
    second = await house.jobs.submit(mail(**rule))
    assert second != first
    await house.heard(done(await claimed(house)))
    assert (await refused(house, mail(**rule))).facts == {
        "job_id": second,
        "state": "COMPLETED",
        "unique_key": "order-17",
    }
    await house.later(3_599)
    assert await submitted(house, mail("existing", **rule)) == [(second, "existing")]
    await house.later(1)
    ((third, _),) = await submitted(house, mail(**rule))
    assert third not in (first, second)


async def test_the_states_of_a_unique_rule_decide_which_jobs_count(house: House) -> None:
    first = await house.jobs.submit(mail(states=("PENDING",)))
    assert (await refused(house, mail(states=("PENDING",)))).facts["job_id"] == first
    await claimed(house)
    ((second, how),) = await submitted(house, mail(states=("PENDING",)))
    assert how == "created"
    await house.jobs.cancel(second)
    assert (await refused(house, mail())).facts["job_id"] == first, "it runs, and the key knows both"


# What the key is


async def test_keys_are_made_of_chosen_arguments_in_any_order(house: House) -> None:
    first = JobSpec(
        task="mail", input=msgspec.Raw(b'{"to":"ada","n":1,"extra":true}'), unique=Unique(by=("n", "to"))
    )
    second = JobSpec(
        task="mail", input=msgspec.Raw(b'{ "extra":0, "n": 1, "to":"ada"}'), unique=Unique(by=("to", "n"))
    )
    assert unique_part(first).id == unique_part(second).id
    made = await house.jobs.submit(first)
    assert (await refused(house, second)).facts["unique_key"] == '{"n":1,"to":"ada"}'
    assert (await house.view(made)).unique_key == '{"n":1,"to":"ada"}'


async def test_without_a_key_all_arguments_make_it(house: House) -> None:
    await house.jobs.submit(mail(key="", input={"n": 1}))
    await house.jobs.submit(mail(key="", input={"n": 2}))
    assert (await refused(house, mail(key="", input={"n": 1}))).facts["unique_key"] == '{"n":1}'


async def test_a_key_is_unique_in_its_task_or_in_its_queue(house: House) -> None:
    await house.jobs.submit(mail())
    await house.jobs.submit(mail(task="print"))
    await refused(house, mail(queue="slow"))
    await house.jobs.submit(mail(scope="queue"))
    await refused(house, mail(scope="queue", task="print"))
    await house.jobs.submit(mail(scope="queue", queue="slow"))


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        (Unique(key="k" * 201), "unique.key has 1 to 200 printable characters"),
        (Unique(key="a\nb"), "unique.key has 1 to 200 printable characters"),
        (Unique(key="k", by=("n",)), "unique has both a key and names of arguments (by); give one of them"),
        (Unique(by=("m",)), "none of the arguments of unique.by is given: m"),
        (Unique(states=("DONE",)), "unique.states has 'DONE'; a job is one of SUBMITTED, PENDING, RUNNING"),
        (Unique(states=("COMPLETED",)), "unique.within must say for how long, such as 1h"),
        (Unique(within="an hour"), "unique.within: 'an hour' is not a duration"),
        (Unique(within="1h", states=("RUNNING",)), "unique.states names none of their states"),
        (Unique(policy="ignore"), "unique.policy is 'ignore' and must be one of reject, existing"),  # type: ignore[arg-type]
        (Unique(scope="all"), "unique.scope is 'all' and must be one of task, queue"),  # type: ignore[arg-type]
    ],
)
async def test_an_invalid_unique_rule_is_refused_with_an_error_that_names_the_fault(
    house: House, rule: Unique, fault: str
) -> None:
    with pytest.raises(InvalidJob) as error:
        await house.jobs.submit(mail(unique=rule, input={"n": 1}))
    assert fault in error.value.sentence


# Several at once, and again


async def test_every_job_of_a_bulk_has_the_arguments_of_its_key(house: House) -> None:
    with pytest.raises(InvalidJob, match="none of the arguments"):
        await house.jobs.submit_many([mail(key="", by=("n",), input={name: 1}) for name in ("n", "m")])


async def test_keys_count_within_one_bulk(house: House) -> None:
    specs = [mail("existing", key=f"order-{number % 3}", input={"n": number}) for number in range(6)]
    made = await submitted(house, *specs)
    assert [how for _, how in made] == ["created"] * 3 + ["existing"] * 3
    assert [one for one, _ in made[:3]] == [one for one, _ in made[3:]]
    replaced = await submitted(house, *(msgspec.structs.replace(spec, unique=None) for spec in specs[:1]))
    assert replaced[0][1] == "created"


async def test_the_last_of_a_bulk_replaces_the_first(house: House) -> None:
    (first, _), (second, how) = await submitted(
        house, mail("replace", input={"n": 1}), mail("replace", input={"n": 2})
    )
    assert (first, how, await input_of(house, first)) == (second, "replaced", {"n": 2})


async def test_of_a_bulk_with_a_duplicate_nothing_is_created(house: House) -> None:
    await house.jobs.submit(mail())
    with pytest.raises(DuplicateJob):
        await house.jobs.submit_many([JobSpec(task="other"), mail()])
    assert await house.number_of_jobs() == 1


async def test_a_request_that_is_repeated_is_answered_as_before(house: House) -> None:
    first = await house.jobs.submit_jobs([mail()], request_id="r1")
    again = await house.jobs.submit_jobs([mail("existing")], request_id="r2")
    assert await house.jobs.submit_jobs([mail()], request_id="r1") == first
    await house.jobs.cancel(first[0].id)
    assert await house.jobs.submit_jobs([mail("existing")], request_id="r2") == again
    assert again == [SubmittedJob(first[0].id, "existing")]


async def test_a_retry_takes_the_key_again_and_is_refused_while_another_job_has_it(house: House) -> None:
    first = await house.jobs.submit(mail(input={"n": 1}))
    with pytest.raises(TransitionNotAllowed):
        await house.jobs.retry(first)
    await house.heard(failed(await claimed(house)))
    second = await house.jobs.retry(first, request_id="again")
    assert await house.jobs.retry(first, request_id="again") == second
    assert (await house.view(second)).origin_job_id == first
    assert (await refused(house, mail())).facts["job_id"] == second
    with pytest.raises(DuplicateJob):
        await house.jobs.retry(first)


async def test_children_can_be_unique_and_a_parent_waits_for_its_own_only(house: House) -> None:
    elsewhere = await house.jobs.submit(mail())
    parent = await house.started(task="parent", queue="p")
    trees = house.port.services.trees
    ids = await trees.submit(parent.token, "runner#1", "a", [mail("existing")])
    assert ids == (elsewhere,)
    assert (await house.view(parent.job_id)).children == 0
    (own,) = await trees.submit(parent.token, "runner#1", "b", [mail(key="mine")])
    assert (await house.view(parent.job_id)).children == 1
    with pytest.raises(DuplicateJob):
        await trees.submit(parent.token, "runner#1", "c", [mail(key="mine")])
    assert await trees.submit(parent.token, "runner#1", "b", [mail(key="mine")]) == (own,)


# Records of keys


async def keys(house: House) -> dict[str, int]:
    """How many records of keys there are, by state."""
    return (await house.store.status()).records.get(UNIQUE_KEY.name, {})


async def test_the_record_of_a_unique_key_is_removed_after_its_job_has_ended(house: House) -> None:
    await house.jobs.submit(mail(key="lives"))
    ended = await house.jobs.submit(mail(key="ends"))
    await house.jobs.cancel(ended)
    unique_keys = house.port.services.unique_keys
    assert await unique_keys.free() == 0, "they are new"
    await house.later(FREED_AFTER.total_seconds() + 1)
    assert await unique_keys.free() == 1
    await house.later(FREED_AFTER.total_seconds() + 1)
    await unique_keys.free()
    assert await keys(house) == {"held": 1}
    await refused(house, mail(key="lives"))
    assert await submitted(house, mail(key="ends"))


async def test_a_free_key_is_taken_again(house: House) -> None:
    await house.jobs.cancel(await house.jobs.submit(mail()))
    await house.later(FREED_AFTER.total_seconds() + 1)
    await house.port.services.unique_keys.free()
    assert await keys(house) == {"free": 1}
    second = await house.jobs.submit(mail())
    assert (await refused(house, mail())).facts["job_id"] == second
    assert await keys(house) == {"held": 1}


async def test_a_unique_key_is_not_freed_before_its_window_is_over(house: House) -> None:
    first = await house.jobs.submit(mail(within="2d"))
    await house.heard(done(await claimed(house)))
    await house.later(86_400)
    assert await house.port.services.unique_keys.free() == 0
    assert (await refused(house, mail(within="2d"))).facts["job_id"] == first


async def test_freeing_continues_where_it_ended(house: House) -> None:
    for number in range(3):
        await house.jobs.submit(mail(key=f"lives {number}"))
        await house.later(1)
    await house.jobs.cancel(await house.jobs.submit(mail(key="ends")))
    await house.later(FREED_AFTER.total_seconds() + 1)
    unique_keys = house.port.services.unique_keys
    assert [await unique_keys.free(limit=2) for _ in range(2)] == [0, 1]


async def test_a_key_remembers_no_job_that_has_ended(house: House) -> None:
    part = unique_part(mail())
    for _ in range(3):
        last = await house.jobs.submit(mail())
        await house.jobs.cancel(last)
    await house.jobs.submit(mail())
    (record,) = await house.store.load([Key(UNIQUE_KEY.name, part.id)])
    assert record is not None
    assert len(msgspec.json.decode(record.body)["jobs"]) == 1
    assert (await house.store.find(Query(kind=UNIQUE_KEY.name))).records == (record,)


# Loading the keys


async def test_the_keys_of_first_jobs_are_not_loaded_until_one_is_there(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    store = house.jobs.engine.store
    real = store.load

    async def load(keys: Sequence[Key]) -> list[Record | None]:
        loads.extend(key.kind for key in keys)
        return await real(keys)

    monkeypatch.setattr(store, "load", load)

    async def loaded(*names: str) -> tuple[list[str], list[str]]:
        """What came of each of several jobs, and what kinds were loaded for that."""
        loads.clear()
        how = [how for _, how in await submitted(house, *(mail("existing", name) for name in names))]
        return how, sorted(loads)

    new, there = ["created", "created"], ["existing", "existing"]
    assert await loaded("a", "b") == (new, [])
    assert await loaded("c", "d") == (new, [])
    assert await loaded("c", "e") == (["existing", "created"], ["job", *["unique_key"] * 4])
    assert await loaded("a", "b") == (there, ["job", "job", *["unique_key"] * 4])
    assert await loaded("f", "g") == (new, ["unique_key"] * 2), "the last ones were there"
    assert await loaded("h", "i") == (new, []), "the last ones were new"
