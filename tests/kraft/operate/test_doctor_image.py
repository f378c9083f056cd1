"""Checks of the metadata: each condition from records, and the sound state beside it."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.operate.doctor.diagnose import diagnose
from kraft.operate.doctor.facts.finding import Finding
from kraft.operate.doctor.facts.log_facts import ImageFacts, Moment
from kraft.operate.doctor.facts.node import Facts
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records.metadata import (
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from metadata_log.serde import Message
from metadata_log.types import OffsetAndEpoch, Uuid

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
TOPIC = Uuid(bytes(15) + b"\x09")


def broker(number: int, *, fenced: bool = False, highest: int = 30) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=number,
        incarnation_id=Uuid(bytes(15) + bytes([number])),
        broker_epoch=number,
        fenced=fenced,
        features=(BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=highest),),
        log_dirs=(Uuid(bytes(14) + bytes([1, number])),),
    )


def partition(number: int = 0, **fields: Any) -> PartitionRecord:
    usual: dict[str, Any] = {"replicas": (1, 2, 3), "isr": (1, 2, 3), "leader": 1}
    usual |= fields
    directories = tuple(Uuid(bytes(14) + bytes([1, one])) for one in usual["replicas"])
    return PartitionRecord(topic_id=TOPIC, partition_id=number, directories=directories, **usual)


def level(value: int = 30) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="metadata.version", feature_level=value)


BROKERS = (broker(1), broker(2), broker(3))
SOUND: tuple[Message, ...] = (
    level(),
    FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
    *BROKERS,
    TopicRecord(name="orders", topic_id=TOPIC),
    partition(),
)


def findings(*records: Message, **more: Any) -> dict[str, Finding]:
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(records):
        delta.replay(record, offset)
    image = delta.apply(OffsetAndEpoch(epoch=1, offset=len(records)))
    facts = Facts(image=ImageFacts(where="log", image=image, end_ms=NOW_MS, **more))
    return {one.id: one for one in diagnose(facts).findings}


def test_a_sound_cluster_has_no_finding() -> None:
    assert findings(*SOUND) == {}


def test_a_fenced_broker_is_named_with_the_time() -> None:
    found = findings(*SOUND, broker(4, fenced=True), fenced_since={4: Moment(NOW_MS - 1000, 7)})
    assert found.keys() == {"broker-fenced"}
    assert found["broker-fenced"].evidence == (
        "broker 4 is fenced since 2027-01-15T07:59:59.000Z; the log ends at 2027-01-15T08:00:00.000Z"
    )


@pytest.mark.parametrize(("days", "is_found"), [(8, True), (6, False)])
def test_a_broker_that_never_returned_is_named_after_seven_days(days: int, is_found: bool) -> None:
    records = [*SOUND[:2], broker(1), broker(2), broker(3, fenced=True), *SOUND[5:6], partition(isr=(1, 2))]
    found = findings(*records, fenced_since={3: Moment(NOW_MS - days * DAY_MS, 4)})
    assert ("broker-never-returned" in found) is is_found
    assert found["under-replicated"].subjects == ("orders-0",)


def test_a_partition_without_a_leader_names_the_candidates() -> None:
    found = findings(*SOUND[:-1], partition(isr=(2,), leader=-1))
    assert found["offline-partitions"].evidence == "1 partition without a leader: orders-0 (isr [2], elr [])"
    assert found["offline-partitions"].remedy == (
        "Start broker 2. The last resort loses records: kraft elect unclean --topic-partition orders:0"
    )


def test_the_effective_min_insync_replicas_counts() -> None:
    of_topic = ConfigRecord(resource_type=2, resource_name="orders", name="min.insync.replicas", value="2")
    of_all = ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2")
    few = partition(isr=(1,))
    assert "under-min-isr" not in findings(*SOUND[:-1], few)
    for config in (of_topic, of_all):
        assert findings(*SOUND[:-1], few, config)["under-min-isr"].subjects == ("orders-0",)
    one = ConfigRecord(resource_type=2, resource_name="orders", name="min.insync.replicas", value="1")
    assert "under-min-isr" not in findings(*SOUND[:-1], few, of_all, one)


def test_more_required_replicas_than_there_are_is_an_error_of_the_topic() -> None:
    config = ConfigRecord(resource_type=2, resource_name="orders", name="min.insync.replicas", value="4")
    found = findings(*SOUND, config)
    assert found.keys() == {"min-isr-over-rf"}
    assert found["min-isr-over-rf"].evidence == "topic orders has min.insync.replicas 4 and replication factor 3"


def test_a_reassignment_explains_missing_replicas_until_it_is_stuck() -> None:
    moving = partition(isr=(1, 2), adding_replicas=(3,))
    assert findings(*SOUND[:-1], moving).keys() == set()
    stuck = {(TOPIC, 0): Moment(NOW_MS - 2 * 3_600_000, 5)}
    assert findings(*SOUND[:-1], moving, changed=stuck).keys() == {"reassignment-stuck"}


def test_a_leader_that_recovers_for_long_is_named() -> None:
    recovering = partition(leader_recovery_state=1)
    assert findings(*SOUND[:-1], recovering).keys() == set()
    long_ago = {(TOPIC, 0): Moment(NOW_MS - 3_600_000, 5)}
    assert findings(*SOUND[:-1], recovering, changed=long_ago).keys() == {"recovering-leader"}


def test_single_replicas_are_named_with_three_brokers() -> None:
    alone = partition(replicas=(1,), isr=(1,))
    assert findings(*SOUND[:-1], alone)["rf-one"].subjects == ("orders",)
    two = [SOUND[0], SOUND[1], broker(1), broker(2), *SOUND[5:6], alone]
    assert "rf-one" not in findings(*two)


def test_uneven_leaders_are_a_note() -> None:
    many = [partition(number, replicas=(2, 1, 3), leader=1) for number in range(9)]
    found = findings(*SOUND[:-1], *many)
    assert found["leader-skew"].evidence == (
        "9 of 9 partitions are not led by their preferred replica; the mean is 3 leaders, and broker 1 leads 9"
    )


@pytest.mark.parametrize(
    ("resource", "told"),
    [((2, "orders"), "topic orders"), ((4, ""), "all brokers"), ((4, "2"), "broker 2")],
)
def test_unclean_elections_are_named_on_each_level(resource: tuple[int, str], told: str) -> None:
    config = ConfigRecord(
        resource_type=resource[0], resource_name=resource[1], name="unclean.leader.election.enable", value="true"
    )
    assert findings(*SOUND, config)["unclean-enabled"].evidence == f"unclean.leader.election.enable is true for {told}"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("cleanup.policy", "compact,delete", "only delete keeps all updates of each share partition"),
        ("retention.ms", "604800000", "the state of each share partition that changes rarely is deleted"),
    ],
)
def test_the_topic_of_share_coordinators_is_deleted_by_them_alone(name: str, value: str, told: str) -> None:
    topic = "__share_group_state"
    states = (
        TopicRecord(name=topic, topic_id=Uuid(bytes(15) + b"\x08")),
        ConfigRecord(resource_type=2, resource_name=topic, name="cleanup.policy", value="delete"),
        ConfigRecord(resource_type=2, resource_name=topic, name="retention.ms", value="-1"),
    )
    assert "internal-cleanup" not in findings(*SOUND, *states)
    changed = ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)
    found = findings(*SOUND, *states, changed)["internal-cleanup"]
    assert found.evidence == f"topic {topic} has {name} {value}, and {told}"
    assert found.remedy.startswith(f"kraft configs set topic {topic} {name}=")
    unset = ConfigRecord(resource_type=2, resource_name=topic, name="retention.ms", value=None)
    assert "has retention.ms of other topics" in findings(*SOUND, *states, unset)["internal-cleanup"].evidence


def test_eligible_leader_replicas_should_be_on() -> None:
    without = [SOUND[0], *SOUND[2:]]
    assert findings(*without)["elr-state"].severity == "warn"
    old = [level(21), *(broker(number, highest=21) for number in (1, 2, 3)), *SOUND[5:]]
    assert "elr-state" not in findings(*old)
    config = ConfigRecord(resource_type=4, resource_name="2", name="min.insync.replicas", value="2")
    assert findings(*SOUND, config)["elr-state"].severity == "info"


def test_a_level_outside_of_a_nodes_range_is_fatal() -> None:
    found = findings(*SOUND, broker(4, highest=25))
    assert found["mv-vs-software"].severity == "fatal"
    assert found["mv-vs-software"].evidence == "metadata.version is 30; broker 4 supports 7-25"


def test_a_level_that_all_nodes_could_raise_is_a_note() -> None:
    found = findings(level(21), *SOUND[1:])
    assert found["mv-vs-software"].severity == "info"
    assert found["mv-vs-software"].remedy == "kraft features upgrade --release-version 4.3"


def test_an_open_transaction_is_named() -> None:
    found = findings(*SOUND, open_transaction=Moment(NOW_MS, 5))
    assert found["open-transaction"].evidence == "a transaction begins at offset 5 and does not end before 7"
