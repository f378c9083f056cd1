"""The state of a store: keys, leases, and the last changes (as etcd's, on a log of ours).

Leases end by the clock of the log alone, so on every node at the same command. This clock runs while one leader
appends, by the leader's clock, and at most `LEASE_STEP_MS` from one command to the next: an election, a pause of the
whole quorum or a clock that was set forward ends no lease whose holder could not renew it meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from kraft.limits import (
    ENDED_AT_ONCE,
    LEASE_KEYS,
    LEASE_STEP_MS,
    LEASE_TICK_MS,
    LEASES,
    STORE_BYTES,
    STORE_HISTORY_BYTES,
    STORE_HISTORY_EVENTS,
    STORE_KEYS,
)
from kraft.state_machine import Position, StateMachine
from kraft.store.commands import (
    NO_LEASE,
    Append,
    Clear,
    Command,
    Condition,
    Delete,
    Done,
    Entry,
    Event,
    Grant,
    Granted,
    IfValue,
    IfVersion,
    LeaseEnded,
    Mismatch,
    Operation,
    Pass,
    Put,
    Renew,
    Result,
    Revoke,
    Transaction,
    Unfit,
    fault_in,
)
from kraft.store.errors import Compacted


class _Lease(Struct, array_like=True):
    ttl_ms: int
    ends_ms: int
    """When it ends, by the clock of the log."""
    keys: dict[str, None]
    """The keys that end with it. A dict, as a set has no order."""


class _Image(Struct, frozen=True, array_like=True):
    """A snapshot. What follows from the rest, as the keys of a lease, is not in it."""

    revision: int
    now_ms: int
    epoch: int
    timestamp_ms: int
    entries: list[Entry]
    leases: list[tuple[int, int, int]]
    compacted: int
    events: list[Event]


_ENCODER = Encoder()
_IMAGES = Decoder(_Image)


class StoreMachine(StateMachine[Command, Result]):
    """The state machine of `Store`: `open_node(config, state_machine=StoreMachine)`.

    Args:
        history: How many of the last changes are kept for watches, at least.
    """

    log_kind = "a store"
    tick_ms = LEASE_TICK_MS

    def __init__(self, history: int = STORE_HISTORY_EVENTS) -> None:
        self.revision = 0
        """The number of the last change."""
        self.compacted = 0
        """The changes after this revision are kept."""
        self.now_ms = 0
        """The clock of the log. It counts from the first command."""
        self._history = history
        self._epoch = 0
        self._timestamp_ms = 0
        self._entries: dict[str, Entry] = {}
        self._keys: list[str] = []
        """The same keys, in order."""
        self._bytes = 0
        self._leases: dict[int, _Lease] = {}
        self._ends: list[tuple[int, int]] = []
        """A heap of times and of leases that end then, unless they were renewed or have ended before."""
        self._events: list[Event] = []
        self._events_bytes = 0

    # Reading

    @property
    def fullness(self) -> float:
        """How much of its room the store uses, from 0 to 1: of that for keys or of that for bytes."""
        return max(len(self._entries) / STORE_KEYS, self._bytes / STORE_BYTES)

    def get(self, key: str) -> Entry | None:
        """A key with its value."""
        return self._entries.get(key)

    def scan(self, prefix: str = "", after: str = "", limit: int | None = None) -> list[Entry]:
        """The first keys with this prefix that come after `after`, in order."""
        begin, end = self._range(prefix)
        begin = max(begin, bisect_right(self._keys, after)) if after else begin
        return [self._entries[key] for key in self._keys[begin : end if limit is None else min(end, begin + limit)]]

    def events_after(self, revision: int, most: int = STORE_HISTORY_EVENTS) -> Sequence[Event]:
        """The first changes after a revision: so many, and the rest of the last one's transaction.

        Raises:
            Compacted: Some of them are not kept any more.
        """
        if revision < self.compacted:
            raise Compacted(revision, self.compacted)
        events = self._events
        begin = bisect_right(events, revision, key=_revision_of)
        end = min(begin + most, len(events))
        if end > begin:
            end = bisect_right(events, events[end - 1].revision, begin, key=_revision_of)
        return events[begin:end]

    def _range(self, prefix: str) -> tuple[int, int]:
        """Where the keys with this prefix stand among the keys."""
        begin = bisect_left(self._keys, prefix)
        return begin, bisect_right(self._keys, prefix, begin, key=lambda key: key[: len(prefix)])

    # Changing

    def apply(self, command: Command, at: Position) -> Result:
        """Carry out a command; see `StateMachine.apply`."""
        self._pass_time(at)
        why = fault_in(command)
        if why is not None:
            return Unfit(why)
        match command:
            case Transaction():
                return self._transact(command)
            case Grant(ttl_ms=ttl_ms):
                return self._grant(ttl_ms)
            case Renew(lease=lease) | Revoke(lease=lease) if lease not in self._leases:
                return LeaseEnded(lease)
            case Renew(lease=lease):
                self._renew(lease)
            case Revoke(lease=lease):
                self._end(lease)
            case Pass():
                pass
        return Done(self.revision)

    def tick(self) -> Command | None:
        """The command that the leader appends by itself; see `StateMachine.tick`."""
        return Pass() if self._leases else None

    def _transact(self, asked: Transaction) -> Result:
        for condition in asked.conditions:
            entry = self._entries.get(condition.key)
            if not _holds(condition, entry):
                return Mismatch(condition.key, entry)
        puts = self._puts(asked.operations)
        for lease in dict.fromkeys(put.lease for put in puts):
            if lease != NO_LEASE and lease not in self._leases:
                return LeaseEnded(lease)
        why = self._lack_of_room(puts)
        if why is not None:
            return Unfit(why)
        revision = self.revision + 1
        count = 0
        events: list[Event] = []
        for operation in asked.operations:
            match operation:
                case Delete(key=key):
                    gone = self._delete([key] if key in self._entries else [])
                case Clear(prefix=prefix, most=most):
                    begin, end = self._range(prefix)
                    gone = self._delete(self._keys[begin : min(end, begin + most)])
                case _:
                    (put,) = self._puts((operation,))
                    self._put(put, revision)
                    events.append(Event(revision, put.key, put.value))
                    continue
            count += len(gone)
            events += [Event(revision, key, None) for key in gone]
        self._record(events)
        return Done(self.revision, count)

    def _puts(self, operations: Iterable[Operation]) -> list[Put]:
        """The keys that the operations set, at the next revision."""
        puts = []
        for one in operations:
            match one:
                case Put():
                    puts.append(one)
                case Append(prefix=prefix, value=value, lease=lease):
                    puts.append(Put(appended_key(prefix, self.revision + 1), value, lease))
        return puts

    def _lack_of_room(self, puts: Sequence[Put]) -> str | None:
        new = [put for put in puts if put.key not in self._entries]
        if len(self._entries) + len(new) > STORE_KEYS:
            return f"the store has room for {STORE_KEYS} keys, and has {len(self._entries)}"
        growth = sum(_size(put) for put in puts) - sum(
            _size(self._entries[put.key]) for put in puts if put.key in self._entries
        )
        if growth > 0 and self._bytes + growth > STORE_BYTES:
            return f"the store has room for {STORE_BYTES} bytes of keys and values, and has {self._bytes}"
        for lease_id in dict.fromkeys(put.lease for put in puts if put.lease != NO_LEASE):
            keys = self._leases[lease_id].keys
            added = sum(put.lease == lease_id and put.key not in keys for put in puts)
            if len(keys) + added > LEASE_KEYS:
                return f"a lease has at most {LEASE_KEYS} keys"
        return None

    def _put(self, put: Put, revision: int) -> None:
        before = self._entries.get(put.key)
        if before is None:
            insort(self._keys, put.key)
        else:
            self._bytes -= _size(before)
            self._leave(before)
        created = revision if before is None else before.created
        self._entries[put.key] = Entry(put.key, put.value, revision, created, put.lease)
        self._bytes += _size(put)
        if put.lease != NO_LEASE:
            self._leases[put.lease].keys[put.key] = None

    def _delete(self, keys: Sequence[str]) -> Sequence[str]:
        """Delete keys that exist and stand in order."""
        if not keys:
            return keys
        begin = bisect_left(self._keys, keys[0])
        if self._keys[begin : begin + len(keys)] == keys:
            # Neighbours, as nearly always: one move of what comes after them, and not one for each.
            del self._keys[begin : begin + len(keys)]
        else:
            for key in keys:
                del self._keys[bisect_left(self._keys, key)]
        for key in keys:
            entry = self._entries.pop(key)
            self._bytes -= _size(entry)
            self._leave(entry)
        return keys

    def _leave(self, entry: Entry) -> None:
        """Take a key from its lease, which may be ending."""
        lease = self._leases.get(entry.lease)
        if lease is not None:
            del lease.keys[entry.key]

    def _record(self, events: Sequence[Event]) -> None:
        """Keep the events of the next revision, and forget old ones: twice as many as must be kept are kept."""
        if not events:
            return
        self.revision += 1
        self._events += events
        self._events_bytes += sum(map(_event_size, events))
        if len(self._events) <= 2 * self._history and self._events_bytes <= 2 * STORE_HISTORY_BYTES:
            return
        begin = max(len(self._events) - self._history, 0)
        left = sum(map(_event_size, self._events[begin:]))
        while left > STORE_HISTORY_BYTES:
            left -= _event_size(self._events[begin])
            begin += 1
        # A revision is kept as a whole or not at all.
        begin = bisect_left(self._events, self._events[begin].revision, key=_revision_of)
        if begin:
            self.compacted = self._events[begin - 1].revision
            del self._events[:begin]
            self._events_bytes = sum(map(_event_size, self._events))

    # Leases

    def _grant(self, ttl_ms: int) -> Result:
        if len(self._leases) >= LEASES:
            return Unfit(f"the store has room for {LEASES} leases")
        # A revision without events: no two leases, and no lease and a change, have the same number.
        self.revision += 1
        self._leases[self.revision] = _Lease(ttl_ms, 0, {})
        self._renew(self.revision)
        return Granted(self.revision)

    def _renew(self, lease_id: int) -> None:
        lease = self._leases[lease_id]
        lease.ends_ms = self.now_ms + lease.ttl_ms
        heappush(self._ends, (lease.ends_ms, lease_id))
        if len(self._ends) > 4 * len(self._leases) + 64:
            self._order_ends()

    def _order_ends(self) -> None:
        self._ends = [(lease.ends_ms, lease_id) for lease_id, lease in self._leases.items()]
        heapify(self._ends)

    def _pass_time(self, at: Position) -> None:
        """Advance the clock of the log, and end leases."""
        if at.epoch == self._epoch:
            self.now_ms += min(max(at.timestamp_ms - self._timestamp_ms, 0), LEASE_STEP_MS)
        self._epoch, self._timestamp_ms = at.epoch, at.timestamp_ms
        ended = 0
        while self._ends and self._ends[0][0] <= self.now_ms and ended < ENDED_AT_ONCE:
            ends_ms, lease_id = heappop(self._ends)
            lease = self._leases.get(lease_id)
            if lease is not None and lease.ends_ms == ends_ms:
                ended += 1 + len(lease.keys)
                self._end(lease_id)

    def _end(self, lease_id: int) -> None:
        keys = self._delete(sorted(self._leases.pop(lease_id).keys))
        self._record([Event(self.revision + 1, key, None) for key in keys])

    # Snapshots

    def snapshot(self) -> bytes:
        """The whole state; see `StateMachine.snapshot`."""
        return _ENCODER.encode(
            _Image(
                revision=self.revision,
                now_ms=self.now_ms,
                epoch=self._epoch,
                timestamp_ms=self._timestamp_ms,
                entries=[self._entries[key] for key in self._keys],
                leases=[(lease_id, lease.ttl_ms, lease.ends_ms) for lease_id, lease in self._leases.items()],
                compacted=self.compacted,
                events=self._events,
            )
        )

    def restore(self, data: bytes) -> None:
        """Replace the state; see `StateMachine.restore`."""
        image = _IMAGES.decode(data)
        self.revision, self.compacted, self.now_ms = image.revision, image.compacted, image.now_ms
        self._epoch, self._timestamp_ms = image.epoch, image.timestamp_ms
        self._entries = {one.key: one for one in image.entries}
        self._keys = list(self._entries)
        self._bytes = sum(map(_size, image.entries))
        self._leases = {lease_id: _Lease(ttl_ms, ends_ms, {}) for lease_id, ttl_ms, ends_ms in image.leases}
        for one in image.entries:
            if one.lease != NO_LEASE:
                self._leases[one.lease].keys[one.key] = None
        self._order_ends()
        self._events = image.events
        self._events_bytes = sum(map(_event_size, self._events))


def appended_key(prefix: str, revision: int) -> str:
    """The key that `Append` creates with this revision."""
    return f"{prefix}{revision:020d}"


def _holds(condition: Condition, entry: Entry | None) -> bool:
    match condition:
        case IfVersion(version=version):
            return version == (0 if entry is None else entry.version)
        case IfValue(value=value):
            return entry is not None and entry.value == value


def _size(one: Put | Entry) -> int:
    return len(one.key) + len(one.value)


def _event_size(event: Event) -> int:
    return len(event.key) + len(event.value or b"")


def _revision_of(event: Event) -> int:
    return event.revision
