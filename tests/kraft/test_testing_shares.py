"""Share groups of the fixture: deliveries, locks that end on demand, and assertions, for clients of any make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer

from kraft.testing import Kafka
from kraft.testing.deliveries import Deliveries, End
from metadata_log.types import Uuid
from support.share_consumers import member, polled
from transport.protocol.messages import share_acknowledge, share_fetch

SECONDS = 30
TOPIC = Uuid(b"\x05" * 16)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with Kafka(settings={"group.share.assignment.interval.ms": "0"}) as kafka:
        yield kafka


def worker(kafka: Kafka, topic: str) -> AbstractContextManager[ShareConsumer]:
    return member(topic, {**kafka.client_config("confluent-kafka"), "group.id": topic})


def filled(kafka: Kafka, topic: str, *values: str) -> None:
    kafka.create_topic(topic)
    kafka.share_group(topic).configure({"share.auto.offset.reset": "earliest"})
    kafka.produce(topic, values)


def test_records_come_again_when_their_locks_end_and_are_accepted(kafka: Kafka) -> None:
    filled(kafka, "jobs", "wash", "peel")
    group = kafka.share_group("jobs")
    held: list[Message] = []
    with (
        group.assert_accepted("jobs", seconds=SECONDS),
        worker(kafka, "jobs") as hanging,
        worker(kafka, "jobs") as consumer,
    ):
        polled(hanging, lambda: len(held) >= 2, held.append)
        assert [one.end for one in group.deliveries("jobs")] == [None, None]
        with group.assert_redelivered("jobs", ["wash", "peel"], seconds=SECONDS):
            group.expire_locks()
            again: list[Message] = []

            def accept(record: Message) -> None:
                again.append(record)
                consumer.acknowledge(record, AcknowledgeType.ACCEPT)

            polled(consumer, lambda: len(again) >= 2, accept)
            consumer.commit_sync()
    assert [(one.value, one.count, one.end) for one in group.deliveries("jobs")] == [
        (b"wash", 2, "accepted"),
        (b"peel", 2, "accepted"),
    ]
    assert group.lag("jobs") == 0
    described = group.describe()
    assert (described.type, described.state) == ("share", "Empty")


def test_the_assertions_say_what_became_of_records(kafka: Kafka) -> None:
    filled(kafka, "mixed", "good", "bad", "late")
    group = kafka.share_group("mixed")
    seen: list[str] = []

    def take(record: Message) -> None:
        value = (record.value() or b"").decode()
        seen.append(value)
        kinds = {"good": AcknowledgeType.ACCEPT, "bad": AcknowledgeType.REJECT}
        if value in kinds:
            consumer.acknowledge(record, kinds[value])

    def work() -> None:
        with group.assert_accepted("mixed", seconds=0.1):
            polled(consumer, lambda: len(seen) >= 3, take)
            consumer.commit_sync()

    with worker(kafka, "mixed") as consumer, pytest.raises(AssertionError) as failed:
        work()
    assert str(failed.value) == (
        "group mixed has not accepted what it should of mixed:\n"
        "  mixed-0@1 b'bad': delivered once, rejected\n"
        "  mixed-0@2 b'late': delivered once, not acknowledged"
    )
    with group.assert_accepted("mixed", ["good"]):
        pass
    redelivered = group.assert_redelivered("mixed", seconds=0.1)
    with pytest.raises(AssertionError, match="again that were expected: 0, and not 1"), redelivered:
        pass
    with pytest.raises(ValueError, match="there is no topic 'absent'"):
        group.deliveries("absent")


def test_what_was_refused_is_no_end_of_a_delivery() -> None:
    known = Deliveries()
    given = share_fetch.PartitionData(0, acquired_records=[share_fetch.AcquiredRecords(3, 5, 1)])
    topics = [share_fetch.ShareFetchableTopicResponse(TOPIC, [given])]
    known.note(share_fetch.ShareFetchRequest("g", "m"), share_fetch.ShareFetchResponse(responses=topics))
    known.note(share_fetch.ShareFetchRequest("g", "m"), share_fetch.ShareFetchResponse(error_code=35, responses=topics))
    batches = [share_acknowledge.AcknowledgementBatch(3, 5, [1, 2, 4])]
    said = share_acknowledge.ShareAcknowledgeRequest(
        "g",
        "m",
        topics=[share_acknowledge.AcknowledgeTopic(TOPIC, [share_acknowledge.AcknowledgePartition(0, batches)])],
    )
    for code, ends in ((121, [None, None, None]), (0, [End.ACCEPTED, End.RELEASED, None])):
        told = share_acknowledge.ShareAcknowledgeTopicResponse(TOPIC, [share_acknowledge.PartitionData(0, code)])
        known.note(said, share_acknowledge.ShareAcknowledgeResponse(responses=[told]))
        assert list(known.ends("g", TOPIC, 0, range(3, 6)).values()) == ends
    assert known.counts("g", TOPIC, 0, range(2, 7)) == {2: 0, 3: 1, 4: 1, 5: 1, 6: 0}
    assert known.counts("other", TOPIC, 0, [3]) == {3: 0}
