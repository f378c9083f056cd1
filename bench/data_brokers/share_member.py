"""A member of a share group: it is given records one at a time, and accepts each."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final
from uuid import uuid4

from data_brokers.conversations import GROUP, SOON, Talk, asking, finding

from metadata_log.types import Uuid
from transport.protocol.errors import Error
from transport.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from transport.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from transport.protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from transport.protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    PartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
)

ACCEPT: Final = 1
RECORD_LIMIT: Final = 1
_LATER: Final = (*SOON, Error.UNKNOWN_TOPIC_OR_PARTITION)


class ShareMember:
    """The only member of a group at one partition, at the broker that leads it and coordinates everything."""

    def __init__(self, group: str, topic: str, partition: int) -> None:
        self._group = group
        self._topic = topic
        self._partition = partition
        self._id = str(uuid4())
        self._topic_id = Uuid.ZERO
        self._epoch = 0

    def starting(self) -> Talk:
        """Let the group begin with the first record. The first delivery opens a session."""
        yield from finding(self._group, GROUP)
        named = yield from asking(MetadataRequest([MetadataRequestTopic(name=self._topic)]), 12, MetadataResponse)
        self._topic_id = named.topics[0].topic_id
        part = AlterShareGroupOffsetsRequestPartition(self._partition, 0)
        altered = AlterShareGroupOffsetsRequest(self._group, [AlterShareGroupOffsetsRequestTopic(self._topic, [part])])
        while True:
            answer = yield from asking(altered, 0, AlterShareGroupOffsetsResponse)
            errors = {answer.error_code, *(one.error_code for each in answer.responses for one in each.partitions)}
            if errors == {Error.NONE}:
                break
            assert errors <= {Error.NONE, *_LATER}, errors

    def deliveries(self, count: int) -> Iterable[Talk]:
        """So many, one after the other."""
        return (self._delivery() for _ in range(count))

    def _delivery(self) -> Talk:
        """Get a record, and accept it."""
        answer = yield from self._fetch()
        [found] = [part for topic in answer.responses for part in topic.partitions if part.acquired_records]
        assert isinstance(found, PartitionData)
        assert found.records, found
        [acquired] = found.acquired_records
        batch = AcknowledgementBatch(acquired.first_offset, acquired.last_offset, [ACCEPT])
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=self._epoch,
            topics=[AcknowledgeTopic(self._topic_id, [AcknowledgePartition(self._partition, [batch])])],
        )
        self._epoch += 1
        done = yield from asking(request, 2, ShareAcknowledgeResponse)
        assert not done.error_code, done
        assert not done.responses[0].partitions[0].error_code, done

    def _fetch(self) -> Generator[bytes, bytes, ShareFetchResponse]:
        is_first = not self._epoch
        topics = [FetchTopic(self._topic_id, [FetchPartition(self._partition)])] if is_first else []
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._id,
            share_session_epoch=self._epoch,
            max_wait_ms=5000,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=1,
            batch_size=1,
            share_acquire_mode=RECORD_LIMIT,
            topics=topics,
        )
        self._epoch += 1
        answer = yield from asking(request, 2, ShareFetchResponse)
        assert not answer.error_code, answer
        return answer
