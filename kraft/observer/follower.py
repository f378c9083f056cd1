"""Follows the metadata log of a live cluster as an anonymous observer (Kafka: the observer's part of `KafkaRaftClient`;
KIP-595, KIP-630, KIP-1166). It returns each committed batch in order, or an error.

Fetched batches wait here for their commit. The leader's check of the fetch position ensures consistency: two logs with
the same epoch at the same offset have the same records before that offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import trio
from msgspec import Struct

from kraft.admin.client import AdminClient
from kraft.admin.errors import AdminError, NoController, RequestRefused
from kraft.observer.leaders_log import WHERE, LeadersLog
from metadata_log.errors import IncompleteBatch
from metadata_log.records.batch import RecordBatch, scan
from metadata_log.types import OffsetAndEpoch
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import EpochEndOffset, PartitionData

FETCH_WAIT_MS: Final = 500
LONGEST_RETRY_MS: Final = 1000
"""The parameters of `open_admin` for a client that follows."""
_AGAIN_SECONDS: Final = 0.5
_ONE_BATCH: Final = 1


class HistoryLost(AdminError):
    """The leader has deleted the next records, or lacks records that were committed."""


class Committed(Struct, frozen=True):
    """Batches that follow the former ones without a gap. The CRCs are checked; the bytes are the leader's."""

    batches: tuple[RecordBatch, ...]
    high_watermark: int


class Jumped(Struct, frozen=True):
    """The log continues at `offset`; for earlier records, the leader has only a snapshot.

    The snapshot ends at `offset`. It ends later if the leader redirects each reader at offset 0 to a snapshot although
    its log begins there.
    """

    snapshot: OffsetAndEpoch
    data: bytes
    offset: int
    missing_from: int | None
    """The first missing offset; None if no record was returned before."""

    @property
    def gap(self) -> str | None:
        """A warning about records that the leader has deleted unread; None without such records."""
        if self.missing_from is None:
            return None
        return f"offsets {self.missing_from} to {self.offset - 1} are missing: the leader has deleted them"


class Follower:
    """Reads the log of one cluster. One task at a time may call `take`; a cancelled call loses no record.

    The follower starts after `after`, the offset and epoch up to which the caller has the log. Alternatively it starts
    at `from_offset`, with the whole batch that contains this offset. `on_notice` is called with a text for each new
    leader, and once for each period without one, if nobody else hears of delays.
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
        self._admin = admin
        self._log = LeadersLog(admin, cluster_id)
        self._is_silent = False
        """Whether the loss of the leader was noticed, and no leader has answered since."""
        self._allow_gap = allow_gap
        self._on_notice = on_notice
        self._noticed = (-1, 0)
        self._knows_epoch = after is not None
        """Whether the epoch of `end` is known to be that of the preceding record; otherwise the leader accepts any."""
        self.end = after or OffsetAndEpoch(epoch=0, offset=from_offset)
        """The end of the last committed batch returned."""
        self._fetched = self.end
        self._waiting: deque[RecordBatch] = deque()
        self.high_watermark = -1

    async def begin(self) -> int:
        """Request the high watermark, the end of the committed log; raises `AdminError` if `end` is beyond it."""
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
        """Wait for the next committed batches.

        Raises `HistoryLost` if they are gone, `RequestRefused` if a controller belongs to another cluster or denies
        read access, and `CorruptBatch` for damage. Without a leader, the call waits and reports that by `on_notice`.
        """
        while not (batches := self._committed()):
            try:
                jumped = await self._fetch()
            except NoController as silent:
                self._note_silence(silent)
                await trio.sleep(_AGAIN_SECONDS)
            except RequestRefused as refused:
                if refused.error is not Error.SNAPSHOT_NOT_FOUND:
                    raise
                self._on_notice("the leader has deleted the snapshot meanwhile; asking for another")
                await trio.sleep(_AGAIN_SECONDS)
            else:
                if jumped is not None:
                    return jumped
        return Committed(batches, self.high_watermark)

    async def poll(self) -> Committed | Jumped | None:
        """Send one Fetch that the leader answers at once; None if the log has no further committed batch now.

        A call that returns a `Jumped` fetches the snapshot, too. Raises as `take`, and `NoController`.
        """
        jumped = await self._fetch(max_wait_ms=0)
        if jumped is not None:
            return jumped
        batches = self._committed()
        return Committed(batches, self.high_watermark) if batches else None

    def _committed(self) -> tuple[RecordBatch, ...]:
        batches = []
        while self._waiting and self._waiting[0].next_offset <= self.high_watermark:
            batches.append(self._waiting.popleft())
        if batches:
            self.end = OffsetAndEpoch(epoch=batches[-1].epoch, offset=batches[-1].next_offset)
            self._knows_epoch = True
        return tuple(batches)

    async def _fetch(self, max_wait_ms: int = FETCH_WAIT_MS) -> Jumped | None:
        part = await self._log.fetch(self._fetched, max_wait_ms=max_wait_ms, high_watermark=self.high_watermark)
        self._note_leader()
        self.high_watermark = max(self.high_watermark, part.high_watermark)
        if part.snapshot_id.end_offset >= 0:
            return await self._jump(part)
        if part.diverging_epoch.end_offset >= 0:
            self._step_back(part.diverging_epoch)
        elif part.records:
            self._append(part.records)
        return None

    def _note_silence(self, silent: NoController) -> None:
        """Report the loss of the leader once, unless the client's own report of delays has done so."""
        if not self._is_silent and not self._admin.tells_of_delays:
            self._on_notice(f"{silent}; trying again")
        self._is_silent = True

    def _note_leader(self) -> None:
        leader = self._log.leader_id, self._log.epoch
        was_lost, self._admin.was_lost, self._is_silent = self._admin.was_lost, False, False
        if leader != self._noticed:
            if self._noticed[0] >= 0:
                self._on_notice(f"controller {leader[0]} leads in epoch {leader[1]}")
            self._noticed = leader
        elif was_lost:
            self._on_notice(f"controller {leader[0]} leads in epoch {leader[1]}, and answers again")

    def _append(self, data: bytes) -> None:
        """Keep whole batches until they are committed; as in each Fetch, the last batch may be incomplete."""
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
        """Discard uncommitted records that the leader lacks; a missing committed record is an error."""
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
                hint="Committed records are lost, or what you have was never committed: see `kraft history`.",
            )

    async def _jump(self, part: PartitionData) -> Jumped | None:
        """Handle a log that begins later, or a leader that redirects each reader at offset 0 to its snapshot."""
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
                hint="Another controller may still have these records. --allow-gap continues without them.",
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
        """Fetch from an offset with unknown predecessor: the leader accepts each epoch that ends beyond the offset."""
        self._fetched = self.end = OffsetAndEpoch(epoch=epoch, offset=offset)
        self._knows_epoch = False

    async def _first_snapshot(self, start: int) -> OffsetAndEpoch:
        """The snapshot that precedes the leader's log. No response states its epoch. It is the first epoch that the
        leader does not redirect to a snapshot: earlier epochs ended before the log begins.
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
