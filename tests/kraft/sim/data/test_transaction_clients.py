"""A simulated producer of transactions ends each transaction, wherever its partitions are led."""

from __future__ import annotations

from random import Random

from kraft.sim.workloads.record_clients import TransactionalProducer
from metadata_log.image import MetadataDelta, MetadataImage
from metadata_log.records import metadata as records
from metadata_log.types import OffsetAndEpoch, Uuid
from transport.protocol.messages.init_producer_id import InitProducerIdResponse
from transport.protocol.messages.produce import ProduceRequest
from transport.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

TOPIC = Uuid(bytes(15) + b"\x07")


def image(leader: int) -> MetadataImage:
    delta = MetadataDelta(MetadataImage())
    partition = records.PartitionRecord(partition_id=0, topic_id=TOPIC, replicas=(101,), isr=(101,), leader=leader)
    delta.replay(records.TopicRecord(name="t", topic_id=TOPIC), 0)
    delta.replay(partition, 1)
    return delta.apply(OffsetAndEpoch(epoch=1, offset=2))


def test_a_transaction_is_aborted_in_the_end_if_a_partition_has_no_leader() -> None:
    """Otherwise readers of the other partitions wait for ever (`data-cluster` seed 1000125)."""
    producer = TransactionalProducer(Random(1), "one")
    producer.next_request(image(101), 0, is_over=False)
    producer.on_answer(InitProducerIdResponse(producer_id=5))
    asked = producer.next_request(image(101), 0, is_over=False)
    assert asked is not None
    assert isinstance(asked[1], ProduceRequest)
    again = producer.next_request(image(101), 0, is_over=True)
    assert again is not None
    assert isinstance(again[1], ProduceRequest), "a partition with a leader gets its batch"
    ended = producer.next_request(image(-1), 0, is_over=True)
    assert ended is not None
    request = ended[1]
    assert isinstance(request, WriteTxnMarkersRequest)
    assert [(one.producer_id, one.transaction_result) for one in request.markers] == [(5, False)]
