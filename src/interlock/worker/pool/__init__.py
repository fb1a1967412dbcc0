"""Several worker processes on one host, kept alive.

sizing   pure: how many there shall be, and how long to wait for one that keeps dying
child    one process, which says when it has begun
    keeping  starts them, looks after them, and passes signals on
"""

from interlock.worker.pool.keeping import Pool
from interlock.worker.pool.sizing import PoolSettings

__all__ = ["Pool", "PoolSettings"]
