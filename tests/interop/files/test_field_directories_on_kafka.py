"""Apache Kafka on log directories as people report them does what `docs/reference/damaged-directories.md` says."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from metadata_log.serde import schema_of
from support.field_directories import ALL_OFFLINE, CASES, ENDS, TOPICS, Case, outcome, properties, unpacked
from support.interop.real_kafka import KafkaInstallation, Process, eventually, free_ports
from transport.protocol.broker_apis import ALL_APIS
from transport.protocol.frames import FrameReader
from transport.protocol.headers import decode_response, encode_request
from transport.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

pytestmark = pytest.mark.kafka
STARTED = "Transition from STARTING to STARTED"
QUICK = {"control", "garbled-partition-metadata", "lost-and-found"}
"""The cases that run each time; the others are soak tests."""
VERSION = 7
LATEST = -1
PATIENCE_SECONDS = 60


def ends_of(port: int) -> dict[str, int | None]:
    """The end of the log of each topic, as a broker tells it; None without an answer."""
    wanted = [ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)]
    topics = [ListOffsetsTopic(name=name, partitions=wanted) for name in TOPICS]
    key = schema_of(ListOffsetsRequest).api_key
    assert key is not None
    frame = encode_request(key, VERSION, 1, "interop", ListOffsetsRequest(replica_id=-1, topics=topics), apis=ALL_APIS)
    reader, frames = FrameReader(), list[bytes]()
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        while not frames:
            frames = reader.feed(connection.recv(1 << 16))
    _, answer = decode_response(key, VERSION, frames[0], apis=ALL_APIS)
    assert isinstance(answer, ListOffsetsResponse)
    found = {topic.name: topic.partitions[0] for topic in answer.topics}
    return {name: None if one.error_code else one.offset for name, one in found.items()}


def outcome_of_kafka(kafka: KafkaInstallation, root: Path, expected: str) -> str:
    """The outcome of Kafka's node on these directories; waits for the expected one."""
    controller, port = free_ports(2)
    path = properties(root, controller, port)
    before = {one.name for one in (*(root / "data").iterdir(), *(root / "spare").iterdir())}
    process = Process(kafka.command("kafka.Kafka", str(path), log="info"), root / "kafka.log")
    try:
        if expected == ENDS:
            assert process.wait(PATIENCE_SECONDS) == 1, process.text[-3000:]
            return ENDS
        process.wait_for(STARTED)
        if expected == ALL_OFFLINE:
            process.wait_for("Stopped serving replicas in dir")
        last = [""]

        def is_expected() -> bool:
            after = {one.name for one in (*(root / "data").iterdir(), *(root / "spare").iterdir())}
            last[0] = outcome(ends_of(port), sum(name.endswith("-stray") for name in after - before))
            return last[0] == expected

        eventually(is_expected, f"{expected}, not {last}", PATIENCE_SECONDS)
        return last[0]
    finally:
        process.kill()


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case.name in QUICK else pytest.mark.soak, id=case.name) for case in CASES]
)
def test_kafka_does_what_the_page_says(case: Case, kafka: KafkaInstallation, tmp_path: Path) -> None:
    root = unpacked(case, tmp_path)
    assert outcome_of_kafka(kafka, root, case.kafka) == case.kafka
    if case.name == "remedy-of-epochs":
        assert (root / "data" / "orders-0" / "leader-epoch-checkpoint").read_text().startswith("0\n")
