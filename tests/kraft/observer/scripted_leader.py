"""A leader that answers Fetch and FetchSnapshot from a script, and a client of it, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from kraft.admin import AdminClient, open_admin
from metadata_log.records.batch_builder import build_batch
from metadata_log.records.frame import encode_record
from metadata_log.records.metadata import TopicRecord
from metadata_log.serde import Message
from metadata_log.types import Uuid
from transport.interface import Endpoint, Gone, Inbound, Listener, Request
from transport.memory import MemoryNetwork, MemoryTransport
from transport.protocol import messages as m
from transport.protocol.errors import Error
from transport.protocol.messages import describe_quorum, fetch, fetch_snapshot
from transport.protocol.messages.describe_cluster import DescribeClusterBroker

EPOCH = 5
UNTIL = 4
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def topics(base_offset: int, *names: str, epoch: int = EPOCH) -> bytes:
    """A batch that makes topics."""
    values = [encode_record(TopicRecord(name=name, topic_id=Uuid(name.encode() * 16)), 0) for name in names]
    return build_batch(base_offset, epoch, 0, values)


def answer(**fields: Any) -> m.FetchResponse:
    part = fetch.PartitionData(**{"high_watermark": UNTIL, **fields})
    topic = fetch.FetchableTopicResponse(topic_id=Uuid.METADATA_TOPIC, partitions=[part])
    return m.FetchResponse(responses=[topic])


def piece(position: int, data: bytes, size: int, error: Error = Error.NONE) -> m.FetchSnapshotResponse:
    part = fetch_snapshot.FetchSnapshotResponsePartitionSnapshot(
        position=position, unaligned_records=data, size=size, error_code=error
    )
    topic = fetch_snapshot.FetchSnapshotResponseTopicSnapshot(name="__cluster_metadata", partitions=[part])
    return m.FetchSnapshotResponse(topics=[topic])


class Leader:
    """Answers Fetch and FetchSnapshot from a script, in which its epoch may rise; keeps the received requests."""

    def __init__(self, network: MemoryNetwork, script: Sequence[Message]) -> None:
        self.transport = MemoryTransport(network, host="leader")
        self.transport.listen(Listener("CONTROLLER", "", 1))
        self.asked: list[Message] = []
        self.high_watermark = UNTIL
        self._script = list(script)

    def deliver(self, request: Inbound) -> None:
        if isinstance(request, Gone):
            return
        assert isinstance(request, Request)
        match request.message:
            case m.DescribeClusterRequest():
                here = [DescribeClusterBroker(broker_id=1, host="leader", port=1)]
                said: Message = m.DescribeClusterResponse(
                    endpoint_type=2, cluster_id=CLUSTER_ID, controller_id=1, brokers=here
                )
            case m.DescribeQuorumRequest():
                part = describe_quorum.DescribeQuorumResponsePartitionData(
                    leader_id=1, leader_epoch=EPOCH, high_watermark=self.high_watermark
                )
                topic = describe_quorum.DescribeQuorumResponseTopicData(
                    topic_name="__cluster_metadata", partitions=[part]
                )
                said = m.DescribeQuorumResponse(topics=[topic])
                self.high_watermark = UNTIL
            case other:
                self.asked.append(other)
                said = self._script.pop(0)
        self.transport.answer(request, said)


@asynccontextmanager
async def following(*script: Message, high_watermark: int = UNTIL) -> AsyncIterator[tuple[Leader, AdminClient]]:
    """A leader with a script, and a client of it."""
    network = MemoryNetwork(1)
    leader = Leader(network, script)
    leader.high_watermark = high_watermark
    async with trio.open_nursery() as nursery:
        await nursery.start(leader.transport.run, leader.deliver)
        here = MemoryTransport(network, host="me")
        async with open_admin([Endpoint("leader", 1)], transport=here, timeout_ms=2000) as admin:
            yield leader, admin
        nursery.cancel_scope.cancel()
