"""B01 to B03: acknowledgements, versions, codecs, validation and what the broker changes in a batch."""

from __future__ import annotations

import time
from typing import Final

from metadata_log.compression import Compression
from metadata_log.records.record import records
from metadata_log.types import Uuid
from support.bombs import CODES, lies
from support.interop.real_kafka import eventually
from support.scenarios.scenario_client import PRODUCE, Connection, as_stored, batch
from support.scenarios.scenario_cluster import Cluster, Topic
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error

FIRST_WITH_ZSTD: Final = 7
VERSIONS: Final = range(3, PRODUCE + 1)
HOUR_MS: Final = 3_600_000
LARGE: Final = 2000


@scenario("B01")
def batches_of_every_version_and_codec_are_stored_as_they_came(cluster: Cluster) -> None:
    topic = cluster.create("b01")
    leader = cluster.leader(topic)
    epoch = cluster.partition(topic).leader_epoch
    expected: list[bytes] = []
    offset = 0
    for version in VERSIONS:
        for codec in Compression:
            if codec is Compression.ZSTD and version < FIRST_WITH_ZSTD:
                continue
            sent = batch(b"first", b"second" * 40, codec=codec)
            answer = cluster.produce(leader, topic, sent, version=version, acks=-1 if codec else 1)
            assert (answer.error_code, answer.base_offset) == (Error.NONE, offset), (version, codec)
            expected.append(as_stored(sent, offset, epoch))
            offset += 2
    sent = batch(b"without an answer")
    with cluster.connected(leader) as connection:
        connection.send(cluster.produce_request(topic, sent, acks=0), PRODUCE)
        # The next request on the connection is answered after the first one was handled.
        answer_after(cluster, connection, topic)
    expected.append(as_stored(sent, offset, epoch))
    stored = cluster.wait_for_equal_logs(topic, offset + 1)
    assert [bytes(one.data) for one in stored] == expected


def answer_after(cluster: Cluster, connection: Connection, topic: Topic) -> None:
    """Ask for something on a connection, and wait for the answer."""
    connection.send(cluster.fetch_request(topic, 0), 18)
    assert connection.frame() is not None


@scenario("B02")
def batches_that_break_a_rule_are_refused_with_kafkas_codes(cluster: Cluster) -> None:
    topic = cluster.create("b02", 1, max_message_bytes=str(LARGE))
    compacted = cluster.create("b02-compacted", 1, cleanup_policy="compact")
    leader = cluster.leader(topic)
    good = batch(b"value")
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    late = batch(b"value", timestamp_ms=int(time.time() * 1000) + 2 * HOUR_MS)
    unknown = Topic("nowhere", Uuid(bytes([1] * 16)), topic.replicas)
    cases = {
        "a wrong CRC": (cluster.produce(leader, topic, flipped), Error.CORRUPT_MESSAGE),
        "a base offset": (cluster.produce(leader, topic, as_stored(good, 5, -1)), Error.INVALID_RECORD),
        "two batches": (cluster.produce(leader, topic, good + good), Error.INVALID_RECORD),
        "no batch": (cluster.produce(leader, topic, b""), Error.INVALID_RECORD),
        "too large": (cluster.produce(leader, topic, batch(b"v" * LARGE)), Error.MESSAGE_TOO_LARGE),
        "a time in the future": (cluster.produce(leader, topic, late), Error.INVALID_TIMESTAMP),
        "acks of 2": (cluster.produce(leader, topic, good, acks=2), Error.INVALID_REQUIRED_ACKS),
        "a producer without a sequence": (
            cluster.produce(leader, topic, batch(b"v", producer=(7, 0))),
            Error.INVALID_RECORD,
        ),
        "no key in a compacted topic": (
            cluster.produce(cluster.leader(compacted), compacted, good),
            Error.INVALID_RECORD,
        ),
        "an unknown id": (cluster.produce(leader, unknown, good), Error.UNKNOWN_TOPIC_ID),
        "an unknown name": (cluster.produce(leader, unknown, good, version=12), Error.UNKNOWN_TOPIC_OR_PARTITION),
        "zstd in version 6": (
            cluster.produce(leader, topic, batch(b"v", codec=Compression.ZSTD), version=6),
            Error.UNSUPPORTED_COMPRESSION_TYPE,
        ),
    }
    found = {what: (Error.of(answer.error_code), answer.base_offset) for what, (answer, _) in cases.items()}
    assert found == {what: (error, -1) for what, (_, error) in cases.items()}
    assert cluster.append(leader, topic, good) == 0


@scenario("B02")
def batches_that_lie_get_kafkas_codes(cluster: Cluster) -> None:
    topic = cluster.create("b02-lies", 1, message_timestamp_after_max_ms=str(2**63 - 1))
    leader = cluster.leader(topic)
    answers = {what: cluster.produce(leader, topic, data) for what, data in lies(int(time.time() * 1000)).items()}
    assert {what: Error.of(answer.error_code).name for what, answer in answers.items()} == CODES


@scenario("B03")
def the_settings_of_a_topic_change_codec_time_and_size_limits(cluster: Cluster) -> None:
    packed = cluster.create("b03-gzip", 2, compression_type="gzip", max_message_bytes=str(LARGE))
    plain = cluster.create("b03-plain", 2, compression_type="uncompressed")
    timed = cluster.create("b03-timed", 2, message_timestamp_type="LogAppendTime")
    values = (b"first" * 30, b"second" * 30)
    for topic, codec in ((packed, Compression.GZIP), (plain, Compression.NONE)):
        leader = cluster.leader(topic)
        for at, source in enumerate(Compression):
            assert cluster.append(leader, topic, batch(*values, codec=source)) == 2 * at
        stored = cluster.wait_for_equal_logs(topic, 2 * len(Compression))
        assert {one.compression for one in stored} == {codec}
        assert [one.value for each in stored for one in records(each)] == list(values) * len(Compression)
    # The limit holds for the batch as it is sent: this one would be small as it is stored.
    too_large = cluster.produce(cluster.leader(packed), packed, batch(b"v" * LARGE))
    assert too_large.error_code == Error.MESSAGE_TOO_LARGE
    before = int(time.time() * 1000)
    answer = cluster.produce(cluster.leader(timed), timed, batch(b"v", timestamp_ms=1000))
    assert answer.error_code == Error.NONE
    assert answer.log_append_time_ms >= before
    [stored_batch] = cluster.wait_for_equal_logs(timed, 1)
    assert stored_batch.is_log_append_time
    assert stored_batch.max_timestamp == answer.log_append_time_ms


@scenario("B01")
def a_batch_is_visible_only_when_all_replicas_have_it(cluster: Cluster) -> None:
    topic = cluster.create("b01-visible")
    leader = cluster.leader(topic)
    for number in range(20):
        assert cluster.append(leader, topic, batch(b"%d" % number)) == number
        assert cluster.watermark(leader, topic) == number + 1
    eventually(
        lambda: all(len(cluster.values(broker, topic)) == 20 for broker in topic.replicas),
        "a consumer reads all from each replica",
    )
