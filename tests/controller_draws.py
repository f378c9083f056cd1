"""Stories drawn at random: each step makes sense often enough in the state that the steps before have left.

Not drawn is what would show known differences: min.insync.replicas is not changed, as Kafka goes on to look at
partitions that were cleared of eligible replicas, and may write a change for them; a reassignment is cancelled before
the next; no directory goes offline, which may make Kafka's controller fail once a topic was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from controller_sides import directory, incarnation
from controller_stories import (
    APPEND,
    BROKER,
    DELETE,
    SET,
    SUBTRACT,
    TOPIC,
    Step,
    assign,
    configure,
    create,
    delete,
    elections,
    envelope,
    grow,
    heartbeat,
    isr,
    producer_ids,
    reassign,
    reassignments,
    register,
    topic,
    unregister,
)

from metadata_log.image import MetadataImage

BROKERS: Final = (101, 102, 103, 104, 105)
UNKNOWN: Final = 99
CHANGES: Final = (
    ("retention.ms", SET, "1000"),
    ("retention.ms", SET, "soon"),
    ("retention.ms", DELETE, None),
    ("unclean.leader.election.enable", SET, "true"),
    ("unclean.leader.election.enable", SET, "false"),
    ("cleanup.policy", APPEND, "compact"),
    ("cleanup.policy", SUBTRACT, "delete"),
    ("nonsense", SET, "1"),
)


class Draw:
    """Draws steps for one sequence; topics are named after it, and every one is known to it."""

    def __init__(self, rng: Random, name: str) -> None:
        self._rng = rng
        self._topics = [f"{name}-{number}" for number in range(4)]
        self._starts = 0

    def sequence(self, count: int, image: Callable[[], MetadataImage]) -> Iterator[Step]:
        """Bring every broker back, and then draw so often; `image` tells what the steps before have left."""
        for broker in BROKERS:
            if broker not in image().brokers.by_id:
                yield self._registration(broker)
            yield heartbeat(broker)
        for _ in range(count):
            yield from self._draw(image())

    def _draw(self, image: MetadataImage) -> Iterator[Step]:
        kinds: tuple[tuple[int, Callable[[MetadataImage], Iterator[Step]]], ...] = (
            (3, self._create),
            (1, self._grow),
            (1, self._delete),
            (4, self._configure),
            (6, self._beat),
            (2, self._restart),
            (6, self._isr),
            (3, self._reassign),
            (3, self._elect),
            (1, self._assign),
        )
        draw = self._rng.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
        yield from draw(image)

    def _name(self) -> str:
        return self._rng.choice(self._topics)

    def _replicas(self, most: int = 3) -> list[int]:
        chosen = self._rng.sample(BROKERS, self._rng.randint(1, most))
        return [*chosen, UNKNOWN] if self._rng.random() < 0.05 else chosen

    def _create(self, image: MetadataImage) -> Iterator[Step]:
        asked = topic(self._name(), *(self._replicas(3) for _ in range(self._rng.randint(1, 3))))
        size = min(len(asked.assignments[0].broker_ids), len(BROKERS))
        if self._rng.random() < 0.9:
            placed = [self._rng.sample(BROKERS, size) for _ in asked.assignments]
            asked = topic(asked.name, *placed, min_insync_replicas=str(self._rng.randint(1, 3)))
        yield create(asked, validate_only=self._rng.random() < 0.1)

    def _grow(self, image: MetadataImage) -> Iterator[Step]:
        name = self._name()
        now = image.topics[name].partitions if name in image.topics else ()
        sizes = {len(partition.replicas) for partition in now} or {1}
        if len(sizes) > 1:
            return  # which one counts, Kafka leaves to the order of a hash table
        size = sizes.pop()
        yield grow(name, len(now) + 1, self._rng.sample(BROKERS, min(size, 5)))

    def _delete(self, image: MetadataImage) -> Iterator[Step]:
        if self._rng.random() < 0.3:
            yield delete(self._name(), self._name())

    def _configure(self, image: MetadataImage) -> Iterator[Step]:
        change = self._rng.choice(CHANGES)
        kind, name = self._rng.choice([(TOPIC, self._name()), (TOPIC, self._name()), (BROKER, ""), (BROKER, "101")])
        step = configure(kind, name, change)
        yield envelope(step) if self._rng.random() < 0.2 else step

    def _beat(self, image: MetadataImage) -> Iterator[Step]:
        draw, broker = self._rng.random(), self._rng.choice(BROKERS)
        if draw < 0.45:
            yield heartbeat(broker)
        elif draw < 0.75:
            yield heartbeat(broker, want_fence=True)
        elif draw < 0.85:
            yield heartbeat(broker, want_shut_down=True)
        elif draw < 0.9:
            yield heartbeat(broker, offset=self._rng.randrange(200))
        else:
            yield heartbeat(broker, cordoned_log_dirs=[directory(broker)])

    def _restart(self, image: MetadataImage) -> Iterator[Step]:
        broker = self._rng.choice(BROKERS)
        if self._rng.random() < 0.5:
            yield unregister(broker)
        yield self._registration(broker)
        yield heartbeat(broker)
        if self._rng.random() < 0.3:
            yield producer_ids(broker)

    def _registration(self, broker: int) -> Step:
        self._starts += 1
        homes = [directory(broker), directory(broker, 1)][: self._rng.randint(1, 2)]
        return register(broker, incarnation_id=incarnation(broker, self._starts % 8), log_dirs=homes)

    def _some_partition(self, image: MetadataImage) -> tuple[str, int] | None:
        known = [name for name in self._topics if name in image.topics]
        if not known:
            return None
        name = self._rng.choice(known)
        return name, self._rng.randrange(len(image.topics[name].partitions))

    def _isr(self, image: MetadataImage) -> Iterator[Step]:
        place = self._some_partition(image)
        if place is None:
            return
        name, number = place
        now = image.topics[name].partitions[number]
        if now.leader not in image.brokers.by_id:
            return
        others = [replica for replica in now.replicas if replica != now.leader]
        members = sorted([now.leader, *self._rng.sample(others, self._rng.randint(0, len(others)))])
        yield isr(
            name,
            members,
            by=now.leader,
            partition=number,
            leader_epoch=now.leader_epoch + (self._rng.random() < 0.05),
            partition_epoch=now.partition_epoch - (self._rng.random() < 0.05),
        )

    def _reassign(self, image: MetadataImage) -> Iterator[Step]:
        place = self._some_partition(image)
        if place is None:
            return
        name, number = place
        if image.topics[name].partitions[number].is_reassigning:
            yield reassignments((name, [number]))
            yield reassign(name, (number, None))
        elif self._rng.random() < 0.9:
            yield reassign(name, (number, self._replicas()))

    def _elect(self, image: MetadataImage) -> Iterator[Step]:
        yield elections(self._rng.choice([0, 0, 1]), (self._name(), [0, 1]))

    def _assign(self, image: MetadataImage) -> Iterator[Step]:
        broker = self._rng.choice(BROKERS)
        if broker in image.brokers.by_id:
            home = directory(broker, self._rng.randint(0, 2))
            yield assign(broker, home, (self._name(), 0), (self._name(), 1))
