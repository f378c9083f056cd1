"""Topics, the index beside them, and deltas of any size: random histories against what is counted from scratch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata_log.errors import MetadataLogError
from metadata_log.image import MetadataDelta, MetadataImage, ReplayError, TopicsImage, memberships, reassigning
from metadata_log.image.topics import LEADERLESS, index_keys
from metadata_log.records import metadata as records
from metadata_log.types import Uuid
from replayed_logs import end, replay
from support import ROOT, TESTS
from support.metadata_faults import ACL, FAULTS, A, B, Fault, change, partition, topic
from support.random_metadata import RandomCluster

FAMILIES = ("topics", "brokers", "configs", "acls", "quotas", "scram", "tokens", "producer_ids", "controllers")


def random_cluster(seed: int, steps: int) -> RandomCluster:
    cluster = RandomCluster(Random(seed))
    for _ in range(steps):
        cluster.step()
    return cluster


def counted(topics: TopicsImage) -> dict[int, dict[Uuid, set[int]]]:
    """The index, counted from all partitions."""
    found: dict[int, dict[Uuid, set[int]]] = {}
    for topic_id, one in topics.by_id.items():
        for number, each in enumerate(one.partitions):
            for key in index_keys(each):
                found.setdefault(key, {}).setdefault(topic_id, set()).add(number)
    return found


def indexed(topics: TopicsImage) -> dict[int, dict[Uuid, set[int]]]:
    found: dict[int, dict[Uuid, set[int]]] = {}
    for broker in topics.members:
        for topic_id, number, each in memberships(topics, broker):
            assert each is topics.by_id[topic_id].partitions[number]
            found.setdefault(broker, {}).setdefault(topic_id, set()).add(number)
    return found


def check(image: MetadataImage) -> None:
    topics = image.topics
    assert indexed(topics) == counted(topics)
    assert all(topics.members[broker] for broker in topics.members), "what is empty is not there"
    moving = [
        (topic_id, number)
        for topic_id in sorted(topics.by_id)
        for number, partition in enumerate(topics.by_id[topic_id].partitions)
        if partition.is_reassigning
    ]
    assert [(topic_id, number) for topic_id, number, _ in reassigning(topics)] == moving
    assert {topics.by_id[topics.by_name[name]].name for name in topics} == set(topics.by_name)
    assert len(topics) == len(topics.by_name)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 120), st.integers(1, 120))
def test_one_delta_of_many_records_equals_one_delta_for_each(seed: int, steps: int, cut: int) -> None:
    cluster = random_cluster(seed, steps)
    log = cluster.log
    at_once = replay(MetadataImage(), *log)
    in_two = replay(replay(MetadataImage(), *log[:cut]), *log[cut:])
    for family in (
        "brokers",
        "configs",
        "acls",
        "quotas",
        "scram",
        "tokens",
        "producer_ids",
        "controllers",
        "features",
    ):
        assert getattr(at_once, family) == getattr(in_two, family) == getattr(cluster.image, family)
    check(at_once)
    check(in_two)
    check(cluster.image)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32))
def test_old_images_never_change(seed: int) -> None:
    cluster = random_cluster(seed, 1)
    seen = []
    for _ in range(60):
        cluster.step()
        seen.append((cluster.image, hash(repr(cluster.image.topics)), len(cluster.log)))
    for image, was, length in seen:
        assert hash(repr(image.topics)) == was
        assert replay(MetadataImage(), *cluster.log[:length]).topics == image.topics


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 60))
def test_an_aborted_transaction_leaves_no_trace_in_any_family(seed: int, before: int, within: int) -> None:
    cluster = random_cluster(seed, before)
    if cluster.image.transaction is not None:
        cluster.write(records.EndTransactionRecord())
    at_begin = cluster.image
    cluster.write(records.BeginTransactionRecord(name="t"))
    for _ in range(within):
        cluster.step()
        if cluster.image.transaction is None:
            return
        assert cluster.image.stable.topics == at_begin.topics
    cluster.write(records.AbortTransactionRecord(reason="r"))
    for family in FAMILIES:
        assert getattr(cluster.image, family) == getattr(at_begin, family)


SHOW = """
import sys
sys.path[:0] = {path!r}
from test_image_topics import random_cluster
from metadata_log.image.records import records
from metadata_log.image import memberships
from metadata_log.records.frame import encode_record
from metadata_log.types import Uuid
import hashlib
image = random_cluster(7, 400).image
digest = hashlib.sha256()
for record, version in records(image):
    digest.update(encode_record(record, version))
for broker in sorted(image.topics.members):
    for topic_id, number, _ in memberships(image.topics, broker):
        digest.update(topic_id + bytes([number]))
print(digest.hexdigest())
"""


def test_two_processes_agree_on_every_order() -> None:
    """With different seeds of `hash()`, which the maps' internal order follows."""
    script = SHOW.format(path=[str(each) for each in (Path(__file__).parent, TESTS, ROOT)])
    shown = {
        subprocess.run(
            [sys.executable, "-c", script], env=os.environ | {"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(shown) == 1


# Merging


# Records that end Kafka's controller


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.words)
def test_a_record_that_contradicts_the_image_is_a_fault(fault: Fault) -> None:
    log, words = fault.log, fault.words
    delta = MetadataDelta(MetadataImage())
    for offset, record in enumerate(log[:-1], 100):
        delta.replay(record, offset)
    before = delta.apply(end(9))
    last = 100 + len(log) - 1
    said = f"^the {type(log[-1]).__name__} at offset {last} contradicts the image: .*{words}"
    with pytest.raises(ReplayError, match=said):
        delta.replay(log[-1], last)
    assert delta.apply(end(9)) == before, "a fault changes nothing"
    assert issubclass(ReplayError, MetadataLogError)


def test_records_that_kafka_accepts_are_replayed() -> None:
    image = replay(
        MetadataImage(),
        topic("a"),
        partition(0),
        partition(0, isr=(2,)),
        ACL,
        ACL,
        records.RemoveDelegationTokenRecord(token_id="t"),
        records.ClientQuotaRecord(entity=(), key="k", remove=True),
        records.ConfigRecord(resource_type=2, resource_name="gone", name="k", value=None),
        records.ProducerIdsRecord(next_producer_id=0),
        records.RemoveTopicRecord(topic_id=A),
        topic("a"),
        partition(1),
        partition(0),
    )
    assert image.topics["a"].partitions[0].isr == (1,)
    check(image)


def test_removing_a_topic_removes_its_configuration() -> None:
    config = records.ConfigRecord(resource_type=2, resource_name="a", name="k", value="v")
    image = replay(MetadataImage(), topic("a"), config)
    assert dict(image.configs.of((2, "a"))) == {"k": "v"}
    assert not replay(image, records.RemoveTopicRecord(topic_id=A)).configs.by_resource


def test_clearing_an_empty_elr_leaves_the_partition_epoch() -> None:
    image = replay(
        MetadataImage(),
        topic("a"),
        partition(0, eligible_leader_replicas=(2,), partition_epoch=3),
        partition(1, partition_epoch=3),
        topic("b", B),
        partition(0, B, last_known_elr=(1,), partition_epoch=3),
    )
    one = replay(image, records.ClearElrRecord(topic_name="a"))
    assert [each.partition_epoch for each in one.topics["a"].partitions] == [4, 3]
    assert one.topics["b"] is image.topics["b"]
    everything = replay(image, records.ClearElrRecord())
    assert [each.partition_epoch for name in "ab" for each in everything.topics[name].partitions] == [4, 3, 4]
    assert everything.topics["b"].partitions[0].last_known_elr == ()


def test_leaderless_partitions_are_indexed() -> None:
    image = replay(MetadataImage(), topic("a"), partition(0), partition(1, leader=-1, isr=()))
    assert [number for _, number, _ in memberships(image.topics, LEADERLESS)] == [1]
    image = replay(image, change(leader=-1))
    assert [number for _, number, _ in memberships(image.topics, LEADERLESS)] == [0, 1]
    assert [number for _, number, _ in memberships(image.topics, 1)] == [0], "it stays in the ISR"
    assert list(memberships(image.topics, 99)) == []


def test_a_snapshot_holds_no_transactions() -> None:
    delta = MetadataDelta(MetadataImage(), is_snapshot=True)
    with pytest.raises(ReplayError, match="a snapshot holds no transactions"):
        delta.replay(records.BeginTransactionRecord(), 0)
