"""Several worker processes on one host, kept alive.

size     pure: how many there shall be, and how long to wait for one that keeps dying
child    one process, which says when it has begun
    keeper   starts them, looks after them, and passes signals on
"""

from interlock.worker.pool.keeper import Pool
from interlock.worker.pool.size import PoolSettings

__all__ = ["Pool", "PoolSettings"]
