"""The content of topics and groups of a live cluster, as a client sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import trio

from kraft.client import ConsumedRecord, ConsumerSettings, Isolation
from kraft.client.groups import LATEST, GroupDescription, committed_offsets, describe_group, list_offsets
from kraft.client.questions import Questions
from kraft.testing.expected import Lags, behind
from kraft.testing.live import LOOK_SECONDS, LiveCluster

_QUESTION_MS = 10_000


async def read(cluster: LiveCluster, topic: str, committed: bool) -> list[ConsumedRecord]:
    """The records of a topic, from its beginning to its present end."""
    settings = ConsumerSettings(isolation=Isolation(committed))
    async with cluster.client() as client, client.consumer(topic, settings) as consumer:
        return [record async for record in consumer]


async def follow(
    cluster: LiveCluster,
    topic: str,
    committed: bool,
    *,
    count: int,
    seconds: float,
    counts: Callable[[ConsumedRecord], bool] = lambda _: True,
) -> list[ConsumedRecord]:
    """The records of a topic from its beginning, until so many of them count or the time is over."""
    records: list[ConsumedRecord] = []
    settings = ConsumerSettings(follows=True, isolation=Isolation(committed))
    async with cluster.client() as client, client.consumer(topic, settings) as consumer:
        with trio.move_on_after(seconds):
            while len(records) < count and (some := await consumer.batch()):
                records += [one for one in some if counts(one)]
    return records


async def ends(cluster: LiveCluster, topic: str) -> dict[int, int]:
    """The end of each partition; empty for a topic that does not exist."""
    async with cluster.client() as client:
        ask = Questions(client, _QUESTION_MS)
        view = (await ask.cluster((topic,))).topics.get(topic)
        if view is None:
            return {}
        offsets = await list_offsets(ask, {(topic, one): LATEST for one in view.partitions})
        return {number: offset for (_, number), (_, offset) in offsets.items()}


async def written_since(
    cluster: LiveCluster,
    topic: str,
    starts: Mapping[int, int],
    *,
    committed: bool,
    count: int,
    seconds: float,
) -> list[ConsumedRecord]:
    """The records after these offsets, once there are so many or the time is over; more if there are more."""

    def is_new(record: ConsumedRecord) -> bool:
        return record.offset >= starts.get(record.partition, 0)

    until = trio.current_time() + seconds
    while topic not in cluster.image.topics:
        if not count or trio.current_time() >= until:
            return []
        await trio.sleep(LOOK_SECONDS)
    if count:
        left = max(0.0, until - trio.current_time())
        await follow(cluster, topic, committed, count=count, seconds=left, counts=is_new)
    return [one for one in await read(cluster, topic, committed) if is_new(one)]


async def described_group(cluster: LiveCluster, group: str) -> GroupDescription:
    """A group with its members."""
    async with cluster.client() as client:
        return await describe_group(Questions(client, _QUESTION_MS), group)


async def lags(cluster: LiveCluster, group: str, topic: str, *, seconds: float) -> Lags:
    """How far a group is in each partition with records, once it is at the end of all or the time is over."""
    until = trio.current_time() + seconds
    while True:
        current = await _lags(cluster, group, topic)
        if not behind(topic, current) or trio.current_time() >= until:
            return current
        await trio.sleep(LOOK_SECONDS)


async def _lags(cluster: LiveCluster, group: str, topic: str) -> Lags:
    at_end = await ends(cluster, topic)
    async with cluster.client() as client:
        ask = Questions(client, _QUESTION_MS)
        known = await committed_offsets(ask, group, await ask.cluster())
    committed = {number: one.offset for (name, number), one in known.items() if name == topic}
    numbers = [number for number, end in sorted(at_end.items()) if end or number in committed]
    return {number: (committed.get(number), at_end[number]) for number in numbers}
