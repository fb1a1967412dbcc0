"""The garbage collector, set for a process that answers requests.

What a request makes is let go of by counting references; the collector hardly ever finds anything in
it. As Python sets it, it nevertheless looks after every 700 things that are made and kept, which a
server makes many times a second, and each look through everything passes by all that was loaded at
the start. Here that is put aside, and the looks are further apart.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = (20_000, 20, 20)
"""After so many new things, after so many looks at those, and after so many of these."""


@contextmanager
def seldom_collecting() -> Iterator[None]:
    """While this lasts the collector looks seldom, and not at what is there already."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*EVERY)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
