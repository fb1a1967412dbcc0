"""The bare loop on Redis: two scripts, each called once for a batch, through redis-py."""

from __future__ import annotations

from redis.asyncio import Redis

from bench.stores.bare.loop import Unexpected
from bench.stores.errand import ACTOR, BATCH, BODY, with_result

_FILL = """
local now = redis.call('TIME')
for i = 2, #ARGV do
  redis.call('HSET', 'bare:job:' .. ARGV[i], 'state', 'ready', 'version', 1, 'body', ARGV[1])
  redis.call('ZADD', 'bare:ready', now[1] * 1000000 + now[2], ARGV[i])
end
"""
_CLAIM = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local taken = redis.call('ZPOPMIN', 'bare:ready', ARGV[1])
local answer = {}
for i = 1, #taken, 2 do
  local id = taken[i]
  local job = 'bare:job:' .. id
  local version = redis.call('HINCRBY', job, 'version', 1)
  redis.call('HSET', job, 'state', 'running', 'deadline', now + 30000000)
  redis.call('ZADD', 'bare:due', now + 30000000, id)
  redis.call('XADD', 'bare:audit', '*', 'at', now, 'job', id, 'version', version,
    'event', 'claim', 'source', 'ready', 'target', 'running', 'actor', ARGV[2])
  answer[#answer + 1] = id
  answer[#answer + 1] = version
  answer[#answer + 1] = redis.call('HGET', job, 'body')
end
return answer
"""
_COMPLETE = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local done = 0
for i = 2, #ARGV, 3 do
  local id, version = ARGV[i], ARGV[i + 1]
  local job = 'bare:job:' .. id
  local found = redis.call('HMGET', job, 'version', 'deadline')
  if found[1] == version and tonumber(found[2]) >= now then
    redis.call('HSET', job, 'state', 'done', 'version', version + 1, 'body', ARGV[i + 2])
    redis.call('ZREM', 'bare:due', id)
    redis.call('XADD', 'bare:audit', '*', 'at', now, 'job', id, 'version', version + 1,
      'event', 'complete', 'source', 'running', 'target', 'done', 'actor', ARGV[1])
    done = done + 1
  end
end
return done
"""


class BareRedis:
    """A connection and two scripts."""

    def __init__(self, url: str) -> None:
        self._redis: Redis = Redis.from_url(url)
        self._fill = self._redis.register_script(_FILL)
        self._claim = self._redis.register_script(_CLAIM)
        self._complete = self._redis.register_script(_COMPLETE)

    async def fill(self, names: range) -> None:
        """See `BareLoop`."""
        await self._fill(args=[BODY, *(f"{name:012d}" for name in names)])

    async def drain(self, batches: int) -> None:
        """See `BareLoop`."""
        for _ in range(batches):
            taken = await self._claim(args=[BATCH, ACTOR])
            taken[2::3] = [with_result(body) for body in taken[2::3]]
            done = await self._complete(args=[ACTOR, *taken])
            if done != BATCH:
                raise Unexpected(f"The bare loop on Redis has completed {done} of {BATCH}.")

    async def close(self) -> None:
        """See `BareLoop`."""
        await self._redis.aclose()
