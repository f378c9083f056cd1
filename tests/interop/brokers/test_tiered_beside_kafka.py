"""Brokers of ours beside one of Kafka that has tiered storage, in a folder, by the store of Kafka's own tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from consumed_records import consumed
from metadata_log import replay
from metadata_log.log.epochs import EpochHistory, parse_epochs
from metadata_log.log.segment import parse_file_name
from metadata_log.records.batch import scan
from our_brokers import OURS, THEIRS, OurBrokers, kafkas_broker, our_brokers
from support.interop.broker_cluster import STARTED
from support.interop.kafka_or_skip import skip_here
from support.interop.our_nodes import kraft_here, told
from support.interop.real_kafka import KafkaInstallation, eventually
from support.kafka_jars import KafkaUnavailable, ensure_tiered
from support.wire import ask
from transport.protocol.errors import Error
from transport.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
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
RETENTION: Final = ("log.retention.check.interval.ms=500", "log.initial.task.delay.ms=500")
TIERED: Final = (
    ENABLED,
    "remote.log.storage.manager.class.name=org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name=PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.replication.factor=1",
    "rlmm.config.remote.log.metadata.topic.num.partitions=1",
    "remote.log.manager.task.interval.ms=500",
    *RETENTION,
)
RECORDS: Final = 500
EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -2, -4, -5, -6


def local_start(cluster: OurBrokers, broker: int) -> int:
    """The first offset on the disk of a broker."""
    names = [path.name for path in (cluster.log_dir(broker) / "tiered-0").glob("*.log")]
    return min((base for name in names if (base := parse_file_name(name)) is not None), default=-1)


def offset(port: int, timestamp: int) -> tuple[int, int]:
    """What a leader says of its log: the offset and its epoch."""
    wanted = [ListOffsetsTopic("tiered", [ListOffsetsPartition(timestamp=timestamp)])]
    (topic,) = ask(port, ListOffsetsRequest(topics=wanted), 11, ListOffsetsResponse).topics
    (part,) = topic.partitions
    assert part.error_code == 0, part
    return part.offset, part.leader_epoch


def fetched(cluster: OurBrokers, port: int, at: int, replica: int = -1) -> tuple[int, int, int]:
    """What a leader answers to a consumer or a follower: the error, the log start, and the first byte's offset."""
    topic_id = replay(str(cluster.layout.partition(1))).topics["tiered"].id
    wanted = [FetchTopic(topic_id=topic_id, partitions=[FetchPartition(fetch_offset=at, partition_max_bytes=100_000)])]
    asked = FetchRequest(topics=wanted, max_wait_ms=5000, min_bytes=1, replica_state=ReplicaState(replica_id=replica))
    (topic,) = ask(port, asked, 17, FetchResponse).responses
    (part,) = topic.partitions
    first = next(scan(part.records or b""), None)
    return part.error_code, part.log_start_offset, -1 if first is None else first.base_offset


def epochs(cluster: OurBrokers, broker: int) -> EpochHistory:
    """The leader epochs in the checkpoint of a broker."""
    return parse_epochs((cluster.log_dir(broker) / "tiered-0" / "leader-epoch-checkpoint").read_bytes())


def states(cluster: OurBrokers) -> list[str]:
    """The states of segments in the records that Kafka's broker wrote, as the dump shows them."""
    paths = [str(path) for path in cluster.layout.root.glob("broker-*/__remote_log_metadata-0/*.log")]
    return re.findall(r"COPY_SEGMENT_\w+", told("dump", "--records", *paths))


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
    with our_brokers(
        tmp_path, OURS, LATER, settings=RETENTION, release=kafka.release, of_controller=(ENABLED,)
    ) as cluster:
        process, port = kafkas_broker(kafka, cluster, of_kafka=(*TIERED, f"rsm.config.dir={tmp_path / 'remote'}"))
        try:
            process.wait_for(STARTED)
            cluster.wait_until_known(OURS, LATER, THEIRS, beside=port)
            _beside(cluster, port)
        finally:
            process.kill()
        _on_the_directory(cluster, port)


def done(cluster: OurBrokers, *words: str) -> None:
    """Run a command at the controller."""
    told(*words, "--bootstrap-controller", cluster.layout.bootstrap)


def lead(cluster: OurBrokers, first: int, *others: int) -> None:
    """Have one broker lead and others follow."""
    replicas = ",".join(map(str, (first, *others)))
    done(cluster, "reassign", "--topic-partition=tiered:0", f"--to={replicas}", "--wait")
    done(cluster, "elect", "preferred", "--topic-partition=tiered:0")
    eventually(lambda: cluster.leader_of("tiered") == first, f"broker {first} leads")


def _beside(cluster: OurBrokers, port: int) -> None:
    """Both makes lead, and answer of tiered storage what they know."""
    settings = ("remote.storage.enable=true", "segment.bytes=1048576", "local.retention.bytes=1")
    made = ("topics", "create", "tiered", f"--assignment={THEIRS}:{OURS}")
    done(cluster, *made, *(word for one in settings for word in ("--config", one)))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for _ in range(RECORDS):
        producer.produce("tiered", bytes(10_000), partition=0)
    assert producer.flush(60) == 0
    most = RECORDS * 3 // 4
    eventually(lambda: local_start(cluster, THEIRS) > most, "all but the last segment are in the remote store alone")
    moved = local_start(cluster, THEIRS)
    epoch = cluster.partition("tiered").leader_epoch
    of_tiers = [offset(port, time) for time in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING)]
    assert of_tiers == [(0, epoch), (moved, epoch), (moved - 1, epoch), (moved, epoch)]
    assert fetched(cluster, port, 0) == (0, 0, 0)
    assert fetched(cluster, port, 0, replica=OURS) == (Error.OFFSET_MOVED_TO_TIERED_STORAGE, 0, -1)
    assert local_start(cluster, OURS) == 0
    assert [at for at, _, _ in consumed(cluster, "tiered", RECORDS)] == list(range(RECORDS))

    told_of = {one["nodes"][0]: one for one in findings(cluster)}
    assert {one["severity"] for one in told_of.values()} == {"info"}, told_of
    assert f"tiered-0: local from {moved} (" in told_of[f"node {THEIRS}"]["evidence"]
    assert f"remote 0 to {moved - 1} (" in told_of[f"node {THEIRS}"]["evidence"]
    assert "tiered-0: local from 0 (" in told_of[f"node {OURS}"]["evidence"]

    # A new replica of ours begins at the local start of Kafka's leader, and knows the epochs and producers before.
    done(cluster, "reassign", "--topic-partition=tiered:0", f"--to={THEIRS},{OURS},{LATER}", "--wait")
    assert local_start(cluster, LATER) >= moved
    assert epochs(cluster, LATER) == epochs(cluster, THEIRS)
    producer.produce("tiered", b"one more", partition=0)
    assert producer.flush(60) == 0

    lead(cluster, LATER, THEIRS, OURS)
    local = local_start(cluster, LATER)
    assert [offset(cluster.ports[LATER], time)[0] for time in (EARLIEST, EARLIEST_LOCAL)] == [0, local]
    assert fetched(cluster, cluster.ports[LATER], 0, replica=THEIRS) == (Error.OFFSET_MOVED_TO_TIERED_STORAGE, 0, -1)
    producer.produce("tiered", b"the same producer", partition=0)
    assert producer.flush(60) == 0

    lead(cluster, OURS, THEIRS)
    written = RECORDS + 2
    assert [at for at, _, _ in consumed(cluster, "tiered", written)] == list(range(written))
    assert [offset(cluster.ports[OURS], timestamp)[0] for timestamp in (EARLIEST, EARLIEST_LOCAL)] == [0, 0]
    # Its log start does not rise before the retention of the whole log bites, so that the remote segments live on.
    assert any("remote 0 to" in one["evidence"] for one in findings(cluster))


def _on_the_directory(cluster: OurBrokers, port: int) -> None:
    """A broker of ours leads in the directory that Kafka's left."""
    path = cluster.layout.root / f"broker-{THEIRS}.properties"
    path.write_text(path.read_text().partition(TIERED[0])[0])
    assert set(states(cluster)) == {"COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"}
    cluster.ports[THEIRS] = port
    cluster.start(THEIRS)
    cluster.wait_until_in_sync("tiered", 2)
    lead(cluster, THEIRS, OURS)
    local = local_start(cluster, THEIRS)
    assert local > RECORDS // 2
    assert [offset(port, time)[0] for time in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING)] == [0, local, -1, -1]
    assert fetched(cluster, port, 0, replica=OURS) == (Error.OFFSET_MOVED_TO_TIERED_STORAGE, 0, -1)
    assert fetched(cluster, port, 0) == (Error.UNKNOWN_SERVER_ERROR, -1, -1)
    assert fetched(cluster, port, local) == (0, 0, local)

    # It deletes by the retention of the whole log, and what is before in tiered storage with it.
    done(cluster, "configs", "set", "topic", "tiered", "retention.ms=1")
    eventually(lambda: offset(port, EARLIEST)[0] == RECORDS + 2, "all records are too old")
    eventually(lambda: local_start(cluster, OURS) >= local, "the follower deletes what its leader has deleted")
