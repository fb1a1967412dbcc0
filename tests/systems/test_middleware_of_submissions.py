"""Middleware before submissions, and the metadata that it sends along with a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from interlock import Context, Interlock, JobSpec, Registry, sync
from interlock.errors import InvalidArguments, InvalidJob
from interlock.testing import in_memory

TENANT: ContextVar[str] = ContextVar("TENANT", default="nobody")
REGISTRY = Registry()


@REGISTRY.middleware
class Tenant:
    """Sends the tenant of whoever submits, and sets it around the handler."""

    async def submit(self, spec: JobSpec) -> JobSpec:
        return spec if "tenant" in spec.metadata else spec.with_metadata(tenant=TENANT.get())

    def handle(self, ctx: Context) -> Iterator[None]:
        TENANT.set(ctx.metadata["tenant"])
        yield


class Numbered:
    """Adds the order in which it was asked."""

    def submit(self, spec: JobSpec) -> JobSpec:
        return spec.with_metadata(seen=",".join([*spec.metadata, "numbered"]))


@REGISTRY.task(name="who")
async def who() -> str:
    return TENANT.get()


@REGISTRY.task(name="parent")
async def parent(ctx: Context) -> list[Any]:
    await ctx.submit(who)
    await ctx.submit(who.options(metadata={"tenant": "own"}))
    await ctx.submit(JobSpec(task="who", metadata={"more": "1"}))
    return [child.result() for child in await ctx.wait_children()]


@REGISTRY.task(name="threaded")
def threaded(ctx: Context) -> list[Any]:
    ctx.submit_sync(who)
    return [child.result() for child in ctx.wait_children_sync()]


async def test_metadata_of_a_submission_reach_the_handler_and_the_view() -> None:
    async with in_memory(REGISTRY) as il:
        TENANT.set("acme")
        job = await il.submit(who)
        many = await il.submit_many([who.spec(), who.options(metadata={"tenant": "other"}).spec()])
        assert [await each.result(timeout_s=60) for each in (job, *many)] == ["acme", "acme", "other"]
        assert (await job.view()).metadata == {"tenant": "acme"}


@pytest.mark.parametrize("task", [parent, threaded])
async def test_children_are_submitted_through_the_middleware_and_inherit_metadata(task: Any) -> None:
    async with in_memory(REGISTRY) as il:
        TENANT.set("acme")
        job = await il.submit(task)
        assert await job.result(timeout_s=600) == (["acme", "own", "acme"] if task is parent else ["acme"])
        found, _ = await il.jobs(f"parent:{job.id}")
        assert [view.metadata for view in reversed(found)][-1] == (
            {"tenant": "acme", "more": "1"} if task is parent else {"tenant": "acme"}
        )


async def test_a_job_that_is_done_again_keeps_its_metadata() -> None:
    async with in_memory(REGISTRY) as il:
        job = await il.submit(who.options(metadata={"tenant": "acme"}))
        await job.result(timeout_s=60)
        again = await il.retry(job.id)
        assert (await again.view()).metadata == {"tenant": "acme"}


async def test_a_client_has_its_own_middleware_in_the_order_given() -> None:
    class First:
        def submit(self, spec: JobSpec) -> JobSpec:
            return spec.with_metadata(first="1")

    async with Interlock("memory:", middleware=[First, Numbered()]) as il:
        job = await il.submit("anything", x=1)
        assert (await job.view()).metadata == {"first": "1", "seen": "first,numbered"}


def test_a_client_without_asyncio_reads_the_context_of_its_caller(tmp_path: Path) -> None:
    TENANT.set("of the thread")
    with sync.Interlock(f"sqlite:///{tmp_path}/jobs.db", middleware=[Tenant]) as il:
        assert il.job(il.submit("anything")).metadata == {"tenant": "of the thread"}
    TENANT.set("nobody")


async def test_a_repeated_request_may_come_from_another_context() -> None:
    async with Interlock("memory:", middleware=[Tenant]) as il:
        TENANT.set("one")
        first = await il.submit(JobSpec(task="t", trace={"traceparent": "00-1"}), request_id="r1")
        TENANT.set("two")
        again = await il.submit(JobSpec(task="t", trace={"traceparent": "00-2"}), request_id="r1")
        assert again.id == first.id
        assert (await again.view()).metadata == {"tenant": "one"}, "what was stored stays"


async def test_a_middleware_has_to_return_a_spec() -> None:
    class Forgets:
        def submit(self, spec: JobSpec) -> None: ...

    async with Interlock("memory:", middleware=[Forgets]) as il:
        with pytest.raises(InvalidArguments, match="Forgets returned NoneType for a submission of anything"):
            await il.submit("anything")
        assert (await il.jobs())[0] == []


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"": "x"}, "a name of metadata has 1 to 100"),
        ({"a\n": "x"}, "a name of metadata has 1 to 100"),
        ({"a": "x" * 4_096}, "metadata have at most 4096 whole characters"),
        ({"a": "\ud800"}, "metadata have at most 4096 whole characters"),
    ],
)
async def test_metadata_are_small_texts(metadata: dict[str, str], why: str) -> None:
    async with Interlock("memory:") as il:
        with pytest.raises(InvalidJob, match=why):
            await il.submit_many([JobSpec(task="t"), JobSpec(task="t", metadata=metadata)])
