"""Types of submissions and their results. `mypy` checks this file in `make check`; nothing calls it.

`assert_type` states what is inferred. `# type: ignore[code]` states that a line is a type error: where there
is no error, mypy reports an unused ignore.
"""

from __future__ import annotations

from typing import Any, assert_type

from tests.typing.handlers import Report, count, double, find, greet, half, merge, pack, pair, ship, write

import interlock.sync
from interlock import Context, Interlock, JobHandle, JobSpec, Task, any_of, chain, chord, group
from interlock.client_transactions import SyncTransactionClient, TransactionClient
from interlock.sync import JobId
from interlock.worker.composition import Signature


async def a_handle_knows_the_result_of_its_handler(il: Interlock) -> None:
    assert_type(await il.submit(double, 1), JobHandle[int])
    assert_type(await il.submit(half, 1, exact=False), JobHandle[float])
    assert_type(await il.submit(find, 1), JobHandle[int | None])
    assert_type(await (await il.submit(double, x=1)).result(timeout_s=60), int)
    assert_type(await il.submit(double.options(queue="q", delay_s=60, unique=True), 1), JobHandle[int])
    assert_type(await il.submit(double, 1, request_id="once"), JobHandle[int])


async def arguments_beside_a_request_id_are_checked_if_it_is_an_option(
    il: Interlock, sync: interlock.sync.Interlock, within: TransactionClient
) -> None:
    assert_type(await il.submit(double.options(request_id="once"), 1), JobHandle[int])
    assert_type(await il.submit(greet.options(request_id="once", priority=9), "Ada"), JobHandle[list[str]])
    assert_type(sync.submit(half.options(request_id="once"), 1, exact=False), JobId[float])
    assert_type(await within.submit(count.options(request_id=None), "to be"), str)
    await il.submit(double.options(request_id="once"), "1")  # type: ignore[arg-type]
    await il.submit(greet.options(request_id="once"), "Ada", count=2)  # type: ignore[call-arg]
    sync.submit(half.options(request_id="once"))  # type: ignore[arg-type]
    await within.submit(count.options(request_id="once"), 1)  # type: ignore[arg-type]
    double.options(request_id=17)  # type: ignore[arg-type]


async def the_context_is_not_an_argument(il: Interlock) -> None:
    assert_type(await il.submit(greet, "Ada"), JobHandle[list[str]])
    assert_type(await il.submit(greet, name="Ada", times=2), JobHandle[list[str]])
    assert_type(await il.submit(count, "to be"), JobHandle[dict[str, int]])
    await il.submit(ship, 17)
    await il.submit(ship, order=17)
    await il.submit(pack, 17, request_id="once")


async def jobs_come_after_others(il: Interlock, job: JobHandle[int]) -> None:
    assert_type(await il.submit(double.options(after=[job, "j_1"]), 1), JobHandle[int])
    assert_type(await il.submit(double.options(after=any_of(job, on="end")), 1), JobHandle[int])
    double.options(after=any_of(job, on="failure"))  # type: ignore[arg-type]
    double.options(after=[1])  # type: ignore[list-item]


async def compositions_know_their_results(il: Interlock, sync: interlock.sync.Interlock) -> None:
    assert_type(double.s(1), Signature[int])
    assert_type(write.s(3), Signature[Any])
    assert_type(await (await il.compose(chain(greet.s("Ada"), double.s(1)))).result(), int)
    assert_type(await (await il.compose(double.s(1) | half.s())).result(), float)
    assert_type(await (await il.compose(double.map([1, 2]))).result(), list[int])
    assert_type(await (await il.compose(chord(double.map([1, 2]), half.s()))).result(), float)
    assert_type(sync.compose(group(double.s(1), double.s(2))).result(), list[int])
    await il.compose(double)  # type: ignore[arg-type]
    chain(double.s(1), 2)  # type: ignore[call-overload]


async def wrong_arguments_are_type_errors(il: Interlock) -> None:
    await il.submit(double, "1")  # type: ignore[arg-type]
    await il.submit(double)  # type: ignore[arg-type]
    await il.submit(double, 1, 2)  # type: ignore[arg-type]
    await il.submit(double, y=1)  # type: ignore[arg-type]
    await il.submit(half, 1, exact="no")  # type: ignore[arg-type, misc]
    await il.submit(greet, 1)  # type: ignore[arg-type]
    await il.submit(greet)  # type: ignore[arg-type]
    await il.submit(greet, "Ada", count=2)  # type: ignore[call-arg]
    await il.submit(count, text=1)  # type: ignore[arg-type]
    await il.submit(merge, [])  # type: ignore[arg-type]
    await il.submit(double.options(queue="q"), "1")  # type: ignore[arg-type]
    await il.submit(print, 1)  # type: ignore[call-overload]


async def results_that_json_changes_are_any_until_their_type_is_asked_for(il: Interlock) -> None:
    job = await il.submit(write, 3)
    assert_type(job, JobHandle[Any])
    assert_type(await job.result(as_type=Report), Report)
    assert_type(await il.result(job.id, as_type=Report), Report)
    assert_type(await il.submit(pair, 1), JobHandle[Any])
    assert_type(await il.submit("shop.greet", name="Ada"), JobHandle[Any])
    assert_type(await il.submit(JobSpec(task="shop.greet")), JobHandle[Any])


async def a_handle_without_a_type_is_one_with_any_result(
    job: JobHandle, one: Task[..., Any]
) -> JobHandle[int]:
    assert_type(await job.result(), Any)
    assert_type(one(1), Any)
    return job


async def results_are_not_of_another_type(il: Interlock) -> None:
    job = await il.submit(double, 1)
    text: str = await job.result()  # type: ignore[assignment]
    other: JobHandle[str] = job  # type: ignore[assignment]
    del text, other


def an_id_knows_the_result_of_its_handler(il: interlock.sync.Interlock) -> None:
    job_id = il.submit(double, 1)
    assert_type(job_id, JobId[int])
    assert_type(il.result(job_id, timeout_s=60), int)
    assert_type(il.result(il.submit(greet, "Ada")), list[str])
    assert_type(il.result(il.submit(count, "to be")), dict[str, int])
    assert_type(il.result(il.submit(double, 1, request_id="once")), int)
    assert_type(il.result(il.submit(write, 3)), Any)
    assert_type(il.result("j_1"), Any)
    assert_type(il.result("j_1", as_type=Report), Report)
    plain: str = il.submit(ship, 17)
    del plain


def wrong_arguments_are_type_errors_without_asyncio(il: interlock.sync.Interlock) -> None:
    il.submit(double, "1")  # type: ignore[arg-type]
    il.submit(double)  # type: ignore[arg-type]
    il.submit(greet, 1)  # type: ignore[arg-type]
    il.submit(greet, "Ada", count=2)  # type: ignore[call-arg]
    text: str = il.result(il.submit(double, 1))  # type: ignore[assignment]
    del text


async def specs_are_checked(il: Interlock, sync: interlock.sync.Interlock) -> None:
    assert_type(double.spec(1), JobSpec)
    assert_type(greet.spec("Ada", times=2), JobSpec)
    assert_type(ship.spec(17), JobSpec)
    assert_type(pack.spec(order=17), JobSpec)
    assert_type(await il.submit_many([double.spec(n) for n in range(3)]), list[JobHandle[Any]])
    assert_type(sync.submit_many([greet.spec("Ada")]), list[str])
    double.spec("1")  # type: ignore[arg-type]
    double.spec()  # type: ignore[call-arg]
    greet.spec(1)  # type: ignore[call-overload]
    greet.spec()  # type: ignore[call-overload]


def options_are_checked() -> None:
    double.options(queu="slow")  # type: ignore[call-arg]
    double.options(retries="3")  # type: ignore[arg-type]
    half.options(labels=["gpu"], start_within="10m", not_after=None)


async def a_task_is_still_the_function(ctx: Context) -> None:
    assert_type(await double(1), int)
    assert_type(half(1), float)
    assert_type(await greet(ctx, "Ada"), list[str])
    assert_type(await ship(17, ctx=ctx), str)
    half("1")  # type: ignore[arg-type]


async def children_and_transactions_are_checked(
    ctx: Context, within: TransactionClient, sync: SyncTransactionClient
) -> None:
    assert_type(await ctx.submit(double, 1), str)
    assert_type(ctx.submit_sync(greet, "Ada"), str)
    assert_type(await ctx.submit(ship, 17, child_name="first"), str)
    assert_type(await within.submit(count, "to be"), str)
    assert_type(sync.submit(pack, 17, request_id="once"), str)
    await ctx.submit(double, "1")  # type: ignore[arg-type]
    ctx.submit_sync(greet, 1)  # type: ignore[arg-type]
    await within.submit(count)  # type: ignore[arg-type]
    sync.submit(double, 1, 2)  # type: ignore[arg-type]


async def a_context_gives_checkpoints_and_results_of_the_type_asked_for(ctx: Context) -> None:
    assert_type(ctx.restored(Report), Report | None)
    assert_type(ctx.restored(), Any)
    for child in await ctx.wait_children():
        assert_type(child.result(Report), Report)
        assert_type(child.result(), Any)
    ctx.progress("half")  # type: ignore[arg-type]
    ctx.checkpiont(1)  # type: ignore[attr-defined]
