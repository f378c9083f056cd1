"""The leader asks for another ISR: each reason to refuse it, in Kafka's order, and what an accepted change becomes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kraft.access.errors import ApiError
from kraft.config.data_settings import TopicDefaults
from kraft.controller.decision.broker_sessions import BrokerSessions
from kraft.controller.decision.request_context import RequestContext
from kraft.controller.decision.result import at_once
from kraft.controller.topics.isr import alter_partition
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

TOPIC = Uuid(b"t" * 16)
HOMES = {broker: Uuid(bytes([broker]) * 16) for broker in (1, 2, 3, 4, 5)}
CLUSTER: tuple[Message, ...] = (
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    *(
        RegisterBrokerRecord(broker_id=broker, broker_epoch=100 + broker, fenced=broker == 4, log_dirs=(home,))
        for broker, home in HOMES.items()
    ),
    BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=105, in_controlled_shutdown=1),
    TopicRecord(name="t", topic_id=TOPIC),
    PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(1, 2, 3, 4, 5),
        isr=(1, 2),
        leader=1,
        leader_epoch=7,
        partition_epoch=9,
        directories=tuple(HOMES.values()),
    ),
)


def image(*more: Message) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate((*CLUSTER, *more)):
        delta.replay(record, offset)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=len(CLUSTER) + len(more)))


def context(now: MetadataImage, version: int = 3) -> RequestContext:
    return RequestContext(
        image=now,
        committed=now,
        next_offset=now.end.offset,
        version=version,
        now_ms=0,
        rng=Random(0),
        cluster_id="c",
        defaults=TopicDefaults(),
        sessions=BrokerSessions(9000),
    )


def ask(
    now: MetadataImage, isr: list[tuple[int, int]], *, caller: int = 1, topic: Uuid = TOPIC, **fields: Any
) -> tuple[AlterPartitionResponsePartitionData, list[PartitionChangeRecord]]:
    facts: dict[str, Any] = {"leader_epoch": 7, "partition_epoch": 9} | fields
    members = [BrokerState(broker_id=broker, broker_epoch=epoch) for broker, epoch in isr]
    change = AlterPartitionRequestPartitionData(new_isr_with_epochs=members, **facts)
    asked = AlterPartitionRequestTopicData(topic_id=topic, partitions=[change])
    request = AlterPartitionRequest(broker_id=caller, broker_epoch=100 + caller, topics=[asked])
    result = at_once(alter_partition(context(now), request))
    assert isinstance(result.response, AlterPartitionResponse)
    records = [one.record for one in result.records if isinstance(one.record, PartitionChangeRecord)]
    assert len(records) == len(result.records)
    return result.response.topics[0].partitions[0], records


GOOD = [(1, 101), (2, 102), (3, 103)]

REFUSALS: dict[str, tuple[dict[str, Any], Error]] = {
    "unknown topic": ({"topic": Uuid(b"x" * 16)}, Error.UNKNOWN_TOPIC_ID),
    "unknown partition": ({"partition_index": 1}, Error.UNKNOWN_TOPIC_OR_PARTITION),
    "a leader epoch of the future": ({"leader_epoch": 8}, Error.NOT_CONTROLLER),
    "a partition epoch of the future": ({"partition_epoch": 10}, Error.NOT_CONTROLLER),
    "a leader epoch of the past": ({"leader_epoch": 6, "caller": 2}, Error.FENCED_LEADER_EPOCH),
    "another broker": ({"caller": 2}, Error.INVALID_REQUEST),
    "a partition epoch of the past": ({"partition_epoch": 8}, Error.INVALID_UPDATE_VERSION),
    "a member twice": ({"isr": [*GOOD, (3, 103)]}, Error.INVALID_REQUEST),
    "no replica": ({"isr": [*GOOD, (9, 109)]}, Error.INVALID_REQUEST),
    "without the leader": ({"isr": [(2, 102)]}, Error.INVALID_REQUEST),
    "recovering with followers": ({"leader_recovery_state": 1}, Error.INVALID_REQUEST),
    "recovering after it has recovered": ({"leader_recovery_state": 1, "isr": [(1, 101)]}, Error.INVALID_REQUEST),
    "a fenced member": ({"isr": [*GOOD, (4, 104)]}, Error.INELIGIBLE_REPLICA),
    "a member on its way out": ({"isr": [*GOOD, (5, 105)]}, Error.INELIGIBLE_REPLICA),
    "a former incarnation": ({"isr": [(1, 101), (2, 102), (3, 99)]}, Error.INELIGIBLE_REPLICA),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_changes_nothing(case: str) -> None:
    facts, error = REFUSALS[case]
    answer, records = ask(image(), **({"isr": GOOD} | facts))
    number = facts.get("partition_index", 0)
    assert answer == AlterPartitionResponsePartitionData(partition_index=number, error_code=error)
    assert not records


def test_a_request_with_a_stale_broker_epoch_is_refused_as_a_whole() -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=99)
    with pytest.raises(ApiError) as refused:
        at_once(alter_partition(context(image()), request))
    assert refused.value.error is Error.STALE_BROKER_EPOCH


def test_an_isr_change_writes_one_partition_change_record() -> None:
    answer, records = ask(image(), GOOD)
    assert records == [PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1, 2, 3))]
    assert (answer.leader_id, answer.leader_epoch, answer.isr, answer.partition_epoch) == (1, 7, [1, 2, 3], 10)


def test_an_epoch_that_the_leader_does_not_know_is_not_compared() -> None:
    answer, _ = ask(image(), [(1, -1), (2, -1), (3, -1)])
    assert answer.error_code == Error.NONE


def test_an_unchanged_isr_writes_no_record() -> None:
    answer, records = ask(image(), [(1, 101), (2, 102)])
    assert not records
    assert (answer.isr, answer.partition_epoch) == ([1, 2], 9)


def test_the_last_new_replica_completes_a_reassignment_away_from_the_leader() -> None:
    moving = PartitionChangeRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(2, 3, 1),
        removing_replicas=(1,),
        adding_replicas=(3,),
        directories=(HOMES[2], HOMES[3], HOMES[1]),
    )
    answer, records = ask(image(moving), GOOD, partition_epoch=10)
    assert answer == AlterPartitionResponsePartitionData(partition_index=0, error_code=Error.NEW_LEADER_ELECTED)
    assert [(one.leader, one.isr, one.replicas, one.removing_replicas) for one in records] == [(2, (2, 3), (2, 3), ())]


def test_leader_recovery_state_is_recorded_when_the_leader_has_recovered() -> None:
    unclean = PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1,), leader_recovery_state=1)
    _, records = ask(image(unclean), [(1, 101), (2, 102)], partition_epoch=10)
    assert records == [PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=(1, 2), leader_recovery_state=0)]
