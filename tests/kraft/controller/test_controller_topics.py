"""The records of requests about topics: their order, limits, reassignments, and where replicas are placed."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.access.errors import ApiError
from kraft.config.data_settings import TopicDefaults
from kraft.controller.topics.placement import UsableBroker, place
from metadata_log.records.metadata import ClearElrRecord, ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from support.differential.controller_cluster import Cluster
from support.differential.controller_sides import directory
from support.differential.controller_stories import BROKER, SET, TOPIC, A, B, configure, create, delete, grow, topic
from transport.protocol.errors import Error


def test_a_topic_is_written_with_its_configs_before_its_partitions() -> None:
    cluster = Cluster(A, B)
    written = cluster.records(create(topic("t", [A, B], [B, A], retention_ms="1000", min_insync_replicas="2")))
    assert [type(record) for record in written] == [
        TopicRecord,
        ConfigRecord,
        ConfigRecord,
        ClearElrRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    assert written[-1] == PartitionRecord(
        partition_id=1,
        topic_id=cluster.side.topics["t"],
        replicas=(B, A),
        isr=(B, A),
        leader=B,
        leader_epoch=0,
        partition_epoch=0,
        directories=(directory(B), directory(A)),
    )
    assert cluster.records(create(topic("u", [A]), validate_only=True)) == []
    assert cluster.records(delete("t")) == [RemoveTopicRecord(topic_id=cluster.side.topics["t"])]


def test_the_record_limit_is_checked_before_the_partition_limit() -> None:
    cluster = Cluster(A)
    refused = cluster.do(create(topic("t", count=10_000, factor=1)))
    assert [one["error_code"] for one in refused["topics"]] == [44]
    made = cluster.do(create(topic("t", count=9_999, factor=1)))
    assert [one["error_code"] for one in made["topics"]] == [0]
    before = len(cluster.controller.batches)
    refused = cluster.do(grow("t", 20_000))
    assert [one["error_code"] for one in refused["results"]] == [44]
    assert cluster.since(before) == []


def test_broker_configs_are_written_although_unchanged() -> None:
    cluster = Cluster(A)
    cluster.do(create(topic("t", [A])))
    for kind, name, count in ((TOPIC, "t", 0), (BROKER, "", 1), (BROKER, "101", 1)):
        step = configure(kind, name, ("unclean.leader.election.enable", SET, "true"))
        cluster.do(step)
        assert len(cluster.records(step)) == count
    cluster_wide = configure(BROKER, "", ("min.insync.replicas", SET, "2"))
    assert cluster.records(cluster_wide)[-1] == ClearElrRecord(topic_name="")


def test_a_controller_that_deletes_no_topics_says_so_to_clients_that_know_the_error() -> None:
    """Kafka: `delete.topic.enable`, `ControllerApis.deleteTopics`."""
    cluster = Cluster(A, topics=TopicDefaults(deletes_topics=False))
    cluster.do(create(topic("t", [A])))
    build, version = delete("t")
    assert version == 5
    for at, error in (
        (5, Error.TOPIC_DELETION_DISABLED),
        (3, Error.TOPIC_DELETION_DISABLED),
        (2, Error.INVALID_REQUEST),
    ):
        (outcome,) = cluster.do((build, at))["responses"]
        assert (outcome["name"], outcome["error_code"]) == ("t", error)
    assert cluster.records(delete("t")) == []


# New replicas are spread over racks and brokers, whatever the brokers and the seed.


BROKERS = st.lists(st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9).map(
    lambda facts: [UsableBroker(number, rack, fenced) for number, (rack, fenced) in enumerate(facts)]
)


@given(brokers=BROKERS, count=st.integers(1, 40), seed=st.integers(0, 2**32), data=st.data())
def test_every_placement_uses_distinct_brokers_and_all_racks(
    brokers: list[UsableBroker], count: int, seed: int, data: st.DataObject
) -> None:
    unfenced = [broker.id for broker in brokers if not broker.fenced]
    factor = data.draw(st.integers(1, len(brokers)))
    if not unfenced:
        with pytest.raises(ApiError) as refused:
            place(brokers, count, factor, Random(seed))
        assert refused.value.error is Error.INVALID_REPLICATION_FACTOR
        return
    placements = place(brokers, count, factor, Random(seed))
    assert placements == place(list(brokers), count, factor, Random(seed)), "the random source decides alone"
    rack_of = {broker.id: broker.rack for broker in brokers}
    assert len(placements) == count
    for replicas in placements:
        assert len(replicas) == len(set(replicas)) == factor
        assert replicas[0] in unfenced
        assert len({rack_of[broker] for broker in replicas}) == min(factor, len(set(rack_of.values())))


@pytest.mark.parametrize("seed", range(5))
def test_leaders_go_round(seed: int) -> None:
    brokers = [UsableBroker(number, f"rack-{number % 3}", fenced=False) for number in range(6)]
    leaders = Counter(replicas[0] for replicas in place(brokers, 6 * 10, 3, Random(seed)))
    assert set(leaders.values()) == {10}


@pytest.mark.parametrize(
    ("factor", "brokers"),
    [(0, 3), (-1, 3), (4, 3)],
)
def test_an_impossible_placement_is_refused(factor: int, brokers: int) -> None:
    with pytest.raises(ApiError) as refused:
        place([UsableBroker(number, None, fenced=False) for number in range(brokers)], 1, factor, Random(0))
    assert refused.value.error is Error.INVALID_REPLICATION_FACTOR
