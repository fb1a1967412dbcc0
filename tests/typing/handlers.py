"""Handlers of every kind, for the expectations about types beside this file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interlock import Context, task


@dataclass
class Report:
    """A result that comes back from JSON as a dict, unless its type is asked for."""

    pages: int


@task
async def double(x: int) -> int:
    return 2 * x


@task(queue="slow", retries=3)
def half(x: int, *, exact: bool = True) -> float:
    return x / 2 if exact else float(x // 2)


@task
async def greet(ctx: Context, name: str, times: int = 1) -> list[str]:
    return [f"{ctx.job_id}: {name}"] * times


@task
def count(job: Context, text: str) -> dict[str, int]:
    return dict.fromkeys(text.split(), job.attempt)


@task
async def ship(order: int, *, ctx: Context) -> str:
    return f"{order} {ctx.attempt}"


@task
def pack(order: int, ctx: Context) -> str:
    return f"{order} {ctx.attempt}"


@task
def write(pages: int) -> Report:
    return Report(pages)


@task
def pair(x: int) -> tuple[int, int]:
    return x, x


@task
def find(x: int) -> int | None:
    return x or None


@task
def merge(options: dict[str, Any]) -> int:
    return len(options)
