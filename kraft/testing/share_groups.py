"""A share group of a live cluster: its members, what is left, and what became of each record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct

from kraft.admin import ResourceType
from kraft.admin.client import ConfigChange
from kraft.client import ConsumedRecord
from kraft.client.groups import GroupDescription
from kraft.client.questions import Questions
from kraft.client.share_groups import start_offsets
from kraft.config.group_settings import ShareLeaderConfig
from kraft.testing import looking
from kraft.testing.deliveries import Deliveries, End
from kraft.testing.expected import Given, difference, several
from kraft.testing.live import LOOK_SECONDS, LiveCluster
from metadata_log.image import MetadataImage
from metadata_log.image import ResourceType as ImageResource

SECONDS: Final = 10.0
LOCK: Final = "share.record.lock.duration.ms"
QUESTION_MS: Final = 10_000


class DeliveredRecord(Struct, frozen=True):
    """A record, and what became of it in a share group."""

    partition: int
    offset: int
    value: bytes | None
    count: int
    """How often it was handed to a member."""
    end: str | None
    """`accepted`, `released` or `rejected`, as the last member that had it has said; None if none has said anything."""


async def configure(cluster: LiveCluster, group: str, config: Mapping[str, str | int]) -> None:
    """Give a group settings, which every broker knows then."""
    changes = [
        ConfigChange(resource_type=ResourceType.GROUP, resource_name=group, key=key, value=str(value))
        for key, value in config.items()
    ]
    async with cluster.admin() as admin:
        await admin.alter_configs(changes)

    def knows(image: MetadataImage) -> bool:
        known = image.configs.of((ImageResource.GROUP, group))
        return all(known.get(one.key) == one.value for one in changes)

    await cluster.wait_until_known(knows)


def lock_seconds(cluster: LiveCluster, group: str, settings: Mapping[str, str]) -> float:
    """How long a lock of a group lasts."""
    own = cluster.image.configs.of((ImageResource.GROUP, group)).get(LOCK)
    default = settings.get(f"group.{LOCK}", str(ShareLeaderConfig().lock_duration_ms))
    return int(own or default) / 1000


async def lags(cluster: LiveCluster, group: str, topic: str) -> dict[int, int | None]:
    """How many records of each partition are left; None where no leader has written how far it is."""
    async with cluster.client() as client:
        offsets = await start_offsets(Questions(client, QUESTION_MS), group)
    return {number: one.lag for (name, number), one in offsets.items() if name == topic}


async def delivered(cluster: LiveCluster, group: str, topic: str) -> list[DeliveredRecord]:
    """Each record that a topic has now, and what became of it in the group; raises `ValueError` without the topic."""
    if topic not in cluster.image.topics:
        raise ValueError(f"there is no topic {topic!r}")
    records = await looking.read(cluster, topic, committed=False)
    known: Deliveries = cluster.wires.shares
    topic_id = cluster.image.topics[topic].id
    found: list[DeliveredRecord] = []
    for number in sorted({one.partition for one in records}):
        own = [one for one in records if one.partition == number]
        offsets = [one.offset for one in own]
        counts = known.counts(group, topic_id, number, offsets)
        ends = known.ends(group, topic_id, number, offsets)
        found += [_delivered(one, counts[one.offset], ends[one.offset]) for one in own]
    return found


def _delivered(record: ConsumedRecord, count: int, end: End | None) -> DeliveredRecord:
    return DeliveredRecord(
        record.partition, record.offset, record.value, count, None if end is None else end.name.lower()
    )


def told(topic: str, one: DeliveredRecord) -> str:
    """A line about one record."""
    times = {0: "never delivered", 1: "delivered once"}.get(one.count, f"delivered {one.count} times")
    return f"  {topic}-{one.partition}@{one.offset} {one.value!r}: {times}, {one.end or 'not acknowledged'}"


class ShareGroup:
    """A share group of a `Kafka`; see `Kafka.share_group`.

    Deliveries are what the brokers have answered to members, whichever client they use.
    """

    def __init__(
        self, name: str, cluster: LiveCluster, call: Callable[..., Any], expire_locks: Callable[[str], None]
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._call = call
        self._expire_locks = expire_locks

    def configure(self, config: Mapping[str, str | int]) -> None:
        """Give the group settings, such as `{"share.auto.offset.reset": "earliest"}`; every broker has them then."""
        self._call(configure, self._cluster, self.name, config)

    def describe(self) -> GroupDescription:
        """The group with its members; state `Dead` for one that does not exist."""
        described: GroupDescription = self._call(looking.described_group, self._cluster, self.name)
        return described

    def lag(self, topic: str) -> int | None:
        """How many records of a topic are left; None if nobody knows it, as before the first acknowledgement."""
        found: dict[int, int | None] = self._call(lags, self._cluster, self.name, topic)
        known = [one for one in found.values() if one is not None]
        return sum(known) if found and len(known) == len(found) else None

    def deliveries(self, topic: str) -> list[DeliveredRecord]:
        """Each record of a topic, how often it was delivered, and how that ended."""
        found: list[DeliveredRecord] = self._call(delivered, self._cluster, self.name, topic)
        return found

    def expire_locks(self) -> None:
        """Let the locks of all records end, by the clock of the nodes; see `Kafka.expire_locks`."""
        self._expire_locks(self.name)

    @contextmanager
    def assert_redelivered(
        self, topic: str, expected: Sequence[Given] | None = None, *, count: int = 1, seconds: float = SECONDS
    ) -> Iterator[None]:
        """Require that within the block records are delivered that members had before.

        Args:
            topic: The name of the topic.
            expected: The values of all such records, in any order; by default only their number matters.
            count: The least number of such records, where their values do not matter.
            seconds: How long to wait for them at the end of the block.
        """
        before = {(one.partition, one.offset): one.count for one in self.deliveries(topic)}
        yield
        wanted = count if expected is None else len(list(several(expected)))

        def again() -> list[DeliveredRecord]:
            return [
                one for one in self.deliveries(topic) if one.count > max(1, before.get((one.partition, one.offset), 0))
            ]

        found = self._waited(again, lambda some: len(some) >= wanted, seconds)
        lines = "" if expected is None else difference(expected, _records(found), in_order=False)
        if lines or len(found) < wanted:
            raise AssertionError(
                f"group {self.name} did not get the records of {topic} again that were expected"
                + (f" (- expected, + delivered again):\n{lines}" if lines else f": {len(found)}, and not {wanted}")
            )

    @contextmanager
    def assert_accepted(
        self, topic: str, expected: Sequence[Given] | None = None, *, seconds: float = SECONDS
    ) -> Iterator[None]:
        """Require that at the end of the block the group has accepted the records of a topic.

        Args:
            topic: The name of the topic.
            expected: The values of all accepted records, in any order; by default each record of the topic is to be.
            seconds: How long to wait for that.
        """
        several(expected or ())
        yield

        def is_done(some: list[DeliveredRecord]) -> bool:
            accepted = [one for one in some if one.end == "accepted"]
            if expected is None:
                return len(accepted) == len(some)
            return not difference(expected, _records(accepted), in_order=False)

        found = self._waited(lambda: self.deliveries(topic), is_done, seconds)
        if not is_done(found):
            lines = "\n".join(told(topic, one) for one in found if expected is not None or one.end != "accepted")
            raise AssertionError(f"group {self.name} has not accepted what it should of {topic}:\n{lines}")

    def _waited(
        self,
        look: Callable[[], list[DeliveredRecord]],
        is_enough: Callable[[list[DeliveredRecord]], bool],
        seconds: float,
    ) -> list[DeliveredRecord]:
        until = time.monotonic() + seconds
        while not is_enough(found := look()) and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        return found


def _records(found: Sequence[DeliveredRecord]) -> list[ConsumedRecord]:
    return [ConsumedRecord(one.partition, one.offset, -1, False, None, one.value, (), -1) for one in found]
