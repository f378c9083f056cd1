"""B01: acknowledgements, versions and codecs."""

from __future__ import annotations

from typing import Final

from metadata_log.compression import Compression
from support.interop.real_kafka import eventually
from support.scenarios.scenario_client import PRODUCE, Connection, as_stored, batch
from support.scenarios.scenario_cluster import Cluster, Topic
from support.scenarios.scenario_list import scenario
from transport.protocol.errors import Error

FIRST_WITH_ZSTD: Final = 7
VERSIONS: Final = range(3, PRODUCE + 1)
HOUR_MS: Final = 3_600_000


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
