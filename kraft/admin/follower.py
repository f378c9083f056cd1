"""Follows the metadata log of a live cluster as an observer that is not counted: every committed batch in its turn, or
an error that says why not (Kafka: the observer's part of `KafkaRaftClient`; KIP-595, KIP-630, KIP-1166).

What is fetched waits here until it is committed. A leader's rules about the fetched position are then proof: a log that
has the last record of the same epoch at the same offset has the same records before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio
from msgspec import Struct

from kraft.admin.client import AdminClient, AdminError, NoController, RequestRefused
from kraft.admin.leaders_log import WHERE, LeadersLog
from metadata_log.batch import RecordBatch, scan
from metadata_log.errors import IncompleteBatch
from metadata_log.types import OffsetAndEpoch
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import EpochEndOffset, PartitionData

FETCH_WAIT_MS: Final = 500
LONGEST_RETRY_MS: Final = 1000
"""What `open_admin` should be told for a client that follows."""
_AGAIN_SECONDS: Final = 0.5
_ONE_BATCH: Final = 1


class HistoryLost(AdminError):
    """The leader has deleted records that come next, or never had what was committed."""


class Committed(Struct, frozen=True):
    """Batches that follow the ones before without a gap, CRCs checked, bytes as the leader sent them."""

    batches: tuple[RecordBatch, ...]
    high_watermark: int


class Jumped(Struct, frozen=True):
    """The log goes on at `offset`; of what comes before it the leader has only a snapshot.

    The snapshot ends there, or later where the leader redirects everybody who begins at 0 although its log does, too.
    """

    snapshot: OffsetAndEpoch
    data: bytes
    offset: int
    missing_from: int | None
    """From this offset on records are missing; None where nothing was taken before."""


class Follower:
    """Reads one cluster's log. One task at a time may `take`; nothing is lost if it is cancelled meanwhile.

    It begins behind `after`, the last record that the caller has, with its epoch; or at `from_offset`, where the batch
    that holds this offset comes whole. `on_notice` is told in words of every other leader and of silence.
    """

    def __init__(
        self,
        admin: AdminClient,
        cluster_id: str,
        *,
        after: OffsetAndEpoch | None = None,
        from_offset: int = 0,
        allow_gap: bool = False,
        on_notice: Callable[[str], None] = lambda what: None,
    ) -> None:
        self._log = LeadersLog(admin, cluster_id)
        self._allow_gap = allow_gap
        self._on_notice = on_notice
        self._noticed = (-1, 0)
        self._knows_epoch = after is not None
        """Whether the epoch of `end` is that of the record before it, or any that the leader lets pass."""
        self.end = after or OffsetAndEpoch(epoch=0, offset=from_offset)
        """Behind the last committed batch that was taken."""
        self._fetched = self.end
        self._waiting: deque[RecordBatch] = deque()
        self.high_watermark = -1

    async def begin(self) -> int:
        """Ask for the high watermark, the end of what is committed now; raises `AdminError` if `end` lies behind it."""
        self.high_watermark = max(self.high_watermark, await self._log.high_watermark())
        self._note_leader()
        if self.end.offset > self.high_watermark:
            raise AdminError(
                f"offset {self.end.offset} is not there yet: only {self.high_watermark} are committed",
                hint="Is this the cluster that you mean? Its log may have been lost.",
            )
        if not self._knows_epoch and self.end.offset > 0:
            self._guess(self.end.offset, self._log.epoch)
        return self.high_watermark

    async def take(self) -> Committed | Jumped:
        """Wait for what comes next.

        Raises `HistoryLost` where that is gone, `RequestRefused` if a controller belongs to another cluster or does not
        let this connection read, and `CorruptBatch` for damage. While nobody leads it waits and tells `on_notice`.
        """
        while not (batches := self._committed()):
            try:
                jumped = await self._fetch()
            except NoController as silent:
                self._on_notice(f"{silent}; going on to try")
            except RequestRefused as refused:
                if refused.error is not Error.SNAPSHOT_NOT_FOUND:
                    raise
                self._on_notice("the leader has deleted the snapshot meanwhile; asking for another")
                await trio.sleep(_AGAIN_SECONDS)
            else:
                if jumped is not None:
                    return jumped
        return Committed(batches, self.high_watermark)

    def _committed(self) -> tuple[RecordBatch, ...]:
        found = []
        while self._waiting and self._waiting[0].next_offset <= self.high_watermark:
            found.append(self._waiting.popleft())
        if found:
            self.end = OffsetAndEpoch(epoch=found[-1].epoch, offset=found[-1].next_offset)
            self._knows_epoch = True
        return tuple(found)

    async def _fetch(self) -> Jumped | None:
        part = await self._log.fetch(self._fetched, max_wait_ms=FETCH_WAIT_MS, high_watermark=self.high_watermark)
        self._note_leader()
        self.high_watermark = max(self.high_watermark, part.high_watermark)
        if part.snapshot_id.end_offset >= 0:
            return await self._jump(part)
        if part.diverging_epoch.end_offset >= 0:
            self._step_back(part.diverging_epoch)
        elif part.records:
            self._append(part.records)
        return None

    def _note_leader(self) -> None:
        leader = self._log.leader_id, self._log.epoch
        if leader != self._noticed:
            if self._noticed[0] >= 0:
                self._on_notice(f"controller {leader[0]} leads in epoch {leader[1]}")
            self._noticed = leader

    def _append(self, data: bytes) -> None:
        """Keep whole batches until they are committed; the last one may be cut off, as with every Fetch."""
        before = self._fetched
        try:
            for batch in scan(data, where=WHERE):
                due = self._fetched
                if self._waiting or self._knows_epoch:
                    follows = batch.base_offset == due.offset and batch.epoch >= due.epoch
                else:
                    follows = batch.base_offset <= due.offset < batch.next_offset
                if not follows or batch.last_offset_delta < 0 or batch.epoch > self._log.epoch:
                    raise AdminError(
                        f"controller {self._log.leader_id} sent offsets {batch.base_offset} to {batch.last_offset} of "
                        f"epoch {batch.epoch} where offset {due.offset} of epoch {due.epoch} or later was due",
                        hint="Do not trust this controller: run `kraft dump --verify` on its directory.",
                    )
                self._waiting.append(batch)
                self._fetched = OffsetAndEpoch(epoch=batch.epoch, offset=batch.next_offset)
        except IncompleteBatch:
            pass
        if self._fetched == before:
            raise AdminError(f"the active controller sends no whole batch from offset {before.offset} on")

    def _step_back(self, diverging: EpochEndOffset) -> None:
        """The leader has no such record: forget what was not committed; of what was, that cannot be."""
        if self._waiting:
            self._waiting.clear()
            self._fetched = self.end
        elif not self._knows_epoch and diverging.end_offset >= self.end.offset:
            self._guess(self.end.offset, diverging.epoch)
        else:
            raise HistoryLost(
                f"controller {self._log.leader_id}, which leads in epoch {self._log.epoch}, has no record of epoch "
                f"{self.end.epoch} before offset {self.end.offset}: its epoch {diverging.epoch} ends at "
                f"{diverging.end_offset}",
                hint="Committed records are lost, or what you have was never committed: `kraft history` tells more.",
            )

    async def _jump(self, part: PartitionData) -> Jumped | None:
        """The leader's log begins later, or it wants everybody who begins at 0 to begin with its snapshot."""
        start, wanted = part.log_start_offset, self.end.offset
        self._waiting.clear()
        self._fetched = self.end
        if start == wanted and wanted > 0 and not self._knows_epoch:
            self._go_on_behind(await self._first_snapshot(start))
            return None
        if wanted > 0 and start <= wanted:
            raise HistoryLost(
                f"controller {self._log.leader_id} has another record than one of epoch {self.end.epoch} before offset "
                f"{wanted}, where its log begins",
                hint="Committed records are lost, or what you have was never committed.",
            )
        if wanted > 0 and not self._allow_gap:
            raise HistoryLost(
                f"offsets {wanted} to {start - 1} are gone: the leader's log begins at {start}",
                hint="Another controller may still have them on its disk; or go on behind them with --allow-gap.",
            )
        if start > 0:
            snapshot = await self._first_snapshot(start)
        else:
            snapshot = OffsetAndEpoch(epoch=part.snapshot_id.epoch, offset=part.snapshot_id.end_offset)
        data = await self._log.snapshot(snapshot)
        if start > 0:
            self._go_on_behind(snapshot)
        else:
            self._guess(1, self._log.epoch)
        return Jumped(snapshot, data, self.end.offset, wanted if wanted > 0 else None)

    def _go_on_behind(self, end: OffsetAndEpoch) -> None:
        self._fetched = self.end = end
        self._knows_epoch = True

    def _guess(self, offset: int, epoch: int) -> None:
        """Fetch from an offset without knowing what is before: any epoch will do that lasts beyond the offset."""
        self._fetched = self.end = OffsetAndEpoch(epoch=epoch, offset=offset)
        self._knows_epoch = False

    async def _first_snapshot(self, start: int) -> OffsetAndEpoch:
        """The snapshot that the leader's log rests on. Its epoch, which nobody tells, is the first one that is not sent
        to a snapshot: earlier ones ended before the log begins.
        """
        low, high = 0, self._log.epoch
        while low < high:
            middle = (low + high) // 2
            part = await self._log.fetch(OffsetAndEpoch(epoch=middle, offset=start + 1), max_bytes=_ONE_BATCH)
            if part.snapshot_id.end_offset >= 0:
                low = middle + 1
            else:
                high = middle
        return OffsetAndEpoch(epoch=low, offset=start)
