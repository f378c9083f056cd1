"""The share partitions that this broker leads: their load, their locks, and what is written of them (Kafka:
`SharePartitionManager`, `SharePartitionCache`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from functools import partial
from heapq import heappop, heappush
from typing import Final

from msgspec import Struct

from kraft.agenda import Agenda, Slot
from kraft.config.group_settings import ShareLeaderConfig
from kraft.coordinators.shares.dead_letters import EXHAUSTED, FEATURE, QUEUE, REJECTED, SINCE, DeadLetters
from kraft.coordinators.shares.persister import PersistedState, PersistedWrite, Persister, ShareKey
from kraft.coordinators.shares.share_partition import BadState, Letter, Move, ShareLimits, SharePartition
from kraft.handling.steps import Handling
from kraft.limits import SHARE_LOCKS_LOOKED_AT, SHARE_LOCKS_PAUSE_MS, SHARE_PARTITIONS
from kraft.partitions.replicas.hosted_partition import HostedPartition
from kraft.partitions.replicas.manager import ReplicaManager
from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataImage, ResourceType
from metadata_log.types import NEVER_MS
from transport.protocol.errors import Error

FENCING: Final = frozenset(
    (
        Error.FENCED_LEADER_EPOCH,
        Error.FENCED_STATE_EPOCH,
        Error.GROUP_ID_NOT_FOUND,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""The errors of the share coordinator after which a share partition is loaded anew."""
_TOLD: Final = {
    Error.FENCED_LEADER_EPOCH: Error.NOT_LEADER_OR_FOLLOWER,
    Error.FENCED_STATE_EPOCH: Error.NOT_LEADER_OR_FOLLOWER,
    Error.COORDINATOR_LOAD_IN_PROGRESS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.COORDINATOR_NOT_AVAILABLE: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR: Error.COORDINATOR_NOT_AVAILABLE,
    Error.GROUP_ID_NOT_FOUND: Error.GROUP_ID_NOT_FOUND,
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.UNKNOWN_TOPIC_OR_PARTITION,
    Error.NONE: Error.NONE,
}
_DURATION: Final = re.compile(r"by_duration:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
READ_COMMITTED: Final = "read_committed"


def told(error: Error) -> Error:
    """The error that a member is told, for one of the share coordinator."""
    return _TOLD.get(error, Error.UNKNOWN_SERVER_ERROR)


class Led(Struct, eq=False):
    """A share partition of this broker, for one epoch of its leadership."""

    key: ShareKey
    part: HostedPartition
    leader_epoch: int
    partition: SharePartition | None = None
    """The records; None until it is known where they begin."""
    read: PersistedState | None = None
    """The state that the share coordinator has told, while the log has still to tell where the group begins."""
    error: Error = Error.NONE
    """Why the load has failed."""
    writes: int = 0
    """How many writes, and ways to the dead-letter queue, are under way."""
    is_ending: bool = False
    """Whether it is forgotten after its writes, unless the group has come back by then."""
    timer_ms: int = NEVER_MS
    """When the locks are looked at; later than the first lock ends, if that was just done."""


class ShareLeader:
    """The share partitions that this broker leads.

    Args:
        agenda: Where it says when a lock ends.
        manager: The replicas of this broker.
        persister: The share coordinators.
        config: The settings of the broker.
        tell: Who waits for a key may go on.
        has_sessions: Whether a group has sessions at this broker.
        dead_letters: The sender to dead-letter queues.
    """

    def __init__(
        self,
        agenda: Agenda,
        manager: ReplicaManager,
        persister: Persister,
        config: ShareLeaderConfig,
        tell: Callable[[Hashable], None],
        has_sessions: Callable[[str], bool],
        dead_letters: DeadLetters,
    ) -> None:
        self.led: dict[ShareKey, Led] = {}
        """By key, the one made last at the end."""
        self.expired = 0
        """How many locks have ended by time."""
        self.loads = 0
        """How many share partitions were loaded."""
        self._agenda = agenda
        self._manager = manager
        self._persister = persister
        self._config = config
        self._tell = tell
        self._has_sessions = has_sessions
        self._dead_letters = dead_letters
        self._timers: list[tuple[int, int, Led]] = []
        self._timers_set = 0
        self._image = MetadataImage()
        self._limits: dict[str, ShareLimits] = {}

    # Settings

    def use(self, image: MetadataImage) -> None:
        """The metadata by which the broker acts from now on."""
        if image.configs is not self._image.configs or image.features is not self._image.features:
            self._limits.clear()
        self._image = image

    def limits(self, group_id: str) -> ShareLimits:
        """The limits of a group."""
        limits = self._limits.get(group_id)
        if limits is None:
            config, of = self._config, self._image.configs.of((ResourceType.GROUP, group_id))
            limits = ShareLimits(
                deliveries=int(of.get("share.delivery.count.limit") or config.delivery_count_limit),
                lock_ms=int(of.get("share.record.lock.duration.ms") or config.lock_duration_ms),
                window=int(of.get("share.partition.max.record.locks") or config.max_record_locks),
                may_renew=of.get("share.renew.acknowledge.enable") != "false",
                is_committed=of.get("share.isolation.level") == READ_COMMITTED,
                has_letters=bool(of.get(QUEUE)) and self._image.features.level(FEATURE) >= SINCE,
            )
            if len(self._limits) >= SHARE_PARTITIONS:
                self._limits.clear()
            self._limits[group_id] = limits
        return limits

    # Load

    def known(self, key: ShareKey) -> Led | None:
        """A share partition in memory, if this broker still leads it in the same epoch."""
        led = self.led.get(key)
        if led is None:
            return None
        part = led.part
        is_here = self._manager.partitions.get(part.key) is part and part.leading is not None
        if not is_here or part.is_offline or part.leader_epoch != led.leader_epoch:
            self.drop(led)
            return None
        return led

    def lead(self, key: ShareKey, part: HostedPartition, now_ms: int) -> Led | Error:
        """The share partition of a partition that this broker leads; one that is not in memory begins to load."""
        led = self.known(key)
        if led is not None:
            led.is_ending = False
            return led
        if not key.group_id:
            return Error.UNKNOWN_SERVER_ERROR
        if len(self.led) >= SHARE_PARTITIONS and not self._make_room():
            return Error.SHARE_SESSION_LIMIT_REACHED
        self.loads += 1
        led = self.led[key] = Led(key, part, part.leader_epoch)
        self._persister.read(key, part.leader_epoch, now_ms, partial(self._on_read, led))
        return led

    def _make_room(self) -> bool:
        """Forget the oldest share partition of a group without sessions."""
        idle = next(
            (one for one in self.led.values() if not one.writes and not self._has_sessions(one.key.group_id)), None
        )
        if idle is not None:
            self.drop(idle)
        return idle is not None

    def _on_read(self, led: Led, read: PersistedState | Error, now_ms: int) -> None:
        if isinstance(read, Error):
            self._fail(led, told(read))
        elif read.start_offset >= 0:
            self._load(led, read, read.start_offset, now_ms)
        else:
            led.read = read
        self._tell(led.key)

    def _load(self, led: Led, read: PersistedState, start: int, now_ms: int) -> None:
        try:
            led.partition = SharePartition(read, led.leader_epoch, start)
        except BadState:
            self._fail(led, Error.UNKNOWN_SERVER_ERROR)
        else:
            self._send_letters(led, now_ms)

    def _fail(self, led: Led, error: Error) -> None:
        led.error = error
        self.drop(led)

    def finding_start(self, led: Led, now_ms: int) -> Handling[None]:
        """Find where a new group begins in a log, in steps (`SharePartition.startOffsetDuringInitialization`)."""
        read, log = led.read, led.part.log
        assert read is not None, led
        wanted = self._image.configs.of((ResourceType.GROUP, led.key.group_id)).get("share.auto.offset.reset")
        start = log.high_watermark
        if wanted == "earliest":
            start = log.start_offset
        elif wanted is not None and (past := _DURATION.fullmatch(wanted)) is not None:
            try:
                frame = yield from log.finding_time(max(0, now_ms - _ms(past)))
            except (MetadataLogError, OSError):
                self._fail(led, Error.UNKNOWN_SERVER_ERROR)
                return
            if frame is not None and frame.offset < log.high_watermark:
                start = frame.offset
        if led.partition is None and led.error is Error.NONE:
            self._load(led, read, start, now_ms)
            led.read = None

    def drop(self, led: Led) -> None:
        """Forget a share partition: the next fetch loads it anew."""
        if self.led.get(led.key) is led:
            del self.led[led.key]

    def drop_group(self, group_id: str) -> None:
        """The last session of a group has ended: its share partitions are loaded anew."""
        for led in [one for key, one in self.led.items() if key.group_id == group_id]:
            led.is_ending = True
            if not led.writes:
                self.drop(led)

    # Writes

    def write(self, led: Led, move: Move, now_ms: int, then: Callable[[Error, int], None] | None = None) -> None:
        """Write a move; it holds once that is done. `then` gets the outcome as a member is told."""
        assert led.partition is not None, led
        if not move.runs:
            led.partition.finish(move)
            self.set_timer(led)
            if then is not None:
                then(Error.NONE, now_ms)
            return
        led.writes += 1
        write = led.partition.written(move.runs)
        self._persister.write(led.key, write, now_ms, partial(self._on_written, led, move, then))

    def _on_written(
        self, led: Led, move: Move, then: Callable[[Error, int], None] | None, error: Error, now_ms: int
    ) -> None:
        assert led.partition is not None, led
        if error is Error.NONE:
            led.partition.finish(move)
        else:
            led.partition.undo(move, self.limits(led.key.group_id), now_ms)
            self.set_timer(led, now_ms + SHARE_LOCKS_PAUSE_MS)
        self._after_write(led, error, now_ms)
        if then is not None:
            then(told(error), now_ms)

    def _after_write(self, led: Led, error: Error, now_ms: int) -> None:
        if error not in FENCING:
            self._send_letters(led, now_ms)
        led.writes -= 1
        is_over = led.is_ending and not led.writes and not self._has_sessions(led.key.group_id)
        if error in FENCING or is_over:
            self.drop(led)
        self._tell(led.key)

    def _write_alone(self, led: Led, write: PersistedWrite, now_ms: int) -> None:
        """Write states that hold already, whatever comes of it."""
        led.writes += 1
        self._persister.write(led.key, write, now_ms, partial(self._after_write, led))

    # Dead letters

    def _send_letters(self, led: Led, now_ms: int) -> None:
        """Send what is on its way to the dead-letter queue, now that the share coordinator knows it."""
        partition = led.partition
        if partition is None or not partition.letters or self.known(led.key) is not led:
            return
        letters, partition.letters = partition.letters, []
        most = self.limits(led.key.group_id).deliveries
        for each in letters:
            led.writes += 1
            is_rejected = each.count < most if each.is_rejected is None else each.is_rejected
            text = REJECTED if is_rejected else EXHAUSTED
            self._dead_letters.post(led.key, led.part, each, text, partial(self._on_settled, led, each))

    def _on_settled(self, led: Led, letter: Letter, now_ms: int) -> None:
        """The dead-letter queue has some records, or will never have them."""
        if self.known(led.key) is led and led.partition is not None:
            write = led.partition.settle(letter)
            if write is not None:
                self._write_alone(led, write, now_ms)
        self._after_write(led, Error.NONE, now_ms)

    # Locks

    def release(self, key: ShareKey, member: str, now_ms: int) -> None:
        """Give back all that a member has of a share partition."""
        led = self.known(key)
        if led is not None and led.partition is not None:
            move = led.partition.release(member, self.limits(key.group_id))
            if move.runs:
                self.write(led, move, now_ms)

    def set_timer(self, led: Led, least_ms: int = 0) -> None:
        """Look at the locks when the first one ends, and not before a time."""
        assert led.partition is not None, led
        at = max(led.partition.lock_ms, least_ms)
        if at < led.timer_ms:
            led.timer_ms = at
            self._timers_set += 1
            heappush(self._timers, (at, self._timers_set, led))
            self._agenda.by(Slot.SHARES, self._timers[0][0])

    def end_locks(self, now_ms: int) -> None:
        """End the locks that are over."""
        timers, looked = self._timers, 0
        while timers and timers[0][0] <= now_ms and looked < SHARE_LOCKS_LOOKED_AT:
            at, _, led = heappop(timers)
            if at != led.timer_ms:
                continue
            led.timer_ms = NEVER_MS
            if self.known(led.key) is not led or led.partition is None:
                continue
            looked += led.partition.runs
            ended = led.partition.expire(self.limits(led.key.group_id), now_ms)
            if ended is not None:
                write, move = ended
                self.expired += sum(each.last_offset - each.first_offset + 1 for each in write.batches)
                led.writes += 1
                self._persister.write(led.key, write, now_ms, partial(self._on_written, led, move, None))
                self._tell(led.key)
            self.set_timer(led, now_ms + SHARE_LOCKS_PAUSE_MS)
        if timers:
            self._agenda.by(Slot.SHARES, max(timers[0][0], now_ms + 1))


def _ms(past: re.Match[str]) -> int:
    """The time of a duration in ms."""
    days, hours, minutes, seconds = (float(each or 0) for each in past.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
