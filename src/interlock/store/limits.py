"""How much of anything a store takes; the same for all of them."""

from __future__ import annotations

TIMEOUT_S = 20.0
"""How long a store may take to answer, unless told otherwise. A host may stand still for ten seconds,
and a server still has to answer within its own limit (`request_s`)."""
EPOCH_EVERY_S = 1_800
"""An epoch is no less than the number of these periods since 1970. Finer ones would leave no room for it in
a fence, which has 53 bits."""
MAX_ID = 64
MAX_HANDLER = 200
MAX_LABEL = 64
MAX_LABELS = 16
MAX_PAGE = 1_000
MAX_VERSION = 2**53
MAX_TTL_S = 366 * 86_400.0
MIN_YEAR, MAX_YEAR = 1970, 2199
