"""`watch` reports the committed metadata changes of a live cluster as they come (Kafka: KIP-595); `archive_committed`
archives them, across changes of leader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import trio

from kraft.admin.client import Delays, open_admin
from kraft.admin.errors import AdminError
from kraft.observer.follower import LONGEST_RETRY_MS, Committed, Follower, Jumped
from metadata_log.archive import Added, Archive, Feed
from metadata_log.errors import MetadataLogError
from transport.interface import Endpoint, Transport


async def archive_committed(
    archive: Archive,
    endpoints: Sequence[Endpoint],
    report: Callable[[Added], None],
    *,
    timeout_ms: int,
    interval_s: float,
    is_once: bool = False,
    allow_gap: bool = False,
    on_notice: Callable[[str], None] = lambda what: None,
    transport: Transport | None = None,
    delays: Delays | None = None,
) -> None:
    """Archive the committed records of a cluster until the caller cancels.

    Args:
        archive: The archive, open for writing; empty or of this cluster.
        endpoints: The addresses of some controllers.
        report: Called once the records that are committed at the start are archived, and after a cancellation.
        timeout_ms: Milliseconds to look for a leader.
        interval_s: Seconds that records may wait until they are durable.
        is_once: Whether to end at the first report.
        allow_gap: Whether to continue after records that the leader has deleted. The manifest lists the gap.
        on_notice: Called with a text for each new leader, for each period without one, and for each gap.
        transport: The transport to run, with TLS where the cluster needs it; None for TCP in the clear.
        delays: Hears of operations that no active controller answers.

    Raises:
        AdminError: No controller answers, or committed records are lost (`HistoryLost`).
        ArchiveError: The archive belongs to another cluster.
        MetadataLogError: The leader sent damaged bytes.
    """
    async with open_admin(
        endpoints,
        transport=transport,
        client_id="kraft-archive",
        timeout_ms=timeout_ms,
        longest_retry_ms=LONGEST_RETRY_MS,
        delays=delays,
    ) as admin:
        cluster_id = (await admin.describe_cluster()).cluster_id
        name = ",".join(map(str, endpoints))
        feed = Feed(archive, cluster_id)
        follower = Follower(admin, cluster_id, after=feed.position(), allow_gap=allow_gap, on_notice=on_notice)
        try:
            await _take_all(feed, follower, interval_s, is_once, lambda: report(feed.added(name)), on_notice)
        except (AdminError, MetadataLogError):
            feed.publish()
            raise
        except trio.Cancelled:
            feed.publish()
            report(feed.added(name))
            raise
        finally:
            feed.close()


async def _take_all(
    feed: Feed,
    follower: Follower,
    interval_s: float,
    is_once: bool,
    report: Callable[[], None],
    on_notice: Callable[[str], None],
) -> None:
    """Archive incoming records; call `report` once all records committed at the beginning are archived."""
    until = await follower.begin()
    has_reported = False
    due = math.inf
    while True:
        is_there = feed.end_offset >= until
        if trio.current_time() >= due or (is_there and not has_reported):
            feed.publish()
            due = math.inf
        if is_there and not has_reported:
            report()
            has_reported = True
            if is_once:
                return
        with trio.move_on_at(due):
            match await follower.take():
                case Committed(batches):
                    feed.append(batches)
                case Jumped() as jumped:
                    feed.begin_with(jumped.snapshot, jumped.data, jumped.offset, jumped.missing_from)
                    until = max(until, jumped.snapshot.offset)
                    if (gap := jumped.gap) is not None:
                        on_notice(gap)
            due = min(due, trio.current_time() + interval_s)


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
