"""Stories drawn at random: each step makes sense often enough in the state that the steps before have left.

Not drawn is what would show known differences: min.insync.replicas is not changed, as Kafka goes on to look at
partitions that were cleared of eligible replicas, and may write a change for them; a reassignment is cancelled before
the next; no directory goes offline, which may make Kafka's controller fail once a topic was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from msgspec import structs

from metadata_log.errors import EncodeError
from metadata_log.image import MetadataImage, Partition
from metadata_log.serde import Message, encode, schema_of
from support.differential.controller_admin_draws import AdminDraw
from support.differential.controller_sides import PLACED, Side, directory, incarnation
from support.differential.controller_stories import (
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
    delete_by,
    elections,
    envelope,
    grow,
    heartbeat,
    isr,
    newest,
    producer_ids,
    reassign,
    reassignments,
    register,
    topic,
    unregister,
)
from transport.protocol import messages as m
from transport.protocol.apis import APIS, ApiKey

DEFAULT_RUN: Final = (4, 30)
"""The seed and the number of sequences of every run of the tests: they reach each API that writes."""
STEPS: Final = 100
"""In each sequence, not counting what brings the brokers back."""
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

    def __init__(self, rng: Random, name: str, side: Side, image: Callable[[], MetadataImage]) -> None:
        """`side` is one of those that are told the steps, and `image` what they have left there."""
        self._rng = rng
        self._side = side
        self._image = image
        self._topics = [f"{name}-{number}" for number in range(3)]
        self._placed = f"{PLACED}-{name}"
        self._admin = AdminDraw(rng, name, self._topics, self._said)
        self._starts = 0

    def sequence(self, count: int) -> Iterator[Step]:
        """Bring every broker back, and then draw so often."""
        for broker in BROKERS:
            if broker not in self._image().brokers.by_id:
                yield self._registration(broker)
            yield heartbeat(broker)
        for _ in range(count):
            for step in self._draw(self._image()):
                yield self._sent(step)
            yield from self._cleared()

    def _cleared(self) -> Iterator[Step]:
        """Delete topics on which Kafka's controller fails: a partition's last known leader is no replica any more."""
        image = self._image()
        for name in self._topics:
            partitions = image.topics[name].partitions if name in image.topics else ()
            if any(not set(one.last_known_elr) <= set(one.replicas) for one in partitions):
                yield delete(name)

    def _sent(self, step: Step) -> Step:
        """The same in some version, and now and then through a broker."""
        step = self._said(step)
        api_key = schema_of(type(step[0](self._side))).api_key
        assert api_key is not None
        return envelope(step) if APIS[ApiKey(api_key)].forwardable and self._rng.random() < 0.15 else step

    def _said(self, step: Step) -> Step:
        """The same in some version that can say it."""
        build, version = step
        request = build(self._side)
        drawn = highest = newest(request, version)
        if self._rng.random() < 0.5:
            drawn = self._rng.randint(schema_of(type(request)).versions.lowest, highest)
        version = drawn if _can_say(request, drawn) else highest
        return (lambda side: as_said_in(build(side), version)), version

    def _draw(self, image: MetadataImage) -> Iterator[Step]:
        kinds: tuple[tuple[int, Callable[[MetadataImage], Iterator[Step]]], ...] = (
            (4, self._create),
            (2, self._grow),
            (1, self._delete),
            (4, self._configure),
            (6, self._beat),
            (2, self._restart),
            (6, self._isr),
            (3, self._reassign),
            (3, self._elect),
            (1, self._assign),
            (1, self._place),
            (10, lambda image: self._admin.some(image, len(self._side.tokens))),
            (7, lambda image: iter((self._rng.choice(self._mistakes(image)),))),
            (2, self._isr_mistake),
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
        yield grow(
            name,
            len(now) + 1,
            self._rng.sample(BROKERS, min(size, 5)),
            validate_only=self._rng.random() < 0.1,
        )

    def _delete(self, image: MetadataImage) -> Iterator[Step]:
        draw = self._rng.random()
        if draw < 0.2:
            yield delete(self._name(), self._name())
        elif draw < 0.4:
            yield delete_by((None, self._name()), (self._name(), None))

    def _configure(self, image: MetadataImage) -> Iterator[Step]:
        change = self._rng.choice(CHANGES)
        kind, name = self._rng.choice([(TOPIC, self._name()), (TOPIC, self._name()), (BROKER, ""), (BROKER, "101")])
        yield configure(kind, name, change)

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

    def _some_led_partition(self, image: MetadataImage) -> tuple[str, int, Partition] | None:
        place = self._some_partition(image)
        if place is None:
            return None
        name, number = place
        now = image.topics[name].partitions[number]
        return (name, number, now) if now.leader in image.brokers.by_id else None

    def _isr(self, image: MetadataImage) -> Iterator[Step]:
        found = self._some_led_partition(image)
        if found is None:
            return
        name, number, now = found
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
        now = image.topics[name].partitions[number]
        if now.is_reassigning:
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

    def _place(self, image: MetadataImage) -> Iterator[Step]:
        """Where the replicas come to lie differs, so that nothing else is done with the topic.

        Chance decides whether it can be created, while a broker that is on its way out may be taken for one that stays.
        """
        if any(broker.in_controlled_shutdown and not broker.fenced for broker in image.brokers.by_id.values()):
            return
        count, factor = self._rng.randint(-1, 4), self._rng.randint(-1, 4)
        yield create(topic(self._placed, count=count, factor=factor))
        yield delete(self._placed)

    def _mistakes(self, image: MetadataImage) -> list[Step]:
        """Requests that a controller refuses in any state; a few of them only in some states."""
        name, other, broker = self._name(), self._name(), self._rng.choice(BROKERS)
        led = self._some_partition(image)
        steps = [
            create(topic("what is this", count=1, factor=1)),
            create(topic(name, count=0, factor=1), topic(f"{name}-0", count=1, factor=0)),
            create(topic(f"{name}-0", [UNKNOWN]), topic(f"{name}-1", [broker, broker])),
            create(topic(f"{name}-0", [broker], nonsense="1"), topic(f"{name}-1", [broker], retention_ms="soon")),
            create(topic(f"{name}-0", [broker]), topic(f"{name}-0", [broker])),
            create(topic(f"{name}-0", [broker], count=1)),
            create(topic(f"{name}-0", count=10_001, factor=1)),
            create(topic(f"{name}-0", count=1, factor=9)),
            create(topic(name.replace("-", "_", 1), [broker]), topic(name.replace("-", ".", 1), [broker])),
            grow(name, 9, twice=True),
            grow(name, 2, [broker], [UNKNOWN]),
            grow("unknown-topic", 3),
            grow(name, 1),
            delete("unknown-topic", name + "x"),
            delete_by((None, ""), (name, other), ("unknown-topic", None)),
            configure(TOPIC, name, ("retention.ms", APPEND, "1"), twice=self._rng.random() < 0.3),
            configure(77, name, ("retention.ms", SET, "1")),
            elections(9, (name, [0])),
            elections(self._rng.randint(0, 1), (name, [77]), ("unknown-topic", [0])),
            reassign("unknown-topic", (0, [broker])),
            reassign(name, (0, [broker, broker]), (77, [broker])),
            reassign(name, (0, [UNKNOWN]), (77, None)),
            register(broker, cluster_id="another"),
            register(broker, incarnation_id=incarnation(broker, 9)),
            register(UNKNOWN, is_migrating_zk_broker=True),
            register(UNKNOWN, log_dirs=[]),
            register(UNKNOWN, features=[]),
            heartbeat(broker, epoch=1),
            heartbeat(UNKNOWN, epoch=1),
            unregister(UNKNOWN),
            producer_ids(broker, 1),
            isr("unknown-topic", [broker], by=broker),
            isr(name, [broker], by=broker, broker_epoch=1),
            isr(name, [broker], by=broker, partition=77),
            assign(broker, directory(broker), ("unknown-topic", 0), (name, 77)),
            assign(broker, directory(broker), (name, 0), epoch=1),
            envelope(heartbeat(broker)),
            envelope(delete(name), principal=None),
            envelope(delete(name), address=b"12345"),
            envelope(delete(name), cut=5),
        ]
        if led is not None and not image.topics[led[0]].partitions[led[1]].is_reassigning:
            size = len(image.topics[led[0]].partitions[led[1]].replicas)
            more = self._rng.sample(BROKERS, size % len(BROKERS) + 1)
            steps += [
                reassign(led[0], (led[1], None)),
                reassign(led[0], (led[1], more), allow_replication_factor_change=False),
            ]
        return steps

    def _isr_mistake(self, image: MetadataImage) -> Iterator[Step]:
        found = self._some_led_partition(image)
        if found is None:
            return
        name, number, now = found

        def change(members: Sequence[int], **others: int) -> Step:
            epochs = {"leader_epoch": now.leader_epoch, "partition_epoch": now.partition_epoch}
            return isr(name, members, **{"by": now.leader, "partition": number, **epochs, **others})

        yield self._rng.choice(
            [
                change([now.leader], leader_epoch=now.leader_epoch + 1),
                change([now.leader], leader_epoch=now.leader_epoch - 1),
                change([now.leader], partition_epoch=now.partition_epoch + 1),
                change([now.leader], partition_epoch=now.partition_epoch - 1),
                change([now.leader, now.leader]),
                change([]),
                change([now.leader], recovery=1),
                change(now.replicas, member_epoch=1),
            ]
        )


def _can_say(request: Message, version: int) -> bool:
    try:
        encode(as_said_in(request, version), version)
    except EncodeError:
        return False
    return True


def as_said_in(request: Message, version: int) -> Message:
    """The same in the words of an older version, where those were others."""
    match request:
        case m.AlterPartitionRequest() if version == 2:
            return structs.replace(
                request,
                topics=[
                    structs.replace(
                        one,
                        partitions=[
                            structs.replace(
                                asked,
                                new_isr=[member.broker_id for member in asked.new_isr_with_epochs],
                                new_isr_with_epochs=[],
                            )
                            for asked in one.partitions
                        ],
                    )
                    for one in request.topics
                ],
            )
        case m.BrokerHeartbeatRequest() if version < 2:
            return structs.replace(request, cordoned_log_dirs=None)
        case m.UpdateFeaturesRequest() if version == 0:
            updates = [structs.replace(one, upgrade_type=1) for one in request.feature_updates if one.upgrade_type < 4]
            return structs.replace(request, feature_updates=updates)
        case _:
            return request
