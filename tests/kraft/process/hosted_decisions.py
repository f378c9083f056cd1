"""A controller that has one topic, given work."""

from __future__ import annotations

from collections.abc import Sequence

from kraft.committed import CommittedBatch
from kraft.controller import ControllerResult
from kraft.controller.decision.result import Steps
from kraft.controller.decisions import Work
from kraft.wire import WireRequest
from metadata_log.image.replaying import PARTITIONS_PER_RECORD
from metadata_log.records.frame import VersionedRecord, encode_record
from metadata_log.records.metadata import (
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
)
from metadata_log.serde import Message
from metadata_log.types import Uuid
from support.differential.controller_sides import InProcess
from transport.protocol.apis import ApiKey
from transport.protocol.messages import DescribeClusterRequest, DescribeClusterResponse

TOPIC = Uuid(bytes(15) + b"\7")
PARTITIONS = 3 * PARTITIONS_PER_RECORD + 1
ANSWER = DescribeClusterResponse(cluster_id="the answer")


def with_a_topic() -> InProcess:
    """A controller that knows one topic with some partitions."""
    process = InProcess(max_idle_interval_ms=0)
    partitions = [
        PartitionRecord(
            partition_id=number, topic_id=TOPIC, replicas=(1,), isr=(1,), leader=1, directories=(Uuid.ZERO,)
        )
        for number in range(PARTITIONS)
    ]
    topic = VersionedRecord(TopicRecord(name="t", topic_id=TOPIC), 0)
    process._append(ControllerResult((topic, *(VersionedRecord(one, 1) for one in partitions))))
    return process


def request(request_id: int) -> WireRequest:
    asked = DescribeClusterRequest()
    return WireRequest(
        request_id=request_id, api_key=ApiKey.DESCRIBE_CLUSTER, version=0, message=asked, listener="CONTROLLER"
    )


def work(*records: Message, steps: int = 0, is_atomic: bool = True, request_id: int | None = 1) -> Work:
    """A decision that takes some steps before its records are known."""

    def begin(*_: object) -> Steps:
        yield from [None] * steps
        made = tuple(VersionedRecord(record) for record in records)
        return ControllerResult(made, None if request_id is None else ANSWER, is_atomic=is_atomic)

    return Work(begin, None if request_id is None else request(request_id))


def configs(count: int) -> list[ConfigRecord]:
    return [ConfigRecord(resource_type=2, resource_name="t", name=f"n{at}", value="x" * 100) for at in range(count)]


def batch(records: Sequence[Message], base_offset: int = 0) -> CommittedBatch:
    values = tuple(encode_record(record, 0) for record in records)
    return CommittedBatch(base_offset, base_offset + len(values), 1, 0, values, sum(map(len, values)))
