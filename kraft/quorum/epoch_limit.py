"""The highest epoch that a replica accepts at a given time (decision 0015).

An epoch never falls and has 31 bits. A peer that could raise the epoch at will could exhaust all epochs with one
message, and no leader could be elected again. So a replica accepts epochs only up to a limit that rises with the clock:
slowly enough that the epochs do not run out, and faster than a healthy quorum elects leaders.
"""

from __future__ import annotations

from typing import Final

LAST_EPOCH: Final = 2**31 - 1
"""The highest epoch that a message, a record batch or quorum-state can hold; Kafka reads no higher one."""
SPARE_EPOCHS: Final = 2**24
"""The number of epochs that a replica accepts at any time of the clock."""
SINCE_MS: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z, from which on there is one epoch more for every second."""
_MS_PER_EPOCH: Final = 1000


def highest_epoch(now_ms: int) -> int:
    """The highest epoch that a quorum can have reached at this time of the wall clock, in milliseconds since 1970."""
    return min(SPARE_EPOCHS + max(now_ms - SINCE_MS, 0) // _MS_PER_EPOCH, LAST_EPOCH)
