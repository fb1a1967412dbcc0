"""Jobs that are put together in code: rules, arguments that come later, and what a handler reads."""

from __future__ import annotations

import pytest

from interlock import After, Context, JobSpec, Registry, all_of, any_of
from interlock.errors import InvalidArguments
from interlock.testing import in_memory

desk = Registry()


@desk.task
async def price(item: str) -> int:
    if not item:
        raise ValueError("nothing to price")
    return len(item)


@desk.task
async def total(prices: list[int], tax: int = 0) -> int:
    return sum(prices) + tax


@desk.task
async def outcomes(ctx: Context) -> list[str]:
    return [each.state for each in await ctx.predecessors()]


@desk.task
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


def test_the_argument_that_comes_later_is_left_out_and_the_others_are_checked() -> None:
    later = total.options(after=all_of("j_1", into="prices"))
    assert bytes(later.spec(tax=3).input) == b'{"tax":3}'
    for wrong, why in (
        (lambda: later.spec(tax="much"), "expected int"),
        (lambda: later.spec([1]), "prices was given"),
        (lambda: total.options(after=all_of("j_1", into="price")).spec(), "takes no price"),
        (lambda: total.options(after=all_of("j_1", into="tax")).spec(), "prices is missing"),
    ):
        with pytest.raises(InvalidArguments, match=why):
            wrong()


async def test_results_are_passed_on_to_a_worker() -> None:
    async with in_memory(desk) as il:
        jobs = [await il.submit(price, item) for item in ("fig", "plum")]
        later = total.options(after=all_of(*jobs, into="prices"))
        assert await (await il.submit(later.spec(tax=1))).result() == 8


async def test_a_handler_reads_what_became_of_the_jobs_before_it() -> None:
    async with in_memory(desk) as il:
        good, bad = await il.submit(price, "fig"), await il.submit(price.options(retries=0), "")
        job = await il.submit(outcomes.options(after=all_of(good, bad, on="end")))
        assert await job.result() == ["COMPLETED", "FAILED"]
        job = await il.submit(outcomes_in_a_thread.options(after=[good]))
        assert await job.result() == [3]


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
            [later.spec(), JobSpec(task=part.name, after=After(jobs=("#0",), into="value"))]
        )
        return [child.result(int) for child in await ctx.wait_children()]

    async with in_memory(book) as il:
        assert await (await il.submit(whole)).result() == [2, 3, 4]
