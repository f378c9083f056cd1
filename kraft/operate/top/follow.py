"""Follows the metadata log of a live cluster in passes, for what a controller answers to no request (KIP-595).

A controller describes its quorum, but neither brokers nor partitions: only the log has these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from kraft.admin.client import AdminClient
from kraft.admin.errors import AdminError, NoController, RequestRefused
from kraft.observer import Committed, Follower, HistoryLost, Jumped
from kraft.operate.top.metadata import WHERE, MetadataReplay
from kraft.operate.top.samples import Election, MetadataSample
from metadata_log.errors import MetadataLogError
from metadata_log.records.batch import scan
from transport.protocol.errors import Error

ELECTIONS_KEPT: Final = 100


class LogPasses:
    """What is known from the log. Each pass reads what was committed since the pass before."""

    def __init__(self, admin: AdminClient, clock_ms: Callable[[], int]) -> None:
        self._admin = admin
        self._clock_ms = clock_ms
        self._follower: Follower | None = None
        self._replay = MetadataReplay()
        self._has_given_up = False
        self.cluster_id: str | None = None
        self.metadata: MetadataSample | None = None
        self.at_ms: int | None = None
        """The time of the last whole pass."""
        self.note: str | None = None

    @property
    def elections(self) -> tuple[Election, ...]:
        """The latest elections in the log."""
        return tuple(self._replay.elections[-ELECTIONS_KEPT:])

    async def go(self) -> None:
        """One pass: one Fetch, and one more for each further MiB. Failures become `note`."""
        if self._has_given_up:
            return
        try:
            await self._go()
        except NoController:
            return  # the quorum's own answer says so
        except HistoryLost as lost:
            self._follower, self._replay = None, MetadataReplay()
            self.note = f"the metadata is read again from the beginning: {lost}"
        except RequestRefused as refused:
            if refused.error is not Error.SNAPSHOT_NOT_FOUND:
                self._give_up(f"{refused}. Reading the log needs CLUSTER_ACTION on the cluster")
        except (AdminError, MetadataLogError) as failed:
            self._give_up(str(failed))

    def _give_up(self, why: str) -> None:
        self._has_given_up = True
        self.note = f"brokers and partitions cannot be read from the metadata log: {why}"

    async def _go(self) -> None:
        if self._follower is None:
            self.cluster_id = (await self._admin.describe_cluster()).cluster_id
            follower = Follower(self._admin, self.cluster_id)
            await follower.begin()
            self._follower = follower
        follower, before = self._follower, self._replay.image
        while True:
            match await follower.poll():
                case None:
                    break
                case Committed(batches):
                    self._replay.take(batches)
                case Jumped(snapshot, data, _):
                    begin = self._replay.begin_with
                    # A snapshot may take seconds, in which the answers of the leader are not to wait.
                    await trio.to_thread.run_sync(begin, scan(data, where=WHERE), snapshot, abandon_on_cancel=True)
            if follower.end.offset >= follower.high_watermark:
                break
        if self.metadata is None or self._replay.image is not before:
            self.metadata = self._replay.summary()
            self.note = None
        self.at_ms = self._clock_ms()
