"""The topics of a topology: whether its sources exist and fit, and which internal topics it lacks (Kafka:
`InternalTopicManager`, `RepartitionTopics`, `CopartitionedTopicsEnforcer`, `ChangelogTopics`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeVar

from msgspec import Struct

from kraft.access.errors import ApiError
from kraft.coordinators.groups.consumer.hashing import in_java_order
from kraft.coordinators.groups.streams.group import required_topics, source_topics
from kraft.handling.orders import in_hash_map_order
from kraft.limits import STREAMS_PARTITIONS_PER_GROUP, STREAMS_TOPICS_PER_STEP
from metadata_log.image import MetadataImage
from metadata_log.records.consumer_offsets import (
    StreamsGroupTopologyValue,
    StreamsGroupTopologyValueTopicInfo,
    Subtopology,
)
from transport.protocol.errors import Error

_T = TypeVar("_T")
_MOST_NAMED: Final = 3
"""How many topics a text names."""


class Status(IntEnum):
    """The words to a member besides its tasks (Kafka: `StreamsGroupHeartbeatResponse.Status`)."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class InternalTopic(Struct, frozen=True, gc=False):
    """A topic that a topology keeps for itself."""

    name: str
    partitions: int
    replication_factor: int
    """0 for that of the broker."""
    configs: Mapping[str, str]


class ConfiguredSubtopology(Struct, frozen=True, gc=False):
    """A subtopology with the partitions of its topics."""

    tasks: int
    """How many tasks it has: the most partitions of a topic that it reads."""
    source_topics: tuple[str, ...]
    repartition_sinks: tuple[str, ...]
    repartition_sources: tuple[InternalTopic, ...]
    changelogs: tuple[InternalTopic, ...]

    @property
    def reads(self) -> list[str]:
        """The topics that its tasks read, in ascending order."""
        return in_java_order({*self.source_topics, *(one.name for one in self.repartition_sources)})


class Problem(Exception):
    """The topics are not as the topology needs them."""

    def __init__(self, status: Status, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Configured(Struct, frozen=True, gc=False):
    """A topology as far as its topics allow."""

    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """In ascending order of their ids; None where sources are missing, or do not fit."""
    lacking: tuple[InternalTopic, ...] = ()
    """The internal topics that do not exist, in ascending order."""
    status: Status | None = None
    """Why the topology does not run; None if it does."""
    text: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether the topology runs."""
        return self.status is None

    @property
    def partitions(self) -> int:
        """How many partitions the tasks read, at most."""
        if self.subtopologies is None:
            return 0
        return sum([one.tasks * max(1, len(one.reads)) for one in self.subtopologies.values()])


Count = Callable[[str], int | None]
"""The partitions of a topic; None if there is none."""


def configuring(topology: StreamsGroupTopologyValue, image: MetadataImage) -> Generator[None, None, Configured]:
    """Find how a topology runs on the topics that there are, in portions.

    Raises:
        ApiError: The topology is none that could run.
    """
    subtopologies = {one.subtopology_id: one for one in topology.subtopologies}
    ordered = [subtopologies[one] for one in in_hash_map_order(subtopologies)]
    try:
        together = {one.subtopology_id: _copartitioned(one) for one in ordered}
        _check_sources(ordered, image)
        yield None
        decided: dict[str, int] = {}

        def count(topic: str) -> int | None:
            known = image.topics.get(topic)
            return decided.get(topic) if known is None else len(known.partitions)

        decided |= _repartitions(ordered, count)
        yield None
        yield from _enforcing(ordered, together, decided, count)
        decided |= _changelogs(ordered, count)
        yield None
        configured = {one: _configured(subtopologies[one], decided, count) for one in in_java_order(subtopologies)}
        lacking = _lacking(topology, configured, image)
    except Problem as problem:
        return Configured(None, (), problem.status, problem.text)
    found = Configured(configured, lacking)
    if found.partitions > STREAMS_PARTITIONS_PER_GROUP:
        text = f"The tasks of a group read at most {STREAMS_PARTITIONS_PER_GROUP} partitions."
        raise ApiError(Error.STREAMS_INVALID_TOPOLOGY, text)
    if not lacking:
        return found
    text = f"Internal topics are missing: {_named([one.name for one in lacking])}"
    return Configured(configured, lacking, Status.MISSING_INTERNAL_TOPICS, text)


def _named(topics: Sequence[str]) -> str:
    rest = len(topics) - _MOST_NAMED
    return ", ".join(topics[:_MOST_NAMED]) + (f" and {rest} additional topics" if rest > 0 else "")


def _copartitioned(one: Subtopology) -> list[frozenset[str]]:
    """The groups of topics that need as many partitions as each other."""
    try:
        return [
            frozenset(
                (
                    *(_at(one.source_topics, number) for number in group.source_topics),
                    *(_at(one.repartition_source_topics, number).name for number in group.repartition_source_topics),
                )
            )
            for group in one.copartition_groups
        ]
    except IndexError:
        # Kafka's broker runs into an exception of Java there.
        text = f"Subtopology {one.subtopology_id} names a topic by a number that it does not have."
        raise ApiError(Error.UNKNOWN_SERVER_ERROR, text) from None


def _at(items: Sequence[_T], number: int) -> _T:
    if number < 0:
        raise IndexError(number)
    return items[number]


def _check_sources(subtopologies: Iterable[Subtopology], image: MetadataImage) -> None:
    missing = {name for one in subtopologies for name in one.source_topics if image.topics.get(name) is None}
    if missing:
        text = f"Source topics {_named(in_java_order(missing))} are missing."
        raise Problem(Status.MISSING_SOURCE_TOPICS, text)


def _invalid(text: str) -> ApiError:
    return ApiError(Error.STREAMS_INVALID_TOPOLOGY, text)


def _repartitions(subtopologies: Sequence[Subtopology], count: Count) -> dict[str, int]:
    """The partitions of repartition topics: those that the topology names, or as many as what is written there has."""
    counts = {
        topic.name: topic.partitions
        for one in subtopologies
        for topic in one.repartition_source_topics
        if topic.partitions
    }
    left = [one for one in subtopologies if any(sink not in counts for sink in one.repartition_sink_topics)]
    while left:
        waiting = [one for one in left if not _decide_sinks(one, counts, count)]
        if len(waiting) == len(left):
            text = "Failed to compute number of partitions for all repartition topics."
            raise _invalid(f"{text} There may be loops in the topology that cannot be resolved.")
        left = waiting
    if any(topic.name not in counts for one in subtopologies for topic in one.repartition_source_topics):
        text = "Failed to compute number of partitions for all repartition topics, because a repartition source topic"
        raise _invalid(f"{text} is never used as a sink topic.")
    return counts


def _decide_sinks(one: Subtopology, counts: dict[str, int], count: Count) -> bool:
    """Decide the partitions of the topics that a subtopology writes to; whether that was possible."""
    known = [counts[topic.name] for topic in one.repartition_source_topics if topic.name in counts]
    known += [number for topic in one.source_topics if (number := count(topic)) is not None]
    if not known:
        return False
    most = max(known)
    counts.update({sink: most for sink in one.repartition_sink_topics if sink not in counts})
    return True


def _enforcing(
    subtopologies: Iterable[Subtopology],
    together: Mapping[str, list[frozenset[str]]],
    decided: dict[str, int],
    count: Count,
) -> Generator[None, None, None]:
    """Give repartition topics as many partitions as the topics have that are joined with them, in portions."""
    topics = [topic for one in subtopologies for topic in one.repartition_source_topics]
    fixed = frozenset(topic.name for topic in topics if topic.partitions)
    flexible = frozenset(topic.name for topic in topics if not topic.partitions)
    looked_at = 0
    for one in subtopologies:
        for group in together[one.subtopology_id]:
            decided |= _enforced(group, fixed, flexible, count)
            looked_at += 1 + len(group)
            if looked_at >= STREAMS_TOPICS_PER_STEP:
                looked_at = 0
                yield None


def _enforced(group: frozenset[str], fixed: frozenset[str], flexible: frozenset[str], count: Count) -> dict[str, int]:
    if not group:
        return {}
    counts = {name: _counted(name, count) for name in in_java_order(group)}
    repartitioned = {name: number for name, number in counts.items() if name in fixed or name in flexible}
    others = {name: number for name, number in counts.items() if name not in repartitioned}
    if others:
        wanted = _equal(others, others)
    elif fixed:
        # As Kafka, which looks at all of these topics, whether they belong to the group or not.
        wanted = _equal({name: _counted(name, count) for name in in_java_order(fixed)}, repartitioned)
    else:
        wanted = max(repartitioned.values())
    for name, number in repartitioned.items():
        if name in fixed and number != wanted:
            text = f"Number of partitions [{number}] of repartition topic [{name}] doesn't match number of partitions"
            raise Problem(Status.INCORRECTLY_PARTITIONED_TOPICS, f"{text} [{wanted}] of the source topic.")
    return dict.fromkeys(repartitioned, wanted)


def _equal(counts: Mapping[str, int], told: Mapping[str, int]) -> int:
    """The partitions that all of these topics have."""
    wanted = next(iter(counts.values()))
    if any(number != wanted for number in counts.values()):
        listed = ", ".join(f"{name}={told[name]}" for name in in_java_order(told))
        text = f"Following topics do not have the same number of partitions: [{{{listed}}}]"
        raise Problem(Status.INCORRECTLY_PARTITIONED_TOPICS, text)
    return wanted


def _counted(topic: str, count: Count) -> int:
    number = count(topic)
    if number is None:
        raise ApiError(Error.UNKNOWN_SERVER_ERROR, f"Number of partitions is not set for topic: {topic}")
    return number


def _changelogs(subtopologies: Iterable[Subtopology], count: Count) -> dict[str, int]:
    """The partitions of changelogs: one for each task."""
    counts: dict[str, int] = {}
    for one in subtopologies:
        sources = [_counted(topic, count) for topic in source_topics(one)]
        if not sources:
            raise _invalid(f"No source topics found for subtopology {one.subtopology_id}")
        counts.update({topic.name: max(sources) for topic in one.state_changelog_topics})
    return counts


def _configured(one: Subtopology, decided: Mapping[str, int], count: Count) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        max(_counted(topic, count) for topic in source_topics(one)),
        tuple(one.source_topics),
        tuple(one.repartition_sink_topics),
        tuple(_internal(topic, decided) for topic in one.repartition_source_topics),
        tuple(_internal(topic, decided) for topic in one.state_changelog_topics),
    )


def _internal(topic: StreamsGroupTopologyValueTopicInfo, decided: Mapping[str, int]) -> InternalTopic:
    partitions = topic.partitions or decided[topic.name]
    if partitions < 1:
        raise ApiError(Error.UNKNOWN_SERVER_ERROR, "Number of partitions must be at least 1.")
    configs = {one.key: one.value for one in topic.topic_configs}
    return InternalTopic(topic.name, partitions, topic.replication_factor, configs)


def _lacking(
    topology: StreamsGroupTopologyValue, configured: Mapping[str, ConfiguredSubtopology], image: MetadataImage
) -> tuple[InternalTopic, ...]:
    """The internal topics that do not exist; those that exist must have the partitions that are needed."""
    wanted = {topic.name: topic for one in configured.values() for topic in (*one.repartition_sources, *one.changelogs)}
    for name in required_topics(topology):
        known = image.topics.get(name)
        expected = None if known is None else wanted.pop(name, None)
        if known is not None and expected is not None and len(known.partitions) != expected.partitions:
            text = f"Existing topic {name} has different number of partitions: expected {expected.partitions}, found"
            raise Problem(Status.INCORRECTLY_PARTITIONED_TOPICS, f"{text} {len(known.partitions)}")
    return tuple(wanted[name] for name in in_java_order(wanted))
