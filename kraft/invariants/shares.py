"""The invariants of share groups, whatever happens to the leaders of partitions and to share coordinators (KIP-932).

The caller shows what is committed in `__share_group_state`, and which requests of members have arrived at leaders, with
their answers. The ledger judges record by record, and shares no code with the brokers: it counts deliveries itself, and
folds the records of the log by their schemas alone.

A leader that nobody has told of its successor may deliver what it knew once, as in Kafka. The caller says which answers
are of the present leader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from kraft.invariants.stored_batches import StoredBatch
from kraft.invariants.violation import InvariantViolated
from metadata_log.records.batch import scan
from metadata_log.records.coordinator import SHARE_GROUP_STATE, decode_pair
from metadata_log.records.record import records
from metadata_log.records.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareSnapshotValueStateBatch,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
)
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.protocol.errors import Error

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
"""How a member acknowledges a record, by the number on the wire."""
_ENDS: Final = {GAP: "passed over", ACCEPT: "accepted", REJECT: "rejected"}
_AVAILABLE: Final = 0
_TERMINAL: Final = frozenset((2, 4))
_UNSET: Final = -1
_REFUSALS: Final = frozenset(
    (
        Error.INVALID_RECORD_STATE,
        Error.SHARE_SESSION_NOT_FOUND,
        Error.INVALID_SHARE_SESSION_EPOCH,
        Error.INVALID_REQUEST,
    )
)
"""The answers after which it is certain that an acknowledgement has changed nothing."""
Place = tuple[str, Uuid, int]
"""The group, the topic and the partition."""
State = tuple[int, int]
"""The delivery count and the state of a record in the log: of two the larger one counts."""


class Told(Struct, frozen=True):
    """Offsets that a member acknowledges, both ends included: one kind for all, or one for each."""

    first: int
    last: int
    kinds: Sequence[int]

    def each(self) -> Iterator[tuple[int, int]]:
        """The offsets with their kinds."""
        for at, offset in enumerate(range(self.first, self.last + 1)):
            yield offset, self.kinds[at] if len(self.kinds) > 1 else self.kinds[0]


class Member(Struct, frozen=True):
    """A request of a member at a leader."""

    request_id: int
    member: str
    place: Place
    leading: int
    """The number of the leader's memory of the share partition, from its load to its end."""
    arrived_ms: int
    """When the request has arrived, by the clock of the leader."""


class _Lock(Struct):
    """A record that a member has."""

    member: str
    until_ms: int
    """Nobody else may have it before this time, at least."""
    is_loose: bool = False
    """Whether the member may have given it back."""


class _Leading(Struct):
    """The deeds of a leader in a share partition since its load."""

    broker_id: int
    locks: dict[int, _Lock] = {}
    counts: dict[int, int] = {}
    """The least delivery count of each record."""
    start: int = _UNSET


class _Fate(Struct):
    """The past of one record of a share partition."""

    ended: str = ""
    """How it is done with, and by whom; empty if nobody was told so."""
    doubts: dict[int, None] = {}
    """The requests that may have ended it."""
    deliveries: int = 0
    durable: int = 0
    """The deliveries of which the share coordinator knows for certain."""


class _Logged(Struct):
    """A share partition by the committed records."""

    state_epoch: int = 0
    start: int = _UNSET
    states: dict[int, State] = {}
    snapshot_at: int = 0
    """The offset of the last snapshot."""


class ShareLedger:
    """The share partitions of one run. Every method raises `InvariantViolated`.

    Args:
        deliveries: How often a record is delivered at most.
        lock_ms: For how long a member has a record.
    """

    def __init__(self, deliveries: int, lock_ms: int) -> None:
        self.delivered_records = 0
        self.delivered_again = 0
        self.ended_records = 0
        self.loads = 0
        self._most = deliveries
        self._lock_ms = lock_ms
        self._names: dict[Place, str] = {}
        self._fates: dict[Place, dict[int, _Fate]] = {}
        self._leadings: dict[int, _Leading] = {}
        self._counts: dict[tuple[int, Place], dict[int, int]] = {}
        """The counts of what a request releases, as of its arrival."""
        self._foreign: dict[tuple[int, Place], str] = {}
        """The requests with acknowledgements of what another member has."""
        self._logged: dict[Place, _Logged] = {}
        self._settled: dict[Place, int] = {}
        """Everything before this offset is done with."""

    def fate_of(self, place: Place, offset: int) -> _Fate:
        """The past of a record."""
        return self._fates.setdefault(place, {}).setdefault(offset, _Fate())

    # Leaders

    def began(self, number: int, broker_id: int) -> None:
        """A leader has begun to load a share partition."""
        self._leadings[number] = _Leading(broker_id)

    def loaded(self, number: int, place: Place, name: str, start: int, states: Mapping[int, State]) -> None:
        """The present leader has loaded a share partition: nothing that is durable is missing."""
        self.loads += 1
        leading, logged = self._leadings[number], self._logged.get(place, _Logged())
        leading.start = start
        if start < logged.start:
            raise InvariantViolated(f"{name}: broker {leading.broker_id} begins at {start}, before {logged.start}")
        for offset, fate in self._fates.get(place, {}).items():
            if offset < start:
                continue
            count, state = states.get(offset, (0, _AVAILABLE))
            if fate.ended and state not in _TERMINAL:
                what = f"{name}: broker {leading.broker_id} knows offset {offset} in state {state}"
                raise InvariantViolated(f"{what}, and it was {fate.ended}")
            if count < fate.durable:
                raise InvariantViolated(
                    f"{name}: broker {leading.broker_id} knows of {count} deliveries of offset {offset}, and there were"
                    f" {fate.durable} that were written"
                )

    def moved(self, number: int, name: str, start: int) -> None:
        """The first offset that is not done with, as a leader knows it: it never goes back."""
        leading = self._leadings[number]
        if start < leading.start:
            raise InvariantViolated(
                f"{name}: the start of broker {leading.broker_id} goes back from {leading.start} to {start}"
            )
        leading.start = start

    # Requests

    def asked(self, asking: Member, acks: Iterable[Told], log_start: int) -> None:
        """Acknowledgements have arrived. The answer may come later than another member's records."""
        leading = self._leadings.get(asking.leading, _Leading(-1))
        counts = self._counts[asking.request_id, asking.place] = dict[int, int]()
        for told in acks:
            for offset, kind in told.each():
                if kind in _ENDS:
                    self.fate_of(asking.place, offset).doubts[asking.request_id] = None
                elif kind == RELEASE:
                    counts[offset] = leading.counts.get(offset, 0)
                lock = leading.locks.get(offset)
                if lock is None:
                    continue
                if lock.member == asking.member:
                    lock.is_loose = lock.is_loose or kind != RENEW
                elif offset >= log_start and not lock.is_loose and asking.arrived_ms < lock.until_ms:
                    self._foreign[asking.request_id, asking.place] = f"{offset}, which {lock.member} has"

    def gave_up(self, number: int, member: str) -> None:
        """The session of a member ends: it has nothing any more."""
        for lock in self._leadings[number].locks.values():
            if lock.member == member:
                lock.is_loose = True

    def acknowledged(self, asking: Member, name: str, acks: Iterable[Told], error: Error) -> None:
        """The acknowledgements of a request are answered."""
        leading = self._leadings.get(asking.leading, _Leading(-1))
        counts = self._counts.pop((asking.request_id, asking.place), {})
        foreign = self._foreign.pop((asking.request_id, asking.place), "")
        if foreign and error is Error.NONE:
            raise InvariantViolated(f"{name}: {asking.member} acknowledges offset {foreign}")
        for told in acks:
            for offset, kind in told.each():
                fate = self.fate_of(asking.place, offset)
                if error is Error.NONE or error in _REFUSALS:
                    fate.doubts.pop(asking.request_id, None)
                if error is not Error.NONE:
                    continue
                lock = leading.locks.get(offset)
                if kind in _ENDS:
                    self.ended_records += not fate.ended
                    fate.ended = fate.ended or f"{_ENDS[kind]} by {asking.member}"
                elif kind == RELEASE:
                    fate.durable = max(fate.durable, counts.get(offset, 0))
                elif lock is not None and lock.member == asking.member:
                    lock.until_ms = max(lock.until_ms, asking.arrived_ms + self._lock_ms)

    def delivered(
        self, asking: Member, name: str, first: int, last: int, count: int, now_ms: int, *, is_sure: bool
    ) -> None:
        """A member is given offsets. `is_sure` if the leader is the present one, and has not loaded anew meanwhile."""
        leading = self._leadings.get(asking.leading)
        for offset in range(first, last + 1):
            fate = self.fate_of(asking.place, offset)
            fate.deliveries += 1
            self.delivered_records += 1
            self.delivered_again += fate.deliveries > 1
            if not is_sure or leading is None:
                continue
            what = f"{name}: offset {offset} is delivered to {asking.member} by broker {leading.broker_id}"
            if fate.ended:
                raise InvariantViolated(f"{what}, after it was {fate.ended}")
            lock = leading.locks.get(offset)
            if lock is not None and not lock.is_loose and now_ms < lock.until_ms:
                raise InvariantViolated(f"{what}, while {lock.member} has it until {lock.until_ms}; it is {now_ms}")
            least = max(leading.counts.get(offset, 0), fate.durable) + 1
            if least > self._most:
                raise InvariantViolated(f"{what} as delivery {least}, and {self._most} are the limit")
            if not least <= count <= fate.deliveries:
                raise InvariantViolated(f"{what} with the count {count}, and not from {least} to {fate.deliveries}")
            leading.counts[offset] = least
            leading.locks[offset] = _Lock(asking.member, asking.arrived_ms + self._lock_ms)

    # The log of the share coordinators

    def committed(self, batch: StoredBatch) -> None:
        """A batch of `__share_group_state` is committed."""
        for raw in scan(batch.content, verify=False):
            for record in records(raw):
                pair = decode_pair(SHARE_GROUP_STATE, record.key or b"", record.value)
                if pair is not None:
                    self._replay(pair.key, pair.value, record.offset)

    def _replay(self, key: Message, value: Message | None, offset: int) -> None:
        assert isinstance(key, (ShareSnapshotKey, ShareUpdateKey)), key
        place = key.group_id, key.topic_id, key.partition
        name = f"{key.group_id} at {key.topic_id}-{key.partition}"
        match value:
            case ShareSnapshotValue():
                self._logged[place] = self._after_snapshot(name, place, value, offset)
            case ShareUpdateValue():
                self._update(name, place, value)
            case _:
                self._logged.pop(place, None)

    def _after_snapshot(self, name: str, place: Place, value: ShareSnapshotValue, offset: int) -> _Logged:
        states = dict(_states(value.state_batches))
        after = _Logged(value.state_epoch, value.start_offset, states, offset)
        known = self._logged.get(place)
        if known is None or value.state_epoch > known.state_epoch:
            return after
        if value.start_offset < known.start:
            raise InvariantViolated(f"{name}: the start goes back from {known.start} to {value.start_offset}")
        missing = [
            one
            for one, state in known.states.items()
            if one >= value.start_offset and states.get(one, (-1, -1)) < state
        ]
        if missing:
            raise InvariantViolated(f"{name}: the snapshot at {offset} lacks the state of offset {missing[0]}")
        return after

    def _update(self, name: str, place: Place, value: ShareUpdateValue) -> None:
        known = self._logged.get(place)
        if known is None:
            raise InvariantViolated(f"{name}: there is an update and no snapshot")
        if value.start_offset != _UNSET:
            if value.start_offset < known.start:
                raise InvariantViolated(f"{name}: the start goes back from {known.start} to {value.start_offset}")
            known.start = value.start_offset
        for offset, state in _states(value.state_batches):
            known.states[offset] = max(known.states.get(offset, (-1, -1)), state)

    def pruned(self, name: str, log_start: int, places: Iterable[Place]) -> None:
        """The log of a partition of the share coordinators begins later: each snapshot that is needed is there."""
        for place in places:
            logged = self._logged.get(place)
            if logged is not None and logged.snapshot_at < log_start:
                raise InvariantViolated(f"{name} begins at {log_start}, after the last snapshot of {place[0]}")

    def places(self) -> list[Place]:
        """The share partitions with a state."""
        return list(self._logged)

    # The end

    def unfinished(self, place: Place, start: int, end: int) -> int | None:
        """The first offset that is neither done with nor delivered as often as it may be; None if there is none."""
        at = max(start, self._settled.get(place, 0))
        fates = self._fates.get(place, {})
        while at < end:
            fate = fates.get(at)
            if fate is None or not (fate.ended or fate.doubts or fate.deliveries >= self._most):
                break
            at += 1
        self._settled[place] = at
        return at if at < end else None


def _states(
    batches: Iterable[ShareSnapshotValueStateBatch | ShareUpdateValueStateBatch],
) -> Iterator[tuple[int, State]]:
    """The states of single offsets in the batches of a record."""
    for one in batches:
        for offset in range(one.first_offset, one.last_offset + 1):
            yield offset, (one.delivery_count, one.delivery_state)
