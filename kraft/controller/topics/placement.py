"""Places the replicas of new partitions across racks and brokers (Kafka: `StripedReplicaPlacer`).

Leaders rotate over the brokers, replicas over the racks. A fenced broker is used only when its rack has no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.controller.decision.broker_sessions import BrokerSessions, BrokerState
from metadata_log.image import Broker, MetadataImage
from metadata_log.image.persistent_map import in_key_order
from transport.protocol.errors import Error


class UsableBroker(Struct, frozen=True):
    """A broker that may get replicas."""

    id: int
    rack: str | None
    fenced: bool


def usable_brokers(image: MetadataImage, sessions: BrokerSessions) -> list[UsableBroker]:
    """The brokers that are not in controlled shutdown and have a log directory that takes new replicas.

    A broker that was fenced during its controlled shutdown is usable again, although its registration still has the
    shutdown flag.
    """
    return [
        UsableBroker(broker_id, broker.rack, broker.fenced)
        for broker_id, broker in in_key_order(image.brokers.by_id)
        if sessions.state(broker_id) is not BrokerState.CONTROLLED_SHUTDOWN and not is_cordoned(broker)
    ]


def is_cordoned(broker: Broker) -> bool:
    """Whether no log directory of a broker takes new replicas."""
    return bool(
        broker.directories
        and broker.cordoned_directories
        and all(directory in broker.cordoned_directories for directory in broker.directories)
    )


class _Wheel:
    """A ring of brokers. Each epoch yields each broker once, and the next epoch begins one position further."""

    def __init__(self, ids: Sequence[int], rng: Random) -> None:
        self._ids = sorted(ids)
        self._offset = rng.randrange(len(ids)) if ids else 0
        self._epoch = 0
        self._index = 0

    def next(self, epoch: int) -> int | None:
        """The next broker of this epoch; None after all were used."""
        if not self._ids:
            return None
        if self._epoch != epoch:
            self._epoch = epoch
            self._index = 0
            self._offset = (self._offset + 1) % len(self._ids)
        if self._index >= len(self._ids):
            return None
        broker_id = self._ids[(self._index + self._offset) % len(self._ids)]
        self._index += 1
        return broker_id

    def shuffle(self, rng: Random) -> None:
        """Restart in another order."""
        rng.shuffle(self._ids)


class _Rack:
    """The brokers of one rack."""

    def __init__(self, brokers: Sequence[UsableBroker], rng: Random) -> None:
        self.unfenced = _Wheel([broker.id for broker in brokers if not broker.fenced], rng)
        self._fenced = _Wheel([broker.id for broker in brokers if broker.fenced], rng)

    def next(self, epoch: int) -> int | None:
        """The next broker; a fenced broker only if there is no other."""
        broker_id = self.unfenced.next(epoch)
        return self._fenced.next(epoch) if broker_id is None else broker_id

    def shuffle(self, rng: Random) -> None:
        """Restart in another order."""
        self.unfenced.shuffle(rng)
        self._fenced.shuffle(rng)


def place(brokers: Iterable[UsableBroker], count: int, replication_factor: int, rng: Random) -> list[tuple[int, ...]]:
    """The replicas of `count` new partitions, the leader first; raises `ApiError` if there are too few brokers."""
    return list(placements(brokers, count, replication_factor, rng))


def placements(
    brokers: Iterable[UsableBroker], count: int, replication_factor: int, rng: Random
) -> Iterator[tuple[int, ...]]:
    """As `place`, one partition after the other; raises `ApiError` before the first."""
    usable = list(brokers)
    unfenced = sum(not broker.fenced for broker in usable)
    if replication_factor <= 0:
        raise _invalid(f"Invalid replication factor {replication_factor}: the replication factor must be positive.")
    if unfenced == 0:
        raise _invalid("All brokers are currently fenced, or have all their log directories cordoned.")
    if replication_factor > len(usable):
        text = (
            f"The target replication factor of {replication_factor} cannot be reached because only {len(usable)} "
            "broker(s) are registered or some brokers have all their log directories cordoned."
        )
        raise _invalid(text)
    by_rack: dict[str, list[UsableBroker]] = {}
    for broker in usable:
        # Brokers without a rack share one, which sorts before all others.
        by_rack.setdefault("" if broker.rack is None else f"/{broker.rack}", []).append(broker)
    racks = [_Rack(by_rack[name], rng) for name in sorted(by_rack)]
    offset = rng.randrange(len(racks))
    epoch = 0
    for _ in range(count):
        if epoch == unfenced > 1:
            rng.shuffle(racks)
            for rack in racks:
                rack.shuffle(rng)
            epoch = 0
        offset %= len(racks)
        yield _one(racks, offset, epoch, replication_factor)
        epoch += 1
        offset += 1


def _one(racks: list[_Rack], offset: int, epoch: int, replication_factor: int) -> tuple[int, ...]:
    chosen: list[int] = []
    leader_rack = offset
    while not chosen:
        leader = racks[leader_rack].unfenced.next(epoch)
        if leader is None:
            leader_rack = (leader_rack + 1) % len(racks)
        else:
            chosen.append(leader)
    rack: int = offset
    skipped = False
    while len(chosen) < replication_factor:
        if rack == leader_rack and not skipped:
            skipped = True
        else:
            follower = racks[rack].next(epoch)
            if follower is not None:
                chosen.append(follower)
        rack = (rack + 1) % len(racks)
    return tuple(chosen)


def _invalid(text: str) -> ApiError:
    return ApiError(Error.INVALID_REPLICATION_FACTOR, text)
