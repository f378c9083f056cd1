"""Brokers of ours beside one of Kafka that has tiered storage, in a folder, by the store of Kafka's own tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from metadata_log.log.segment import parse_file_name
from support.interop.broker_cluster import STARTED
from support.interop.consumed import consumed
from support.interop.kafka_or_skip import skip_here
from support.interop.our_brokers import OURS, THEIRS, OurBrokers, kafkas_broker, our_brokers
from support.interop.our_nodes import kraft_here, told
from support.interop.real_kafka import KafkaInstallation, eventually
from support.kafka_jars import KafkaUnavailable, ensure_tiered
from support.wire import ask
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

pytestmark = pytest.mark.kafka
LATER: Final = 102
"""A broker of ours that gets its replica when the first segments are gone."""
ENABLED: Final = "remote.log.storage.system.enable=true"
TIERED: Final = (
    ENABLED,
    "remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name=PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.replication.factor=1",
    "rlmm.config.remote.log.metadata.topic.num.partitions=1",
    *("remote.log.manager.task.interval.ms=500", "log.retention.check.interval.ms=500"),
    "log.initial.task.delay.ms=500",
)
RECORDS: Final = 500
EARLIEST, EARLIEST_LOCAL = -2, -4


def local_start(cluster: OurBrokers, broker: int) -> int:
    """The first offset on the disk of a broker."""
    names = [path.name for path in (cluster.log_dir(broker) / "tiered-0").glob("*.log")]
    return min((base for name in names if (base := parse_file_name(name)) is not None), default=-1)


def offset(port: int, timestamp: int) -> int:
    """What a leader says of its log."""
    wanted = [ListOffsetsTopic("tiered", [ListOffsetsPartition(timestamp=timestamp)])]
    (topic,) = ask(port, ListOffsetsRequest(topics=wanted), 9, ListOffsetsResponse).topics
    (part,) = topic.partitions
    assert part.error_code == 0, part
    return part.offset


def findings(cluster: OurBrokers) -> list[dict[str, Any]]:
    """What the doctor says of tiered storage on the disks of all brokers."""
    files = [cluster.layout.root / f"broker-{one}.properties" for one in (OURS, LATER, THEIRS)]
    done = kraft_here("doctor", "--offline", "--json", *(word for one in files for word in ("-c", str(one))))
    return [one for one in json.loads(done.stdout)["findings"] if one["id"] == "tiered-storage"]


def test_what_kafka_has_moved_away_is_read_there_and_whole_here(kafka: KafkaInstallation, tmp_path: Path) -> None:
    try:
        kafka = replace(kafka, programs=ensure_tiered(kafka.release))
    except KafkaUnavailable as unavailable:
        skip_here(f"the remote store of Kafka's tests cannot be had: {unavailable}")
    with our_brokers(tmp_path, OURS, LATER, release=kafka.release, of_controller=(ENABLED,)) as cluster:
        process, port = kafkas_broker(kafka, cluster, of_kafka=(*TIERED, f"rsm.config.dir={tmp_path / 'remote'}"))
        try:
            process.wait_for(STARTED)
            cluster.wait_until_known(OURS, LATER, THEIRS, beside=port)
            _story(cluster, port)
        finally:
            process.kill()


def _story(cluster: OurBrokers, port: int) -> None:
    def done(*words: str) -> None:
        told(*words, "--bootstrap-controller", cluster.layout.bootstrap)

    settings = ("remote.storage.enable=true", "segment.bytes=1048576", "local.retention.bytes=1")
    made = ("topics", "create", "tiered", f"--assignment={THEIRS}:{OURS}")
    done(*made, *(word for one in settings for word in ("--config", one)))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for _ in range(RECORDS):
        producer.produce("tiered", bytes(10_000), partition=0)
    assert producer.flush(60) == 0
    eventually(lambda: local_start(cluster, THEIRS) > RECORDS // 2, "the first segments are in the remote store alone")
    moved = local_start(cluster, THEIRS)
    assert (offset(port, EARLIEST), offset(port, EARLIEST_LOCAL)) == (0, moved)
    assert local_start(cluster, OURS) == 0
    assert [at for at, _, _ in consumed(cluster, "tiered", RECORDS)] == list(range(RECORDS))

    told_of = {one["nodes"][0]: one for one in findings(cluster)}
    assert {one["severity"] for one in told_of.values()} == {"info"}, told_of
    assert f"tiered-0: local from {moved} (" in told_of[f"node {THEIRS}"]["evidence"]
    assert f"remote 0 to {moved - 1} (" in told_of[f"node {THEIRS}"]["evidence"]
    assert "tiered-0: local from 0 (" in told_of[f"node {OURS}"]["evidence"]

    # A new replica of ours would need what its leader has in the remote store alone, and says so.
    done("reassign", "--topic-partition=tiered:0", f"--to={THEIRS},{OURS},{LATER}")
    cluster.processes[LATER].wait_for("its leader has what follows in tiered storage alone")
    assert cluster.partition("tiered").isr == (THEIRS, OURS)
    done("reassign", "cancel", "--all")

    done("reassign", "--topic-partition=tiered:0", f"--to={OURS},{THEIRS}", "--wait")
    done("elect", "preferred", "--topic-partition=tiered:0")
    eventually(lambda: cluster.leader_of("tiered") == OURS, "the broker of ours leads")
    assert [at for at, _, _ in consumed(cluster, "tiered", RECORDS)] == list(range(RECORDS))
    assert [offset(cluster.ports[OURS], timestamp) for timestamp in (EARLIEST, EARLIEST_LOCAL)] == [0, 0]
    # Its log start does not rise, so that the remote segments live on.
    assert any("remote 0 to" in one["evidence"] for one in findings(cluster))
