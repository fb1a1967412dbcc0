"""Jobs that are put together in code: rules, arguments that come later, and what a handler reads."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import After, Context, JobSpec, Registry, all_of, any_of, chain, chord, group
from interlock.errors import InvalidArguments, JobCanceled
from interlock.testing import in_memory, in_memory_sync
from interlock.worker.composition import Composable

registry = Registry()


@registry.task
async def price(item: str) -> int:
    if not item:
        raise ValueError("nothing to price")
    return len(item)


@registry.task
async def total(prices: list[int], tax: int = 0) -> int:
    return sum(prices) + tax


@registry.task
async def outcomes(ctx: Context) -> list[str]:
    return [each.state for each in await ctx.predecessors()]


@registry.task
def outcomes_in_a_thread(ctx: Context) -> list[int]:
    return [each.result(int) for each in ctx.predecessors_sync()]


def test_after_takes_a_list_of_jobs_or_a_rule() -> None:
    assert price.options(after=["j_1", "j_2"]).template.after == After(jobs=("j_1", "j_2"))
    rule = any_of("j_1", on="end", otherwise="skip", into="item")
    assert price.options(after=rule).template.after == rule
    assert price.options(after=rule).options(after=None).template.after is None
    for wrong in ("j_1", 7):
        with pytest.raises(InvalidArguments, match="list of jobs"):
            price.options(after=wrong)  # type: ignore[arg-type]


def test_an_argument_filled_by_a_predecessor_is_omitted_from_the_input_and_others_are_checked() -> None:
    later = total.options(after=all_of("j_1", into="prices"))
    assert bytes(later.s(tax=3).spec().input) == b'{"tax":3}'
    for wrong, why in (
        (later.s(tax="much"), "expected int"),
        (later.s(prices=[1]), "prices was given"),
        (total.options(after=all_of("j_1", into="price")).s(), "takes no price"),
        (total.options(after=all_of("j_1", into="tax")).s(), "prices is missing"),
    ):
        with pytest.raises(InvalidArguments, match=why):
            wrong.spec()


async def test_results_are_passed_on_to_a_worker() -> None:
    async with in_memory(registry) as il:
        jobs = [await il.submit(price, item) for item in ("fig", "plum")]
        later = total.options(after=all_of(*jobs, into="prices"))
        assert await (await il.compose(later.s(tax=1))).result() == 8


async def test_a_handler_reads_the_states_and_results_of_its_predecessors() -> None:
    async with in_memory(registry) as il:
        good, bad = await il.submit(price, "fig"), await il.submit(price.options(retries=0), "")
        job = await il.submit(outcomes.options(after=all_of(good, bad, on="end")))
        assert await job.result() == ["COMPLETED", "FAILED"]
        other = await il.submit(outcomes_in_a_thread.options(after=[good]))
        assert await other.result() == [3]


async def test_a_handler_lets_one_child_come_after_another() -> None:
    book = Registry()

    @book.task
    async def part(value: int) -> int:
        return value + 1

    @book.task
    async def whole(ctx: Context) -> list[int]:
        first = await ctx.submit(part, 1)
        later = part.options(after=all_of(first, into="value"))
        await ctx.submit_many(
            [later.s().spec(), JobSpec(task=part.name, after=After(jobs=("#0",), into="value"))]
        )
        return [child.result(int) for child in await ctx.wait_children()]

    async with in_memory(book) as il:
        assert await (await il.submit(whole)).result() == [2, 3, 4]


# Chains, groups and chords


@registry.task
async def add(left: int, right: int) -> int:
    return left + right


@registry.task
async def fail(_: int) -> int:
    raise ValueError("no")


async def test_a_chain_passes_each_result_on_as_the_first_argument() -> None:
    async with in_memory(registry) as il:
        handle = await il.compose(chain(add.s(1, 2), add.s(10), add.s(right=100)))
        assert await handle.result() == 113
        piped = add.s(1, 2) | add.s(10) | price.si("fig")
        assert await (await il.compose(piped)).result() == 3


async def test_a_group_has_a_list_of_results_and_a_chord_combines_them() -> None:
    async with in_memory(registry) as il:
        side_by_side = await il.compose(group(price.s(item) for item in ("fig", "plum")))
        assert await side_by_side.result() == [3, 4]
        combined = await il.compose(chord(price.map(["fig", "plum", "a"]), total.s(tax=1)))
        assert await combined.result() == 9
        one = await il.compose(chord([price.s("fig")], total.s()) | add.s(1))
        assert await one.result() == 4


async def test_a_group_within_a_chain_is_given_the_result_before_it() -> None:
    async with in_memory(registry) as il:
        work = chain(add.s(1, 1), group(add.s(10), add.s(20), chain(add.s(30), add.s(100))), total.s())
        handle = await il.compose(work)
        assert await handle.result() == 12 + 22 + 132
        assert [view.state for view in await handle.wait()] == ["COMPLETED"] * 6


async def test_a_failed_job_cancels_its_followers_and_the_result_raises_the_reason() -> None:
    async with in_memory(registry) as il:
        handle = await il.compose(chain(add.s(1, 2), fail.options(retries=0).s(), add.s(1), add.s(1)))
        with pytest.raises(JobCanceled, match="upstream: it comes after"):
            await handle.result()
        states = [(view.state, view.stop_reason) for view in await handle.wait()]
        assert states[1:] == [("FAILED", None), ("CANCELED", "upstream"), ("CANCELED", "upstream")]


async def test_a_composition_is_submitted_once_and_canceled_as_a_whole() -> None:
    async with in_memory(registry) as il:
        work = chain(add.options(delay_s=3_600).s(1, 2), add.s(3), group(add.s(4), add.s(5)))
        first, again = [await il.compose(work, request_id="once") for _ in range(2)]
        assert [job.id for job in first.jobs] == [job.id for job in again.jobs]
        await first.cancel(reason="not wanted")
        assert {view.stop_reason for view in await again.wait()} == {"cancel"}
        await first.cancel()


async def test_a_handler_composes_its_children() -> None:
    book = Registry()

    @book.task
    async def double(value: int) -> int:
        return 2 * value

    @book.task
    async def whole(ctx: Context) -> list[int]:
        await ctx.compose(chain(double.s(1), double.s(), double.s()), child_name="powers")
        return [child.result(int) for child in await ctx.wait_children()]

    async with in_memory(book) as il:
        assert await (await il.submit(whole)).result() == [2, 4, 8]


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (chain(), "chain is empty"),
        (group(), "group is empty"),
        (group(group(add.s(1, 2)), add.s(3, 4)), "list within the list"),
        (chain(price.s("fig"), add.s()), "right is missing"),
        (chain(price.s("fig"), add.s(1, 2)), "2 were given by position, and it takes 1"),
        (chain(price.s("fig"), add.s(left=1, right=2)), "left was given"),
        (chain(price.s("fig"), add.si(1)), "right is missing"),
        (chain(price.s("fig"), outcomes.s()), "takes no argument by position"),
        (chain(price.s("fig"), price.options(after=["j_1"]).s()), "has the option after"),
        (chord(price.map(["fig"] * 1_001), total.s()), "at most 1000 others"),
    ],
)
async def test_a_composition_that_cannot_work_is_refused_before_it_is_submitted(
    work: Composable[Any], why: str
) -> None:
    with pytest.raises(InvalidArguments, match=why):
        work.specs()


def test_children_that_come_after_each_other_are_submitted_in_one_request() -> None:
    parent = Context.__new__(Context)
    parent._submissions = 0
    many = [JobSpec(task="t")] * 1_000 + [JobSpec(task="t", after=After(jobs=("#0",)))]
    with pytest.raises(InvalidArguments, match="do not fit into one request"):
        list(parent._portions(many, None))


def test_a_program_without_asyncio_composes_jobs() -> None:
    with in_memory_sync(registry) as il:
        made = il.compose(chain(add.s(1, 2), add.s(10)), request_id="once")
        assert made.result() == 13
        assert [view.id for view in made.wait()] == list(made.ids)
        made.cancel()


# Batches


@registry.task
async def ended(batch: dict[str, Any]) -> int:
    return int(batch["completed"])


async def test_a_batch_of_jobs_has_a_callback() -> None:
    async with in_memory(registry) as il:
        specs = [price.spec("fig") for _ in range(3)]
        for callback in (ended, JobSpec(task=ended.name)):
            batch = await il.batches.submit(specs, callback=callback, into="batch")
            view = await batch.wait(timeout_s=60)
            assert (view.state, view.counts.completed) == ("ENDED", 3)
            assert view.callback_job_id is not None
            assert await il.result(view.callback_job_id) == 3


async def test_a_callback_that_cannot_be_called_is_refused_before_anything_is_created() -> None:
    async with in_memory(registry) as il:
        for wrong, into in ((ended, ""), (ended, "other"), (object(), "")):
            with pytest.raises(InvalidArguments):
                await il.batches.submit([price.spec("fig")], callback=wrong, into=into)  # type: ignore[arg-type]
        assert (await il.batches.list())[0] == []
