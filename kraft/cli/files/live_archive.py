"""`kraft archive --from H:P`: archives the committed records of a live cluster, across changes of leader."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from kraft.admin import AdminError, open_admin
from kraft.cli.ending import ending
from kraft.cli.text import echo
from kraft.config.errors import CommandFailed
from kraft.observer import LONGEST_RETRY_MS, Committed, Follower, Jumped
from metadata_log.archive import Added, Archive, Feed
from metadata_log.errors import MetadataLogError
from transport.interface import Endpoint

Say = Callable[[Added], None]


def keep_live(
    archive: Archive,
    endpoints: Sequence[Endpoint],
    *,
    timeout_ms: int,
    interval: float,
    seconds: float | None,
    allow_gap: bool,
    say: Say,
) -> None:
    """Archive the committed records of these controllers' cluster until a signal or the end of the time.

    `seconds` of 0 means all records committed now. `say` is called once these are archived, and at the end. Records
    wait up to `interval` seconds until they are durable.
    """
    try:
        trio.run(_keep, archive, endpoints, timeout_ms, interval, seconds, allow_gap, say)
    except AdminError as failed:
        raise CommandFailed(str(failed), hint=failed.hint) from failed


async def _keep(
    archive: Archive,
    endpoints: Sequence[Endpoint],
    timeout_ms: int,
    interval: float,
    seconds: float | None,
    allow_gap: bool,
    say: Say,
) -> None:
    name = ",".join(map(str, endpoints))
    async with (
        open_admin(
            endpoints, client_id="kraft-archive", timeout_ms=timeout_ms, longest_retry_ms=LONGEST_RETRY_MS
        ) as admin,
        ending(seconds or None) as scope,
    ):
        with scope:
            cluster_id = (await admin.describe_cluster()).cluster_id
            feed = Feed(archive, cluster_id)
            follower = Follower(admin, cluster_id, after=feed.position(), allow_gap=allow_gap, on_notice=_warn)
            try:
                await _take_all(feed, follower, interval, seconds == 0, lambda: say(feed.added(name)))
            except (AdminError, MetadataLogError):
                feed.publish()
                raise
            except trio.Cancelled:
                feed.publish()
                say(feed.added(name))
                raise
            finally:
                feed.close()


async def _take_all(feed: Feed, follower: Follower, interval: float, once: bool, say: Callable[[], None]) -> None:
    """Archive incoming records; call `say` once all records committed at the beginning are archived."""
    until = await follower.begin()
    has_said = False
    due = float("inf")
    while True:
        is_there = feed.end_offset >= until
        if trio.current_time() >= due or (is_there and not has_said):
            feed.publish()
            due = float("inf")
        if is_there and not has_said:
            say()
            has_said = True
            if once:
                return
        with trio.move_on_at(due):
            match await follower.take():
                case Committed(batches):
                    feed.append(batches)
                case Jumped(snapshot, data, offset, missing_from):
                    feed.begin_with(snapshot, data, offset, missing_from)
                    until = max(until, snapshot.offset)
                    if missing_from is not None:
                        _warn(f"offsets {missing_from} to {offset - 1} are missing: the leader has deleted them")
            due = min(due, trio.current_time() + interval)


def _warn(what: str) -> None:
    echo(f"kraft: warning: {what}", err=True)
