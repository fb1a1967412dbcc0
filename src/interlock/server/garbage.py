"""The garbage collector, set for a process that does nothing but answer requests.

What a request makes is let go of by counting references; the collector hardly ever finds anything in
it. As Python sets it, it nevertheless looks after every 700 things that are made and kept, which is
many times a second here, and now and then it passes by all that was loaded at the start.
"""

from __future__ import annotations

import gc

EVERY = (20_000, 20, 20)
"""After so many new things, after so many looks at those, and after so many of these."""


def collect_seldom() -> None:
    """From now on, and without what is there already. For a program: a library leaves that to its user."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*EVERY)
