"""The records that a member of a share group holds from one leader, and what the user has said about them (Kafka:
`Acknowledgements`, `AcknowledgementBatch`).

Neighbours travel as one range, with one type for all or one for each. What has no record in an acquired range, such as
a marker of a transaction, is a gap that nobody has to acknowledge by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from transport.protocol.errors import Error


class AcknowledgeType(IntEnum):
    """The word of a member about a record (Kafka: `AcknowledgeType`)."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    """The record is done."""
    RELEASE = 2
    """Any member may have the record again, with the next delivery count."""
    REJECT = 3
    """The record is not to be delivered again."""
    RENEW = 4
    """The member goes on with the record: its lock begins anew (KIP-1222)."""


class AckRange(Struct, frozen=True):
    """Neighbours with their types: one for all of them, or one for each."""

    first: int
    last: int
    types: tuple[int, ...]


class Acknowledged(Struct, frozen=True):
    """The outcome of acknowledgements of one partition (Kafka: `AcknowledgementCommitCallback`).

    Args:
        partition: The number of the partition.
        offsets: The offsets of the records, in order.
        failure: Why the leader did not take them, or None. The records may be delivered again.
        error: Kafka's error, if a broker answered with one. INVALID_RECORD_STATE: the lock of a record was over.
    """

    partition: int
    offsets: tuple[int, ...]
    failure: str | None = None
    error: Error | None = None


Decisions = dict[int, dict[int, AcknowledgeType]]
"""The words of the user, by partition and offset."""
Spans = dict[int, list[tuple[int, int]]]
"""First and last offsets, by partition."""


class Sent(Struct, frozen=True):
    """Words that went to the leader with one request."""

    decisions: Decisions
    gaps: Spans

    def __bool__(self) -> bool:
        return bool(self.decisions or self.gaps)

    @property
    def renews(self) -> bool:
        """Whether a lock is to begin anew."""
        return any(AcknowledgeType.RENEW in some.values() for some in self.decisions.values())

    def ranges(self) -> dict[int, list[AckRange]]:
        """The ranges of each partition, in the order of their offsets."""
        numbers = sorted(self.decisions.keys() | self.gaps.keys())
        return {one: ranges_of(self.decisions.get(one, {}), self.gaps.get(one, ())) for one in numbers}


def ranges_of(decided: Mapping[int, AcknowledgeType], gaps: Iterable[tuple[int, int]]) -> list[AckRange]:
    """Decisions and gaps of one partition as ranges."""
    ranges = [AckRange(first, last, (AcknowledgeType.GAP,)) for first, last in gaps]
    run: list[tuple[int, AcknowledgeType]] = []
    for one in sorted(decided.items()):
        if run and one[0] != run[-1][0] + 1:
            ranges.append(_range_of(run))
            run = []
        run.append(one)
    if run:
        ranges.append(_range_of(run))
    return sorted(ranges, key=lambda each: each.first)


def _range_of(run: Sequence[tuple[int, AcknowledgeType]]) -> AckRange:
    types = tuple(int(each) for _, each in run)
    return AckRange(run[0][0], run[-1][0], types[:1] if len(set(types)) == 1 else types)


class Ledger:
    """The records that a member holds from one leader."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], int] = {}
        """The delivery count by partition and offset."""
        self._decisions: Decisions = {}
        self._gaps: Spans = {}

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell the leader."""
        return bool(self._decisions or self._gaps)

    @property
    def renews(self) -> bool:
        """Whether a lock is to begin anew."""
        return any(AcknowledgeType.RENEW in some.values() for some in self._decisions.values())

    def hold(self, partition: int, offset: int, delivery_count: int) -> None:
        """Hold a record that the user gets."""
        self._held[partition, offset] = delivery_count

    def add_gap(self, partition: int, first: int, last: int) -> None:
        """Note offsets without a record."""
        self._gaps.setdefault(partition, []).append((first, last))

    def holds(self, partition: int, offset: int, delivery_count: int | None) -> bool:
        """Whether the user has this delivery of the record."""
        return self._held.get((partition, offset)) == delivery_count

    def is_decided(self, partition: int, offset: int) -> bool:
        """Whether the user has said something about a record that the leader has not heard yet."""
        return offset in self._decisions.get(partition, {})

    def decide(self, partition: int, offset: int, said: AcknowledgeType) -> None:
        """Note what the user says; the last word counts until it is sent."""
        self._decisions.setdefault(partition, {})[offset] = said

    def take(self) -> Sent:
        """Take everything for a request. Only renewed records are held any longer."""
        sent = Sent(self._decisions, self._gaps)
        self._decisions, self._gaps = {}, {}
        for partition, some in sent.decisions.items():
            for offset, said in some.items():
                if said is not AcknowledgeType.RENEW:
                    self._held.pop((partition, offset), None)
        return sent

    def put_back(self, sent: Sent, partitions: Iterable[int]) -> None:
        """Send it again: the leader has not looked at it. What the user has said meanwhile counts more."""
        for partition in partitions:
            if some := sent.decisions.get(partition):
                self._decisions[partition] = some | self._decisions.get(partition, {})
            if spans := sent.gaps.get(partition):
                self._gaps.setdefault(partition, []).extend(spans)

    def let_go(self, partition: int, offsets: Iterable[int]) -> None:
        """Hold these records no longer, as the leader has refused to renew them."""
        for offset in offsets:
            self._held.pop((partition, offset), None)

    def lose(self) -> Decisions:
        """Hold nothing any longer; returns what the user has said about records that are lost now."""
        lost = self._decisions
        self._held, self._decisions, self._gaps = {}, {}, {}
        return lost
