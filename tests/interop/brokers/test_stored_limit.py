"""Answers of brokers of each make about records above a `max.decompressed.message.bytes` that was lowered later."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from one_node import one_node
from support.interop.real_kafka import KafkaInstallation, eventually
from support.wire import ask
from transport.protocol.errors import Error
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

pytestmark = [pytest.mark.kafka, pytest.mark.soak]
SECONDS = 30
TIME_MS = 1_700_000_000_000
LARGEST_TIME, LATEST = -3, -1


def offset_of(port: int, time_ms: int) -> tuple[int, int]:
    """The error and the offset for a time."""
    topic = ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=time_ms)])
    answer = ask(port, ListOffsetsRequest(replica_id=-1, topics=[topic]), 10, ListOffsetsResponse)
    [found] = answer.topics[0].partitions
    return found.error_code, found.offset


def answers(kafka: KafkaInstallation, root: Path, make: str) -> list[tuple[int, int]]:
    with one_node(kafka, root, make) as (_, port):
        servers: dict[str, str | int | float | bool] = {"bootstrap.servers": f"127.0.0.1:{port}"}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(SECONDS)
        producer = Producer({**servers, "compression.type": "gzip", "linger.ms": 500})
        for at, size in enumerate((5, 2000, 5)):
            producer.produce("t", bytes(size), b"k", partition=0, timestamp=TIME_MS + at)
        assert producer.flush(SECONDS) == 0
        assert offset_of(port, TIME_MS + 2) == (0, 2)
        limit = ConfigEntry("max.decompressed.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ResourceType.TOPIC, "t", incremental_configs=[limit])
        admin.incremental_alter_configs([topic])[topic].result(SECONDS)
        eventually(lambda: offset_of(port, TIME_MS + 2) != (0, 2), "the limit is in effect", SECONDS)
        return [offset_of(port, time) for time in (TIME_MS, TIME_MS + 1, TIME_MS + 2, LARGEST_TIME, LATEST)]


def test_a_search_meets_a_record_that_is_too_large(newer_kafka: KafkaInstallation, tmp_path: Path) -> None:
    theirs, ours = (answers(newer_kafka, tmp_path / make, make) for make in ("kafka", "ours"))
    refused = Error.INVALID_RECORD, -1
    assert ours == theirs == [(0, 0), refused, refused, refused, (0, 3)]
