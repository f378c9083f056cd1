"""Logs with a last record that contradicts the records before, and whether Kafka 4.3.1 survives a start on them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from metadata_log.records import metadata as records
from metadata_log.serde import Message
from metadata_log.types import Uuid

A, B = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))
DIRECTORY = Uuid(bytes([9] * 16))


class Fault(Struct, frozen=True):
    """`words` are of our error; `kafka_dies` whether the process of Kafka's controller ended."""

    log: list[Message]
    words: str
    kafka_dies: bool = True


def change(**fields: Any) -> records.PartitionChangeRecord:
    return records.PartitionChangeRecord(partition_id=0, topic_id=A, **fields)


def topic(name: str, topic_id: Uuid = A) -> records.TopicRecord:
    return records.TopicRecord(name=name, topic_id=topic_id)


def partition(number: int, topic_id: Uuid = A, **fields: Any) -> records.PartitionRecord:
    given_fields: dict[str, Any] = {"replicas": (1, 2), "isr": (1,), "leader": 1, **fields}
    return records.PartitionRecord(partition_id=number, topic_id=topic_id, **given_fields)


BROKER = records.RegisterBrokerRecord(broker_id=1, broker_epoch=5, log_dirs=(DIRECTORY,))
ACL = records.AccessControlEntryRecord(id=A)

FAULTS: list[Fault] = [
    Fault([partition(0)], "no topic has the id AQEBAQEBAQEBAQEBAQEBAQ"),
    Fault([change()], "no topic has the id"),
    Fault([records.RemoveTopicRecord(topic_id=A)], "no topic has the id"),
    Fault([records.ClearElrRecord(topic_name="a")], "no topic has the name a"),
    Fault([topic("a"), change()], "has no partition 0"),
    Fault([topic("a"), partition(-1)], "-1 is no partition number", kafka_dies=False),
    Fault([topic("a"), topic("a", B)], "topic a exists already"),
    Fault([topic("a"), topic("b")], "is that of another topic", kafka_dies=False),
    Fault([topic("a"), records.RemoveTopicRecord(topic_id=A), partition(0)], "no topic has the id"),
    Fault([topic("a"), partition(0, directories=(DIRECTORY,))], "2 replicas and 1 log directories"),
    Fault([topic("a"), partition(0, leader_recovery_state=2)], "2 is no leader recovery state"),
    Fault([topic("a"), partition(0), change(leader_recovery_state=3)], "3 is no leader recovery state"),
    Fault([topic("a"), partition(0, directories=(DIRECTORY,) * 2), change(replicas=(1,))], "1 replicas and 2 log"),
    Fault([records.UnregisterBrokerRecord(broker_id=1)], "broker 1 is not registered"),
    Fault([BROKER, records.UnregisterBrokerRecord(broker_id=1, broker_epoch=4)], "with epoch 5, not 4"),
    Fault([BROKER, records.FenceBrokerRecord(id=1, epoch=4)], "with epoch 5, not 4"),
    Fault([records.UnfenceBrokerRecord(id=1)], "broker 1 is not registered"),
    Fault([records.BrokerRegistrationChangeRecord(broker_id=1)], "broker 1 is not registered"),
    Fault(
        [BROKER, records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=2)], "2 is no fencing state"
    ),
    Fault(
        [BROKER, records.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, in_controlled_shutdown=-1)],
        "-1 is no shutdown state",
    ),
    Fault([BROKER, records.RegisterBrokerRecord(broker_id=2, log_dirs=(DIRECTORY,))], "belongs to broker 1"),
    Fault([records.RemoveAccessControlEntryRecord(id=A)], "no access control entry"),
    Fault([ACL, records.RemoveAccessControlEntryRecord(id=B)], "no access control entry"),
    Fault([records.RemoveUserScramCredentialRecord(name="u", mechanism=1)], "has no credential of mechanism 1"),
    Fault([records.DelegationTokenRecord(owner="untyped", requester="User:u")], "'untyped', which is no principal"),
    Fault([records.ProducerIdsRecord(next_producer_id=5)] * 2, "5 is not above the current one, 5"),
    Fault([records.ConfigRecord(resource_type=4, resource_name="x", name="k", value="v")], "'x' is no id of a broker"),
]
