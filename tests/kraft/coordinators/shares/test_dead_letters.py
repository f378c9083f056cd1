"""What no member accepts goes to the dead-letter queue of its group before it is archived."""

from __future__ import annotations

from typing import Any, Final

import pytest

from kraft.coordinators.shares.dead_letters import FIRST_PAUSE_MS, TRIES
from kraft.coordinators.shares.persister import ShareKey
from metadata_log.compression import Compression
from metadata_log.records.batch import HEADER_BYTES, scan
from metadata_log.records.batch_builder import batch_of
from metadata_log.records.metadata import ConfigRecord, FeatureLevelRecord, PartitionRecord, TopicRecord
from metadata_log.records.record import Record, encode_record, records
from support.broker.request_brokers import NewTopic, batch, directory_of, produce, topic_id
from support.broker.share_leaders import ShareBrokers, acquired, share_acknowledge, share_fetch
from transport.protocol.errors import Error
from transport.protocol.messages import CreateTopicsRequest

T: Final = NewTopic("o-dlq", topic_id(1), ((101,),))
ENABLED: Final = {"errors.deadletterqueue.group.enable": "true"}
QUEUE: Final = NewTopic("dlq.o-dlq", topic_id(2), ((102,),), ENABLED)
GROUP: Final = "o-dlq-g"
KEY: Final = ShareKey(GROUP, T.id, 0)
OF_KAFKA: Final = (
    "f202000000010476310c245f5f646c712e6572726f72732e746f7069630a6f2d646c712c5f5f646c712e6572726f72732e70617274697469"
    "6f6e0230265f5f646c712e6572726f72732e6f66667365740231245f5f646c712e6572726f72732e67726f75700e6f2d646c712d67365f5f"
    "646c712e6572726f72732e64656c69766572792e636f756e740231285f5f646c712e6572726f72732e6d657373616765344f6666736574"
    "2072656a656374656420627920636c69656e742e",
    "9803000000010476330c245f5f646c712e6572726f72732e746f7069630a6f2d646c712c5f5f646c712e6572726f72732e70617274697469"
    "6f6e0230265f5f646c712e6572726f72732e6f66667365740233245f5f646c712e6572726f72732e67726f75700e6f2d646c712d67365f5f"
    "646c712e6572726f72732e64656c69766572792e636f756e740232285f5f646c712e6572726f72732e6d6573736167655a4f666673657420"
    "64656c697665727920636f756e7420657863656564656420746865207468726573686f6c642e",
)
"""The records that a broker of Kafka 4.4.0 has sent for the offsets 1 and 3."""


def world(*topics: NewTopic, level: int = 2, queue: str = QUEUE.name, **settings: Any) -> ShareBrokers:
    """Brokers with a group that delivers a record twice at most, and has a dead-letter queue."""
    brokers = ShareBrokers([T, *topics], **settings)
    brokers.brokers.change(FeatureLevelRecord(name="share.version", feature_level=level))
    brokers.configure(GROUP, share_auto_offset_reset="earliest", share_delivery_count_limit="2")
    configure(brokers, "errors.deadletterqueue.topic.name", queue)
    brokers.begin(GROUP, T)
    return brokers


def configure(brokers: ShareBrokers, name: str, value: str) -> None:
    """Set one configuration of the group."""
    brokers.brokers.change(ConfigRecord(resource_type=32, resource_name=GROUP, name=name, value=value))


def deliver(brokers: ShareBrokers, *values: bytes) -> None:
    """Append records, and give all of them to a member."""
    brokers.ask(101, produce((T.id, 0), batch(*values)), version=13)
    brokers.ask(101, fetch())


def fetch(epoch: int = 0, **wishes: Any) -> Any:
    return share_fetch(T, epoch, group=GROUP, **wishes)


def acknowledge(brokers: ShareBrokers, epoch: int, *acks: tuple[int, int, list[int]]) -> Error:
    """The outcome of acknowledgements."""
    answer = brokers.ask(101, share_acknowledge(T, epoch, *acks, group=GROUP))
    return Error.of(answer.responses[0].partitions[0].error_code)


def queued(brokers: ShareBrokers, queue: NewTopic = QUEUE, number: int = 0) -> list[Record]:
    """The records of a dead-letter queue."""
    leader = queue.partitions[number][0]
    part = brokers.brokers.part(leader, (queue.id, number))
    if part.log.end_offset == 0:
        return []
    data = brokers.brokers.managers[leader].hosting.read(part, 0, 1 << 24)
    assert isinstance(data, bytes)
    return [one for each in scan(data) for one in records(each)]


def letters(brokers: ShareBrokers) -> list[tuple[bytes | None, dict[str, str]]]:
    """The values of the records of the queue, and their headers without the prefix of all of them."""
    return [
        (one.value, {each.key.removeprefix("__dlq.errors."): (each.value or b"").decode() for each in one.headers})
        for one in queued(brokers)
    ]


def written(brokers: ShareBrokers) -> list[tuple[int, int, list[tuple[int, int, int, int]]]]:
    """The start, the count of what is done with, and the states of each Write."""
    return [
        (
            one.start_offset,
            one.delivery_complete_count,
            [(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in one.batches],
        )
        for _, one in brokers.persister.writes
    ]


def reports(brokers: ShareBrokers) -> list[str]:
    """What the leader has told its operator of queues."""
    return [one for one in brokers.brokers.managers[101].hosting.findings if "dead-letter" in one]


def test_a_member_rejects_and_releases_as_one_of_kafka() -> None:
    """The recorded session `dlq`: five records; one is rejected, two are released twice, with a limit of two."""
    brokers = world(QUEUE)
    configure(brokers, "errors.deadletterqueue.copy.record.enable", "true")
    deliver(brokers, b"v0", b"v1", b"v2", b"v3", b"v4")
    assert acknowledge(brokers, 1, (0, 4, [1, 3, 1, 2, 2])) is Error.NONE
    assert acquired(brokers.ask(101, fetch(2))) == [(0, 3, 4, 2)]
    assert acknowledge(brokers, 3, (3, 4, [2])) is Error.NONE
    exhausted = "Offset delivery count exceeded the threshold."
    assert letters(brokers) == [
        (
            value,
            {
                "topic": "o-dlq",
                "partition": "0",
                "offset": offset,
                "group": GROUP,
                "delivery.count": count,
                "message": text,
            },
        )
        for value, offset, count, text in (
            (b"v1", "1", "1", "Offset rejected by client."),
            (b"v3", "3", "2", exhausted),
            (b"v4", "4", "2", exhausted),
        )
    ]
    sent = [one.topic_data[0].partition_data[0].records or b"" for one in brokers.letters]
    assert [bytes(one)[HEADER_BYTES:].hex()[: len(of)] for one, of in zip(sent, OF_KAFKA, strict=True)] == [*OF_KAFKA]
    assert {(one.acks, one.timeout_ms, one.topic_data[0].topic_id) for one in brokers.letters} == {
        (-1, 30_000, QUEUE.id)
    }
    states = [each for _, _, states in written(brokers) for each in states]
    assert states == [
        *((0, 0, 2, 1), (1, 1, 3, 1), (2, 2, 2, 1), (3, 4, 0, 1)),
        *((1, 1, 4, 1), (3, 4, 3, 2), (3, 4, 4, 2)),
    ]
    assert written(brokers)[0][:2] == (0, 2)
    assert acquired(brokers.ask(101, fetch(4))) == []
    deliver(brokers, b"next")
    led = brokers.brokers.requests[101].load_shares().fetch.leader.led[KEY]
    assert led.partition is not None
    assert led.partition.start == 5


def test_what_is_on_its_way_holds_up_the_start() -> None:
    brokers = world(QUEUE)
    deliver(brokers, b"a", b"b")
    brokers.holds_letters = True
    acknowledge(brokers, 1, (0, 1, [3, 1]))
    led = brokers.brokers.requests[101].load_shares().fetch.leader.led[KEY]
    assert led.partition is not None
    assert (led.partition.start, acquired(brokers.ask(101, fetch(2)))) == (0, [])
    brokers.holds_letters = False
    brokers.settle()
    assert (led.partition.start, letters(brokers)[0][0], written(brokers)[-1][2]) == (2, None, [(0, 0, 4, 1)])


@pytest.mark.parametrize(
    ("topics", "queue", "text"),
    [
        ((NewTopic(QUEUE.name, QUEUE.id, ((102,),)),), QUEUE.name, "has not errors.deadletterqueue.group.enable=true"),
        ((), QUEUE.name, "there is no topic dlq.o-dlq"),
        ((NewTopic("plain", QUEUE.id, ((102,),), ENABLED),), "plain", "plain does not begin with dlq."),
        ((NewTopic("__dlq", QUEUE.id, ((102,),), ENABLED),), "__dlq", "is internal"),
    ],
)
def test_a_topic_that_is_no_queue_gets_nothing(topics: tuple[NewTopic, ...], queue: str, text: str) -> None:
    """As in the recorded session `dlq-off`, the records are archived all the same."""
    brokers = world(*topics, queue=queue)
    deliver(brokers, b"v0", b"v1", b"v2")
    assert acknowledge(brokers, 1, (0, 2, [1, 3, 1])) is Error.NONE
    assert written(brokers) == [
        (0, 2, [(0, 0, 2, 1), (1, 1, 3, 1), (2, 2, 2, 1)]),
        (1, 2, [(1, 1, 4, 1)]),
    ]
    assert brokers.letters == []
    [told] = reports(brokers)
    assert text in told


def test_a_group_without_a_queue_archives_at_once() -> None:
    for level, queue in ((1, QUEUE.name), (2, "")):
        brokers = world(QUEUE, level=level, queue=queue)
        deliver(brokers, b"a")
        acknowledge(brokers, 1, (0, 0, [3]))
        assert written(brokers) == [(0, 1, [(0, 0, 4, 1)])]
        assert (brokers.letters, reports(brokers)) == ([], [])


def test_the_settings_of_all_brokers_count_at_once() -> None:
    brokers = world(NewTopic("plain", QUEUE.id, ((102,),), ENABLED), queue="plain")
    prefix = ConfigRecord(
        resource_type=4, resource_name="", name="errors.deadletterqueue.topic.name.prefix", value="pl"
    )
    brokers.brokers.change(prefix)
    deliver(brokers, b"a")
    acknowledge(brokers, 1, (0, 0, [3]))
    assert len(queued(brokers, NewTopic("plain", QUEUE.id, ((102,),)))) == 1


def test_a_queue_that_does_not_exist_is_made() -> None:
    brokers = world(creates_queues=True)
    deliver(brokers, b"a")
    acknowledge(brokers, 1, (0, 0, [3]))
    [asked] = [one.message for one in brokers.sends]
    assert isinstance(asked, CreateTopicsRequest)
    [topic] = asked.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (QUEUE.name, -1, -1)
    assert {one.name: one.value for one in topic.configs} == {**ENABLED, "message.timestamp.type": "CreateTime"}
    assert written(brokers)[-1][2] == [(0, 0, 3, 1)]
    brokers.brokers.change(
        TopicRecord(name=QUEUE.name, topic_id=QUEUE.id),
        PartitionRecord(
            partition_id=0,
            topic_id=QUEUE.id,
            replicas=(102,),
            isr=(102,),
            leader=102,
            leader_epoch=0,
            partition_epoch=0,
            directories=(directory_of(102),),
        ),
        ConfigRecord(
            resource_type=2, resource_name=QUEUE.name, name="errors.deadletterqueue.group.enable", value="true"
        ),
    )
    brokers.wait(brokers.now_ms + FIRST_PAUSE_MS)
    assert len(queued(brokers)) == 1
    assert written(brokers)[-1][2] == [(0, 0, 4, 1)]


def test_a_queue_that_cannot_be_reached_holds_up_nobody() -> None:
    brokers = world(QUEUE)
    brokers.refusing = dict.fromkeys(range(TRIES), None)
    deliver(brokers, b"a", b"b")
    acknowledge(brokers, 1, (0, 1, [3, 1]))
    begun_ms = brokers.now_ms
    for tries in range(1, TRIES):
        assert len(brokers.letters) == tries
        assert written(brokers)[-1][2] == [(0, 0, 3, 1), (1, 1, 2, 1)]
        brokers.wait(brokers.now_ms + (FIRST_PAUSE_MS << (tries - 1)))
    assert brokers.now_ms - begun_ms == 15 * FIRST_PAUSE_MS
    assert written(brokers)[-1][2] == [(0, 0, 4, 1)]
    assert reports(brokers) == [
        f"dead-letter queue of share group {GROUP}: it cannot be reached: {Error.NETWORK_EXCEPTION.name}"
    ]


def test_a_queue_that_comes_back_gets_the_record() -> None:
    brokers = world(QUEUE)
    brokers.refusing = {0: Error.NOT_LEADER_OR_FOLLOWER}
    deliver(brokers, b"a")
    acknowledge(brokers, 1, (0, 0, [3]))
    brokers.wait(brokers.now_ms + FIRST_PAUSE_MS)
    assert (len(queued(brokers)), reports(brokers)) == (1, [])


def test_a_queue_that_takes_less_at_a_time_gets_more_batches() -> None:
    brokers = world(NewTopic(QUEUE.name, QUEUE.id, ((102,),), {**ENABLED, "max.message.bytes": "600"}))
    deliver(brokers, *[b"a"] * 9)
    acknowledge(brokers, 1, (0, 8, [3]))
    assert [one["offset"] for _, one in letters(brokers)] == [str(at) for at in range(9)]
    assert written(brokers)[-1][2] == [(0, 8, 4, 1)]


def test_a_record_that_no_queue_takes_is_archived() -> None:
    brokers = world(NewTopic(QUEUE.name, QUEUE.id, ((102,),), {**ENABLED, "max.message.bytes": "400"}))
    configure(brokers, "errors.deadletterqueue.copy.record.enable", "true")
    deliver(brokers, b"a", b"b" * 500, b"c")
    acknowledge(brokers, 1, (0, 2, [3]))
    assert [one for one, _ in letters(brokers)] == [b"a", b"c"]
    assert written(brokers)[-1][2] == [(0, 2, 4, 1)]


def test_a_lock_that_ends_for_the_last_time_makes_a_letter() -> None:
    brokers = world(QUEUE)
    configure(brokers, "share.record.lock.duration.ms", "2000")
    deliver(brokers, b"a")
    brokers.wait(brokers.now_ms + 2000)
    assert acquired(brokers.ask(101, fetch(1))) == [(0, 0, 0, 2)]
    brokers.wait(brokers.now_ms + 2000)
    [(_, headers)] = letters(brokers)
    assert (headers["delivery.count"], headers["message"]) == ("2", "Offset delivery count exceeded the threshold.")
    assert [states for _, _, states in written(brokers)][1:] == [[(0, 0, 3, 2)], [(0, 0, 4, 2)]]


def test_a_session_that_ends_makes_letters_of_the_last_deliveries() -> None:
    brokers = world(QUEUE)
    configure(brokers, "share.delivery.count.limit", "1")
    deliver(brokers, b"a", b"b")
    brokers.close(101)
    assert len(queued(brokers)) == 2
    assert written(brokers)[-1][2] == [(0, 1, 4, 1)]
    assert brokers.brokers.requests[101].load_shares().fetch.leader.led == {}


@pytest.mark.parametrize(
    ("count", "text"), [(1, "Offset rejected by client."), (2, "Offset delivery count exceeded the threshold.")]
)
def test_a_new_leader_sends_what_was_on_its_way(count: int, text: str) -> None:
    brokers = world(QUEUE)
    kept = brokers.persister.states[KEY]
    kept.start, kept.offsets = 0, {0: (count, 3), 1: (1, 0)}
    brokers.ask(101, produce((T.id, 0), batch(b"a", b"b")), version=13)
    assert acquired(brokers.ask(101, fetch())) == [(0, 1, 1, 2)]
    [(_, headers)] = letters(brokers)
    assert (headers["offset"], headers["message"]) == ("0", text)
    assert kept.offsets[0] == (count, 4)


def test_a_group_that_has_lost_its_queue_archives_what_was_on_its_way() -> None:
    brokers = world(queue="")
    kept = brokers.persister.states[KEY]
    kept.start, kept.offsets = 0, {0: (1, 3)}
    brokers.ask(101, produce((T.id, 0), batch(b"a")), version=13)
    brokers.ask(101, fetch())
    assert (kept.offsets[0], brokers.letters) == ((1, 4), [])


def test_a_leader_that_is_none_any_more_archives_nothing() -> None:
    brokers = world(QUEUE)
    deliver(brokers, b"a")
    brokers.holds_letters = True
    acknowledge(brokers, 1, (0, 0, [3]))
    leader = brokers.brokers.requests[101].load_shares().fetch.leader
    leader.drop(leader.led[KEY])
    brokers.holds_letters = False
    brokers.settle()
    assert written(brokers)[-1][2] == [(0, 0, 3, 1)]


def test_a_failed_write_gives_the_lock_back() -> None:
    brokers = world(QUEUE)
    deliver(brokers, b"a")
    brokers.persister.failing = Error.REQUEST_TIMED_OUT
    assert acknowledge(brokers, 1, (0, 0, [3])) is Error.UNKNOWN_SERVER_ERROR
    brokers.persister.failing = Error.NONE
    assert brokers.letters == []
    assert acknowledge(brokers, 2, (0, 0, [1])) is Error.NONE


def test_records_of_compressed_batches_are_copied() -> None:
    brokers = world(QUEUE)
    configure(brokers, "errors.deadletterqueue.copy.record.enable", "true")
    bodies = [encode_record(0, at, b"k%d" % at, b"v%d" % at, ()) for at in range(300)]
    data = batch_of(bodies, base_offset=0, epoch=-1, timestamps=(brokers.now_ms,) * 2, compression=Compression.GZIP)
    brokers.ask(101, produce((T.id, 0), data.data), version=13)
    brokers.ask(101, fetch())
    acknowledge(brokers, 1, (0, 299, [1] * 7 + [3] * 293))
    found = queued(brokers)
    assert [(one.key, one.value) for one in found] == [(b"k%d" % at, b"v%d" % at) for at in range(7, 300)]
    office = brokers.brokers.requests[101]._dead_letters
    assert (len(office), office._unpacked) == (0, None)


def test_many_records_are_sent_in_several_requests() -> None:
    brokers = world(QUEUE)
    deliver(brokers, *[b""] * 1200)
    brokers.ask(101, share_acknowledge(T, 1, (0, 499, [3]), group=GROUP))
    acknowledge(brokers, 2, (500, 1199, [3]))
    assert len(queued(brokers)) == 1200
    assert len(brokers.letters) == 3
