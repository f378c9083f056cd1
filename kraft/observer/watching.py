"""`watch`: reports the committed metadata changes of a live cluster as they come (Kafka: KIP-595)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import trio

from kraft.admin.client import Delays, open_admin
from kraft.observer.follower import LONGEST_RETRY_MS, Committed, Follower, Jumped
from transport.interface import Endpoint, Transport


async def watch(
    endpoints: Sequence[Endpoint],
    show: Callable[[Committed | Jumped], bool],
    *,
    since: int | None,
    timeout_ms: int,
    seconds: float = math.inf,
    allow_gap: bool = False,
    on_notice: Callable[[str], None] = lambda what: None,
    transport: Transport | None = None,
    delays: Delays | None = None,
) -> None:
    """Follow the log of a cluster until `show` returns False, or the time ends.

    Args:
        endpoints: The addresses of some controllers.
        show: Called for each part of the log, in order and without a gap. Returns whether it wants more.
        since: The offset to begin at; None begins at the end of the committed log.
        timeout_ms: Milliseconds to look for a leader at the start.
        seconds: The time to follow, from the moment when the beginning is found.
        allow_gap: Whether to continue with a snapshot after records that the leader has deleted.
        on_notice: Called with a text for each new leader, and for each period without one.
        transport: The transport to run, with TLS where the cluster needs it; None for TCP in the clear.
        delays: Hears of operations that no active controller answers.

    Raises:
        AdminError: No controller answers, `since` is beyond the log, or committed records are lost (`HistoryLost`).
        CorruptBatch: The leader sent damaged bytes.
    """
    async with open_admin(
        endpoints,
        transport=transport,
        client_id="kraft-watch",
        timeout_ms=timeout_ms,
        longest_retry_ms=LONGEST_RETRY_MS,
        delays=delays,
    ) as admin:
        cluster_id = (await admin.describe_cluster()).cluster_id
        begin = (await admin.describe_quorum()).high_watermark if since is None else since
        follower = Follower(admin, cluster_id, from_offset=max(begin, 0), allow_gap=allow_gap, on_notice=on_notice)
        await follower.begin()
        with trio.move_on_after(seconds):
            while show(await follower.take()):
                pass
